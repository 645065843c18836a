"""Static quantization: tensors on grids, observers, and models that become quantized ones."""

import copy
import io
import pickle

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ao import quantization
from flambeau.ao.nn.quantized import FloatFunctional, QFunctional

VALUES = [-1.0, 0.0, 1.26, 3.0]


def quantized(dtype=fl.quint8):
    return fl.quantize_per_tensor(fl.tensor(VALUES), 0.1, 10, dtype)


def test_a_tensor_on_a_grid():
    x = quantized()
    assert x.dtype is fl.quint8 and x.is_quantized and x.qscheme() is fl.per_tensor_affine
    assert (x.q_scale(), x.q_zero_point()) == (0.1, 10) and x.shape == (4,)
    assert x.int_repr().tolist() == [0, 10, 23, 40] and x.int_repr().dtype == fl.uint8
    assert fl.allclose(x.dequantize(), fl.tensor([-1.0, 0.0, 1.3, 3.0]))
    assert "quantization_scheme=torch.per_tensor_affine" in repr(x)


def test_a_grid_for_each_channel():
    x = fl.quantize_per_channel(fl.arange(6.0).view(2, 3), fl.tensor([0.1, 0.2]), fl.tensor([0, 1]), 0, fl.qint8)
    assert x.q_per_channel_axis() == 0 and x.q_per_channel_zero_points().tolist() == [0, 1]
    assert x.int_repr().tolist() == [[0, 10, 20], [16, 21, 26]] and x[1].q_zero_point() == 1
    with pytest.raises(RuntimeError, match="one scale"):
        x.q_scale()


def test_values_beyond_the_grid_are_cut():
    assert fl.quantize_per_tensor(fl.tensor([-9.0, 99.0]), 0.1, 0, fl.qint8).int_repr().tolist() == [-90, 127]


@pytest.mark.parametrize(
    "function, wanted",
    [
        (fl.relu, [10, 10, 23, 40]),
        (lambda x: x.reshape(2, 2).flatten(), [0, 10, 23, 40]),
        (lambda x: x[1:], [10, 23, 40]),
        (lambda x: x.clamp(0, 1), [10, 10, 20, 20]),
        (lambda x: fl.cat([x, x])[:5], [0, 10, 23, 40, 0]),
        (lambda x: nn.functional.max_pool2d(x.view(1, 1, 2, 2), 2).flatten(), [40]),
        (lambda x: nn.functional.avg_pool1d(x.view(1, 1, 4), 2).flatten(), [5, 32]),
        (lambda x: x.sort(descending=True).values, [40, 23, 10, 0]),
        (copy.deepcopy, [0, 10, 23, 40]),
        (lambda x: pickle.loads(pickle.dumps(x)), [0, 10, 23, 40]),
    ],
)
def test_functions_of_quantized_tensors(function, wanted):
    made = function(quantized())
    assert made.is_quantized and made.int_repr().tolist() == wanted and made.q_scale() == 0.1


def test_what_is_not_defined_is_refused():
    x = quantized()
    for call in (lambda: x + x, lambda: x.sum(), lambda: nn.functional.layer_norm(x, (4,))):
        with pytest.raises(NotImplementedError, match="dequantize"):
            call()
    with pytest.raises(RuntimeError, match="float32"):
        fl.quantize_per_tensor(fl.ones(2).double(), 1.0, 0, fl.qint8)
    with pytest.raises(NotImplementedError, match="QuantStub"):
        quantization.convert(observed(nn.Linear(2, 2)))[1](fl.ones(1, 2))


@pytest.mark.parametrize(
    "make, scale, zero_point",
    [
        (quantization.MinMaxObserver, 4 / 255, 64),
        (lambda: quantization.MinMaxObserver(reduce_range=True), 4 / 127, 32),
        (lambda: quantization.MinMaxObserver(dtype=fl.qint8, qscheme=fl.per_tensor_symmetric), 3 / 127.5, 0),
        (lambda: quantization.MovingAverageMinMaxObserver(averaging_constant=0.5), 3.25 / 255, 59),
    ],
)
def test_observers_choose_a_grid(make, scale, zero_point):
    observer = make()
    for values in ([-0.5, 3.0], [-1.0, 2.0]):
        x = fl.tensor(values)
        assert observer(x) is x
    found = observer.calculate_qparams()
    assert abs(found[0].item() - scale) < 1e-6 and found[1].item() == zero_point


def test_observers_of_channels():
    observer = quantization.PerChannelMinMaxObserver(dtype=fl.qint8, qscheme=fl.per_channel_symmetric)
    observer(fl.tensor([[1.0, -2.0], [0.5, 0.25]]))
    scale, zero_point = observer.calculate_qparams()
    assert fl.allclose(scale, fl.tensor([2 / 127.5, 0.5 / 127.5])) and zero_point.tolist() == [0, 0]
    again = quantization.PerChannelMinMaxObserver()
    again.load_state_dict(observer.state_dict())
    assert again.min_val.tolist() == [-2.0, 0.25]


def test_a_histogram_cuts_off_what_is_rare():
    observer = quantization.HistogramObserver()
    bell = fl.linspace(-0.9999, 0.9999, 20001).erfinv()
    for factor in (1, 2):
        observer(bell * factor)
    spread = (observer.max_val - observer.min_val).item()
    assert abs(observer.histogram.sum().item() - 40002) < 1 and spread == 2 * (bell.max() - bell.min()).item()
    assert observer.calculate_qparams()[0].item() < 0.99 * spread / 255


