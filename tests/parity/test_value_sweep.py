"""A sample of the sweep over values; `make sweep` runs all of it."""

import pathlib
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("mpmath")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import value_sweep


def test_functions_stay_within_their_limit(monkeypatch):
    monkeypatch.setattr(value_sweep, "ARBITRATED", 2)  # mpmath takes its time
    late = [found for found in value_sweep.sweep("float32", 1, 500, compiled=False) if found.worst > found.limit]
    assert not late
