"""Some of the random programs of `autograd_fuzz.py`."""

import pathlib
import sys
import warnings

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from autograd_fuzz import differs


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_programs(first):
    warnings.simplefilter("ignore")
    for seed in range(first, first + 100):
        report = differs(seed)
        assert report is None, f"seed {seed}\n{report}"
