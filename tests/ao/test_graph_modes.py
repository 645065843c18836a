"""Quantization of graphs: traced models (FX) and exported programs (PT2E), over the same passes."""

import operator

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao import quantization
from flambeau.ao.nn import intrinsic, quantized
from flambeau.ao.nn.intrinsic import quantized as intrinsic_quantized
from flambeau.ao.quantization.backend_config import (
    BackendConfig,
    BackendPatternConfig,
    DTypeConfig,
    ObservationType,
    get_native_backend_config,
)
from flambeau.ao.quantization.fx.custom_config import PrepareCustomConfig
from flambeau.ao.quantization.quantize_fx import (
    _convert_to_reference_decomposed_fx,
    convert_fx,
    convert_to_reference_fx,
    fuse_fx,
    prepare_fx,
    prepare_qat_fx,
)
from flambeau.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from flambeau.ao.quantization.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)
from flambeau.ao.quantization.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)
from flambeau.ao.quantization.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

MAPPING = quantization.get_default_qconfig_mapping


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.pool, self.last = nn.AdaptiveAvgPool2d(2), nn.Sequential(nn.Linear(32, 6), nn.Sigmoid())

    def forward(self, x):
        x = self.relu(self.norm(self.first(x)))
        x = fl.relu(self.norm2(self.second(x)) + x)
        return self.last(self.pool(fl.nn.functional.max_pool2d(x, 2)).flatten(1))


def network():
    fl.manual_seed(0)
    model = Network()
    for norm in (model.norm, model.norm2):
        norm.running_mean.normal_(std=0.1)
        norm.running_var.uniform_(0.5, 2.0)
    return model.eval()


X = fl.randn(4, 3, 8, 8, generator=fl.Generator().manual_seed(1))


def prepared(mapping=None, **options):
    model = network()
    ready = prepare_fx(model, MAPPING("x86") if mapping is None else mapping, (X,), **options)
    ready(X)
    return model, ready


def near(found, wanted, share=0.05):
    return (found - wanted).abs().max() <= share * wanted.abs().max()


def test_a_traced_model_gets_quantized_layers():
    model, ready = prepared()
    small = convert_fx(ready)
    assert type(small.first) is intrinsic_quantized.ConvReLU2d and type(small.second) is quantized.Conv2d
    assert (
        type(small.last[0] if hasattr(small.last, "__getitem__") else small.get_submodule("last.0")) is quantized.Linear
    )
    targets = [node.target for node in small.graph.nodes if node.op == "call_function"]
    assert quantized.functional.add_relu in targets and operator.add not in targets
    assert near(small(X), model(X)) and isinstance(model.first, nn.Conv2d)
    assert not any(hasattr(part, "qconfig") for part in small.modules())


def test_the_reference_forms_compute_the_same():
    _, ready = prepared()
    small, reference, decomposed = (
        convert_fx(ready),
        convert_to_reference_fx(ready),
        _convert_to_reference_decomposed_fx(ready),
    )
    step = 1.01 / 256
    assert (small(X) - reference(X)).abs().max() <= step and (small(X) - decomposed(X)).abs().max() <= step


def test_parts_are_configured_by_name_class_and_place():
    config = quantization.get_default_qconfig("x86")
    by_name = quantization.QConfigMapping().set_global(config).set_module_name("second", None)
    small = convert_fx(prepared(by_name)[1])
    assert type(small.second) is nn.Conv2d and type(small.first) is intrinsic_quantized.ConvReLU2d
    by_class = quantization.QConfigMapping().set_object_type(nn.Linear, config)
    assert type(convert_fx(prepared(by_class)[1]).get_submodule("last.0")) is quantized.Linear
    by_pattern = quantization.QConfigMapping().set_module_name_regex("fi.*", config)
    small = convert_fx(prepared(by_pattern)[1])
    assert type(small.first) is intrinsic_quantized.ConvReLU2d and type(small.second) is nn.Conv2d
    again = quantization.QConfigMapping.from_dict(by_name.to_dict())
    assert again.to_dict() == by_name.to_dict()


