"""Own derivatives that look at values are one call of the compiled program; what cannot be compiled is not tried again."""

import pytest

import flambeau as fl
from flambeau._functorch.aot import trace
from flambeau._inductor.compile_fx import compile_tensor_function


@pytest.fixture
def records(monkeypatch):
    """How many functions were recorded."""
    found = []
    run = trace._run
    monkeypatch.setattr(trace, "_run", lambda *args: found.append(None) or run(*args))
    return found


class Groups(fl.autograd.Function):
    """A product of rows in groups, whose sizes are values."""

    @staticmethod
    def forward(ctx, rows, weights, ends):
        ctx.save_for_backward(rows, weights)
        ctx.ends = ends
        return fl.nn.functional.grouped_mm(rows, weights, offs=ends)

    @staticmethod
    def backward(ctx, grad):
        rows, weights = ctx.saved_tensors
        to_rows, to_weights = fl.zeros_like(rows), fl.zeros_like(weights)
        start = 0
        for i, end in enumerate(ctx.ends.tolist()):
            to_rows[start:end] = grad[start:end] @ weights[i].T
            to_weights[i] = rows[start:end].T @ grad[start:end]
            start = end
        return to_rows, to_weights, None


@pytest.fixture
def inputs():
    fl.manual_seed(0)
    return fl.randn(6, 4, requires_grad=True), fl.randn(3, 4, 5, requires_grad=True)


def gradients(function, inputs, ends):
    result = function(*inputs, fl.tensor(ends, dtype=fl.int32))
    return [result, *fl.autograd.grad(result.sin().sum(), inputs)]


def program(rows, weights, ends):
    return Groups.apply(rows * 2, weights.exp(), ends).tanh()


def test_derivative_of_groups(inputs, records):
    compiled = compile_tensor_function(lambda *given: [program(*given)], 3)

    def fast(*given):
        return compiled(*given)[0]

    for ends in ([2, 3, 6], [0, 6, 6], [1, 2, 6]):
        for got, want in zip(gradients(fast, inputs, ends), gradients(program, inputs, ends)):
            assert fl.allclose(got, want, atol=1e-5)
    assert len(records) == 1


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_derivative_of_an_operator_of_the_library(inputs, records, mode, device):
    @fl.library.custom_op("own_derivatives::scale", mutates_args=())
    def scale(x: fl.Tensor, by: fl.Tensor, power: int) -> fl.Tensor:
        return x * by.item() ** power

    scale.register_fake(lambda x, by, power: fl.empty_like(x))

    def setup_context(ctx, inputs, output):
        ctx.factors, ctx.power = {"by": inputs[1]}, inputs[2]

    scale.register_autograd(
        lambda ctx, grad: (grad * ctx.factors["by"].item() ** ctx.power, None, None), setup_context=setup_context
    )

    def function(x, by):
        return scale(x + 1, by, 2).sin()

    fast = fl.compile(function, fullgraph=True, mode=mode)
    x = inputs[0]
    for factor in (2.0, 3.0, 0.5, 1.5):
        by = fl.tensor(factor, device=device)
        for run in (fast, function):
            x.grad = None
            run(x, by).sum().backward()
            want = factor**2 * ((x.detach() + 1) * factor**2).cos()
            assert fl.allclose(x.grad, want, atol=1e-5)
    assert len(records) == 1


def test_errors_of_derivatives_are_raised_by_backward(inputs):
    class Wrong(fl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ArithmeticError("no derivative")

    (result,) = compile_tensor_function(lambda x: [Wrong.apply(x).sin()], 1)(inputs[0])
    with pytest.raises(ArithmeticError, match="no derivative"):
        result.sum().backward()


def test_what_cannot_be_compiled_is_recorded_once(records):
    @fl.library.custom_op("own_derivatives::count", mutates_args=())
    def count(x: fl.Tensor) -> fl.Tensor:
        return x.sum() if x.sum().item() > 0 else -x.sum()

    def fake(x):
        raise RuntimeError("unknown without data")

    count.register_fake(fake)

    def function(x):
        return count(x) * 2

    fast = compile_tensor_function(lambda x: [function(x)], 1)
    for factor in (1.0, -1.0, 2.0):
        assert fast(fl.ones(3) * factor)[0].item() == 6 * abs(factor)
    assert len(records) == 1
    assert fast(fl.ones(4))[0].item() == 8 and len(records) == 2
