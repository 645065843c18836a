"""What forward saves for backward: the least that is needed, and less with a smaller budget."""

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._functorch.aot.partition import partition, saved
from flambeau._functorch.aot.trace import trace_joint


def kept(function, *inputs, budget=1.0):
    """The sizes of what is saved beside the inputs, and the names of what is computed again."""
    trace = trace_joint(function, inputs)
    forward, backward = trace.calls[: trace.forward_calls], trace.calls[trace.forward_calls :]
    calls = partition(trace, forward, backward, budget)
    given = {v.storage for v in trace.inputs}
    sizes = sorted(v.size for v in saved(calls, trace) if v.storage not in given)
    return sizes, [call.op._opname for call in calls if call in forward]


def leaf(*size):
    return fl.randn(size, requires_grad=True)


def test_chains_of_one_pass_are_computed_again_from_the_inputs():
    sizes, again = kept(lambda x: [x.sin().exp().tanh()], leaf(5, 6))
    assert sizes == []
    assert again == ["sin", "exp", "tanh"]


@pytest.mark.host  # where memory is plentiful it is kept
def test_an_activation_between_products_is_computed_again():
    sizes, again = kept(lambda x, v, w: [F.linear(F.gelu(F.linear(x, v)), w)], leaf(8, 4), leaf(16, 4), leaf(4, 16))
    assert sizes == [(8, 16)]
    assert again == ["gelu"]


def test_the_smaller_of_two_values_is_saved():
    sizes, _ = kept(lambda x, w: [(x @ w).sum(1, keepdim=True).exp() * w.sum()], leaf(8, 16), leaf(16, 32))
    assert (8, 32) not in sizes


def test_what_is_written_is_saved():
    def function(x):
        y = x * 2
        z = y.exp()
        y.add_(1)
        return [z * y]

    _, again = kept(function, leaf(4))
    assert "mul" not in again and "exp" not in again


def test_what_backward_looks_for_again_is_saved():
    """The gradient of a maximum goes to the elements that equal it, so these must be the very same numbers."""
    _, again = kept(lambda x: [(x * 1.7 + 0.3).amax(1)], leaf(4, 5))
    assert "add" not in again


def test_random_numbers_are_saved():
    _, again = kept(lambda x: [F.dropout(x * 2, 0.5)], leaf(4))
    assert "native_dropout" not in again


@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_a_smaller_budget_saves_less(budget):
    def function(x, v, w):
        for _ in range(4):
            x = x + F.linear(F.gelu(F.linear(x, v)), w)
        return [x]

    inputs = leaf(8, 4), leaf(16, 4), leaf(4, 16)

    def elements(sizes):
        return sum(fl.Size(s).numel() for s in sizes)

    whole, _ = kept(function, *inputs)
    less, again = kept(function, *inputs, budget=budget)
    assert elements(less) <= budget * elements(whole)
    assert "linear" in again


def test_long_chains():
    def function(x):
        for _ in range(3000):
            x = x.sin()
        return [x]

    assert len(kept(function, leaf(2))[1]) == 2999
