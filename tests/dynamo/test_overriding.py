"""Subclasses of Tensor, classes with __torch_function__ and modes in compiled functions behave as in plain Python."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.overrides import TorchFunctionMode


class Plain(fl.Tensor):
    pass


class Scaled(fl.Tensor):
    scale = 3

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})

    def twice(self):
        return self * 2

    @property
    def half(self):
        return self / 2


class Swapped(fl.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with fl._C.DisableTorchFunctionSubclass():
            return fl.cos(*args) if func in (fl.sin, fl.Tensor.sin) else func(*args, **(kwargs or {}))


class Weight(nn.Parameter):
    pass


class Wrapper:
    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [a.tensor if isinstance(a, Wrapper) else a for a in args]
        return Wrapper(func(*plain, **(kwargs or {})))


class Subtract(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return fl.sub(*args) if func is fl.add else func(*args, **(kwargs or {}))


def several(x):
    y = (x + 1).sin()
    return y, x.T, 1 - x, 2 * x, x[0], type(y), isinstance(y, Scaled), fl.cat([y, x]), fl.sin(x), x.sum(0), len(x)


def members(x):
    return x.twice() + x.half * x.scale, x.note


def inside(x):
    with Subtract():
        y = fl.add(x, 1) * 2
    return fl.add(y, 1), x.as_subclass(Scaled) + 1


def wrapped(x):
    return fl.sin(Wrapper(x)).tensor


def unwrapped(x):
    return fl.exp(x).tensor


def noted(x):
    x.note = 5
    return x


def equal(a, b):
    if not isinstance(a, fl.Tensor):
        return type(a) is type(b) and a == b
    return type(a) is type(b) and fl.allclose(a.as_subclass(fl.Tensor), b.as_subclass(fl.Tensor))


def values():
    return fl.arange(9.0).view(3, 3) / 9


CASES = [
    (several, lambda: values().as_subclass(Plain)),
    (several, lambda: values().as_subclass(Scaled)),
    (several, lambda: values().as_subclass(Swapped)),
    (several, lambda: Weight(values())),
    (members, lambda: noted(values().as_subclass(Scaled))),
    (inside, values),
    (wrapped, values),
    (unwrapped, lambda: Wrapper(values())),
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function, make", CASES)
def test_one_graph_with_the_results_of_plain_python(function, make, backend):
    fast = fl.compile(function, backend=backend, fullgraph=True)
    wanted = function(make())
    for _ in range(2):
        found = fast(make())
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (wanted, found))):
            assert equal(a, b)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_of_a_subclass(backend):
    x = values().as_subclass(Scaled).detach().requires_grad_()
    fl.compile(lambda x: (x * x).sum(), backend=backend, fullgraph=True)(x).backward()
    assert fl.allclose(x.grad.as_subclass(fl.Tensor), 2 * values())


def test_the_class_is_guarded():
    fast = fl.compile(lambda x: x.sin(), backend="eager", fullgraph=True)
    assert type(fast(values().as_subclass(Plain))) is Plain and type(fast(values())) is fl.Tensor
    assert fl.allclose(fast(values().as_subclass(Swapped)), values().cos())


def test_a_class_that_defines_operators_runs_in_python():
    class Odd(fl.Tensor):
        def __add__(self, other):
            return "sum"

    fast = fl.compile(lambda x: x + 1, backend="eager")
    assert fast(values().as_subclass(Odd)) == "sum"


def test_a_break_inside_of_a_mode_leaves_it_in_force():
    def function(x):
        with Subtract():
            y = fl.add(x, 1)
            fl._dynamo.graph_break()
            y = fl.add(y, 1)
        return fl.add(y, 1)

    fast = fl.compile(function, backend="eager")
    for _ in range(2):
        assert fast(fl.zeros(2)).tolist() == [-1.0, -1.0]


def test_errors_when_nobody_implements_the_call():
    class Refusing(fl.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError):
        fl.compile(lambda x: fl.sin(x), backend="eager")(values().as_subclass(Refusing))
