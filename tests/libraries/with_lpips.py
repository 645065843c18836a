"""Distances of images by the features of a network, with gradients."""

import lpips
import torch

torch.manual_seed(0)
distance = lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False)
first, second = torch.rand(1, 3, 64, 64) * 2 - 1, (torch.rand(1, 3, 64, 64) * 2 - 1).requires_grad_()
value = distance(first, second)
assert value.shape == (1, 1, 1, 1) and distance(first, first).abs().item() < 1e-6
value.sum().backward()
assert second.grad.abs().sum() > 0
