"""Autocast: which precision operators run in, nesting, the cache of parameters, own autograd functions."""

import threading

import pytest

import flambeau as fl
from flambeau.nn import functional as F


@pytest.fixture(autouse=True)
def leaves_no_trace():
    yield
    assert not fl.is_autocast_enabled("cpu")
    assert fl.get_autocast_dtype("cpu") == fl.bfloat16
    assert fl.is_autocast_cache_enabled()


def test_products_run_in_lower_precision():
    x, w = fl.ones(2, 3), fl.ones(3, 4)
    with fl.autocast("cpu"):
        assert (x @ w).dtype == fl.bfloat16
        assert F.linear(x, w.t(), fl.ones(4)).dtype == fl.bfloat16
        assert (x + x).dtype == fl.float32
    with fl.autocast("cpu", dtype=fl.float16):
        assert (x @ w).dtype == fl.float16
    assert (x @ w).dtype == fl.float32


def test_losses_run_in_float32():
    low = fl.ones(2, 3, dtype=fl.bfloat16)
    with fl.autocast("cpu"):
        assert F.mse_loss(low, low).dtype == fl.float32
        assert F.cross_entropy(low, fl.tensor([0, 1])).dtype == fl.float32
        assert low.prod().dtype == fl.float32
    assert F.mse_loss(low, low).dtype == fl.bfloat16


def test_joined_tensors_take_the_widest_dtype():
    with fl.autocast("cpu"):
        assert fl.cat([fl.ones(2), fl.ones(2, dtype=fl.bfloat16)]).dtype == fl.float32
        assert fl.stack([fl.ones(2, dtype=fl.bfloat16)] * 2).dtype == fl.bfloat16


def test_double_precision_and_integers_are_left_alone():
    with fl.autocast("cpu"):
        assert (fl.ones(2, 2, dtype=fl.float64) @ fl.ones(2, 2, dtype=fl.float64)).dtype == fl.float64
        assert (fl.ones(2, 2, dtype=fl.int64) @ fl.ones(2, 2, dtype=fl.int64)).dtype == fl.int64


def test_nesting():
    x = fl.ones(2, 2)
    with fl.autocast("cpu"):
        with fl.autocast("cpu", enabled=False):
            assert (x @ x).dtype == fl.float32
            with fl.autocast("cpu", dtype=fl.float16):
                assert (x @ x).dtype == fl.float16
        assert (x @ x).dtype == fl.bfloat16


def test_one_context_entered_twice():
    x, context = fl.ones(2, 2), fl.autocast("cpu")
    with context, context:
        assert (x @ x).dtype == fl.bfloat16
    assert (x @ x).dtype == fl.float32


def test_errors_leave_the_context():
    with pytest.raises(ZeroDivisionError), fl.autocast("cpu"):
        raise ZeroDivisionError


def test_decorator():
    @fl.autocast("cpu")
    def product(a):
        """Doc."""
        return a @ a

    assert product(fl.ones(2, 2)).dtype == fl.bfloat16
    assert product.__doc__ == "Doc."


def test_gradients_reach_parameters_in_their_dtype():
    w = fl.randn(4, 3, requires_grad=True)
    x = fl.randn(5, 3)
    with fl.autocast("cpu"):
        loss = F.linear(x, w).sum()
    loss.backward()
    assert w.grad.dtype == fl.float32
    assert fl.allclose(w.grad, x.sum(0).expand(4, 3), atol=5e-2)


def conversions(work):
    """How many nodes that convert a dtype the graph of a result has."""
    seen, stack, count = set(), [work.grad_fn], 0
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        count += "Copy" in node.name()
        stack.extend(n for n, _ in node.next_functions)
    return count


def test_a_parameter_is_converted_once():
    w = fl.randn(3, 3, requires_grad=True)
    x = fl.randn(3, 3, dtype=fl.bfloat16)
    with fl.autocast("cpu"):
        y = (x @ w) @ w
        assert conversions(y) == 1
    with fl.autocast("cpu", cache_enabled=False):
        y = (x @ w) @ w
        assert conversions(y) == 2
    y.sum().backward()
    assert w.grad.dtype == fl.float32


