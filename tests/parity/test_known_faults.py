"""The listed faults of PyTorch are there still: a row that PyTorch has mended goes."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from known_faults import FAULTS, answer  # noqa: E402

import flambeau as fl  # noqa: E402


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.reason)
def test_the_reproducer_shows_a_difference(fault):
    assert answer(torch, fault.example) != answer(fl, fault.example)
