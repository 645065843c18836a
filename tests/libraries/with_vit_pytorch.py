"""A vision transformer, forward and backward."""

import torch
from vit_pytorch import ViT

model = ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=4, mlp_dim=64)
loss = model(torch.randn(2, 3, 32, 32)).logsumexp(1).sum()
loss.backward()
assert all(p.grad is not None for p in model.parameters())
