"""Random numbers of Python's `random` in compiled functions: the plain program's numbers, and its state afterwards."""

import random

import pytest

import flambeau as fl
from flambeau._dynamo.testing import CompileCounter

OWN = random.Random(7)


def scaled(x):
    factor, shift = random.random(), random.randint(1, 9)
    random.gauss(0, 1)  # drawn, though nobody reads it
    return x * factor + shift, factor, shift, factor * 2 + shift


def own(x):
    return x * OWN.uniform(-1, 1), OWN.getrandbits(8)


def dropped(x):
    x = x + 1
    if random.random() < 0.5:
        x = x * 2
    return x + random.uniform(2, 3)


def picked(x):
    order = [1, 2, 3]
    random.shuffle(order)
    return x * order[0] + random.choice(order) + order[random.randint(0, 2)]


def seeded(x):
    random.seed(5)
    return x * random.random()


def run(function, generator):
    generator.seed(3)
    made = [function(fl.ones(3)) for _ in range(6)]
    return [value if isinstance(value, tuple) else (value,) for value in made], generator.getstate()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [scaled, own, dropped, picked, seeded])
def test_numbers_and_state_are_those_of_the_plain_program(function, backend):
    generator = OWN if function is own else random
    expected, state = run(function, generator)
    found, after = run(fl.compile(function, backend=backend), generator)
    assert after == state
    for wanted, got in zip(expected, found):
        assert fl.allclose(wanted[0], got[0]) and wanted[1:] == got[1:]


@pytest.mark.parametrize("function", [scaled, own])
def test_numbers_are_inputs_of_one_graph(function):
    counter = CompileCounter()
    fast = fl.compile(function, backend=counter, fullgraph=True)
    for _ in range(3):
        fast(fl.ones(3))
    assert counter.frame_count == 1


def test_integers_stay_integers():
    fast = fl.compile(lambda x: x + random.randint(0, 5), backend="aot_eager", fullgraph=True)
    assert fast(fl.ones(2, dtype=fl.int64)).dtype == fl.int64


def test_errors_of_a_draw_are_the_programs():
    with pytest.raises(ValueError, match="empty range"):
        fl.compile(lambda x: x + random.randint(5, 1), backend="eager")(fl.ones(2))
