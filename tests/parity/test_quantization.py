"""Rounding to the grid of quantized tensors, and its gradient, are PyTorch's."""

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

VALUES = np.random.RandomState(0).standard_normal((3, 4)).astype(np.float32)


def compare(name, *args):
    results = []
    for lib in (torch, fl):
        x = lib.tensor(VALUES, requires_grad=True)
        made = getattr(lib, name)(x, *[lib.tensor(a) if isinstance(a, np.ndarray) else a for a in args])
        made.sum().backward()
        results.append((made.detach().numpy(), x.grad.numpy()))
    for want, got in zip(*results):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("scale, zero_point", [(0.1, 0), (0.01, 5), (np.float32(0.03), np.array(2, dtype=np.int32))])
def test_one_grid(scale, zero_point):
    scale = np.array(scale, dtype=np.float32) if isinstance(zero_point, np.ndarray) else scale
    compare("fake_quantize_per_tensor_affine", scale, zero_point, -128, 127)


def test_a_grid_for_each_channel():
    scale = np.array([0.01, 0.1, 0.02, 0.5], dtype=np.float32)
    compare("fake_quantize_per_channel_affine", scale, np.array([0, 1, 2, 3], dtype=np.int32), 1, 0, 15)


@pytest.mark.parametrize("rows", [False, True])
def test_products_of_scaled_matrices(rows):
    rng = np.random.RandomState(1)
    a, b = rng.standard_normal((4, 32)).astype(np.float32), rng.standard_normal((16, 32)).astype(np.float32)
    scales = [np.array(2.0, dtype=np.float32), np.array(0.5, dtype=np.float32)]
    if rows:
        scales = [rng.uniform(0.5, 1, shape).astype(np.float32) for shape in ((4, 1), (1, 16))]
    results = []
    for lib in (torch, fl):
        functional = lib.nn.functional
        recipe = functional.ScalingType.RowWise if rows else functional.ScalingType.TensorWise
        left, right = (lib.tensor(m).to(lib.float8_e4m3fn) for m in (a, b))
        made = functional.scaled_mm(left, right.t(), lib.tensor(scales[0]), recipe, lib.tensor(scales[1]), recipe)
        assert made.dtype == lib.bfloat16
        results.append(made.float().numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-2, atol=1e-2)


def layers(lib):
    nn = lib.nn
    return nn.ModuleDict(
        {
            "linear": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3, bias=False)),
            "lstm": nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True),
            "gru": nn.GRU(4, 6),
            "conv": nn.Conv1d(1, 1, 1),
        }
    ).eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["qint8", "float16"])
def test_dynamic_quantization(dtype):
    if "x86" not in torch.backends.quantized.supported_engines or torch.backends.quantized.engine != "x86":
        pytest.skip("PyTorch quantizes otherwise on this processor")
    torch.manual_seed(0)
    reference = layers(torch)
    state = {k: v.numpy() for k, v in reference.state_dict().items()}
    x = np.random.RandomState(1).standard_normal((6, 3, 4)).astype("float32")
    found = []
    for lib in (torch, fl):
        model = layers(lib)
        model.load_state_dict({k: lib.tensor(v) for k, v in state.items()})
        small = lib.ao.quantization.quantize_dynamic(model, dtype=getattr(lib, dtype))
        with lib.no_grad():
            out, (h, c) = small["lstm"](lib.tensor(x))
            results = [small["linear"](lib.tensor(x)), out, h, c, *small["gru"](lib.tensor(x))]
        found.append((repr(small), [r.numpy() for r in results]))
    assert found[0][0] == found[1][0]
    # States go through the grid again at each step: one that lies between two points may take the other one.
    for i, (want, got) in enumerate(zip(found[0][1], found[1][1])):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=5e-3 if i else 1e-5)


def small_model(lib, quantization):
    nn = lib.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
            self.conv, self.norm, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
            self.second, self.pool = nn.Conv2d(8, 8, 3, stride=2, groups=2, bias=False), nn.AdaptiveAvgPool2d(2)
            self.first, self.act, self.norms = nn.Linear(32, 16), nn.ReLU(), nn.LayerNorm(16)
            self.last = nn.Linear(16, 5)
            self.sum, self.join = lib.ao.nn.quantized.FloatFunctional(), lib.ao.nn.quantized.FloatFunctional()

        def forward(self, x):
            x = self.relu(self.norm(self.conv(self.quant(x))))
            x = nn.functional.max_pool2d(self.second(self.sum.add(x, x)), 2)
            x = self.norms(self.act(self.first(self.pool(x).flatten(1))))
            return self.dequant(self.last(self.join.cat([x, x], 1)[:, :16]))

    return Model().eval()


