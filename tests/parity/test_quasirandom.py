"""Sobol points are PyTorch's in all dimensions there are."""

import numpy as np
import pytest

from flambeau.quasirandom import SobolEngine

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dimension", [1, 2, 7, 52, 360, 1111])
def test_points_agree(dimension):
    ours, theirs = SobolEngine(dimension), torch.quasirandom.SobolEngine(dimension)
    np.testing.assert_array_equal(ours.sobolstate.numpy(), theirs.sobolstate.numpy())
    for n in (1, 4, 100):
        np.testing.assert_array_equal(ours.draw(n).numpy(), theirs.draw(n).numpy())
        np.testing.assert_array_equal(ours.quasi.numpy(), theirs.quasi.numpy())
    ours.fast_forward(1000), theirs.fast_forward(1000)
    np.testing.assert_array_equal(ours.draw(3).numpy(), theirs.draw(3).numpy())
    assert ours.num_generated == theirs.num_generated
