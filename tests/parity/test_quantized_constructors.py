"""Every quantized module by its constructor, with weights per tensor and per channel, beside PyTorch's.

Results are within one step of the grid, for empty batches too; checkpoints go both ways; copies, pickles and scripts compute
the same; modules print the same.
"""

import copy
import importlib
import io
from typing import NamedTuple

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization")
pytestmark = pytest.mark.filterwarnings("ignore")

STATIC, FUSED, DYNAMIC, REFERENCE = "quantized", "intrinsic.quantized", "quantized.dynamic", "quantized.reference"


class Case(NamedTuple):
    package: str
    name: str
    args: tuple = ()
    options: dict = {}  # noqa: RUF012
    inputs: tuple = ()
    weight: tuple | None = None  # the shape of its weight, and the dimension with a scale for each index, or None


SETTINGS = [
    {}, {"stride": 2, "padding": 1}, {"groups": 2, "bias": False}, {"groups": 4, "padding": 1},
    {"padding_mode": "reflect", "padding": 1},
]  # fmt: skip


def convolutions(package, name, dims):
    sizes = {1: (9,), 2: (9, 7), 3: (5, 6, 4)}[dims]
    shapes = (2, 4, *sizes), (0, 4, *sizes)
    for axis in (None, 0):
        for options in SETTINGS if axis == 0 else SETTINGS[:1]:
            if "padding_mode" in options and dims == 3:
                continue
            weight = (8, 4 // options.get("groups", 1), *[3] * dims)
            yield Case(package, name, (4, 8, 3), options, shapes, (weight, axis))


CASES = [
    *(Case(STATIC, "Linear", (5, 7), {"bias_": bias}, ((3, 5), (1, 5), (0, 5), (2, 3, 5)), ((7, 5), axis))
      for bias in (True, False) for axis in (None, 0)),
    Case(STATIC, "Linear", (33, 65), {}, ((17, 33),), ((65, 33), 0)),
    Case(STATIC, "Linear", (1, 1), {}, ((4, 1),), ((1, 1), None)),
    *(Case(FUSED, "LinearReLU", (5, 7), {"bias": bias}, ((3, 5), (0, 5)), ((7, 5), 0)) for bias in (True, False)),
    *(Case(DYNAMIC, "Linear", (5, 7), {"bias_": bias}, ((3, 5), (0, 5), (2, 3, 5)), ((7, 5), axis))
      for bias in (True, False) for axis in (None, 0)),
    Case("intrinsic.quantized.dynamic", "LinearReLU", (5, 7), {}, ((3, 5), (0, 5)), ((7, 5), 0)),
    *(case for n in (1, 2, 3) for case in convolutions(STATIC, f"Conv{n}d", n)),
    *(case for n in (1, 2, 3) for case in convolutions(FUSED, f"ConvReLU{n}d", n)),
    Case(STATIC, "ELU", (0.03, 30, 0.7), {}, ((3, 5), (0, 5))),
    Case(STATIC, "Hardswish", (0.03, 20), {}, ((3, 5), (0, 5))),
    Case(STATIC, "LeakyReLU", (0.03, 40, 0.2), {}, ((3, 5), (0, 5))),
    Case(STATIC, "Sigmoid", (1 / 256, 0), {}, ((3, 5), (0, 5))),
    *(Case(STATIC, "Softmax", (dim, 1 / 256, 0), {}, ((3, 5), (2, 3, 5), (2, 3, 4, 5))) for dim in (1, -1, None)),
    Case(STATIC, "ReLU6", (), {}, ((3, 5), (0, 5))),
    Case(STATIC, "ReLU6", (True,), {}, ((3, 5),)),
    Case(STATIC, "Dropout", (0.3,), {}, ((3, 5), (0, 5))),
    Case(STATIC, "MaxPool2d", (2,), {}, ((2, 3, 7, 6), (0, 3, 7, 6), (3, 7, 6))),
    Case(STATIC, "MaxPool2d", (3, 2, 1), {"ceil_mode": True}, ((2, 3, 7, 6),)),
    Case(STATIC, "LayerNorm", ([5], None, None, 0.03, 100), {}, ((3, 5), (0, 5), (2, 3, 5))),
    Case(STATIC, "GroupNorm", (2, 4, None, None, 0.03, 100), {}, ((3, 4, 5), (0, 4, 5), (2, 4, 3, 5))),
    *(Case(STATIC, f"InstanceNorm{n}d", (4, None, None, 0.03, 100), {}, ((3, 4, *[5] * n), (0, 4, *[5] * n)))
      for n in (1, 2, 3)),
    *(Case(package, name + f"{n}d", (4,), {}, ((2, 4, *[3] * n),)) for n in (2, 3)
      for package, name in ((STATIC, "BatchNorm"), (FUSED, "BNReLU"))),
    Case(STATIC, "DeQuantize", (), {}, ((3, 5), (0, 5))),
    Case(STATIC, "Embedding", (10, 8), {}, ((3,), (2, 3), (0,))),
    Case(STATIC, "EmbeddingBag", (10, 8), {"mode": "sum"}, ((2, 3),)),
    *(Case(DYNAMIC, kind, (5, 6), options, ((3, 2, 5),)) for kind in ("LSTM", "GRU")
      for options in ({}, {"num_layers": 2}, {"bidirectional": True, "batch_first": True}, {"dtype": "float16"})),
    *(Case(DYNAMIC, kind, (5, 6), {}, ((3, 5),)) for kind in ("RNNCell", "LSTMCell", "GRUCell")),
    Case(DYNAMIC, "RNNCell", (5, 6), {"nonlinearity": "relu"}, ((3, 5),)),
    *(Case(REFERENCE, name, args, options, (shape,))
      for name, args, options, shape in (
        ("Linear", (5, 7), {}, (3, 5)), ("Conv1d", (4, 7, 3), {}, (2, 4, 6)), ("Conv2d", (4, 7, 3), {}, (2, 4, 6, 6)),
        ("Conv3d", (4, 7, 3), {}, (2, 4, 5, 5, 5)), ("ConvTranspose1d", (7, 4, 3), {"stride": 2}, (2, 7, 5)),
        ("ConvTranspose2d", (7, 4, 3), {"stride": 2}, (2, 7, 5, 5)), ("Embedding", (7, 4), {}, (3,)),
        ("EmbeddingBag", (7, 4), {}, (2, 3)))),
]  # fmt: skip
FLOAT_INPUTS = (DYNAMIC, REFERENCE, "intrinsic.quantized.dynamic")


def label(case):
    parts = [*case.options.items(), *(["per channel"] if case.weight and case.weight[1] is not None else [])]
    return f"{case.package}.{case.name}{parts or ''}"


def values(shape, seed, size=1.0):
    return (np.random.RandomState(seed).standard_normal(shape) * size).astype(np.float32)


def built(lib, case):
    package = importlib.import_module(f"{lib.__name__}.ao.nn.{case.package}")
    options = {k: getattr(lib, v) if v == "float16" else v for k, v in case.options.items()}
    lib.manual_seed(0)
    return getattr(package, case.name)(*case.args, **options).eval()


def with_weights(lib, case, module):
    """Weights that are the same in both libraries, where a checkpoint does not bring them."""
    if case.weight is not None:
        (shape, axis), bias = case.weight, case.options.get("bias", case.options.get("bias_", True))
        weight = lib.from_numpy(values(shape, 5, 0.3))
        if axis is None:
            weight = lib.quantize_per_tensor(weight, 0.008, 0, lib.qint8)
        else:
            scales = lib.linspace(0.004, 0.01, shape[axis], dtype=lib.float64)
            weight = lib.quantize_per_channel(weight, scales, lib.zeros(shape[axis]).long(), axis, lib.qint8)
        module.set_weight_bias(weight, lib.from_numpy(values(shape[0], 4)) if bias else None)
        if case.package not in FLOAT_INPUTS:
            module.scale, module.zero_point = 0.0625, 110
    return module


def inputs(lib, case, shape):
    if case.name.startswith("Embedding"):
        return lib.arange(int(np.prod(shape))).reshape(shape) % 7
    x = lib.from_numpy(values(shape, 9))
    return x if case.package in FLOAT_INPUTS else lib.quantize_per_tensor(x, 0.05, 120, lib.quint8)


def parts(result):
    if isinstance(result, (tuple, list)):
        return [part for piece in result for part in parts(piece)]
    return [result]


def same(wanted, got):
    for want, have in zip(parts(wanted), parts(got), strict=True):
        assert tuple(want.shape) == tuple(have.shape) and str(want.dtype) == str(have.dtype)
        if want.is_quantized:
            if want.numel():
                assert want.q_scale() == pytest.approx(have.q_scale()) and want.q_zero_point() == have.q_zero_point()
            steps = want.int_repr().numpy().astype(int) - have.int_repr().numpy().astype(int)
            assert np.abs(steps).max(initial=0) <= 1
        else:
            np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), atol=2e-3, rtol=1e-3)


