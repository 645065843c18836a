"""Triplets, mined and by margin."""

import torch
from pytorch_metric_learning import losses, miners

model, labels = torch.nn.Linear(8, 4), torch.randint(0, 3, (32,))
x = torch.randn(32, 8) + labels[:, None]
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loss, miner = losses.TripletMarginLoss(), miners.MultiSimilarityMiner()
for _ in range(20):
    embedded = model(x)
    value = loss(embedded, labels, miner(embedded, labels))
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
assert torch.isfinite(value) and losses.NTXentLoss()(model(x), labels) > 0
