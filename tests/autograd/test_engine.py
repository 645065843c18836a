"""The backward engine: accumulation, hooks, freed graphs, deep graphs, threads and the errors users know."""

import gc
import subprocess
import sys
import threading
import weakref

import pytest

import flambeau as fl


def leaf(*values):
    return fl.tensor(values, dtype=fl.float64, requires_grad=True)


def test_gradients_accumulate_in_leaves():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    (3 * x).sum().backward()
    assert x.grad.tolist() == [5.0, 7.0]
    del x.grad
    assert x.grad is None


def test_a_tensor_used_twice_gets_the_sum():
    x = leaf(2.0)
    y = x * x + x
    y.backward()
    assert x.grad.tolist() == [5.0]


def test_broadcast_dimensions_are_summed():
    a = fl.ones(3, 1, requires_grad=True)
    b = fl.ones(4, requires_grad=True)
    (a * b).sum().backward()
    assert a.grad.tolist() == [[4.0]] * 3
    assert b.grad.tolist() == [3.0] * 4


def test_grad_leaves_dot_grad_alone():
    x = leaf(3.0)
    (g,) = fl.autograd.grad(x * x, x)
    assert g.tolist() == [6.0] and x.grad is None


def test_grad_of_an_unused_input():
    x, y = leaf(1.0), leaf(1.0)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        fl.autograd.grad(x * 2, (x, y))
    assert fl.autograd.grad(x * 2, (x, y), allow_unused=True)[1] is None
    assert fl.autograd.grad(x * 2, (x, y), materialize_grads=True)[1].tolist() == [0.0]


def test_batched_gradients():
    x = leaf(1.0, 2.0)
    y = x * x
    (g,) = fl.autograd.grad(y, x, fl.eye(2, dtype=fl.float64), is_grads_batched=True)
    assert g.tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_backward_into_chosen_inputs_only():
    x, y = leaf(1.0), leaf(2.0)
    (x * y).backward(inputs=[x])
    assert x.grad.tolist() == [2.0] and y.grad is None


def test_second_derivatives():
    x = leaf(2.0)
    (g,) = fl.autograd.grad(x**4, x, create_graph=True)
    (gg,) = fl.autograd.grad(g, x)
    assert gg.tolist() == [48.0]


def test_nodes_describe_themselves():
    x = leaf(1.0)
    y = (x * 2).exp()
    assert y.grad_fn.name() == "ExpBackward0"
    assert type(y.grad_fn).__name__ == "ExpBackward0"
    inner = y.grad_fn.next_functions[0][0]
    assert inner.name() == "MulBackward0"
    assert inner.next_functions[0][0].variable is x
    inner.metadata["note"] = 1
    assert inner.metadata == {"note": 1}
    assert "grad_fn=<ExpBackward0>" in repr(y)


# ---------------------------------------------------------------- hooks


def test_hooks_run_in_order_and_can_be_removed():
    x = leaf(1.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(("first", g.item())))
    handle = y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(("third", g.item())))
    y.retain_grad()
    y.backward(retain_graph=True)
    assert seen == [("first", 1.0), ("third", 10.0)]
    assert x.grad.tolist() == [20.0] and y.grad.tolist() == [10.0]
    handle.remove()
    x.grad = None
    y.backward()
    assert x.grad.tolist() == [2.0]


def test_leaf_hooks_see_gradients_of_grad_too():
    x = leaf(1.0)
    x.register_hook(lambda g: g + 1)
    assert fl.autograd.grad(x * 2, x)[0].tolist() == [3.0]
    (x * 2).backward()
    assert x.grad.tolist() == [3.0]


def test_post_accumulate_hooks():
    x = leaf(1.0)
    seen = []
    with x.register_post_accumulate_grad_hook(lambda p: seen.append((p is x, p.grad.item()))):
        (x * 3).backward()
    (x * 3).backward()
    assert seen == [(True, 3.0)]
    with pytest.raises(RuntimeError, match="non-leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)
    for value, error in ((3, TypeError), (leaf(1.0), RuntimeError)):
        with x.register_post_accumulate_grad_hook(lambda p, value=value: value), pytest.raises(error, match="None"):
            (x * 3).backward()


def test_node_hooks():
    x = leaf(1.0)
    y = x * 2
    z = y * 3
    z.grad_fn.register_prehook(lambda grads: (grads[0] * 5,))
    y.grad_fn.register_hook(lambda inputs, outputs: tuple(None if g is None else g + 1 for g in inputs))
    z.backward()
    assert x.grad.tolist() == [31.0]


def test_multi_grad_hook():
    x, y, z = leaf(1.0), leaf(2.0), leaf(3.0)
    seen = []
    handle = fl.autograd.graph.register_multi_grad_hook((x, y, z), lambda grads: seen.append(grads))
    (x * y).backward()
    assert [None if g is None else g.item() for g in seen[0]] == [2.0, 1.0, None]
    handle.remove()
    (x * y).backward()
    assert len(seen) == 1


def test_pack_hooks_record_nothing():
    seen = []
    x = fl.ones(2, requires_grad=True)
    with fl.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(fl.is_grad_enabled()), t * 1)[1], lambda t: t):
        y = (x * x).sum()
    assert seen == [False, False] and fl.is_grad_enabled()
    y.backward()
    assert x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(ZeroDivisionError), fl.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t):
        x * x
    assert fl.is_grad_enabled()


