"""Numbers and their text in scripts: 64-bit integers, floats that never raise; containers shared between objects."""

import math
from typing import Any

import pytest

import flambeau as torch


def script(function):
    return torch.jit.script(function)


def test_integers_wrap_around_at_64_bits():
    def hash_of(n: int):
        h = 5381
        for i in range(n):
            h = h * 33 + i
        return h, (n << 62), h % 1000

    expected = 5381
    for i in range(40):
        expected = (expected * 33 + i + 2**63) % 2**64 - 2**63
    assert script(hash_of)(40) == (expected, 0, expected % 1000)


def quotients(a: float, b: float):
    return a / b, a // b, a % b


def functions(a: float):
    return math.log(a), math.sqrt(a), math.acos(a), math.exp(a * 1e4), a**0.5, math.lgamma(a), math.gamma(a)


def test_floats_become_infinite_or_nan():
    divided = script(quotients)(-1.0, 0.0)
    assert divided[:2] == (-math.inf, -math.inf) and math.isnan(divided[2])
    results = script(functions)(-3.0)
    assert [math.isnan(r) for r in results] == [True, True, True, False, True, False, True]
    assert results[3] == 0.0 and results[5] == math.inf
    assert script(functions)(3.0)[3] == math.inf


def parts(a: float):
    return math.modf(a), math.frexp(a), divmod(a, 2.0)


def test_functions_with_two_results():
    assert script(parts)(5.5) == ((0.5, 5.0), (0.6875, 3), (2.0, 1.5))


def shown(a: float, b: dict[str, list[float]]):
    return f"{a}", "{} {}".format(b, (a, "s")), str([str(a)]), f"{a}"


def test_text_of_numbers_and_containers():
    assert script(shown)(2.0, {"k": [0.5]}) == ("2.", "{k: [0.5]} (2., s)", "[2.]", "2.")
    assert script(shown)(0.1, {})[0] == "0.10000000000000001"


@torch.jit.script
class Log:
    def __init__(self, lines: list[int], number: int):
        self.lines = lines
        self.number = number

    def __enter__(self) -> int:
        self.lines.append(self.number)
        return self.number

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.lines.append(-self.number)

    def __add__(self, other: "Log") -> "Log":
        return Log(self.lines, self.number + other.number)


def logged(n: int):
    lines: list[int] = []
    with Log(lines, n), Log(lines, n + 1):
        pass
    return lines


def test_objects_share_the_containers_they_are_given():
    assert script(logged)(3) == [3, 4, -4, -3]


def test_operators_of_instances_work_in_python():
    assert (Log([], 1) + Log([], 2)).number == 3


def ordered(n: int):
    return sorted([n, 1], reverse=True)


def test_keywords_that_are_not_understood_are_refused():
    with pytest.raises(RuntimeError, match="'sorted' takes no keyword arguments in TorchScript, got 'reverse'"):
        script(ordered)


def test_shared_lists_keep_the_type_of_their_elements():
    numbers = torch.jit.script([1, 2])
    with pytest.raises(TypeError, match="expected an element of type int, got str"):
        numbers.append("x")
    assert str(torch.jit.script({"a": 1})) == "{a: 1}"


def distinct(x: torch.Tensor):
    return torch.unique(x, return_counts=True), torch.unique(x), torch.unique_consecutive(x, return_inverse=True)


def test_constants_choose_how_many_results_a_function_has():
    (values, counts), alone, (runs, inverse) = script(distinct)(torch.tensor([1, 1, 3]))
    assert values.tolist() == [1, 3] and counts.tolist() == [2, 1] and alone.tolist() == [1, 3]
    assert runs.tolist() == [1, 3] and inverse.tolist() == [0, 0, 1]
