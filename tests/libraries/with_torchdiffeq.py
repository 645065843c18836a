"""A neural differential equation by adjoints."""

import torch
from torchdiffeq import odeint, odeint_adjoint

rate = torch.nn.Linear(2, 2)
start, times = torch.tensor([[1.0, 0.0]]), torch.linspace(0, 1, 5)
decay = odeint(lambda t, y: -y, start, times, rtol=1e-6, atol=1e-8)
torch.testing.assert_close(decay[:, 0, 0], torch.exp(-times), rtol=1e-4, atol=1e-4)


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = rate

    def forward(self, t, y):
        return self.rate(y).tanh()


odeint_adjoint(Field(), start, times).sum().backward()
assert rate.weight.grad.abs().sum() > 0
