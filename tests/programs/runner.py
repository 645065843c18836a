"""Runs the programs of this folder, under flambeau or under PyTorch, and reads the losses they print."""

import os
import pathlib
import re
import subprocess
import sys

from flambeau import distributions
from flambeau._compat import absent

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
NOT_PROGRAMS = {"common.py", "cartpole.py", "runner.py"}
PROGRAMS = sorted(
    path.name for path in FOLDER.glob("*.py") if path.name not in NOT_PROGRAMS and not path.name.startswith("test_")
)
# A program with several faces is run with each.
VARIANTS = {"word_language_model.py": [["--model", kind] for kind in ("LSTM", "GRU", "RNN_TANH", "Transformer")]}
# Programs that draw from distributions wait for them.
WAITING = {"actor_critic.py", "reinforce.py"} if absent.reason(distributions.Categorical) else set()
CASES = [(name, tuple(options)) for name in PROGRAMS if name not in WAITING for options in VARIANTS.get(name, [[]])]


def run(name, options=(), flambeau=True):
    """The losses a program prints. It is started as a user would start it, with nothing of it changed."""
    command = [sys.executable, *(["-m", "flambeau", "run"] if flambeau else []), str(FOLDER / name), *options]
    # One thread: many tests share the machine, and sums keep one order.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT) if flambeau else ""}
    environment.pop("FLAMBEAU_AS_TORCH", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=FOLDER, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [float(found) for found in re.findall(r"loss (\S+)", done.stdout)]
