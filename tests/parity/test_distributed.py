"""Programs for torch.distributed give the same results under PyTorch with gloo and under flambeau, in real processes."""

import json
import math
import os
import pathlib
import re
import sys

import pytest

pytest.importorskip("torch")
sys.path.append(str(pathlib.Path(__file__).parent.parent))
from launching import run_ranks

PROGRAMS = sorted(
    p for p in (pathlib.Path(__file__).parent / "distributed").glob("*.py") if p.stem not in ("cases", "meshes")
)


def results(program, ranks, folder, oracle):
    folder.mkdir()
    previous = os.environ.pop("FLAMBEAU_TEST_ORACLE", None)
    if oracle:
        os.environ["FLAMBEAU_TEST_ORACLE"] = "1"
    try:
        ended = run_ranks(program, ranks, 400, RESULTS=str(folder))
    finally:
        os.environ.pop("FLAMBEAU_TEST_ORACLE", None)
        if previous is not None:
            os.environ["FLAMBEAU_TEST_ORACLE"] = previous
    report = "\n".join(f"--- rank {rank}: {one.returncode}\n{one.stdout}" for rank, one in enumerate(ended))
    assert all(one.returncode == 0 for one in ended), report
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def differences(path, expected, got):
    """Where two results differ, in words. Where a case says that PyTorch refuses something, anything is fine."""
    if isinstance(expected, dict) and "refused" in expected:
        return []
    if isinstance(expected, dict) and "raised" in expected:
        raised = isinstance(got, dict) and expected["raised"][0] in got.get("raised", ())
        alike = isinstance(got, dict) and "raised" in got and {"RuntimeError", "DistError"} & {*expected["raised"]}
        return [] if raised or alike else [f"{path}: expected {expected}, got {str(got)[:400]}"]
    if isinstance(expected, float) and isinstance(got, (int, float)):
        same = math.isclose(expected, got, rel_tol=1e-4, abs_tol=1e-5) or (math.isnan(expected) and math.isnan(got))
        return [] if same else [f"{path}: expected {expected}, got {got}"]
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        return [line for key in expected for line in differences(f"{path}.{key}", expected[key], got[key])]
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        return [line for i, (e, g) in enumerate(zip(expected, got)) for line in differences(f"{path}[{i}]", e, g)]
    return [] if expected == got else [f"{path}: expected {str(expected)[:400]}, got {str(got)[:400]}"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_same_results(program, tmp_path):
    ranks = int(re.search(r"^# ranks: (\d+)$", program.read_text(), re.M)[1])
    expected = results(program, ranks, tmp_path / "expected", oracle=True)
    got = results(program, ranks, tmp_path / "got", oracle=False)
    lines = [line for rank in range(ranks) for line in differences(f"rank {rank}", expected[rank], got[rank])]
    assert not lines, "\n".join(lines)
