"""A stochastic differential equation, solved and differentiated, also by its adjoint."""

import torch
import torchsde


class Noise(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(0.5))

    def f(self, t, y):
        return -self.rate * y

    def g(self, t, y):
        return 0.1 * torch.ones_like(y)


torch.manual_seed(0)
sde, start, times = Noise(), torch.ones(8, 2), torch.linspace(0, 1, 5)
path = torchsde.sdeint(sde, start, times, dt=0.05)
assert path.shape == (5, 8, 2) and path[-1].mean() < 0.9
for solve in (torchsde.sdeint, torchsde.sdeint_adjoint):
    sde.zero_grad()
    solve(sde, start, times, dt=0.05)[-1].sum().backward()
    assert sde.rate.grad < 0
