"""__torch_function__ for classes and modes, as Python functions use it."""

from typing import ClassVar

import pytest

import flambeau as torch
from flambeau import overrides


class Recorder:
    """Handles nothing and notes that it was asked."""

    calls: ClassVar[list] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Recorder.calls.append((cls.__name__, [kind.__name__ for kind in types]))
        return NotImplemented


class Derived(Recorder):
    pass


class Answer:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "answered"


def public(*args):
    return overrides.handle_torch_function(public, args, *args) if overrides.has_torch_function(args) else "plain"


@pytest.fixture(autouse=True)
def clear():
    Recorder.calls = []


def test_plain_arguments_are_not_overridden():
    assert public(1, torch.ones(1), None) == "plain"


def test_subclasses_are_asked_first_then_left_to_right():
    with pytest.raises(TypeError, match=r"no implementation found for .*public"):
        public(Recorder(), Derived(), Recorder())
    assert Recorder.calls == [("Derived", ["Derived", "Recorder"]), ("Recorder", ["Derived", "Recorder"])]


def test_not_implemented_passes_the_call_on():
    assert public(Recorder(), Answer()) == "answered"
    assert len(Recorder.calls) == 1


def test_native_functions_ask_too():
    assert torch.add(torch.ones(1), Answer()) == "answered"


def test_disabled_classes_are_not_asked():
    class Silent(Answer):
        __torch_function__ = torch._C._disabled_torch_function_impl

    assert public(Silent()) == "plain"
    with torch._C.DisableTorchFunctionSubclass():
        assert public(Answer()) == "plain"


class Log(overrides.TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_modes_nest_and_see_every_call():
    with Log() as outer, Log() as inner:
        assert overrides._get_current_function_mode_stack() == [outer, inner]
        torch.add(torch.ones(1), 1)
        assert public(1) == "plain"
    assert inner.seen == outer.seen == [torch.ones, torch.add, public]
    assert overrides._get_current_function_mode() is None


def test_a_mode_is_taken_off_after_an_error():
    with pytest.raises(ZeroDivisionError), Log():
        raise ZeroDivisionError
    assert overrides._get_current_function_mode() is None


def test_a_mode_without_handler_says_so():
    with pytest.raises(NotImplementedError, match="does not define __torch_function__"), overrides.TorchFunctionMode():
        torch.ones(1)


def test_results_keep_a_subclass():
    class Sub(torch.Tensor):
        pass

    x = torch.arange(4.0).as_subclass(Sub)
    assert type(x + 1) is Sub
    assert [type(part) for part in x.split(2)] == [Sub, Sub]


def test_wrapped_functions_are_overridable():
    @overrides.wrap_torch_function(lambda value: (value,))
    def function(value):
        return "plain"

    assert function(1) == "plain" and function(Answer()) == "answered"


def test_names():
    assert overrides.resolve_name(torch.add) == "flambeau.add"
    assert overrides.resolve_name(torch.Tensor.add) == "flambeau.Tensor.add"
    assert overrides.resolve_name(public) is None
    assert overrides.is_tensor_like(Answer()) and not overrides.is_tensor_like(1)
    assert overrides.is_tensor_method_or_property(torch.Tensor.add)
    assert not overrides.is_tensor_method_or_property(torch.add)
    assert torch.add in overrides.get_testing_overrides()


def test_functions_that_cannot_be_hashed_are_no_overridable_ones(monkeypatch):
    class Native:
        __name__ = "native"
        __hash__ = None

        def __call__(self):
            return None

    monkeypatch.setattr(torch, "native", Native(), raising=False)
    overrides.get_overridable_functions.cache_clear()
    assert torch.sin in overrides.get_overridable_functions()[torch]
    overrides.get_overridable_functions.cache_clear()