CONFIGURATIONS = {
    "x86": lambda q, lib: q.get_default_qconfig("x86"),
    "qnnpack": lambda q, lib: q.get_default_qconfig("qnnpack"),
    "minmax": lambda q, lib: q.default_qconfig,
    "channels": lambda q, lib: q.default_per_channel_qconfig,
    "moving": lambda q, lib: q.QConfig(
        q.MovingAverageMinMaxObserver.with_args(dtype=lib.quint8), q.default_weight_observer
    ),
}


# On processors without instructions for such products, PyTorch's kernels for x86 cut sums short, unless observers leave
# out half of the range.
ENGINES = {"qnnpack": "qnnpack", "moving": "qnnpack"}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_static_quantization_of_a_model(name, monkeypatch):
    import flambeau.ao.quantization as ours

    theirs = pytest.importorskip("torch.ao.quantization")
    engine = ENGINES.get(name, "x86")
    if engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"PyTorch has no kernels of {engine} here")
    monkeypatch.setattr(torch.backends.quantized, "engine", engine)

    rng = np.random.RandomState(2)
    batches = [rng.standard_normal((4, 3, 16, 16)).astype(np.float32) for _ in range(3)]
    torch.manual_seed(0)
    original = small_model(torch, theirs)
    state, made = original.state_dict(), []
    for lib, quantization in ((torch, theirs), (fl, ours)):
        model = small_model(lib, quantization)
        model.load_state_dict({key: lib.tensor(value.numpy().copy()) for key, value in state.items()})
        model = quantization.fuse_modules(model, [["conv", "norm", "relu"], ["first", "act"]])
        model.qconfig = CONFIGURATIONS[name](quantization, lib)
        model = quantization.prepare(model)
        for batch in batches:
            model(lib.from_numpy(batch))
        made.append(quantization.convert(model))
    for part in ("conv", "second", "first", "last", "sum", "join"):
        ours_part, theirs_part = getattr(made[1], part), getattr(made[0], part)
        np.testing.assert_allclose(ours_part.scale, theirs_part.scale, rtol=1e-3)
        assert abs(ours_part.zero_point - theirs_part.zero_point) <= 1
    for part in ("conv", "first", "last"):
        weights = [getattr(m, part).weight().int_repr().numpy().astype(int) for m in made]
        assert np.abs(weights[0] - weights[1]).max() <= 1
    results = [m(lib.from_numpy(batches[0])).detach().numpy() for m, lib in zip(made, (torch, fl))]
    assert np.abs(results[0] - results[1]).max() <= 3 * made[0].last.scale


QUANTIZED_CALLS = [
    lambda lib, x: lib.relu(x),
    lambda lib, x: x.reshape(2, 2).t().flatten(),
    lambda lib, x: x.mean(),
    lambda lib, x: x.max(),
    lambda lib, x: lib.sigmoid(x),
    lambda lib, x: lib.tanh(x),
    lambda lib, x: lib.nn.functional.leaky_relu(x, 0.1),
    lambda lib, x: lib.nn.functional.relu6(x),
    lambda lib, x: lib.nn.functional.avg_pool1d(x.reshape(1, 1, 4), 2),
    lambda lib, x: lib.nn.functional.interpolate(x.reshape(1, 1, 2, 2), scale_factor=2),
    lambda lib, x: lib.cat([x, x]),
    lambda lib, x: x.topk(2).values,
]


@pytest.mark.parametrize("position", range(len(QUANTIZED_CALLS)))
@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
def test_functions_of_quantized_tensors(position, dtype):
    if "x86" not in torch.backends.quantized.supported_engines:
        pytest.skip("PyTorch has no kernels for x86 here")
    found = []
    for lib in (torch, fl):
        x = lib.quantize_per_tensor(lib.tensor([-1.0, 0.0, 1.26, 3.0]), 0.1, 10, getattr(lib, dtype))
        made = QUANTIZED_CALLS[position](lib, x)
        found.append((made.int_repr().tolist(), made.q_scale(), made.q_zero_point(), repr(made)))
    assert found[0] == found[1]


@pytest.mark.parametrize("bits", [2, 4])
def test_chosen_ranges_agree(bits):
    for seed in range(8):
        torch.manual_seed(seed)
        x = torch.randn(64)
        theirs = torch.choose_qparams_optimized(x, 64, 200, 0.16, bits)
        ours = fl.choose_qparams_optimized(fl.from_numpy(x.numpy()), 64, 200, 0.16, bits)
        assert all(abs(a.item() - b.item()) < 1e-5 for a, b in zip(theirs, ours, strict=True))