def pair(case):
    """Both modules; the second has the first one's state."""
    theirs, ours = with_weights(torch, case, built(torch, case)), with_weights(fl, case, built(fl, case))
    file = io.BytesIO()
    torch.save(theirs.state_dict(), file)
    file.seek(0)
    ours.load_state_dict(fl.load(file))
    return theirs, ours


@pytest.mark.parametrize("case", CASES, ids=label)
def test_results_and_text(case):
    theirs, ours = pair(case)
    assert repr(theirs) == repr(ours) and list(theirs.state_dict()) == list(ours.state_dict())
    for shape in case.inputs:
        same(theirs(inputs(torch, case, shape)), ours(inputs(fl, case, shape)))


@pytest.mark.parametrize("case", CASES, ids=label)
def test_checkpoints_for_pytorch(case):
    _, ours = pair(case)
    file = io.BytesIO()
    fl.save(ours.state_dict(), file)
    file.seek(0)
    again = built(torch, case)
    again.load_state_dict(torch.load(file, weights_only=False))
    same(again(inputs(torch, case, case.inputs[0])), ours(inputs(fl, case, case.inputs[0])))


def pickled(module):
    file = io.BytesIO()
    fl.save(module, file)
    file.seek(0)
    return fl.load(file, weights_only=False)


