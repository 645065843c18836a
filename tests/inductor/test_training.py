"""Compiled training follows eager mode's loss, step by step."""

import pathlib
import sys

import pytest

import flambeau as fl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
import loss_curves


@pytest.mark.parametrize("name", ["classifier", "lstm", "resnet18", "gpt"])
def test_losses_are_those_of_eager_mode_for_200_steps(name):
    # In single precision ResNet-18 follows only where all kernels have the same bits, which depends on the machine.
    difference, losses = loss_curves.largest_difference(fl, name, 200, small=True, double=name == "resnet18")
    assert difference < 1e-4
    assert losses[-1] < losses[0]
