"""`loss.backward()` without arguments: what native code runs at once, and what is checked in Python."""

import pytest

import flambeau as fl


def test_a_loss_of_one_element_in_any_shape_and_dtype():
    for shape in ((), (1,), (1, 1)):
        for dtype in (fl.float32, fl.float64, fl.bfloat16):
            x = fl.full(shape, 3.0, dtype=dtype, requires_grad=True)
            (x * x).backward()
            assert x.grad.dtype is dtype and x.grad.flatten().tolist() == [6.0]


def test_graphs_are_freed_or_kept_as_asked():
    x = fl.tensor(3.0, requires_grad=True)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    assert x.grad == 12
    x.grad = None
    (x**3).backward(create_graph=True)
    x.grad.backward()
    assert x.grad == 27 + 18  # the second gradient is added


def test_what_has_no_gradient_of_one_is_refused():
    with pytest.raises(RuntimeError, match="scalar"):
        fl.ones(2, requires_grad=True).backward()
    with pytest.raises(RuntimeError, match="real scalar"):
        (fl.ones((), dtype=fl.complex64, requires_grad=True) * 1j).backward()
    with pytest.raises(RuntimeError, match="require"):
        fl.ones(()).backward()


def test_hooks_and_leaves():
    x, seen = fl.ones((), requires_grad=True), []
    x.register_hook(seen.append)
    x.register_post_accumulate_grad_hook(seen.append)
    x.backward()
    assert x.grad == 1 and len(seen) == 2


def test_subclasses_and_modes_see_the_call():
    calls = []

    class Counted(fl.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            calls.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    x = fl.ones((), requires_grad=True)
    (x * 2).as_subclass(Counted).backward()
    assert "backward" in calls and x.grad == 2
