"""L-BFGS, Adafactor and Muon on small problems; averaged models."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.optim import LBFGS, SGD, Adafactor, Muon, SparseAdam, swa_utils


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_finds_the_minimum_of_a_quadratic(line_search):
    a = fl.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=fl.float64)
    b = fl.tensor([1.0, -1.0], dtype=fl.float64)
    x = fl.zeros(2, dtype=fl.float64, requires_grad=True)
    opt = LBFGS([x], line_search_fn=line_search, lr=1 if line_search else 0.5, max_iter=50)

    def closure():
        opt.zero_grad()
        loss = 0.5 * x @ a @ x - b @ x
        loss.backward()
        return loss

    for _ in range(3):
        opt.step(closure)
    assert fl.allclose(x.detach(), fl.linalg.solve(a, b), atol=1e-5)
    assert opt.state_dict()["state"][0]["func_evals"] > 1


def test_lbfgs_takes_one_group():
    p, q = (fl.zeros(1, requires_grad=True) for _ in range(2))
    with pytest.raises(ValueError, match="one parameter group, got 2"):
        LBFGS([{"params": [p]}, {"params": [q]}])


@pytest.mark.parametrize("make", [lambda p: Adafactor(p, lr=0.1), lambda p: Muon(p, lr=0.1, weight_decay=0.0)])
def test_descent(make):
    fl.manual_seed(0)
    w, x = fl.randn(6, 4, requires_grad=True), fl.randn(32, 4)
    target = x @ fl.randn(4, 6)
    opt = make([w])
    losses = []
    for _ in range(60):
        opt.zero_grad()
        loss = (x @ w.t() - target).pow(2).mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_adafactor_keeps_rows_and_columns():
    w, b = fl.ones(3, 5, requires_grad=True), fl.ones(5, requires_grad=True)
    w.grad, b.grad = fl.ones(3, 5), fl.ones(5)
    opt = Adafactor([w, b])
    opt.step()
    assert opt.state[w]["row_var"].shape == (3, 1)
    assert opt.state[w]["col_var"].shape == (1, 5)
    assert opt.state[b]["variance"].shape == (5,)


def test_sparse_adam_wants_sparse_gradients():
    p = fl.ones(3, requires_grad=True)
    p.grad = fl.ones(3)
    with pytest.raises(RuntimeError, match="dense"):
        SparseAdam([p]).step()


def model_of(value):
    model = nn.Linear(2, 1)
    with fl.no_grad():
        for p in model.parameters():
            p.fill_(value)
    return model


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 2.0),
        ({"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.5)}, 2.25),
        ({"avg_fn": swa_utils.get_ema_avg_fn(0.5)}, 2.25),
        ({"avg_fn": swa_utils.get_swa_avg_fn()}, 2.0),
    ],
)
def test_averages(options, expected):
    averaged = swa_utils.AveragedModel(model_of(0.0), **options)
    for value in (1.0, 2.0, 3.0):
        averaged.update_parameters(model_of(value))
    assert averaged.n_averaged.item() == 3
    assert averaged.module.weight[0, 0].item() == pytest.approx(expected)
    assert averaged(fl.ones(1, 2)).item() == pytest.approx(3 * expected)


def test_statistics_of_batch_normalisation_are_computed_anew():
    model = nn.Sequential(nn.BatchNorm1d(2))
    model.eval()
    data = [fl.tensor([[1.0, 2.0], [3.0, 4.0]]), fl.tensor([[5.0, 6.0], [7.0, 8.0]])]
    swa_utils.update_bn(data, model)
    assert model[0].running_mean.tolist() == [4.0, 5.0]
    assert model[0].momentum == 0.1
    assert not model.training


@pytest.mark.parametrize("strategy", ["linear", "cos"])
def test_swa_rates(strategy):
    opt = SGD([fl.zeros(1, requires_grad=True)], lr=1.0)
    schedule = swa_utils.SWALR(opt, swa_lr=0.2, anneal_epochs=4, anneal_strategy=strategy)
    found = []
    for _ in range(6):
        opt.step()
        schedule.step()
        found.append(opt.param_groups[0]["lr"])
    assert found[3:] == pytest.approx([0.2] * 3)
    assert found == sorted(found, reverse=True)


def test_lbfgs_keeps_the_weights_of_its_history():
    x = fl.nn.Parameter(fl.tensor([3.0, -2.0]))
    optimizer = fl.optim.LBFGS([x], max_iter=4, history_size=3)

    def closure():
        optimizer.zero_grad()
        loss = (x**2).sum() + x.prod() ** 2
        loss.backward()
        return loss

    optimizer.step(closure)
    state = optimizer.state[x]
    assert len(state["al"]) == 3 and all(w is not None for w in state["al"][: len(state["ro"])])
