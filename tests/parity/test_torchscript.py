"""Archives cross between PyTorch and flambeau, in fresh processes, in both directions."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
HERE = pathlib.Path(__file__).parent / "script"


def run(action, library, folder):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_AS_TORCH")}
    command = [sys.executable, str(HERE / "exchange.py"), action, library, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=HERE)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(("writer", "reader"), [("flambeau", "torch"), ("torch", "flambeau")])
def test_archives_cross(writer, reader, tmp_path):
    run("save", writer, tmp_path)
    assert len(list(tmp_path.glob("*.pt"))) > 140
    run("check", reader, tmp_path)


def test_archives_of_pytorch_run_natively(tmp_path):
    run("save", "torch", tmp_path)
    run("check", "native", tmp_path)
