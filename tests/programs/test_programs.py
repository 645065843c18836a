"""Programs written for PyTorch run unchanged, and learn."""

import math
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from runner import CASES, run

# Programs whose loss is no measure of progress: two networks that work against each other, or rewards that change.
NOT_FALLING = {"reinforce.py", "actor_critic.py", "dqn.py"}


@pytest.mark.parametrize(
    "name, options", CASES, ids=lambda value: value if isinstance(value, str) else "".join(value[1:])
)
def test_programs_learn(name, options):
    losses = run(name, options)
    assert len(losses) >= 4 and all(map(math.isfinite, losses))
    if name not in NOT_FALLING:
        end = max(1, len(losses) // 5)
        assert sum(losses[-end:]) / end < 0.97 * sum(losses[:end]) / end, losses
