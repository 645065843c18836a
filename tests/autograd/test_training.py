"""Training by hand gets the losses that PyTorch got, step by step."""

import json
import pathlib
import sys

import pytest

import flambeau as fl

TESTS = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))
from training_by_hand import PROGRAMS  # noqa: E402

RECORDED = json.loads((TESTS / "training_losses.json").read_text())


@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_are_those_recorded(name):
    losses = PROGRAMS[name](fl)
    assert losses == pytest.approx(RECORDED[name], rel=1e-5)
    assert losses[-1] < 0.8 * losses[0]
