"""Whole flows of quantization as users write them, beside PyTorch's: eager, traced, with training, dynamic, from parts."""

import importlib
import io

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization")
pytestmark = pytest.mark.filterwarnings("ignore")

IMAGE, ROW = (2, 3, 8, 8), (6, 4)


class Library:
    """One of the two libraries: its modules for quantization, tensors and parameters that are the same in both."""

    def __init__(self, lib):
        load = lambda name: importlib.import_module(f"{lib.__name__}.ao.{name}")  # noqa: E731
        self.lib, self.nn, self.functional = lib, lib.nn, lib.nn.functional
        self.quantization, self.traced = load("quantization"), load("quantization.quantize_fx")
        self.observers, self.fakes = load("quantization.observer"), load("quantization.fake_quantize")
        self.backend, self.custom = load("quantization.backend_config"), load("quantization.fx.custom_config")
        self.modules = {
            name: load(f"nn.{name}") for name in ("qat", "quantized", "quantized.reference", "intrinsic.qat")
        }

    def tensor(self, shape, seed=0):
        return self.lib.from_numpy(np.random.RandomState(seed).standard_normal(shape).astype(np.float32))

    def examples(self, shape, count=3):
        return [self.tensor(shape, seed) for seed in range(count)]

    def filled(self, model):
        random, state = np.random.RandomState(1), {}
        for name, value in model.state_dict().items():
            if value.dtype == self.lib.float32:
                filling = random.standard_normal(tuple(value.shape)) * 0.2
                filling = np.abs(filling + 1) if "running_var" in name else filling
                value = self.lib.from_numpy(filling.astype(np.float32))
            state[name] = value
        model.load_state_dict(state)
        return model

    def network(self):
        """A convolutional network with stubs, for the eager flows."""
        nn, quantization, functional = self.nn, self.quantization, self.modules["quantized"].FloatFunctional

        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.into, self.out = quantization.QuantStub(), quantization.DeQuantStub()
                self.stem, self.norm, self.relu = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU()
                self.conv, self.conv_norm, self.sum = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), functional()
                self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

            def forward(self, x):
                x = self.relu(self.norm(self.stem(self.into(x))))
                x = self.sum.add_relu(self.conv_norm(self.conv(x)), x)
                return self.out(self.fc(self.pool(x).flatten(1)))

        return self.filled(Network())

    def functions(self):
        """A network of layers and functions, for the traced flows."""
        nn, functional = self.nn, self.functional

        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.norm, self.other = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)
                self.fc, self.layer_norm, self.elu = nn.Linear(8, 6), nn.LayerNorm(6), nn.ELU()

            def forward(self, x):
                x = functional.relu(self.norm(self.conv(x)))
                x = functional.max_pool2d(functional.hardswish(x + self.other(x)), 2).mean([2, 3])
                x = self.fc(x).reshape(-1, 2, 3).transpose(1, 2).flatten(1)
                return self.elu(self.layer_norm(x)), functional.softmax(x, -1)

        return self.filled(Network())

    def layers(self, *layers):
        return self.filled(self.nn.Sequential(*layers))


FUSED = [["stem", "norm", "relu"], ["conv", "conv_norm"]]
OURS, THEIRS = Library(fl), Library(torch)


def eager_static(of):
    quantization = of.quantization
    model = quantization.fuse_modules(of.network().eval(), FUSED)
    model.qconfig = quantization.get_default_qconfig("x86")
    prepared = quantization.prepare(model)
    for x in of.examples(IMAGE):
        prepared(x)
    return quantization.convert(prepared)(of.tensor(IMAGE, 9))


