"""Exported programs cross between the libraries, in processes of their own: the reader has neither source nor model."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

HERE = pathlib.Path(__file__).parent


def run(action, lib, folder):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FLAMBEAU_AS")}
    command = [sys.executable, str(HERE / "export_models.py"), action, lib, str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent.parent)
    assert made.returncode == 0, made.stderr[-2000:]
    problems = json.loads(made.stdout.splitlines()[-1])
    assert not problems, "\n\n".join(f"{name}: {text[-1500:]}" for name, text in problems.items()) + made.stderr[-3000:]


@pytest.mark.parametrize(("writer", "reader"), [("flambeau", "torch"), ("torch", "flambeau")])
def test_programs_cross(tmp_path, writer, reader):
    run("write", writer, tmp_path)
    assert len(list(tmp_path.glob("*.pt2"))) > 30
    run("read", reader, tmp_path)