def test_dynamic_layers_in_a_graph():
    mapping = quantization.QConfigMapping().set_object_type(nn.Linear, quantization.default_dynamic_qconfig)
    model, ready = prepared(mapping)
    small = convert_fx(ready)
    assert type(small.get_submodule("last.0")) is quantized.dynamic.Linear and near(small(X), model(X))


def test_functions_of_layers():
    class Functions(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = nn.Parameter(fl.randn(5, 8) / 4), nn.Parameter(fl.randn(5))

        def forward(self, x):
            return nn.functional.linear(x, self.w, self.b)

    model, x = Functions().eval(), fl.randn(6, 8)
    ready = prepare_fx(model, MAPPING("x86"), (x,))
    ready(x)
    small = convert_fx(ready)
    assert type(small.linear_layer) is quantized.Linear and near(small(x), model(x))


def test_training_a_traced_model():
    model = network().train()
    ready = prepare_qat_fx(model, quantization.get_default_qat_qconfig_mapping("x86"), (X,))
    assert type(ready.first) is intrinsic.qat.ConvBnReLU2d
    optimizer = fl.optim.SGD(ready.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        loss = (ready(X) - 0.9).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    ready.eval()
    wanted = ready(X).detach()
    small = convert_fx(ready)
    assert type(small.first) is intrinsic_quantized.ConvReLU2d and near(small(X), wanted)
    with pytest.raises(AssertionError, match="training mode"):
        prepare_qat_fx(network(), MAPPING("x86"), (X,))


def test_fusion_alone():
    model = network()
    fused = fuse_fx(model)
    assert type(fused.first) is intrinsic.ConvReLU2d and fl.allclose(fused(X), model(X), atol=1e-5)


def test_a_backend_of_the_user():
    layers = BackendPatternConfig(nn.Linear).set_observation_type(
        ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
    )
    layers.add_dtype_config(DTypeConfig(fl.quint8, fl.quint8, fl.qint8, fl.float32))
    backend = BackendConfig("mine").set_backend_pattern_config(layers)
    small = convert_fx(prepared(backend_config=backend)[1])
    assert type(small.get_submodule("last.0")) is quantized.Linear and type(small.first) is nn.Conv2d
    assert BackendConfig.from_dict(backend.to_dict()).to_dict() == backend.to_dict()
    assert get_native_backend_config().find(nn.Linear).qat_module.__name__ == "Linear"


def test_custom_rules():
    custom = PrepareCustomConfig().set_non_traceable_module_names(["last"]).set_output_quantized_indexes([0])
    ready = prepare_fx(network(), MAPPING("x86"), (X,), prepare_custom_config=custom)
    assert any(node.target == "last" for node in ready.graph.nodes)
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    ready = prepare_fx(
        model,
        MAPPING("x86"),
        (fl.ones(1, 4),),
        prepare_custom_config=PrepareCustomConfig().set_output_quantized_indexes([0]),
    )
    ready(fl.randn(5, 4))
    assert convert_fx(ready)(fl.ones(1, 4)).is_quantized


# ---------------------------------------------------------------------------------------------- exported programs


def x86(**options):
    return X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(**options))


def exported(quantizer, model=None):
    ready = prepare_pt2e(fl.export.export(model or network(), (X,)).module(), quantizer)
    ready(X)
    return convert_pt2e(ready)


def names(model):
    return [getattr(node.target, "_full_name", "") for node in model.graph.nodes]


@pytest.mark.parametrize("make", [x86, lambda: XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True))])
def test_an_exported_program_is_quantized(make):
    wanted = network()(X)
    small = exported(make())
    assert near(small(X), wanted)
    found = names(small)
    assert "batch_norm" not in found and found.count("quantized_decomposed::dequantize_per_channel") == 3
    assert all(value.dtype == fl.int8 for name, value in small.named_buffers() if name.startswith("_frozen_param"))
    again = fl.export.export(small, (X,))
    assert fl.equal(again.module()(X), small(X))


