"""The table of a model's layers."""

import torch
from torchinfo import summary

model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 5))
table = summary(model, (2, 3, 8, 8), verbose=0)
assert table.total_params == sum(p.numel() for p in model.parameters())
