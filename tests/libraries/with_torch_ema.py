"""Averages of parameters, put in place and taken out."""

import torch
from torch_ema import ExponentialMovingAverage

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = ExponentialMovingAverage(model.parameters(), decay=0.9)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    average.update()
last = model.weight.tolist()
with average.average_parameters():
    assert model.weight[0, 0] > last[0][0]
assert model.weight.tolist() == last
