"""Stochastic variational inference and HMC of a mean."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal

pyro.set_rng_seed(0)
data = torch.randn(50) + 3


def model():
    mean = pyro.sample("mean", dist.Normal(0.0, 10.0))
    with pyro.plate("data", 50):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data)


guide = AutoNormal(model)
inference = SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
for _ in range(200):
    inference.step()
assert abs(guide.median()["mean"].item() - data.mean().item()) < 0.3
chain = MCMC(NUTS(model), num_samples=30, warmup_steps=30, disable_progbar=True)
chain.run()
assert abs(chain.get_samples()["mean"].mean().item() - data.mean().item()) < 0.3
