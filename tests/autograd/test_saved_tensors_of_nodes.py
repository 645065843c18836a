"""What nodes saved for backward: hooks that are set afterwards, copies before writes, recomputation, and the backward that runs."""

from __future__ import annotations

import gc
import weakref

import pytest

import flambeau as fl
from flambeau.autograd.graph import allow_mutation_on_saved_tensors, register_multi_grad_hook
from flambeau.utils.checkpoint import checkpoint, set_checkpoint_debug_enabled, set_checkpoint_early_stop


def leaf(*shape: int) -> fl.Tensor:
    return fl.rand(*shape, requires_grad=True)


def test_hooks_pack_what_a_node_saved_already():
    a = leaf(3)
    y = a * a
    y.grad_fn._raw_saved_self.register_hooks(lambda x: 2 * x, lambda x: x)
    assert fl.equal(y.grad_fn._saved_self, 2 * a)
    y.sum().backward()
    fl.testing.assert_close(a.grad, 3 * a.detach())
    with pytest.raises(RuntimeError, match="after it has been freed"):
        y.grad_fn._raw_saved_self.register_hooks(lambda x: x, lambda x: x)


def test_hooks_are_refused_where_they_cannot_work():
    saved = (leaf(2) ** 2).grad_fn._raw_saved_self
    with pytest.raises(TypeError, match="incompatible function arguments"):
        saved.register_hooks(lambda x: x)
    with pytest.raises(RuntimeError, match="modifying its input in place"):
        saved.register_hooks(lambda x: x.mul_(2), lambda x: x)
    saved.register_hooks(lambda x: x, lambda x: x)
    with pytest.raises(RuntimeError, match="already been set"):
        saved.register_hooks(lambda x: x, lambda x: x)
    with pytest.raises(RuntimeError, match="from Python is forbidden"):
        fl.autograd.SavedTensor()


def test_a_function_shows_what_it_saved():
    class Same(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    a = leaf(2)
    y = Same.apply(a)
    first, second = y.grad_fn._raw_saved_tensors
    with pytest.raises(RuntimeError, match="None is forbidden"):
        second.register_hooks(lambda x: x, lambda x: x)
    first.register_hooks(lambda x: x, lambda x: x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="already been freed"):
        _ = y.grad_fn._raw_saved_tensors


def test_a_saved_tensor_that_lost_its_history_is_refused():
    a = leaf(2).clone()
    b = a.sin()
    a.detach_()
    with pytest.raises(RuntimeError, match="detached in-place"):
        b.sum().backward()


def test_a_write_copies_what_graphs_need_once():
    with allow_mutation_on_saved_tensors() as context:
        a = leaf(2, 3)
        base = a.clone()
        one, two = base**2, base[:1] ** 2
        assert len(context.cloned) == 0
        base[:1].mul_(10)
        assert len(context.cloned) == 2  # of the base and of its view
        del two
        assert len(context.cloned) == 1
        one.sum().backward()
        assert len(context.cloned) == 0
        fl.testing.assert_close(a.grad, 2 * a.detach())
        late = (leaf(2) ** 2).sum()
    with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        late.backward()


def test_out_of_another_operator_counts_as_a_write():
    with allow_mutation_on_saved_tensors():
        a, b = leaf(2), fl.ones(2)
        product = a * b
        fl.sin(fl.zeros(2), out=b)
        product.sum().backward()
        assert fl.equal(a.grad, fl.ones(2))


def test_recomputation_that_differs_is_refused():
    def changing(first, then):
        runs = []

        def run(x):
            runs.append(1)
            return first(x) if len(runs) == 1 else then(x)

        return run

    long, short = (lambda x: x.sin().exp().sin()), (lambda x: x.sin().exp())
    other = lambda x: x.sin() * fl.tensor([1.0, 2.0])  # noqa: E731
    with pytest.raises(RuntimeError, match="different number of tensors"):
        checkpoint(changing(long, short), leaf(1), use_reentrant=False).backward()
    with set_checkpoint_early_stop(False), pytest.raises(RuntimeError, match="trying to save more"):
        checkpoint(changing(short, long), leaf(1), use_reentrant=False).backward()
    checkpoint(changing(short, long), leaf(1), use_reentrant=False).backward()
    with pytest.raises(RuntimeError, match="different metadata"):
        checkpoint(changing(short, other), leaf(1), use_reentrant=False).backward()
    with (
        set_checkpoint_debug_enabled(True),
        pytest.raises(RuntimeError, match=r"(?s)aten\.exp.*recomputation.*aten\.sin"),
    ):
        checkpoint(changing(short, other), leaf(1), use_reentrant=False).backward()


def test_what_was_computed_again_is_let_go_of_after_backward():
    runs = []

    def part(x):
        runs.append(1)
        return x.exp()

    y = checkpoint(part, leaf(3), use_reentrant=False)
    first = y.grad_fn._saved_result
    again = weakref.ref(y.grad_fn._saved_result)
    assert len(runs) == 3 and first is not None
    gc.collect()
    assert again() is None
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert len(runs) == 5


def test_reentrant_checkpoints_refuse_gradients_of_given_inputs():
    a = leaf(2)
    y = checkpoint(fl.exp, a, use_reentrant=True).sum()
    with pytest.raises(RuntimeError, match="is incompatible"):
        fl.autograd.grad(y, a)


def test_a_failed_backward_leaves_nothing_to_the_next():
    calls, fails = [], [True]

    class Fails(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            if fails[0]:
                raise RuntimeError("once")
            return g

    a, b = leaf(2), leaf(2)
    register_multi_grad_hook((a, b), lambda grads: calls.append(len(grads)))
    out = (Fails.apply(a) * b).sum()
    with pytest.raises(RuntimeError, match="once"):
        out.backward(retain_graph=True)
    fails[0] = False
    out.backward()
    assert calls == [2]


def test_edges_take_the_gradient_of_one_for_scalars():
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    edge = fl.autograd.graph.get_gradient_edge(x.sin().sum())
    (g,) = fl.autograd.grad(edge, x)
    fl.testing.assert_close(g, x.detach().cos())
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        fl.autograd.grad(fl.autograd.graph.get_gradient_edge(x.sin().sum()), x, grad_outputs=fl.ones(3))


def test_the_running_backward_can_be_asked():
    seen = []
    a, b = leaf(2), leaf(2)
    product = a * b
    node = b.clone().grad_fn.next_functions[0][0]

    def look(grad):
        seen.append((fl._C._current_graph_task_id() >= 0, fl._C._will_engine_execute_node(node)))

    product.register_hook(look)
    product.sum().backward(inputs=[a], retain_graph=True)
    product.sum().backward()
    assert seen == [(True, False), (True, True)] and fl._C._current_graph_task_id() == -1


def test_forward_that_has_defaults_gives_them_to_setup_context():
    class Power(fl.autograd.Function):
        @staticmethod
        def forward(x, y=3):
            return x**y

        @staticmethod
        def setup_context(ctx, inputs, output):
            (x, ctx.y) = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.y * ctx.saved_tensors[0] ** (ctx.y - 1), None

    x = fl.tensor(2.0, requires_grad=True)
    Power.apply(x).backward()
    assert x.grad == 12
