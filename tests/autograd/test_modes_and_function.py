"""Modes, inference tensors and user-defined functions."""

import gc
import weakref

import pytest

import flambeau as fl
from flambeau.autograd import Function
from flambeau.autograd.function import once_differentiable


def test_no_grad_as_context_and_decorator():
    x = fl.ones(1, requires_grad=True)
    with fl.no_grad():
        assert not (x * 2).requires_grad
        with fl.enable_grad():
            assert (x * 2).requires_grad

    @fl.no_grad()
    def plain():
        return x * 2

    @fl.no_grad
    def bare():
        return x * 2

    assert not plain().requires_grad and not bare().requires_grad and (x * 2).requires_grad


def test_decorated_generators_keep_the_callers_mode():
    @fl.no_grad()
    def numbers():
        while True:
            got = yield fl.is_grad_enabled()
            if got:
                return

    generator = numbers()
    assert next(generator) is False
    assert fl.is_grad_enabled()
    assert generator.send(None) is False
    with pytest.raises(StopIteration):
        generator.send(True)


def test_set_grad_enabled():
    fl.set_grad_enabled(False)
    assert not fl.is_grad_enabled()
    fl.set_grad_enabled(True)
    with fl.set_grad_enabled(False):
        assert not fl.is_grad_enabled()
    assert fl.is_grad_enabled()


def test_inference_tensors():
    w = fl.ones(2, requires_grad=True)
    with fl.inference_mode():
        t = fl.ones(2)
        assert t.is_inference() and not (w * 2).requires_grad
        t.add_(1)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        t.add_(1)
    with pytest.raises(RuntimeError, match="saved for backward"):
        w * t
    with pytest.raises(RuntimeError, match="inference"):
        t.requires_grad_()
    assert (w * t.clone()).requires_grad


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor, unused=None):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        assert ctx.needs_input_grad == (True, False, False)
        return g * ctx.factor, None, None


def test_function():
    x = fl.ones(2, requires_grad=True)
    y = Scale.apply(x, 3.0, None)
    assert y.grad_fn.name() == "ScaleBackward" and y.grad_fn.saved_tensors[0] is x
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert not Scale.apply(fl.ones(2), 3.0).requires_grad


def test_setup_context_and_double_backward():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    x = fl.tensor([2.0], requires_grad=True)
    (g,) = fl.autograd.grad(Cube.apply(x), x, create_graph=True)
    (gg,) = fl.autograd.grad(g, x)
    assert g.tolist() == [12.0] and gg.tolist() == [12.0]


def test_saving_an_output_makes_no_cycle():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    x = fl.zeros(2, requires_grad=True)
    y = Exp.apply(x)
    gone = weakref.ref(y)
    gc.disable()
    try:
        y.sum().backward()
        del y
        assert gone() is None
    finally:
        gc.enable()
    assert x.grad.tolist() == [1.0, 1.0]


def test_several_outputs_and_missing_gradients():
    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            high = x > 1
            ctx.mark_non_differentiable(high)
            return x * 2, x * 3, high

        @staticmethod
        def backward(ctx, a, b, c):
            assert b is None and c is None
            return a * 2

    x = fl.tensor([1.0, 2.0], requires_grad=True)
    a, _b, high = Split.apply(x)
    assert not high.requires_grad
    a.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_dirty_inputs():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = fl.ones(2, requires_grad=True)
    y = x * 1
    z = Double.apply(y)
    assert z is y
    z.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        Double.apply(x)


def test_wrong_backward_results():
    class TooFew(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g

    x = fl.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        TooFew.apply(x, x).backward()


def test_once_differentiable():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    x = fl.tensor([3.0], requires_grad=True)
    (g,) = fl.autograd.grad(Square.apply(x), x, fl.ones(1, requires_grad=True), create_graph=True)
    assert g.tolist() == [6.0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.backward()


def test_anomaly_mode_shows_the_forward_call():
    x = fl.zeros(1, requires_grad=True)
    with fl.autograd.set_detect_anomaly(True):
        y = (x * 0).sqrt() * 0  # the_line_of_the_user
        with pytest.warns(UserWarning, match="the_line_of_the_user"), pytest.raises(RuntimeError, match="nan values"):
            y.backward()


def test_graph_drawing():
    x = fl.ones(2, requires_grad=True)
    y = (x * 2).sum()
    assert "MulBackward0" in fl.autograd.graph.to_dot(y, {"x": x}) and "x (2,)" in fl.autograd.graph.to_dot(y, {"x": x})
    assert fl.autograd.graph.to_svg(y).startswith("<svg")


def test_out_does_not_write_to_inference_tensors():
    with fl.inference_mode():
        frozen = fl.ones(2)
        fl.mul(fl.ones(2), 2, out=frozen)
    for call in (lambda: fl.mul(fl.ones(2), 3, out=frozen), lambda: frozen.add_(1)):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            call()
    assert frozen.tolist() == [2, 2]


@pytest.mark.parametrize("materialized", [True, False])
def test_gradients_of_outputs_marked_as_not_differentiable(materialized):
    arrived = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            first, second = x.clone(), x.clone()
            ctx.mark_non_differentiable(second)
            ctx._materialize_non_diff_grads = materialized
            return first, second

        @staticmethod
        def backward(ctx, first, second):
            arrived.append(second)
            return first

    Two.apply(fl.ones(2, requires_grad=True))[0].sum().backward()
    assert (arrived[0] is not None) == materialized


class Marker:
    """An object that weak references can follow."""


@pytest.mark.parametrize("custom", [False, True])
def test_hooks_that_refer_to_their_own_node_are_collected(custom):
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    def build():
        x = fl.ones(1, requires_grad=True)
        y = Same.apply(x) if custom else x.clone()
        node, marker, calls = y.grad_fn, Marker(), []

        def hook(*gradients):
            calls.append((node, marker))

        node.register_hook(hook)
        return y.clone(), weakref.ref(marker), calls

    out, marker, calls = build()
    gc.collect()
    out.sum().backward()
    assert len(calls) == 1 and marker() is not None
    calls.clear()
    del out
    gc.collect()
    assert marker() is None


def test_contexts_that_hold_their_own_node_are_collected():
    markers = []

    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.marker = Marker()
            markers.append(weakref.ref(ctx.marker))
            ctx.holder = []
            markers.append(ctx.holder)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    y = Same.apply(fl.ones(1, requires_grad=True))
    marker, holder = markers
    holder.append(y.grad_fn)
    markers.clear()
    del holder
    y.sum().backward()
    gc.collect()
    assert marker() is not None
    del y
    gc.collect()
    assert marker() is None
