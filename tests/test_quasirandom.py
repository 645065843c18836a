"""Sobol sequences: known points, even filling, scrambling, and the state of the engine."""

import pytest

import flambeau as fl
from flambeau.quasirandom import SobolEngine


def test_the_first_points():
    want = [[0, 0, 0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25], [0.25, 0.75, 0.75], [0.375, 0.375, 0.625]]
    assert SobolEngine(3).draw(5).tolist() == want


@pytest.mark.parametrize("scramble", [False, True])
def test_every_interval_gets_one_point(scramble):
    points = SobolEngine(40, scramble=scramble, seed=3).draw_base2(6)
    assert points.shape == (64, 40) and points.min() >= 0 and points.max() < 1
    for column in (points * 64).long().T:
        assert column.sort().values.tolist() == list(range(64))


def test_draws_continue_each_other():
    whole = SobolEngine(5, scramble=True, seed=1).draw(12, dtype=fl.float64)
    engine = SobolEngine(5, scramble=True, seed=1)
    parts = [engine.draw(3, dtype=fl.float64), engine.fast_forward(4).draw(5, dtype=fl.float64)]
    assert fl.equal(parts[0], whole[:3]) and fl.equal(parts[1], whole[7:])
    assert engine.num_generated == 12
    assert fl.equal(engine.reset().draw(12, dtype=fl.float64), whole)


def test_out_and_errors():
    engine = SobolEngine(2)
    out = fl.empty(4, 2)
    assert engine.draw(4, out=out) is out and out[1].tolist() == [0.5, 0.5]
    assert engine.draw(0).shape == (0, 2)
    with pytest.raises(ValueError, match="power of two"):
        engine.draw_base2(3)
    with pytest.raises(ValueError, match="dimension"):
        SobolEngine(0)
    assert repr(SobolEngine(2, True, 7)) == "SobolEngine(dimension=2, scramble=True, seed=7)"
