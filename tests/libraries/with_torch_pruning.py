"""Channels are pruned with all that depends on them."""

import torch
import torch_pruning

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4),
)  # fmt: skip
image = torch.randn(1, 3, 16, 16)
importance = torch_pruning.importance.MagnitudeImportance(p=2)
torch_pruning.pruner.MagnitudePruner(
    model, image, importance=importance, pruning_ratio=0.5, ignored_layers=[model[6]]
).step()
assert model[0].out_channels == 8 and model[3].in_channels == 8 and model(image).shape == (1, 4)