def test_dynamic_quantization_of_a_program():
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    x = fl.randn(3, 16)
    ready = prepare_pt2e(fl.export.export(model, (x,)).module(), x86(is_dynamic=True))
    small = convert_pt2e(ready)
    assert "quantized_decomposed::choose_qparams.tensor" in names(small) and near(small(x), model(x))


def test_training_a_program():
    ready = prepare_qat_pt2e(fl.export.export(network().train(), (X,)).module(), x86(is_qat=True))
    optimizer = fl.optim.SGD(ready.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        loss = (ready(X) - 0.9).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    ready.eval()
    wanted = ready(X).detach()
    small = convert_pt2e(ready)
    assert "batch_norm" not in names(small) and "add_.Tensor" not in names(small) and near(small(X), wanted)


def test_parts_of_a_program_are_configured_by_name():
    quantizer = x86().set_module_name("second", None)
    assert names(exported(quantizer)).count("quantized_decomposed::dequantize_per_channel") == 2


def test_a_quantizer_of_the_user():
    spec = QuantizationSpec(fl.int8, quantization.MinMaxObserver, -128, 127, fl.per_tensor_affine)

    class OnlyProducts(Quantizer):
        def annotate(self, model):
            for node in model.graph.nodes:
                if getattr(node.target, "_full_name", "") == "linear":
                    x, weight = node.args[:2]
                    shared = SharedQuantizationSpec((x, node))
                    node.meta["quantization_annotation"] = QuantizationAnnotation({x: spec, weight: shared}, spec)
            return model

        def validate(self, model):
            pass

    small = exported(OnlyProducts())
    found = names(small)
    assert found.count("quantized_decomposed::dequantize_per_tensor") == 3 and near(small(X), network()(X), 0.1)


def test_places_that_share_a_grid_share_an_observer():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 2)

        def forward(self, x):
            return self.c(fl.cat([self.a(x), self.b(x)], 1))

    x = fl.randn(3, 4)
    model = Joined().eval()
    ready = prepare_pt2e(fl.export.export(model, (x,)).module(), x86())
    ready(x)
    small = convert_pt2e(ready)
    joined = next(node for node in small.graph.nodes if getattr(node.target, "_full_name", "") == "cat")
    grids = {part.args[1:3] for part in joined.args[0]} | {next(iter(joined.users)).args[1:3]}
    assert len(grids) == 1 and near(small(x), model(x))


class _Residuals(nn.Module):
    """Many sums of a value and a layer of it: paths through them double with each."""

    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def test_deep_residual_networks_are_converted_in_time_that_grows_with_their_depth():
    model, x = _Residuals(40).eval(), fl.randn(2, 4) * 1e-3
    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(fl.export.export(model, (x,)).module(), quantizer)
    prepared(x)
    assert convert_pt2e(prepared)(x).shape == (2, 4)
    traced = prepare_fx(model, quantization.get_default_qconfig_mapping("x86"), (x,))
    traced(x)
    assert convert_fx(traced)(x).shape == (2, 4)


@pytest.mark.parametrize(
    "reshape",
    [
        lambda x: x.view(x.shape[0], 1, 4, 8),
        lambda x: x.reshape(x.size(0) * 2, -1),
        lambda x: x.reshape((x.ndim - 1) * x.shape[0], -1),
        lambda x: x.view(x.shape),
        lambda x: fl.relu(x).reshape(x.shape[1], -x.dim() + 7),
        lambda x: x * x.shape[1],
    ],
)
def test_sizes_are_not_observed(reshape):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(16, 32)

        def forward(self, x):
            return reshape(self.fc(x))

    model, x = Model().eval(), fl.randn(5, 16)
    mapping = quantization.get_default_qconfig_mapping("x86")
    prepared = prepare_fx(model, mapping, (x,))
    prepared(x)
    result, wanted = convert_fx(prepared)(x), model(x)
    assert result.shape == wanted.shape and (result - wanted).abs().max() < 0.03 * wanted.abs().max() + 0.05
