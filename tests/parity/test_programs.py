"""The programs of tests/programs give the same losses under PyTorch and under flambeau."""

import pathlib
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "programs"))
from runner import CASES, run

# Rounding differs from library to library and grows with each step; how far it gets depends on the program.
LOOSE = {
    "gan.py": 2e-2,  # two networks against each other
    "cifar.py": 2e-2,  # batch statistics at a high rate
    "mnist.py": 1e-2,
    "reinforce.py": 2e-2,
    "actor_critic.py": 2e-2,
    "dqn.py": 2e-2,
    "mixed_precision.py": 3e-2,  # eight bits of mantissa
    "time_sequence.py": 2e-2,  # a line search
}


@pytest.mark.parametrize(
    "name, options", CASES, ids=lambda value: value if isinstance(value, str) else "".join(value[1:])
)
def test_losses_are_the_same(name, options):
    want, got = run(name, options, flambeau=False), run(name, options)
    assert len(got) == len(want)
    np.testing.assert_allclose(got[:2], want[:2], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(got, want, rtol=LOOSE.get(name, 2e-3), atol=1e-4)
