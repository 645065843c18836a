"""Editors and type checkers: names complete, calls have types, the examples have no error in pyright's basic mode."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau

ROOT = Path(flambeau.__file__).parent.parent
STUBS = ROOT / "flambeau" / "_C" / "__init__.pyi"
pytestmark = pytest.mark.skipif(not STUBS.exists(), reason="needs the stubs that the build writes")

PROGRAM = """
import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn

x = torch.randn(2, 3)
m = nn.Linear(3, 4)
values, indices = x.max(dim=1)
reveal_type(torch.softmax(x, dim=1))
reveal_type(F.cross_entropy(x, torch.tensor([0, 1])))
reveal_type(torch.linalg.svd(x).S)
reveal_type(x.squeeze(0).view(3, 1).to(torch.float64) @ x + 1 > 0)
reveal_type(m)
reveal_type(values)
reveal_type(x.shape)
reveal_type(x.dim())
with torch.no_grad(), torch.autocast("cpu"):
    torch.optim.AdamW(m.parameters(), lr=1e-3).step()
"""
TYPES = ["Tensor", "Tensor", "Tensor", "Tensor", "Linear", "Tensor", "Size", "int"]


def pyright(folder: Path) -> str:
    if shutil.which("pyright") is None:
        pytest.skip("needs pyright")
    environment = ["env", f"PYTHONPATH={ROOT}"]
    command = [*environment, "pyright", "--pythonpath", sys.executable, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300).stdout


def test_types_of_results(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{ROOT}"]}}')
    said = pyright(tmp_path)
    revealed = [line.rpartition('is "')[2].rstrip('"') for line in said.splitlines() if "Type of" in line]
    assert revealed == TYPES, said
    assert "0 errors" in said


def test_examples_have_no_error(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{ROOT}"]}}')
    said = pyright(tmp_path)
    assert "0 errors" in said, said


@pytest.mark.parametrize(
    "program, completed",
    [
        ("import flambeau as torch\ntorch.sof", "softmax"),
        ("from flambeau import nn\nnn.Lin", "Linear"),
        ("import flambeau.nn.functional as F\nF.cross", "cross_entropy"),
        ("import flambeau as torch\nx = torch.randn(2, 3)\nx.squee", "squeeze"),
        ("import flambeau as torch\ny = torch.softmax(torch.randn(2), 0)\ny.squee", "squeeze"),
        ("import flambeau as torch\ntorch.linalg.sv", "svd"),
        ("import flambeau as torch\ntorch.optim.Adam", "AdamW"),
        ("import flambeau as torch\ntorch.autoc", "autocast"),
    ],
)
def test_completion_in_an_editor(program, completed):
    jedi = pytest.importorskip("jedi")
    script = jedi.Script(program, project=jedi.Project(str(ROOT)))
    assert completed in [completion.name for completion in script.complete()]
