"""State dicts by full names are PyTorch's, and can be loaded into an optimizer of another order."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau as fl  # noqa: E402
from flambeau.distributed.checkpoint import state_dict as ours  # noqa: E402

theirs = pytest.importorskip("torch.distributed.checkpoint.state_dict")


def build(lib):
    model = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.BatchNorm1d(2))
    with lib.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(lib.arange(float(p.numel())).view(p.shape) / 10 + i)
    model[0].bias.requires_grad_(False)
    groups = [{"params": [model[0].weight], "lr": 0.1}, {"params": list(model[1].parameters())}]
    return model, lib.optim.Adam(groups, lr=0.01)


def step(lib, model, optimizer):
    for p in model.parameters():
        p.grad = lib.full(p.shape, 0.5) if p.requires_grad else None
    optimizer.step()
    optimizer.zero_grad()


def plain(value):
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value.numpy().round(5).tolist() if hasattr(value, "numpy") else value


@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_state_of_optimizers(stepped, flat):
    results = []
    for lib, module in ((torch, theirs), (fl, ours)):
        model, optimizer = build(lib)
        if stepped:
            step(lib, model, optimizer)
        options = module.StateDictOptions(flatten_optimizer_state_dict=flat)
        results.append(plain(module.get_optimizer_state_dict(model, optimizer, options=options)))
    assert list(results[0]) == list(results[1])
    assert results[0] == results[1]


def test_state_of_models():
    for options in ({}, {"ignore_frozen_params": True}):
        want, got = (
            module.get_model_state_dict(build(lib)[0], options=module.StateDictOptions(**options))
            for lib, module in ((torch, theirs), (fl, ours))
        )
        assert plain(dict(want)) == plain(got)


@pytest.mark.parametrize("flat", [False, True])
def test_loading_in_another_order(flat):
    model, optimizer = build(fl)
    step(fl, model, optimizer)
    options = ours.StateDictOptions(flatten_optimizer_state_dict=flat)
    state, optimizer_state = copy.deepcopy(ours.get_state_dict(model, optimizer, options=options))
    other, _ = build(fl)
    groups = [{"params": list(other[1].parameters())}, {"params": [other[0].weight]}]
    another = fl.optim.Adam(groups, lr=0.5)
    ours.set_state_dict(other, another, model_state_dict=state, optim_state_dict=optimizer_state, options=options)
    assert [group["lr"] for group in another.param_groups] == [0.01, 0.1]
    for m, o in ((model, optimizer), (other, another)):
        step(fl, m, o)
    for a, b in zip(model.parameters(), other.parameters()):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)