def archived(module):
    file = io.BytesIO()
    fl.jit.save(fl.jit.script(module), file)
    file.seek(0)
    return fl.jit.load(file)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled, archived])
@pytest.mark.parametrize("case", CASES, ids=label)
def test_copies(case, copied):
    if copied is archived and (case.package == REFERENCE or case.name in ("MaxPool2d", "InstanceNorm3d")):
        pytest.skip("not written for scripts")
    _, ours = pair(case)
    same(ours(inputs(fl, case, case.inputs[0])), copied(ours)(inputs(fl, case, case.inputs[0])))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_need_all_dimensions(dims):
    for lib in (torch, fl):
        layer = getattr(lib.ao.nn.quantized, f"Conv{dims}d")(4, 8, 3)
        with pytest.raises(ValueError, match=r"\(N, C|\(n, c"):
            layer(lib.quantize_per_tensor(lib.zeros(4, *[9] * dims), 0.1, 3, lib.quint8))


class Wrapped:
    """A layer between stubs, statically quantized in both libraries from the same parameters."""

    def __init__(self, kind, settings, shapes):
        self.kind, self.settings, self.shapes = kind, settings, shapes

    def model(self, lib):
        quantization = importlib.import_module(f"{lib.__name__}.ao.quantization")
        kind, settings = self.kind, self.settings

        class Model(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = getattr(lib.nn, kind)(*settings[0], **settings[1])
                self.into, self.out = quantization.QuantStub(), quantization.DeQuantStub()

            def forward(self, *inputs):
                x = [self.into(part) for part in inputs]
                result, rest = self.layer(x[0]) if kind == "LSTM" else self.layer(x[0], x[1], x[1])
                return [self.out(part) for part in parts((result, rest))]

        return Model().eval(), quantization

    def stages(self, lib, state, examples):
        model, quantization = self.model(lib)
        model.load_state_dict({k: lib.from_numpy(v) for k, v in state.items()})
        model.qconfig = quantization.get_default_qconfig("x86")
        prepared = quantization.prepare(model)
        for example in examples:
            prepared(*map(lib.from_numpy, example))
        return model, prepared, quantization.convert(prepared)


@pytest.mark.parametrize(
    "wrapped",
    [
        *(Wrapped("LSTM", ((5, 6), options), [(4, 3, 5)])
          for options in ({}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False})),
        *(Wrapped("MultiheadAttention", ((8, 2), options), [(4, 3, 8), (5, 3, 8)])
          for options in ({}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"batch_first": True})),
    ],
    ids=lambda w: f"{w.kind} {w.settings[1]}",
)  # fmt: skip
def test_layers_of_several_parts(wrapped):
    torch.manual_seed(1)
    shapes = [(s[1], s[0], s[2]) if wrapped.settings[1].get("batch_first") else s for s in wrapped.shapes]
    state = {k: v.numpy() for k, v in wrapped.model(torch)[0].state_dict().items()}
    examples = [[values(shape, 3 * i + j) for j, shape in enumerate(shapes)] for i in range(3)]
    theirs, ours = (wrapped.stages(lib, state, examples) for lib in (torch, fl))
    assert repr(theirs[1]).split("(activation")[0] == repr(ours[1]).split("(activation")[0]
    assert list(theirs[2].state_dict()) == list(ours[2].state_dict())
    exact, observed, small = ([r.detach().numpy() for r in stage(*map(fl.from_numpy, examples[0]))] for stage in ours)
    for a, b, c in zip(exact, observed, small, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
        assert np.abs(a - c).max() < 0.05
    if wrapped.kind == "MultiheadAttention" and wrapped.settings[1].get("batch_first"):
        return  # PyTorch's observed layer mixes up the dimensions
    file = io.BytesIO()
    torch.save(theirs[2].state_dict(), file)
    file.seek(0)
    ours[2].load_state_dict(fl.load(file))
    for want, have in zip(*(m[2](*map(lib.from_numpy, examples[0])) for m, lib in ((theirs, torch), (ours, fl)))):
        assert np.abs(want.numpy() - have.numpy()).max() < 0.02


POOLS = [("avg_pool2d", (2, 3, 7, 6)), ("avg_pool3d", (2, 3, 5, 6, 5))]
FUNCTIONS = [
    *((name, shape, (3,), options) for name, shape in POOLS
      for options in ({}, {"padding": 1}, {"ceil_mode": True}, {"padding": 1, "count_include_pad": False}, {"divisor_override": 3})),
    ("adaptive_avg_pool2d", (2, 3, 7, 6), ((3, 2),), {}), ("adaptive_avg_pool3d", (2, 3, 5, 6, 5), ((3, 2, 2),), {}),
    ("max_pool1d", (2, 3, 9), (3,), {"stride": 2, "padding": 1}), ("max_pool2d", (2, 3, 9, 7), (3,), {"dilation": 2}),
    *(("interpolate", (2, 3, 6, 7), (), {"mode": mode, **size}) for mode in ("nearest", "bilinear", "nearest-exact")
      for size in ({"size": (5, 9)}, {"scale_factor": 2})),
    ("upsample_bilinear", (2, 3, 4, 4), (7,), {}), ("upsample_nearest", (2, 3, 4, 4), (7,), {}),
    *((name, shape, args, options) for shape in ((3, 4), (0, 4)) for name, args, options in (
        ("celu", (0.05, 30, 0.7), {}), ("elu", (0.05, 30, 0.7), {}), ("hardswish", (0.05, 30), {}), ("hardsigmoid", (), {}),
        ("hardtanh", (-0.5, 0.7), {}), ("clamp", (-0.3, 0.5), {}), ("threshold", (0.2, -0.4), {}),
        ("leaky_relu", (0.2,), {}), ("leaky_relu", (0.2,), {"scale": 0.03, "zero_point": 20}))),
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f[0]} {f[1]} {f[3]}")
def test_functions(function):
    name, shape, args, options = function
    results = []
    for lib in (torch, fl):
        x = lib.quantize_per_tensor(lib.from_numpy(values(shape, 2)), 0.05, 120, lib.quint8)
        functional = importlib.import_module(f"{lib.__name__}.ao.nn.quantized.functional")
        results.append(getattr(functional, name)(x, *args, **options))
    same(*results)