def test_what_was_packed_is_unpacked_once():
    unpacked = []
    x = fl.ones(3, requires_grad=True)
    for function in (lambda x: x * x * x, lambda x: (x.exp() * x).sin()):
        with fl.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: (unpacked.append(1), t)[1]):
            y = function(x).sum()
        for options in ({"retain_graph": True}, {"create_graph": True}):
            unpacked.clear()
            fl.autograd.grad(y, x, **options)
            assert len(unpacked) == 4


def test_saved_tensors_hooks():
    x = leaf(2.0)
    packed = []

    def pack(t):
        packed.append(t.item())
        return str(t.item())

    with fl.autograd.graph.saved_tensors_hooks(pack, lambda s: fl.tensor([float(s)], dtype=fl.float64)):
        y = x * x
    y.backward()
    assert packed == [2.0, 2.0] and x.grad.tolist() == [4.0]
    with fl.autograd.graph.save_on_cpu():
        (x.exp()).backward()
    with (
        fl.autograd.graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
        fl.autograd.graph.saved_tensors_hooks(pack, float),
    ):
        pass


def test_errors_in_hooks_carry_the_users_trace():
    x = leaf(1.0)
    y = x * 2

    def broken_hook(g):
        raise KeyError("from the hook")

    y.register_hook(broken_hook)
    with pytest.raises(KeyError, match="from the hook") as caught:
        y.backward()
    assert any(entry.name == "broken_hook" for entry in caught.traceback)


# ---------------------------------------------------------------- misuse


def test_backward_twice():
    x = leaf(1.0)
    y = x * x
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    z = x * x
    z.backward(retain_graph=True)
    z.backward()


def test_non_scalar_needs_a_gradient():
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (leaf(1.0, 2.0) * 2).backward()


def test_wrong_gradient_shape():
    y = leaf(1.0, 2.0) * 2
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        y.backward(fl.ones(3, dtype=fl.float64))


def test_tensor_without_history():
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        fl.ones(1).backward()


def test_modified_saved_tensor_is_named_with_its_versions():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*version 1; expected version 0"):
        y.sum().backward()


def test_integers_cannot_require_grad():
    with pytest.raises(RuntimeError, match="floating point"):
        fl.ones(2, dtype=fl.int64).requires_grad_()


def test_requires_grad_of_a_result_cannot_be_turned_off():
    y = leaf(1.0) * 2
    with pytest.raises(RuntimeError, match="leaf variables"):
        y.requires_grad = False


# ---------------------------------------------------------------- life time


