"""Ranks as actors of a local Ray cluster, in a process of its own: Ray replaces `print` and more in the one it runs in."""

import os
import pathlib
import subprocess
import sys
from importlib.util import find_spec

import pytest

import flambeau

PROGRAM = pathlib.Path(__file__).parent / "ray_workers.py"


@pytest.mark.skipif(find_spec("ray") is None, reason="needs the package ray")
def test_ranks_find_each_other_and_a_lost_one_does_not_end_the_job(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(flambeau.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
