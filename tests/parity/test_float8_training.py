"""Layers trained in 8-bit floats give torchao's numbers."""

import dataclasses

import numpy as np
import pytest

import flambeau as fl
from flambeau.ao.torchao import float8 as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torchao.float8")


def run(lib, module, recipe, dtype):
    numbers = np.random.RandomState(0)
    model = lib.nn.Sequential(lib.nn.Linear(32, 64), lib.nn.GELU(), lib.nn.Linear(64, 16))
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(lib.tensor(numbers.uniform(-0.2, 0.2, tuple(p.shape)).astype(np.float32)))
    config = module.Float8LinearConfig.from_recipe_name(recipe)
    model = model.to(getattr(lib, dtype))
    module.convert_to_float8_training(model, config=dataclasses.replace(config, emulate=True))
    x = lib.tensor(numbers.standard_normal((3, 16, 32)).astype(np.float32)).to(getattr(lib, dtype)).requires_grad_()
    y = model(x)
    y.float().square().sum().backward()
    return [t.detach().float().numpy() for t in (y, x.grad, *(p.grad for p in model.parameters()))]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_outputs_and_gradients(recipe, dtype):
    for got, want in zip(run(fl, ours, recipe, dtype), run(torch, theirs, recipe, dtype), strict=True):
        # A sum of another order may be rounded to the next 8-bit number.
        assert np.linalg.norm(got - want) <= 5e-3 * np.linalg.norm(want)
