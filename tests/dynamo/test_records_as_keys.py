"""Frozen dataclasses of constants as keys of dictionaries, which are hashed and compared by their fields."""

import dataclasses

import pytest

import flambeau as fl


@dataclasses.dataclass(frozen=True)
class Shape:
    scale: float
    count: int


@dataclasses.dataclass(frozen=True)
class Layer:
    shape: Shape
    name: str


OUTSIDE = Shape(2.5, 3)


def made_inside(x):
    table = {Layer(Shape(1.5, 2), "a"): 2}
    table[Layer(Shape(1.5, 2), "b")] = 3
    return x * table[Layer(Shape(1.5, 2), "a")] + (Layer(Shape(1.5, 2), "b") in table) + len(table)


def test_keys_that_are_made_inside():
    x = fl.ones(2)
    assert fl.equal(fl.compile(made_inside, backend="eager", fullgraph=True)(x), made_inside(x))


def test_keys_from_outside_are_guarded_by_their_fields():
    global OUTSIDE

    def looked_up(x):
        return x * {Shape(2.5, 3): 7.0}.get(OUTSIDE, 1.0)

    compiled = fl.compile(looked_up, backend="eager", fullgraph=True)
    for count, factor in ((3, 7.0), (4, 1.0), (3, 7.0)):
        OUTSIDE = Shape(2.5, count)
        assert compiled(fl.ones(1)).tolist() == [factor]


def test_objects_with_code_of_their_own_still_break():
    class Odd:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            return True

    compiled = fl.compile(lambda x: x * {Odd(): 2}[Odd()], backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="graph breaks"):
        compiled(fl.ones(1))