def eager_training(of):
    quantization, qat = of.quantization, of.modules["intrinsic.qat"]
    model = quantization.fuse_modules_qat(of.network().train(), FUSED)
    model.qconfig = quantization.get_default_qat_qconfig("x86")
    prepared = quantization.prepare_qat(model)
    optimizer = of.lib.optim.SGD(prepared.parameters(), lr=0.01)
    for i, x in enumerate(of.examples((4, 3, 16, 16), 4)):
        loss = (prepared(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i == 2:
            prepared.apply(quantization.disable_observer)
            prepared.apply(qat.freeze_bn_stats)
    return loss, quantization.convert(prepared.eval())(of.tensor((2, 3, 16, 16), 9))


def saved_and_loaded(of):
    def prepared():
        model = of.quantization.fuse_modules(of.network().eval(), FUSED)
        model.qconfig = of.quantization.get_default_qconfig("x86")
        return of.quantization.prepare(model)

    first, file = prepared(), io.BytesIO()
    for x in of.examples(IMAGE):
        first(x)
    of.lib.save(of.quantization.convert(first).state_dict(), file)
    file.seek(0)
    second = of.quantization.convert(prepared())
    second.load_state_dict(of.lib.load(file, weights_only=False))
    return second(of.tensor(IMAGE, 9))


def by_function(of):
    model = of.quantization.QuantWrapper(of.layers(of.nn.Linear(4, 5), of.nn.ReLU())).eval()
    model.qconfig = of.quantization.default_qconfig
    run = lambda model, examples: [model(x) for x in examples]  # noqa: E731
    return of.quantization.quantize(model, run, [of.examples(ROW)])(of.tensor(ROW, 5))


def own_qconfig(of):
    observers, lib = of.observers, of.lib
    model = of.layers(
        of.quantization.QuantStub(), of.nn.Conv1d(3, 4, 2), of.nn.Hardswish(), of.nn.GroupNorm(2, 4), of.quantization.DeQuantStub()
    ).eval()  # fmt: skip
    model.qconfig = of.quantization.QConfig(
        activation=observers.MinMaxObserver.with_args(dtype=lib.quint8, reduce_range=True),
        weight=observers.PerChannelMinMaxObserver.with_args(dtype=lib.qint8, qscheme=lib.per_channel_symmetric),
    )
    prepared = of.quantization.prepare(model)
    for x in of.examples((2, 3, 9)):
        prepared(x)
    return of.quantization.convert(prepared)(of.tensor((2, 3, 9), 7))


def dynamic(of, dtype="qint8"):
    nn = of.nn
    model = of.filled(nn.ModuleDict({
        "lstm": nn.LSTM(5, 6, 2, bidirectional=True), "gru": nn.GRU(5, 6), "cell": nn.LSTMCell(5, 6),
        "layers": nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)),
    })).eval()  # fmt: skip
    small, x = of.quantization.quantize_dynamic(model, dtype=getattr(of.lib, dtype)), of.tensor((4, 2, 5))
    return small["lstm"](x)[0], small["gru"](x)[0], small["cell"](x[0])[0], small["layers"](x)


def dynamic_halves(of):
    return dynamic(of, "float16")


def tables(of):
    results = []
    for name in ("float_qparams_weight_only_qconfig", "float_qparams_weight_only_qconfig_4bit"):
        model = of.layers(of.nn.EmbeddingBag(12, 8, mode="sum")).eval()
        model.qconfig = getattr(of.quantization, name)
        small = of.quantization.convert(of.quantization.prepare(model))
        results.append(small(of.lib.arange(6).reshape(2, 3)))
    return results


def run_traced(of, model, mapping, shape, converted=None, **options):
    prepared = of.traced.prepare_fx(model, mapping, (of.tensor(shape),), **options)
    for x in of.examples(shape):
        prepared(x)
    return (converted or of.traced.convert_fx)(prepared)


def traced_static(of):
    mapping = of.quantization.get_default_qconfig_mapping("x86")
    return run_traced(of, of.functions().eval(), mapping, IMAGE)(of.tensor(IMAGE, 9))


def traced_reference(of):
    mapping = of.quantization.get_default_qconfig_mapping("x86")
    model = run_traced(of, of.functions().eval(), mapping, IMAGE, of.traced.convert_to_reference_fx)
    return model(of.tensor(IMAGE, 9))


def traced_by_names(of):
    quantization = of.quantization
    mapping = quantization.QConfigMapping().set_global(quantization.default_qconfig)
    mapping.set_object_type(of.nn.LayerNorm, None).set_module_name("other", None).set_object_type(
        of.functional.softmax, None
    )
    mapping.set_module_name_regex("f.*", quantization.default_per_channel_qconfig)
    return run_traced(of, of.functions().eval(), mapping, IMAGE)(of.tensor(IMAGE, 9))


