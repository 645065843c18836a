"""Meta-learning over sine waves: gradients of gradients through functions of a module's parameters, batched by vmap."""

import torch
from common import initialise, numbers, report
from torch import nn
from torch.func import functional_call, grad, vmap


def main():
    model = initialise(nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1)))
    names = [name for name, _ in model.named_parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss_of(parameters, x, y):
        return (functional_call(model, parameters, (x,)) - y).square().mean()

    def adapted(parameters, x, y, x_test, y_test):
        gradients = grad(loss_of)(parameters, x, y)
        moved = {name: parameters[name] - 0.1 * gradients[name] for name in names}
        return loss_of(moved, x_test, y_test)

    for step in range(12):
        phase, size = (
            numbers(6, 1, 1, seed=step, low=0.0, high=3.1),
            numbers(6, 1, 1, seed=50 + step, low=0.5, high=2.0),
        )
        x, x_test = (numbers(6, 10, 1, seed=s + step, low=-3.0, high=3.0) for s in (100, 200))
        parameters = dict(model.named_parameters())
        losses = vmap(adapted, in_dims=(None, 0, 0, 0, 0))(
            parameters, x, size * torch.sin(x + phase), x_test, size * torch.sin(x_test + phase)
        )
        loss = losses.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(step, loss)


if __name__ == "__main__":
    main()
