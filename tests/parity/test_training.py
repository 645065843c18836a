"""Training by hand follows PyTorch step by step, from the same initial weights."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
import flambeau as fl  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from training_by_hand import PROGRAMS  # noqa: E402


@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_follow_pytorch(name):
    assert PROGRAMS[name](fl) == pytest.approx(PROGRAMS[name](torch), rel=1e-5)
