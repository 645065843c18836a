"""The model that is served: flambeau package model.py:make -o model.pt2"""

import torch
from torch import nn


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10)).eval()
    return model, (torch.randn(4, 64),), ({0: torch.export.Dim("batch", min=1, max=64)},)
