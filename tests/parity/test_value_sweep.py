"""A sample of the sweep over values; `make sweep` runs all of it."""

import pathlib
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("mpmath")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from value_sweep import sweep


@pytest.mark.parametrize("operands", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_stay_within_their_limit(dtype, operands):
    late = [found for found in sweep(dtype, operands, 500, compiled=False) if found.worst > found.limit]
    assert not late
