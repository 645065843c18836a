"""Products of matrices that take bias, activation, sums and products along, when a compiled function is evaluated."""

import math

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor import tune
from flambeau.nn import functional as F

pytestmark = pytest.mark.host

ADD, MUL, RELU, GELU, GELU_TANH, SILU, SIGMOID, TANH = range(8)
ACTIVATIONS = {
    RELU: fl.relu,
    GELU: F.gelu,
    GELU_TANH: lambda x: F.gelu(x, approximate="tanh"),
    SILU: F.silu,
    SIGMOID: fl.sigmoid,
    TANH: fl.tanh,
}
SIZES = [(1, 5, 7), (2, 3, 16), (3, 17, 33), (32, 100, 50), (13, 300, 31), (130, 64, 96), (15, 1700, 40), (400, 40, 17)]


def finished(x, w, bias=None, packed=None, other=None, another=None, steps=()):
    return fl._ops._product_finished(x, w, bias, packed, other, another, list(steps))


def given(size, dtype, seed=0):
    fl.manual_seed(seed)
    m, k, n = size
    shapes = ((m, k), (k, n), (n,), (m, n), (n,))
    x, w, bias, other, row = (fl.randn(*shape).to(dtype) for shape in shapes)
    return x, (w * k**-0.5).to(dtype), bias, other, row


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_values_in_single_precision(size, packs):
    x, w, bias, other, row = given(size, fl.float32)
    packed = fl._ops._product_packed(w) if packs else None
    product = x.double() @ w.double()
    fl.testing.assert_close(finished(x, w, None, packed).double(), product, rtol=1e-5, atol=1e-5)
    for kind, f in ACTIVATIONS.items():
        got = finished(x, w, bias, packed, other, row, [kind, ADD, MUL])
        expected = (f(product + bias.double()) + other.double()) * row.double()
        fl.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
    got = finished(x, w, None, packed, row, other, [MUL, ADD, RELU])
    fl.testing.assert_close(got.double(), (product * row.double() + other.double()).relu(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_low_precision_is_rounded_after_each_step(size, packs):
    x, w, bias, other, row = given(size, fl.bfloat16)
    packed = fl._ops._product_packed(w) if packs else None
    product = F.linear(x, w.t(), bias)
    for kind, f in ACTIVATIONS.items():
        got = finished(x, w, bias, packed, other, row, [kind, ADD, MUL])
        expected = (f(product) + other) * row
        fl.testing.assert_close(got, expected, rtol=0.02, atol=0.02)
        same = (got == expected).float().mean().item()  # sums of other orders may differ in a last bit
        assert same > 0.95 or got.numel() < 500


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16])
@pytest.mark.parametrize("packs", [False, True])
def test_inputs_that_lie_otherwise(dtype, packs):
    x, w, bias, other, _ = given((24, 20, 36), dtype)
    packed = fl._ops._product_packed(w) if packs else None
    expected = finished(x, w, bias, packed, other, None, [GELU, ADD])
    turned = x.t().contiguous().t()
    apart = fl.zeros(24, 50, dtype=dtype)
    apart[:, 3:23] = x
    for source in (
        turned,
        apart[:, 3:23],
        x.reshape(2, 3, 4, 20),
        x.reshape(4, 6, 20).transpose(0, 1).contiguous().transpose(0, 1),
    ):
        shape = (*source.shape[:-1], 36)
        got = finished(source, w, bias, packed, other.reshape(shape), None, [GELU, ADD])
        assert got.is_contiguous()
        fl.testing.assert_close(got.reshape(24, 36), expected)
    # Operands that are no blocks of memory are copied.
    wide = fl.zeros(24, 72, dtype=dtype)
    wide[:, ::2] = other
    fl.testing.assert_close(finished(x, w, bias, packed, wide[:, ::2], None, [GELU, ADD]), expected)
    if packs:
        fl.testing.assert_close(fl._ops._product_packed(w.t().contiguous().t()), packed)


def test_sizes_of_nought():
    w, bias = fl.randn(4, 3), fl.randn(3)
    packed = fl._ops._product_packed(w)
    assert finished(fl.zeros(0, 4), w, bias, packed, None, None, [RELU]).shape == (0, 3)
    assert finished(fl.zeros(2, 4), w[:, :0], None, None, None, None, [RELU]).shape == (2, 0)
    empty = finished(fl.zeros(2, 0), w[:0], bias, fl._ops._product_packed(w[:0]), None, None, [RELU])
    fl.testing.assert_close(empty, bias.relu().expand(2, 3))


def test_nan_is_not_hidden_by_relu():
    x = fl.zeros(3, 4)
    x[1, 2] = math.nan
    for packed in (None, fl._ops._product_packed(fl.ones(4, 5))):
        got = finished(x, fl.ones(4, 5), fl.ones(5), packed, None, None, [RELU])
        assert got[1].isnan().all().item() and fl.equal(got[0], fl.ones(5))


def test_arguments_are_checked():
    x, w = fl.zeros(3, 4), fl.zeros(4, 5)
    for wrong in (
        lambda: finished(x, fl.zeros(5, 5)),
        lambda: finished(x, w.bfloat16()),
        lambda: finished(x.double(), w.double()),
        lambda: finished(x, w, fl.zeros(4)),
        lambda: finished(x, w, None, fl.zeros(3)),
        lambda: finished(x, w, None, None, None, None, [ADD]),
        lambda: finished(x, w, None, None, fl.zeros(3, 4), None, [ADD]),
        lambda: finished(x, w, None, None, fl.zeros(3, 5), None, [RELU]),
        lambda: finished(x, w, None, None, None, None, [99]),
        lambda: fl._ops._product_packed(fl.zeros(3)),
    ):
        with pytest.raises(RuntimeError, match="product_"):
            wrong()


