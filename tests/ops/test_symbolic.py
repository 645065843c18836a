"""Symbolic integers: canonical forms, values, ranges, printing and guards, against Python's own integers."""

import operator
import pickle
import random

import pytest

import flambeau as fl
from flambeau.ops.symbolic import (
    DataDependentOutput,
    ShapeEnv,
    SymInt,
    evaluate,
    expr_of,
    python_condition,
    sym_max,
    sym_min,
)
from flambeau.ops.symbolic.expr import range_of, single_symbol


@pytest.fixture
def env():
    return ShapeEnv()


def sizes(env, *hints):
    return [env.create_symbol(h) for h in hints]


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda a, b: a * b * 3 + 1, "3 * s0 * s1 + 1"),
        (lambda a, b: (a * b) // b, "s0"),
        (lambda a, b: a // 4 * 4 + a % 4, "s0"),
        (lambda a, b: -(-a // 4), "((s0 + 3) // 4)"),
        (lambda a, b: a % 4, "(s0 % 4)"),
        (lambda a, b: (a * 4 + 2) // 4, "s0"),
        (lambda a, b: (a + 6 - 7) // 2 + 1, "((s0 + 1) // 2)"),
        (lambda a, b: (a // 2) // 3, "(s0 // 6)"),
        (lambda a, b: (a + b) ** 2 - a * a - b * b, "2 * s0 * s1"),
        (lambda a, b: sym_max(a, 0), "s0"),
        (lambda a, b: sym_max(a, 1), "max(s0, 1)"),
        (lambda a, b: sym_min(a + 1, a), "s0"),
        (lambda a, b: (a * a + a * b) // (a + b), "s0"),
        (lambda a, b: (a % 4) // 4, "0"),
    ],
)
def test_canonical_forms(env, make, text):
    assert str(make(*sizes(env, 12, 5))) == text


def test_equal_expressions_are_one_object(env):
    a, b = sizes(env, 3, 4)
    assert ((a + b) * 2).expr is (b * 2 + a * 2).expr
    assert (a == a) is True
    assert (a != a + 1) is True
    assert (a * 2 == b * 4 + 1) is False  # an even number is not odd
    assert not env.guards


def _random_value(rng, leaves, depth):
    """A symbolic expression and the same computed by Python for any values of the leaves."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.3:
            n = rng.randint(-3, 7)
            return n, lambda values: n
        i = rng.randrange(len(leaves))
        return leaves[i], lambda values: values[i]
    a, fa = _random_value(rng, leaves, depth - 1)
    b, fb = _random_value(rng, leaves, depth - 1)
    kind = rng.choice(["add", "sub", "mul", "floordiv", "mod", "max", "min"])
    if kind in ("floordiv", "mod"):
        d = rng.randint(1, 6)
        if rng.random() < 0.3:  # a divisor that is positive for all sizes
            leaf = rng.randrange(len(leaves))
            b, fb = leaves[leaf] + d, lambda values: values[leaf] + d
        else:
            b, fb = d, lambda values: d
    if kind in ("max", "min"):
        choose = max if kind == "max" else min
        return (sym_max if kind == "max" else sym_min)(a, b), lambda values: choose(fa(values), fb(values))
    op = getattr(operator, kind)
    return op(a, b), lambda values: op(fa(values), fb(values))


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions_agree_with_python(seed):
    rng = random.Random(seed)
    env = ShapeEnv()
    hints = [rng.randint(0, 9) for _ in range(3)]
    leaves = sizes(env, *hints)
    value, reference = _random_value(rng, leaves, 4)
    expr = expr_of(value)
    low, high = range_of(expr)
    if isinstance(value, SymInt):
        assert value.hint == reference(hints)
    for _ in range(12):
        numbers = [rng.randint(0, 12) for _ in range(3)]
        expected = reference(numbers)
        assert evaluate(expr, dict(zip(env.symbols, numbers))) == expected
        names = {f"s{i}": n for i, n in enumerate(numbers)}
        assert eval(str(expr), dict(names)) == expected
        assert low <= expected <= high


def test_zero_and_one_are_sizes_like_others(env):
    (a,) = sizes(env, 1)
    assert not isinstance(a == 1, bool)
    assert not isinstance(a == 0, bool)
    assert not env.guards


def test_branches_become_guards_with_the_users_line(env):
    a, b = sizes(env, 8, 4)
    if a > b * 2 - 1:
        pass
    (guard,) = env.guards
    assert guard.file == __file__
    assert "if a > b * 2 - 1" in str(guard)
    assert env.holds({env.symbols[0]: 9, env.symbols[1]: 4})
    assert not env.holds({env.symbols[0]: 3, env.symbols[1]: 4})


def test_what_follows_from_guards_is_not_asked_again(env):
    a, b = sizes(env, 8, 8)
    assert a >= 4
    assert a >= 3
    assert a != 0
    assert a != 1
    assert len(env.guards) == 1
    assert a == b
    assert len(env.guards) == 2
    assert env.simplify((a * b).expr) is env.simplify((a * a).expr)
    assert b >= 4
    assert len(env.guards) == 2


def test_divisibility_is_remembered(env):
    a, b = sizes(env, 8, 3)
    assert a % 4 == 0
    assert a // 4 * 4 == a
    assert a * b == b * 4 * (a // 4)
    assert len(env.guards) == 1


def test_specialising_is_a_guard(env):
    (a,) = sizes(env, 6)
    assert list(range(a)) == [0, 1, 2, 3, 4, 5]
    assert env.guard_texts() == ["s0 == 6"]
    assert env.simplify((a * 2).expr).constant == 12


def test_guards_print_with_sources(env):
    a = env.create_symbol(4, "x.size(0)")
    assert a % 2 == 0
    assert env.guard_texts() == ["(x.size(0) % 2) == 0"]


@pytest.mark.parametrize("seed", range(40))
def test_printed_conditions_say_what_they_mean(seed):
    rng = random.Random(seed)
    env = ShapeEnv()
    leaves = sizes(env, 3, 4, 5)
    left, f = _random_value(rng, leaves, 2)
    right, g = _random_value(rng, leaves, 2)
    compare = rng.choice([operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
    made = compare(left, right)
    for _ in range(10):
        numbers = [rng.randint(0, 9) for _ in range(3)]
        expected = compare(f(numbers), g(numbers))
        if isinstance(made, bool):
            assert made == expected
        else:
            names = {f"s{i}": n for i, n in enumerate(numbers)}
            assert eval(python_condition(made.condition), names) == expected
            assert made.condition.negated().holds(dict(zip(env.symbols, numbers))) != expected


def test_data_dependent_numbers_cannot_be_asked(env):
    u = env.create_unbacked()
    assert str(u * 2 + 1) == "2 * u0 + 1"
    with pytest.raises(DataDependentOutput, match="depends on data"):
        int(u)
    with pytest.raises(DataDependentOutput):
        bool(u > 3)
    env.check(u > 3)
    assert u >= 4
    assert u >= 0


def test_floats_of_sizes(env):
    (a,) = sizes(env, 9)
    half = a / 2
    assert isinstance(half, fl.SymFloat)
    assert half.hint == 4.5
    assert float(half) == 4.5
    assert env.holds({env.symbols[0]: 9})
    assert not env.holds({env.symbols[0]: 10})


def test_expressions_pickle_to_themselves(env):
    a, b = sizes(env, 3, 4)
    expr = ((a + b) // 2 * b).expr
    assert pickle.loads(pickle.dumps(expr)) is expr


def test_plain_numbers_stay_plain(env):
    (a,) = sizes(env, 3)
    assert a - a == 0
    assert type(a - a) is int
    assert type(a * 0) is int
    assert fl.sym_max(2, 3) == 3
    assert isinstance(a, fl.SymInt)


def test_bounds_of_quotients_hold_every_value(env):
    """Sums of sizes and of their quotients, against all values for small sizes."""
    rng = random.Random(0)
    a, b = sizes(env, 3, 4)
    for _ in range(200):
        e = a * rng.randint(-3, 3) + b * 2
        for _ in range(2):
            e = e + (rng.choice((a, b, a + b, a * 3)) + rng.randint(-3, 3)) // rng.randint(1, 5) * rng.randint(-4, 4)
        low, high = range_of(e.expr)
        for x in range(12):
            for y in range(12):
                assert low <= evaluate(e.expr, {single_symbol(a.expr): x, single_symbol(b.expr): y}) <= high
    assert range_of((a - a // 2).expr)[0] == 0
