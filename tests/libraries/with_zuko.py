"""A normalizing flow learns a density and is sampled."""

import torch
import zuko

torch.manual_seed(0)
flow = zuko.flows.NSF(features=2, context=1, transforms=2, hidden_features=(16, 16))
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
context = torch.randn(128, 1)
x = context + 0.1 * torch.randn(128, 2)
losses = []
for _ in range(30):
    loss = -flow(context).log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] - 0.5, losses
assert flow(torch.zeros(1)).sample((4,)).shape == (4, 2)
