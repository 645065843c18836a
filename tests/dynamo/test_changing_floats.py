"""A float that changes becomes an input: nothing is compiled for its value where its value decides nothing."""

from __future__ import annotations

import math
import warnings

import pytest

import flambeau as fl
from flambeau import nn
from flambeau._inductor.compile_fx import GraphCompiler

F = nn.functional
X = fl.linspace(-2, 2, 9)
VALUES = [0.5, 0.25, -1.5, 0.0, 2.5, 1e3, 0.1, 0.2, 0.3, 0.4, 1.0, 2.0, 7.5]


def _with_element(x, s):
    y = x.clone()
    y[0], y[2:4] = s, s * 2
    return y


PROGRAMS = {
    "alpha": lambda x, s: fl.add(x, x, alpha=s),
    "lerp": lambda x, s: fl.lerp(x, x * 2, s),
    "elu_and_operand": lambda x, s: F.elu(x, 1 + s * s) * s,
    "leaky_relu": lambda x, s: F.leaky_relu(x, s),
    "threshold": lambda x, s: F.threshold(x, s, s),
    "method": lambda x, s: x.addcmul(x, x, value=s),
    "clamp": lambda x, s: x.clamp(s, s + 1),
    "sqrt": lambda x, s: x * math.sqrt(s * s + 1),
    "exp_and_log": lambda x, s: x * math.exp(-abs(s)) + math.log(s * s + 2),
    "atan2": lambda x, s: x + math.atan2(s, 2.0),
    "smaller": lambda x, s: x * min(s * s, 1e9),
    "truth": lambda x, s: x * (s * s + 1 if s * s + 1 else 0),
    "decided": lambda x, s: x * s if s > -100 and s * 2 + 1 < 1e6 else x,
    "whole": lambda x, s: x * s + int(s / 1e6),
    "element": lambda x, s: _with_element(x, s),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_changing_float_is_an_input(name, requires_grad):
    program = PROGRAMS[name]
    compiled = fl.compile(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # at a limit
        for s in VALUES:
            ours, theirs = (X.clone().requires_grad_(requires_grad) for _ in range(2))
            a, b = compiled(ours, s), program(theirs, s)
            fl.testing.assert_close(a, b)
            if requires_grad:
                a.sum().backward()
                b.sum().backward()
                fl.testing.assert_close(ours.grad, theirs.grad)


def test_what_a_float_decides_is_guarded():
    program = lambda x, s: x * s if s * 2 > 1 else x - s  # noqa: E731
    compiled = fl.compile(program)
    for s in (0.1, 0.2, 0.9, 0.3, 0.8, 0.5, 0.51, math.nan, -math.inf, 0.7):
        fl.testing.assert_close(compiled(X, s), program(X, s), equal_nan=True)


def test_integers_made_of_floats_are_guarded():
    program = lambda x, s: x[: int(s)] + math.floor(s * 2) + (s == 2.0)  # noqa: E731
    compiled = fl.compile(program)
    for s in (1.2, 1.4, 2.0, 2.6, 2.2, 3.9, 1.9):
        fl.testing.assert_close(compiled(X, s), program(X, s))


def test_errors_of_functions_are_the_program_s():
    compiled = fl.compile(lambda x, s: x * math.sqrt(s))
    for s in (1.0, 2.0, 3.0):
        compiled(X, s)
    with pytest.raises(ValueError, match="math domain error"):
        compiled(X, -1.0)


def test_arguments_that_an_operator_checks_are_checked():
    compiled = fl.compile(lambda x, s: F.hardtanh(x, -s, s))
    for s in (1.0, 2.0, 3.0, 4.0):
        fl.testing.assert_close(compiled(X, s), F.hardtanh(X, -s, s))
    with pytest.raises(ValueError, match="min_val <= max_val"):
        compiled(X, -1.0)


def test_whether_equal_floats_are_one_object_is_not_assumed():
    program = lambda x, s: x + (1 if s is math.inf else 2)  # noqa: E731
    compiled = fl.compile(program)
    for s in (1.0, 2.0, math.inf, float("inf"), 3.0):
        fl.testing.assert_close(compiled(X, s), program(X, s))


STEADY = {
    "full_like": lambda x, n: fl.full_like(x, n) + x,
    "full_like_of_another_dtype": lambda x, n: fl.full_like(x, fill_value=n, dtype=fl.float64),
    "where": lambda x, n: fl.where(x > 0, n, x),
    "fill": lambda x, n: x.clone().fill_(n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "element": lambda x, n: _with_element(x, n),
    "operand": lambda x, n: x * n + n,
}


@pytest.mark.parametrize("name", STEADY)
@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("dtype", [fl.float32, fl.int64, fl.bool, fl.float16])
def test_no_graph_is_made_for_a_number_that_is_an_operand(name, kind, dtype, monkeypatch):
    made = []
    own = GraphCompiler._graph_for
    monkeypatch.setattr(GraphCompiler, "_graph_for", lambda self, inputs: (made.append(1), own(self, inputs))[1])
    program, x = STEADY[name], X.to(dtype)
    compiled = fl.compile(program)
    for n in range(12):
        value = kind(n) / 2 if kind is float else n - 3
        fl.testing.assert_close(compiled(x, value), program(x, value))
    assert len(made) <= 4 or (dtype is fl.bool and kind is float)  # only its value says what a fraction is as a boolean


def test_places_that_are_computed_from_integers():
    def program(x, n):
        y = x.clone()
        y[n % 7] = 1.0
        y[(n * 3) // 2 % 5] = n
        return y

    compiled = fl.compile(program)
    for n in range(1, 9):
        assert fl.equal(compiled(X, n), program(X, n))