def test_the_cache_ends_with_the_outermost_context():
    w = fl.ones(2, 2, requires_grad=True)
    x = fl.eye(2)
    with fl.autocast("cpu"):
        with fl.autocast("cpu"):
            assert (x @ w)[0, 0] == 1
        with fl.no_grad():
            w.fill_(2.0)
        assert (x @ w)[0, 0] == 1  # as in PyTorch: one conversion for the whole context
    with fl.autocast("cpu"):
        assert (x @ w)[0, 0] == 2


def test_no_grad_does_not_spoil_the_cache():
    w = fl.ones(2, 2, requires_grad=True)
    with fl.autocast("cpu"):
        with fl.no_grad():
            w @ w
        (w @ w).sum().backward()
    assert w.grad is not None


def test_other_threads_are_not_concerned():
    found = []
    with fl.autocast("cpu"):
        thread = threading.Thread(target=lambda: found.append((fl.ones(2, 2) @ fl.ones(2, 2)).dtype))
        thread.start()
        thread.join()
    assert found == [fl.float32]


def test_in_place_and_out_forms_keep_their_tensor():
    a = fl.zeros(2, 2)
    with fl.autocast("cpu"):
        a.addmm_(fl.ones(2, 2), fl.ones(2, 2))
    assert a.dtype == fl.float32
    assert a[0, 0] == 2


def test_switches():
    assert fl.amp.is_autocast_available("cpu")
    fl.set_autocast_enabled("cpu", True)
    fl.set_autocast_dtype("cpu", fl.float16)
    try:
        assert fl.is_autocast_enabled("cpu")
        assert fl.is_autocast_cpu_enabled()
        assert not fl.is_autocast_enabled()
        assert (fl.ones(2, 2) @ fl.ones(2, 2)).dtype == fl.float16
    finally:
        fl.set_autocast_enabled("cpu", False)
        fl.set_autocast_dtype("cpu", fl.bfloat16)
    assert fl.autocast_increment_nesting() == 1
    assert fl.autocast_decrement_nesting() == 0


def test_cuda_is_off_without_cuda():
    with pytest.warns(UserWarning, match="CUDA is not available"):
        context = fl.autocast("cuda")
    with context:
        assert (fl.ones(2, 2) @ fl.ones(2, 2)).dtype == fl.float32


def test_dtypes_that_autocast_does_not_know():
    with pytest.warns(UserWarning, match="not supported"):
        context = fl.autocast("cpu", dtype=fl.float32)
    with context:
        assert (fl.ones(2, 2) @ fl.ones(2, 2)).dtype == fl.float32


def test_own_functions():
    class Product(fl.autograd.Function):
        @staticmethod
        @fl.amp.custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            ctx.inside = fl.is_autocast_enabled("cpu")
            return a @ b

        @staticmethod
        @fl.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            assert fl.is_autocast_enabled("cpu") == ctx.inside
            return g @ b.t(), a.t() @ g

    class Single(fl.autograd.Function):
        @staticmethod
        @fl.amp.custom_fwd(device_type="cpu", cast_inputs=fl.float32)
        def forward(ctx, a):
            assert not fl.is_autocast_enabled("cpu")
            assert a.dtype == fl.float32
            return a @ a

        @staticmethod
        @fl.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            return g

    a = fl.ones(2, 2, requires_grad=True)
    with fl.autocast("cpu"):
        y = Product.apply(a, a)
        assert y.dtype == fl.bfloat16
        z = Single.apply(y)
        assert z.dtype == fl.float32
    z.sum().backward()
    assert a.grad is not None
    Product.apply(a, a).sum().backward()


def test_meta_tensors_keep_their_dtype():
    with fl.autocast("cpu"):
        assert (fl.ones(2, 2, device="meta") @ fl.ones(2, 2, device="meta")).dtype == fl.float32
