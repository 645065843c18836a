"""Floating-point operations of a network."""

import torch
from fvcore.nn import FlopCountAnalysis

assert FlopCountAnalysis(torch.nn.Linear(8, 4), torch.randn(2, 8)).total() == 64
