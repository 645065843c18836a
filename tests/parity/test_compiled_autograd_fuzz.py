"""Some of the random programs of `compiled_autograd_fuzz.py`, and those that once differed."""

import pathlib
import sys
import warnings

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from compiled_autograd_fuzz import differs


@pytest.mark.parametrize("seeds", [[48, 50, 57, 78, 110, 121, 158, 188, 201, 251, 261, 305, 367, 1582], range(40)])
def test_random_programs(seeds, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            report = differs(seed, folder=str(tmp_path))
            assert report is None, f"seed {seed}\n{report}"
