"""__torch_function__ on every way to reach a function: operators, methods, attributes, indexing, conversions."""

from typing import ClassVar

import pytest

import flambeau as torch
from flambeau.overrides import TorchFunctionMode


class Record(torch.Tensor):
    """Notes each function and calls it."""

    log: ClassVar[list] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Record.log.append(func)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


@pytest.fixture
def x():
    made = torch.Tensor._make_subclass(Record, torch.arange(4.0))
    Record.log.clear()
    return made


CALLS = {
    "function": (lambda x: torch.sin(x), lambda: torch.sin),
    "method": (lambda x: x.sin(), lambda: torch.Tensor.sin),
    "operator": (lambda x: x + 1, lambda: torch.Tensor.add),
    "comparison": (lambda x: x < 1, lambda: torch.Tensor.lt),
    "shape": (lambda x: x.shape, lambda: torch.Tensor.shape.__get__),
    "dtype": (lambda x: x.dtype, lambda: torch.Tensor.dtype.__get__),
    "device": (lambda x: x.device, lambda: torch.Tensor.device.__get__),
    "ndim": (lambda x: x.ndim, lambda: torch.Tensor.ndim.__get__),
    "size": (lambda x: x.size(), lambda: torch.Tensor.size),
    "stride": (lambda x: x.stride(), lambda: torch.Tensor.stride),
    "dim": (lambda x: x.dim(), lambda: torch.Tensor.dim),
    "numel": (lambda x: x.numel(), lambda: torch.Tensor.numel),
    "getitem": (lambda x: x[0], lambda: torch.Tensor.__getitem__),
    "tolist": (lambda x: x.tolist(), lambda: torch.Tensor.tolist),
    "is_contiguous": (lambda x: x.is_contiguous(), lambda: torch.Tensor.is_contiguous),
    "len": (lambda x: len(x), lambda: torch.Tensor.__len__),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_class_is_asked_for(name, x):
    call, function = CALLS[name]
    plain = torch.arange(4.0)
    got, want = call(x), call(plain)
    assert Record.log[0] == function()
    if isinstance(want, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            assert got.tolist() == want.tolist()
    else:
        assert got == want


def test_assignment_and_conversions(x):
    x[0] = 9
    assert Record.log == [torch.Tensor.__setitem__]
    Record.log.clear()
    first = torch.Tensor._make_subclass(Record, torch.tensor(2.5))
    assert float(first) == 2.5 and int(first) == 2 and bool(first) and first.item() == 2.5
    assert Record.log == [
        torch.Tensor.__float__, torch.Tensor.__int__, torch.Tensor.__bool__, torch.Tensor.item,
    ]  # fmt: skip


def test_a_mode_sees_methods_and_attributes():
    class Log(TorchFunctionMode):
        def __init__(self):
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(func)
            return func(*args, **(kwargs or {}))

    y = torch.ones(2)
    with Log() as log:
        assert y.shape == (2,) and y.size(0) == 2
        y.add_(1)
    assert log.seen == [torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.add_]


def test_a_subclass_without_hook_keeps_its_class():
    class Sub(torch.Tensor):
        pass

    y = torch.arange(4.0).as_subclass(Sub)
    assert type(y) is Sub
    assert type(y * 2) is Sub and type(2 * y) is Sub and type(y.sin()) is Sub and type(torch.sin(y)) is Sub
    assert type(y[1:]) is Sub and type(y.view(2, 2)) is Sub and type(y.T) is Sub
    assert [type(part) for part in y.unbind(0)] == [Sub] * 4
    assert y.shape == (4,) and y.dim() == 1 and y.tolist() == [0, 1, 2, 3] and len(y) == 4
    with torch._C.DisableTorchFunctionSubclass():
        assert type(y * 2) is torch.Tensor


def test_unrelated_subclasses_do_not_mix():
    class One(torch.Tensor):
        pass

    class Two(torch.Tensor):
        pass

    with pytest.raises(TypeError):
        torch.ones(1).as_subclass(One) + torch.ones(1).as_subclass(Two)


def test_overloads_are_overridable(x):
    torch.ops.aten.sin.default(x)
    assert Record.log == [torch.ops.aten.sin.default]


def test_decompositions_are_not_calls_of_the_user(x):
    class Log(TorchFunctionMode):
        seen: ClassVar[list] = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(func)
            return func(*args, **(kwargs or {}))

    with Log() as log:
        torch.polar(torch.ones(1), torch.ones(1))
    assert log.seen == [torch.ones, torch.ones, torch.polar]


class Scalar:
    """Not a tensor, and takes part in arithmetic."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*(a.value if isinstance(a, Scalar) else a for a in args), **(kwargs or {}))


def test_other_classes_take_part():
    two = Scalar(2.0)
    assert (torch.ones(1) * two).item() == 2 and (torch.ones(1) - two).item() == -1
    assert torch.add(torch.ones(1), two).item() == 3 and torch.ones(1).add(two).item() == 3


def test_operators_that_everybody_declines_are_unsupported():
    class Declines(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return NotImplemented

    class Right:
        def __radd__(self, other):
            return "right"

    x = torch.ones(1).as_subclass(Declines)
    for call in (lambda: x + torch.ones(1), lambda: torch.ones(1) - x, lambda: x @ x):
        with pytest.raises(TypeError, match="unsupported operand"):
            call()
    with pytest.raises(TypeError, match="not supported between"):
        x < torch.ones(1)  # noqa: B015
    with pytest.raises(TypeError, match="got NotImplemented from all"):
        torch.add(x, 1)
    assert x + Right() == "right"
