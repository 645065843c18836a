"""Two steps of Bayesian optimization."""

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

torch.manual_seed(0)
x = torch.rand(8, 2, dtype=torch.double)


def objective(x):
    return -((x - 0.5) ** 2).sum(-1, keepdim=True)


for _ in range(2):
    model = SingleTaskGP(x, objective(x))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    acquire = LogExpectedImprovement(model, best_f=objective(x).max())
    candidate, _ = optimize_acqf(
        acquire, torch.tensor([[0.0, 0], [1, 1]], dtype=torch.double), q=1, num_restarts=3, raw_samples=16
    )
    x = torch.cat([x, candidate])
assert objective(x).max() > -0.05
