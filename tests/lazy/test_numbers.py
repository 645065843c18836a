"""Python numbers in recorded programs: other ones need no other program, and are used as they are."""

import math

import pytest

import flambeau as fl
from flambeau import lazy

F = fl.nn.functional

NUMBERS = [0.5, 1.5, -2.25, 0.0, 3.0, math.inf, -0.5]
CALLS = {
    "multiply": lambda x, n: x * n,
    "divide by": lambda x, n: n / x,
    "add a multiple": lambda x, n: fl.add(x, x, alpha=n),
    "subtract from a multiple": lambda x, n: fl.rsub(x, x + 1, alpha=n),
    "addcmul": lambda x, n: fl.addcmul(x, x, x, value=n),
    "power": lambda x, n: x.abs() ** n,
    "power of": lambda x, n: abs(n) ** x,
    "clamp": lambda x, n: x.clamp(-1, n),
    "compare": lambda x, n: (x > n).float(),
    "where": lambda x, n: fl.where(x > 0, x, n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "fill_": lambda x, n: fl.empty_like(x).fill_(n),
    "full": lambda x, n: fl.full((4,), n, device=x.device),
    "lerp": lambda x, n: fl.lerp(x, x * x, n),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "elu": lambda x, n: F.elu(x, n),
    "remainder": lambda x, n: x % n,
    "clip by value": lambda x, n: fl._foreach_clamp_max([x], n)[0],
}


def outcomes(call, device, numbers, dtype=fl.float32):
    """Values, gradients and compilations of steps with the given numbers."""
    values, gradients, compiled = [], [], []
    x = fl.tensor([-1.5, -0.25, 0.75, 2.0]).to(dtype).to(device).requires_grad_(dtype.is_floating_point)
    for number in numbers:
        before = len(lazy.compilations())
        x.grad = None
        y = call(x, number) * 1.0
        if y.requires_grad:
            y.sum().backward()
        lazy.mark_step()
        compiled.append(len(lazy.compilations()) - before)
        values.append(y.detach().cpu())
        gradients.append(x.grad.cpu() if x.grad is not None else None)
    return values, gradients, compiled


@pytest.mark.parametrize("name", CALLS)
def test_other_numbers_compile_nothing_once_they_changed(name):
    values, gradients, compiled = outcomes(CALLS[name], "lazy", NUMBERS)
    expected, expected_gradients, _ = outcomes(CALLS[name], "cpu", NUMBERS)
    for got, want in zip(values + gradients, expected + expected_gradients):
        if want is not None:
            fl.testing.assert_close(got, want, equal_nan=True)
    assert sum(compiled[3:]) == 0, compiled


@pytest.mark.parametrize("dtype", [fl.float32, fl.int64, fl.bool])
@pytest.mark.parametrize("call", [lambda x, n: x + n, lambda x, n: x * n, lambda x, n: (x == n).float()])
def test_integers_become_parameters_once_they_changed(call, dtype):
    numbers = [2, 3, 0, -1, 7, 1]
    values, _, compiled = outcomes(call, "lazy", numbers, dtype)
    expected, _, _ = outcomes(call, "cpu", numbers, dtype)
    assert all(got.dtype is want.dtype and got.tolist() == want.tolist() for got, want in zip(values, expected))
    assert sum(compiled[3:]) == 0, compiled


def test_kinds_of_numbers_are_told_apart():
    x = fl.ones(3, dtype=fl.int64, device="lazy")
    for number in (2, 2.5, True, 3, 1.5, False, 2, 4.5):
        y, z = (x * number).relu() + 1, fl.ones(3, dtype=fl.int64).mul(number).relu() + 1
        lazy.mark_step()
        assert (y.dtype, y.tolist()) == (z.dtype, z.tolist())


def test_a_factor_in_forward_is_a_parameter_of_backward():
    model = fl.nn.Linear(4, 4, device="lazy")
    x, compiled = fl.ones(2, 4, device="lazy"), []
    for step in range(5):
        before = len(lazy.compilations())
        model.zero_grad()
        (model(x) * (1 + step / 10)).square().mean().backward()
        lazy.mark_step()
        compiled.append(len(lazy.compilations()) - before)
    assert sum(compiled[2:]) == 0, compiled


def test_numbers_that_have_to_be_constants_stay_so():
    x = fl.arange(4.0).to("lazy")
    for epsilon in (1e-5, 1e-3, 0.1, 0.5):  # of an operator that is taken apart
        y = F.layer_norm(x, (4,), eps=epsilon) * 2
        lazy.mark_step()
        fl.testing.assert_close(y.cpu(), F.layer_norm(fl.arange(4.0), (4,), eps=epsilon) * 2)
