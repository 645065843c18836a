"""Some of the random programs of `values_fuzz.py`."""

import pathlib
import sys
import warnings

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from values_fuzz import differs


@pytest.mark.parametrize("first", range(1100, 2300, 300))
def test_random_programs(first):
    warnings.simplefilter("ignore")
    for seed in range(first, first + 300):
        report = differs(seed)
        assert report is None, f"seed {seed}\n{report}"