def test_an_observer_that_saw_nothing_warns():
    with pytest.warns(UserWarning, match="must run observer"):
        scale, zero_point = quantization.MinMaxObserver().calculate_qparams()
    assert (scale.item(), zero_point.item()) == (1.0, 0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.sum, self.pool = FloatFunctional(), nn.AdaptiveAvgPool2d(2)
        self.first, self.act, self.last = nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3, bias=False)

    def forward(self, x):
        x = self.relu(self.norm(self.conv(self.quant(x))))
        x = self.pool(self.sum.add(x, x)).flatten(1)
        return self.dequant(self.last(self.act(self.first(x))))


def observed(*layers):
    """A model of the layers that has seen values between -1 and 1."""
    model = nn.Sequential(quantization.QuantStub(), *layers, quantization.DeQuantStub()).eval()
    model.qconfig = quantization.default_qconfig
    model = quantization.prepare(model)
    model(fl.linspace(-1, 1, 8 * layers[0].in_features).view(8, -1))
    return model


@pytest.mark.parametrize("backend", ["x86", "qnnpack"])
def test_a_model_is_quantized(backend):
    fl.manual_seed(0)
    model = Model().eval()
    model.qconfig = quantization.get_default_qconfig(backend)
    fused = quantization.fuse_modules(model, [["conv", "norm", "relu"], ["first", "act"]])
    x = fl.randn(16, 3, 8, 8)
    assert fl.allclose(fused(x), model(x), atol=1e-5) and isinstance(fused.norm, nn.Identity)
    prepared = quantization.prepare(fused)
    for part in x.split(4):
        prepared(part)
    small = quantization.convert(prepared)
    assert type(small.sum) is QFunctional and small.first.weight().dtype is fl.qint8
    assert not any(hasattr(module, "qconfig") for module in small.modules())
    wanted = model(x)
    assert (small(x) - wanted).abs().max() < 0.05 * wanted.abs().max()
    assert isinstance(fused.conv[0], nn.Conv2d)  # the originals are as they were

    file = io.BytesIO()
    fl.save(small.state_dict(), file)
    file.seek(0)
    other = quantization.convert(prepared)
    other.first.set_weight_bias(fl.quantize_per_tensor(fl.ones(16, 32), 0.1, 0, fl.qint8), other.first.bias())
    other.first.scale = 9.0
    other.load_state_dict(fl.load(file))
    assert fl.equal(other(x), small(x))


def test_parts_without_a_configuration_stay_as_they_are():
    model = nn.Sequential(nn.Linear(2, 2), quantization.QuantWrapper(nn.Linear(2, 2))).eval()
    model[1].qconfig = quantization.default_qconfig
    model = quantization.prepare(model)
    model(fl.ones(3, 2))
    made = quantization.convert(model)
    assert type(made[0]) is nn.Linear and "QuantizedLinear" in repr(made[1]) and made(fl.ones(3, 2)).shape == (3, 2)


def test_layers_that_are_computed_in_floating_point():
    layer = nn.Linear(4, 4)
    with fl.no_grad():
        layer.weight.copy_(fl.eye(4) + 0.25)
        layer.bias.zero_()
    model = observed(layer, nn.LeakyReLU(0.1), nn.Hardswish())
    x = fl.linspace(-1, 1, 32).view(8, 4)
    made = quantization.convert(model)
    assert (made(x) - model(x)).abs().max() < 0.1 and "QuantizedHardswish" in repr(made)


def test_mistakes():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    with pytest.raises(AssertionError, match="eval"):
        quantization.fuse_modules(model, [["0", "1"]])
    with pytest.raises(NotImplementedError, match="relu"):
        quantization.fuse_modules(nn.Sequential(nn.ReLU(), nn.ReLU()), ["0", "1"])
    with pytest.warns(UserWarning, match="qconfig"):
        quantization.prepare(nn.Linear(1, 1))
    with pytest.raises(AssertionError, match="qnnpack"):
        quantization.get_default_qconfig("other")


def test_quantize_does_it_all():
    model = nn.Sequential(quantization.QuantStub(), nn.Linear(2, 2), quantization.DeQuantStub())
    with fl.no_grad():
        model[1].weight.copy_(fl.tensor([[0.5, -0.25], [1.0, 0.75]]))
        model[1].bias.copy_(fl.tensor([0.1, -0.2]))
    model.qconfig = quantization.default_per_channel_qconfig
    x = fl.tensor([[0.5, -1.0], [2.0, 1.0]])
    made = quantization.quantize(model, lambda m, data: m(data), (x,))
    assert (made(x) - model(x)).abs().max() < 0.1


def test_hooks_of_the_user_run_behind_observers_and_stay():
    model = nn.Sequential(quantization.QuantStub(), nn.Linear(2, 2), quantization.DeQuantStub()).eval()
    model.qconfig = quantization.default_qconfig
    seen = []
    hook = lambda module, args, result: seen.append(result)  # noqa: E731
    model[1].register_forward_hook(hook)
    prepared = quantization.prepare(model)
    assert len(prepared[1]._forward_hooks) == 2 and list(prepared[1]._forward_hooks.values())[-1] is hook
    prepared(fl.randn(3, 2))
    assert list(quantization.convert(prepared)[1]._forward_hooks.values()) == [hook]


def test_synchronised_norms_keep_their_configuration():
    norm = nn.BatchNorm2d(2)
    norm.qconfig = quantization.default_qconfig
    assert nn.SyncBatchNorm.convert_sync_batchnorm(norm).qconfig is quantization.default_qconfig
