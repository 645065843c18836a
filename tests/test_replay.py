"""Replaying programs finds the kernels that they build."""

import pathlib
import shutil
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import replay  # noqa: E402


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
def test_kernels_of_a_program():
    found = replay.kernels(ROOT, replay.PROGRAMS["reductions"])
    assert any("mean" in name for name in found) and all(text.endswith("}\n") for text in found.values())
    assert found == replay.kernels(ROOT, replay.PROGRAMS["reductions"])


def test_programs_that_fail_say_why():
    assert replay.kernels(ROOT, "raise ValueError('so')") == {"failed": "ValueError: so"}