def traced_training(of):
    mapping = of.quantization.get_default_qat_qconfig_mapping("x86")
    prepared = of.traced.prepare_qat_fx(of.functions().train(), mapping, (of.tensor(IMAGE),))
    optimizer = of.lib.optim.SGD(prepared.parameters(), lr=0.01)
    for x in of.examples((4, *IMAGE[1:])):
        loss = sum((y**2).mean() for y in prepared(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss, *of.traced.convert_fx(prepared.eval())(of.tensor(IMAGE, 9))


def traced_backend(of):
    backend, lib, linear = of.backend, of.lib, of.nn.Linear
    dtypes = backend.DTypeConfig(
        input_dtype=lib.quint8, output_dtype=lib.quint8, weight_dtype=lib.qint8, bias_dtype=lib.float
    )
    pattern = backend.BackendPatternConfig(linear).add_dtype_config(dtypes).set_root_module(linear)
    pattern.set_observation_type(backend.ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT)
    pattern.set_reference_quantized_module(of.modules["quantized.reference"].Linear)
    config = backend.BackendConfig("own").set_backend_pattern_config(pattern)
    assert "reference_quantized_module_for_root" in pattern.to_dict()
    mapping = of.quantization.get_default_qconfig_mapping("x86")
    model = of.layers(linear(4, 5), of.nn.ReLU(), linear(5, 3)).eval()
    convert = lambda prepared: of.traced.convert_fx(prepared, backend_config=config)  # noqa: E731
    return run_traced(of, model, mapping, ROW, convert, backend_config=config)(of.tensor(ROW, 7))


def traced_on_quantized_inputs(of):
    custom = of.custom.PrepareCustomConfig().set_input_quantized_indexes([0]).set_output_quantized_indexes([0])
    mapping = of.quantization.get_default_qconfig_mapping("x86")
    model = of.layers(of.nn.Linear(4, 5), of.nn.ReLU()).eval()
    small = run_traced(of, model, mapping, ROW, prepare_custom_config=custom)
    result = small(of.lib.quantize_per_tensor(of.tensor(ROW, 7), 0.03, 120, of.lib.quint8))
    assert result.is_quantized
    return result.dequantize()


def traced_around_control_flow(of):
    nn = of.nn

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 5)

        def forward(self, x):
            return self.fc(x) if x.sum() > 0 else self.fc(-x)

    custom = of.custom.PrepareCustomConfig().set_non_traceable_module_classes([Branches])
    mapping = of.quantization.get_default_qconfig_mapping("x86")
    model = of.layers(nn.Linear(4, 5), Branches(), nn.Linear(5, 2)).eval()
    return run_traced(of, model, mapping, ROW, prepare_custom_config=custom)(of.tensor(ROW, 7))


def observed_grids(of):
    lib, observers, results = of.lib, of.observers, []
    whole = [
        {"dtype": lib.quint8}, {"dtype": lib.qint8, "qscheme": lib.per_tensor_symmetric},
        {"dtype": lib.quint8, "reduce_range": True}, {"dtype": lib.quint8, "quant_min": 0, "quant_max": 100},
    ]  # fmt: skip
    channels = [
        {"ch_axis": 0}, {"ch_axis": 1, "dtype": lib.qint8, "qscheme": lib.per_channel_symmetric},
        {"ch_axis": 0, "dtype": lib.quint8, "qscheme": lib.per_channel_affine_float_qparams},
    ]  # fmt: skip
    kinds = [(name, whole) for name in ("MinMaxObserver", "MovingAverageMinMaxObserver", "HistogramObserver")]
    kinds += [(name, channels) for name in ("PerChannelMinMaxObserver", "MovingAveragePerChannelMinMaxObserver")]
    for name, settings in kinds:
        for options in settings:
            observer = getattr(observers, name)(**options)
            for i, x in enumerate(of.examples((4, 8))):
                observer(x * (i + 1))
            results += [value.float() for value in observer.calculate_qparams()]
    return results


FLOWS = [
    eager_static, eager_training, saved_and_loaded, by_function, own_qconfig, dynamic, dynamic_halves, tables, traced_static,
    traced_reference, traced_by_names, traced_training, traced_backend, traced_on_quantized_inputs,
    traced_around_control_flow, observed_grids,
]  # fmt: skip


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_flows(flow):
    results = []
    for of in (THEIRS, OURS):
        result = flow(of)
        results.append([r.detach().numpy() for r in (result if isinstance(result, (tuple, list)) else [result])])
    for want, have in zip(*results, strict=True):
        assert want.shape == have.shape
        assert np.abs(want - have).max() <= 0.03 * np.abs(want).max() + 1e-6
