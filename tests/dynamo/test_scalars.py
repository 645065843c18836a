"""Numbers that change between calls: compiled functions follow them, and are built once for all of them."""

import math
import warnings

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor import build, numbers

VALUES = [1.5, 2.5, -3.25, 0.0, -0.0, 1e20, 7.5, math.inf, math.nan]


def store(x, s):
    y = x.clone()
    y[0] = s
    return y


FLOATS = {
    "operand": lambda x, s: (x * s).sin(),
    "operand on the left": lambda x, s: 1 / (s - x),
    "exponent": lambda x, s: x.abs() ** s,
    "comparison": lambda x, s: (x < s).float(),
    "computed": lambda x, s: x * abs(s) + 2 * s - 1,
    "clamp": lambda x, s: x.clamp(min=s),
    "where": lambda x, s: fl.where(x > 1, x, s),
    "item store": store,
    "fill": lambda x, s: x.clone().fill_(s),
    "tensor": lambda x, s: x * fl.tensor(s),
    "tensor of a list": lambda x, s: x[:2] * fl.tensor([s, 2 * s]),
    "as_tensor": lambda x, s: x * fl.as_tensor(s),
    "scalar_tensor": lambda x, s: x * fl.scalar_tensor(s),
    "new_tensor": lambda x, s: x * x.new_tensor([s]),
    "full": lambda x, s: x + fl.full((4,), s),
    "new_full": lambda x, s: x + x.new_full((4,), s),
    "scalar parameter": lambda x, s: F.leaky_relu(x - 1, s),
    "alpha": lambda x, s: fl.add(x, x, alpha=s),
    "numbers read from a tensor": lambda x, s: fl.tensor((x * s).sum().item()) * x,
    "list read from a tensor": lambda x, s: fl.tensor((x * s).tolist()) + x,
}


def check(function, compiled, *args):
    expected, got = function(*args), compiled(*args)
    assert got.dtype == expected.dtype
    fl.testing.assert_close(got, expected, equal_nan=True)
    if expected.is_floating_point():
        assert fl.equal(fl.signbit(got) & ~got.isnan(), fl.signbit(expected) & ~expected.isnan())


@pytest.mark.parametrize("name", FLOATS)
def test_a_float_is_followed(name):
    function = FLOATS[name]
    compiled = fl.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for value in VALUES:
            check(function, compiled, fl.arange(4.0), value)


@pytest.mark.parametrize("dtype", [fl.int64, fl.float64, fl.bfloat16, fl.float16, fl.complex64])
@pytest.mark.parametrize("value", [2.5, 3])
def test_a_scalar_promotes_as_in_eager_mode(dtype, value):
    function = lambda x, s: x * s + x  # noqa: E731
    compiled = fl.compile(function)
    for shape in ((5,), ()):
        x = fl.arange(5).to(dtype) if shape else fl.tensor(3).to(dtype)
        for i in range(3):
            check(function, compiled, x, value + i)


@pytest.mark.parametrize("function", [lambda x, n: x * n, lambda x, n: x / (n + 1), lambda x, n: x[:n] + n])
@pytest.mark.parametrize("dtype", [fl.float32, fl.int64])
def test_an_integer_is_followed(function, dtype):
    compiled = fl.compile(function)
    for n in range(6):
        check(function, compiled, fl.arange(4).to(dtype), n)


def test_a_float_attribute_of_a_module_is_followed():
    class Scaled(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = 1.0

        def forward(self, x):
            return x * fl.tensor(self.factor) + self.factor

    model = Scaled()
    compiled = fl.compile(model)
    for value in VALUES[:6]:
        model.factor = value
        check(model, compiled, fl.arange(4.0))


def test_gradients_follow_a_float():
    function = lambda x, s: (x * s).pow(2).sum() / s  # noqa: E731
    compiled = fl.compile(function)
    for value in (1.0, 2.0, -3.0, 4.5):
        x = fl.arange(3.0, requires_grad=True)
        expected, got = (fl.autograd.grad(f(x, value), x)[0] for f in (function, compiled))
        fl.testing.assert_close(got, expected)


@pytest.mark.parametrize("function", [lambda x, s: (x * s).sin(), lambda x, n: (x / n).cos()])
def test_a_changing_number_builds_kernels_for_its_first_two_values_only(function, monkeypatch):
    fl._dynamo.reset()
    built = []
    addresses = build.addresses
    monkeypatch.setattr(build, "addresses", lambda kernels, *rest: built.append(kernels) or addresses(kernels, *rest))
    compiled = fl.compile(function)
    kind = float if "sin" in function.__code__.co_names else int
    for i in range(2):
        compiled(fl.arange(4.0), kind(i + 2))
    known = len(built)
    for i in range(20):
        check(function, compiled, fl.arange(4.0), kind(i + 4))
    assert len(built) == known and compiled._count() == 2


def test_values_that_graphs_are_compiled_for_are_limited(monkeypatch):
    monkeypatch.setattr(numbers, "MOST_FLOATS", 3)
    program = lambda x, s: F.layer_norm(x, (4,), eps=s)  # noqa: E731
    compiled = fl.compile(program)
    with pytest.warns(UserWarning, match="compiled for 3 sets of floats") as seen:
        for i in range(10):
            check(program, compiled, fl.arange(-2.0, 2.0), 0.1 * i)
    assert len([w for w in seen if "sets of floats" in str(w.message)]) == 1


def test_a_learning_rate_is_an_input_of_the_step():
    def train(compiled):
        fl.manual_seed(0)
        model = fl.nn.Linear(3, 2)
        optimizer = fl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()

        run = fl.compile(step) if compiled else step
        for i in range(6):
            optimizer.param_groups[0]["lr"] = 0.05 * (i - 1)
            run(fl.ones(2, 3))
        return [p.detach() for p in model.parameters()]

    for got, expected in zip(train(True), train(False)):
        fl.testing.assert_close(got, expected)
