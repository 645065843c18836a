"""Structural similarity of images as a loss."""

import torch
from pytorch_msssim import MS_SSIM, ssim

torch.manual_seed(0)
first = torch.rand(1, 3, 176, 176)
second = (first + 0.1 * torch.rand_like(first)).requires_grad_()
assert abs(ssim(first, first, data_range=1.0).item() - 1) < 1e-5
loss = 1 - MS_SSIM(data_range=1.0, channel=3)(first, second)
loss.backward()
assert 0 < loss < 1 and second.grad.abs().sum() > 0