class Gated(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.up, self.gate = nn.Linear(24, 70, dtype=dtype), nn.Linear(24, 70, bias=False, dtype=dtype)
        self.down = nn.Linear(70, 24, dtype=dtype)

    def forward(self, x):
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16])
def test_a_gated_network_is_one_call_for_each_product(dtype, calls_of):
    fl.manual_seed(3)
    model = Gated(dtype).eval()
    compiled = fl.compile(model)
    x = fl.randn(6, 5, 24).to(dtype)
    plain = ["linear"] if dtype is fl.bfloat16 else []  # it adds a bias itself, before rounding
    assert sorted(calls_of(compiled, x)) == ["_product_finished"] * (3 - len(plain)) + plain
    with fl.no_grad():
        fl.testing.assert_close(compiled(x), model(x))
        for batch in (16, 32, 33, 1, 0):  # sizes are not those of the first call
            x = fl.randn(batch, 5, 24).to(dtype)
            fl.testing.assert_close(compiled(x), model(x))
        x = fl.randn(24, 5, 6).to(dtype).transpose(0, 2)
        fl.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"])
@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16])
def test_activations_are_found(name, dtype, calls_of):
    f = ACTIVATIONS[
        [RELU, GELU, GELU_TANH, SILU, SIGMOID, TANH][
            ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"].index(name)
        ]
    ]
    x, w, bias, other, _ = given((33, 20, 19), dtype)

    def g(x, w, bias, other):
        return f(F.linear(x, w.t(), bias)) + other, f(fl.addmm(bias, x, w)), f(x @ w) * other

    compiled = fl.compile(g)
    assert calls_of(compiled, x, w, bias, other) == ["_product_finished"] * 3
    for got, expected in zip(compiled(x, w, bias, other), g(x, w, bias, other)):
        fl.testing.assert_close(got, expected)


def test_derivatives_take_the_usual_way():
    fl.manual_seed(4)
    model = Gated(fl.float32)
    compiled = fl.compile(model)
    x = fl.randn(6, 24, requires_grad=True)
    (got,) = fl.autograd.grad(compiled(x).square().sum(), x)
    (expected,) = fl.autograd.grad(model(x).square().sum(), x)
    fl.testing.assert_close(got, expected)


def test_the_option_turns_it_off(calls_of):
    x, w, bias, _, _ = given((33, 20, 19), fl.float32)
    compiled = fl.compile(lambda x, w, b: F.relu(F.linear(x, w.t(), b)), options={"epilogue_fusion": False})
    assert "_product_finished" not in calls_of(compiled, x, w, bias)


@pytest.mark.parametrize("way", [0, 1, 2])
def test_autotuning_takes_what_was_measured_as_quicker(way, monkeypatch, tmp_path, calls_of):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    measured = []

    def best(run, wait=None):
        run()
        measured.append(run)
        return abs(len(measured) - 1 - way)  # one of the ways took no time

    monkeypatch.setattr(tune, "tuned", lambda kernels: [(a, 0) for a in tune.build.addresses(kernels)])
    monkeypatch.setattr(tune, "_best", best)
    model, x = nn.Sequential(nn.Linear(20, 19), nn.GELU()).eval(), fl.randn(33, 20)
    f = fl.compile(model, options={"max_autotune": True, "freezing": way == 2})
    assert ("_product_finished" in calls_of(f, x)) == (way > 0)
    assert len(measured) == (3 if way == 2 else 2)
    with fl.no_grad():
        fl.testing.assert_close(f(x), model(x))
    if way:
        return
    # Where it is measured, memory that lies in any way has to be made.
    g = fl.compile(lambda x, w: F.relu(x[:1].expand(33, 20) @ w), options={"max_autotune": True})
    w = fl.randn(20, 8)
    fl.testing.assert_close(g(x, w), F.relu(x[:1].expand(33, 20) @ w))


def between_is_returned(x, w, o):
    y = x @ w
    return y.relu(), y


def between_is_used_twice(x, w, o):
    y = (x @ w).relu()
    return y + y, (y * 2 - 1).sum(0)


def between_is_written(x, w, o):
    y = x @ w
    x.mul_(2)
    return y.relu_() @ w.t() + x, y


def with_itself(x, w, o):
    y = x @ w
    return (y + y) * y.t().t(), y * o


def residual_is_the_input(x, w, o):
    return (x @ w.t()[:20, :20] if x.shape[1] == 20 else x @ w) + x[:, :20], fl.relu(x @ w) * o


def residual_is_a_view(x, w, o):
    return (x @ w) + o.t().contiguous().t(), (x @ w) + o[:1], (x @ w) * o[:, :1], (x @ w) + 2, (x @ w) * o[0]


def other_dtypes(x, w, o):
    return (x @ w) + o.double(), (x @ w).double().relu(), (x @ w) * (o > 0)


def residual_is_written_later(x, w, o):
    y = (x @ w) + o
    o.add_(1)
    return y, o * 2


@pytest.mark.parametrize(
    "f",
    [
        between_is_returned, between_is_used_twice, between_is_written, with_itself, residual_is_the_input,
        residual_is_a_view, other_dtypes, residual_is_written_later,
    ],
)  # fmt: skip
def test_what_others_see_stays(f):
    fl.manual_seed(5)
    x, w, o = fl.randn(30, 20), fl.randn(20, 20), fl.randn(30, 20)
    mine, theirs = [t.clone() for t in (x, w, o)], [t.clone() for t in (x, w, o)]
    for got, expected in zip(fl.compile(f)(*mine), f(*theirs)):
        fl.testing.assert_close(got, expected)
    for got, expected in zip(mine, theirs):
        assert fl.equal(got, expected)
