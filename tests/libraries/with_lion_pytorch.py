"""The Lion optimizer finds a line."""

import torch
from lion_pytorch import Lion

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = Lion(model.parameters(), lr=1e-2, weight_decay=1e-2)
x = torch.randn(32, 2)
losses = []
for _ in range(50):
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