def test_deep_graphs_run_and_are_freed():
    x = fl.ones(1, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 1
    y.backward()
    assert x.grad.tolist() == [1.0]
    del y


def test_buffers_die_when_their_last_user_ran():
    x = leaf(1.0)
    y = x * 2
    kept = y.exp()
    saved = weakref.ref(y)
    z = kept * y
    del y
    z.backward()
    gc.collect()
    assert saved() is None


def test_retaining_a_gradient_makes_no_cycle():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    gone = weakref.ref(y)
    gc.disable()
    try:
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_a_hook_that_refers_to_its_tensor_is_collected():
    x = leaf(1.0)
    x.register_hook(lambda g, own=x: g * own)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_python_identity_survives_the_graph():
    x = leaf(1.0)
    x.note = "mine"
    y = x * 2
    del x
    gc.collect()
    assert y.grad_fn.next_functions[0][0].variable.note == "mine"


# ---------------------------------------------------------------- threads


def run_in_threads(work, count=4):
    errors = []

    def guarded(i):
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    assert not errors, errors[0]


def test_backward_from_four_threads_on_separate_graphs():
    def work(i):
        for _ in range(50):
            x = fl.full((64,), float(i + 1), requires_grad=True)
            (x * x).sin().sum().backward()
            expected = 2 * x.detach() * (x.detach() * x.detach()).cos()
            assert fl.allclose(x.grad, expected)

    run_in_threads(work)


def test_backward_from_four_threads_on_a_shared_graph():
    x = leaf(1.0, 2.0)
    y = (x * x).exp()
    expected = (2 * x * (x * x).exp()).detach()

    def work(i):
        for _ in range(25):
            y.sum().backward(retain_graph=True)

    run_in_threads(work)
    assert fl.allclose(x.grad, expected * 100)


def live_tensors():
    gc.collect()
    return sum(issubclass(type(o), fl.Tensor) for o in gc.get_objects())


def network_step(x, weights):
    """Ops with native, fused and Python derivatives, views and a write in place."""
    h = x
    for w in weights:
        h = fl.nn.functional.layer_norm((h @ w).tanh(), (8,))
    a, b = h.split(4, 1)
    out = fl.cat([a * 2, b.clone().mul_(3)], 1)
    return fl.nn.functional.cross_entropy(out, fl.zeros(len(out), dtype=fl.int64, device=out.device))


@pytest.mark.parametrize("shared", [False, True], ids=["separate", "shared"])
def test_threads_leave_nothing_behind(shared):
    """Objects and memory are after many backward passes of four threads what they were before."""
    fl.manual_seed(0)
    weights = [fl.randn(8, 8, requires_grad=True) for _ in range(3)]
    x = fl.randn(16, 8)
    loss = network_step(x, weights) if shared else None

    def work(i):
        own = weights if shared else [w.detach().clone().requires_grad_() for w in weights]
        for _ in range(20):
            (network_step(x, own) if loss is None else loss).backward(retain_graph=shared)

    def run():
        run_in_threads(work)
        for w in weights:
            w.grad = None

    run()  # caches fill
    objects, memory = live_tensors(), fl._C._memory_stats()["allocated"]
    for _ in range(3):
        run()
    assert live_tensors() == objects
    assert fl._C._memory_stats()["allocated"] == memory


def test_threads_add_up_in_shared_weights():
    """Four threads with graphs of their own over the same leaves."""
    w = fl.ones(64, dtype=fl.float64, requires_grad=True)

    def work(i):
        for _ in range(50):
            (w * (i + 1.0)).sum().backward()

    run_in_threads(work)
    assert w.grad.tolist() == [50.0 * (1 + 2 + 3 + 4)] * 64


def test_hooks_run_in_the_thread_that_calls_backward():
    seen = {}

    def work(i):
        x = leaf(1.0)
        x.register_hook(lambda g: seen.update({i: threading.get_ident()}))
        (x * 2).backward()
        assert seen[i] == threading.get_ident()

    run_in_threads(work)
    assert len(set(seen)) == 4


def test_an_error_in_one_thread_does_not_reach_the_others():
    def work(i):
        x = leaf(1.0)
        y = x * x
        y.backward()
        if i % 2:
            with pytest.raises(RuntimeError, match="second time"):
                y.backward()
        (x * x).backward()
        assert x.grad.tolist() == [4.0]

    run_in_threads(work)


def test_modes_belong_to_their_thread():
    seen = []
    with fl.no_grad():
        run_in_threads(lambda i: seen.append(fl.is_grad_enabled()), 1)
    assert seen == [True]


def test_gradients_of_different_broadcast_shapes_meet_at_one_tensor():
    x = leaf(1.0, 2.0, 3.0)
    (x.unsqueeze(1) * x).sum().backward()  # one path broadcasts x itself, the other a view of it
    assert x.grad.tolist() == [12.0, 12.0, 12.0]
    (grad,) = fl.autograd.grad(fl.outer(x, x).sum() + (x * fl.ones(2, 3)).sum(), x)
    assert grad.tolist() == [14.0, 14.0, 14.0]


STEPS = {
    "relu": fl.relu,
    "relu in place": lambda x: fl.relu_(x.clone()),
    "leaky": lambda x: fl.nn.functional.leaky_relu(x, 0.2),
    "threshold": lambda x: fl.nn.functional.threshold(x, 0.1, 0.0),
    "hardtanh": fl.nn.functional.hardtanh,
    "relu6": fl.nn.functional.relu6,
    "hardshrink": fl.nn.functional.hardshrink,
    "softshrink": fl.nn.functional.softshrink,
    "abs": fl.abs,
    "l1": lambda x: fl.nn.functional.l1_loss(x, fl.zeros_like(x)),
    "prelu": lambda x: fl.nn.functional.prelu(x, fl.tensor([0.25], dtype=x.dtype)),
}


@pytest.mark.parametrize("name", STEPS)
def test_slopes_that_are_steps_have_a_derivative_of_zero(name):
    x = leaf(-1.5, -0.3, 0.2, 0.7, 3.5)
    (slope,) = fl.autograd.grad(STEPS[name](x).sum(), x, create_graph=True)
    assert fl.autograd.grad(slope.sum(), x)[0].tolist() == [0.0] * 5


def test_a_penalty_on_slopes_gives_biases_a_gradient_of_zero():
    net = fl.nn.Sequential(fl.nn.Linear(3, 4), fl.nn.LeakyReLU(0.2), fl.nn.Linear(4, 1))
    x = fl.ones(2, 3, requires_grad=True)
    (slope,) = fl.autograd.grad(net(x).sum(), x, create_graph=True)
    ((slope.norm(2, dim=1) - 1) ** 2).mean().backward()
    assert net[0].weight.grad.abs().sum() > 0
    assert net[0].bias.grad.tolist() == [0.0] * 4
    assert net[2].bias.grad is None


def test_the_interpreter_ends_with_gradients_in_its_globals():
    program = "import flambeau as fl; x = fl.ones(3, requires_grad=True); x.grad = fl.ones(3) * 2; x.grad.note = 1"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_gradients_lie_in_memory_as_their_tensors_do():
    x = fl.ones(2, 3, requires_grad=True)
    (x.transpose(0, 1).contiguous() * fl.arange(6.0).reshape(3, 2)).transpose(0, 1).sum().backward()
    assert x.grad.stride() == (3, 1)
    assert x.grad.view(-1).tolist() == [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]
    y = fl.ones(3, 2).t().requires_grad_()
    (y * fl.arange(6.0).reshape(2, 3)).sum().backward()
    assert y.stride() == y.grad.stride() == (1, 2)
    assert y.grad.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    z = fl.ones(1, requires_grad=True)
    wide = z.detach().expand(3).requires_grad_()
    (wide * fl.arange(3.0)).sum().backward()
    assert wide.grad.stride() == (1,) and wide.grad.tolist() == [0.0, 1.0, 2.0]


def test_nodes_have_the_names_that_programs_print():
    F = fl.nn.functional
    x, w, b = fl.ones(2, 3, requires_grad=True), fl.ones(4, 3, requires_grad=True), fl.ones(4, requires_grad=True)
    image, kernel = fl.ones(1, 2, 4, 4, requires_grad=True), fl.ones(2, 2, 3, 3, requires_grad=True)
    target, index = fl.ones(2, 3), fl.tensor([0, 1])
    for made, name in (
        (F.linear(x, w, b), "Addmm"), (F.linear(x, w), "Mm"), (F.linear(x[None], w, b), "View"), (x @ w.t(), "Mm"),
        (x[None] @ w.t(), "UnsafeView"), (b @ b, "Dot"), (F.conv2d(image, kernel), "Convolution"),
        (F.conv_transpose2d(image, kernel), "Convolution"), (F.max_pool2d(image, 2), "MaxPool2DWithIndices"),
        (F.interpolate(image, scale_factor=2), "UpsampleNearest2D"),
        (F.interpolate(image, scale_factor=2, mode="bilinear"), "UpsampleBilinear2D"),
        (F.pad(image, (1, 1, 1, 1), mode="reflect"), "ReflectionPad2D"), (F.cross_entropy(x, index), "NllLoss"),
        (F.mse_loss(x, target), "MseLoss"), (F.mse_loss(x, target, reduction="none"), "MseLoss"),
        (F.smooth_l1_loss(x, target, reduction="sum"), "SmoothL1Loss"), (F.huber_loss(x, target), "HuberLoss"),
        (F.binary_cross_entropy_with_logits(x, target), "BinaryCrossEntropyWithLogits"), (x.mean(), "Mean"),
        (fl.minimum(x, target), "Minimum"), (fl.min(x, target), "Minimum"), (x.norm(), "LinalgVectorNorm"),
    ):  # fmt: skip
        assert type(made.grad_fn).__name__ == name + "Backward0"
    for made, name in (
        (x.sum(1), "Sum"),
        (x.mean(0), "Mean"),
        (x.max(), "Max"),
        (x**x, "Pow"),
        (x.clamp(0, 1), "Clamp"),
    ):
        assert made.grad_fn.name() == name + "Backward1"
    assert "grad_fn=<MseLossBackward0>" in repr(F.mse_loss(x, target))
    hidden = F.linear(x, w, b)
    loss = F.mse_loss(hidden, fl.zeros(2, 4))
    assert [type(node).__name__ for node, _ in loss.grad_fn.next_functions if node is not None] == ["AddmmBackward0"]
    assert loss.grad_fn.next_functions[0][0] is hidden.grad_fn
    loss.backward()
    assert w.grad is not None
