"""Rearranging, reducing, einsum and layers."""

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import Rearrange, Reduce

x = torch.randn(2, 3, 8, 8, requires_grad=True)
patches = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
assert patches.shape == (2, 4, 48)
reduce(patches, "b n d -> b d", "max").sum().backward()
assert x.grad is not None
assert repeat(torch.arange(3), "n -> n k", k=2).shape == (3, 2)
torch.testing.assert_close(einsum(x, x, "b c h w, b c h w -> b"), (x * x).sum((1, 2, 3)))
packed, shapes = pack([torch.ones(2, 3), torch.ones(2, 4, 5)], "b *")
assert unpack(packed, shapes, "b *")[1].shape == (2, 4, 5)
model = torch.nn.Sequential(Rearrange("b c h w -> b h w c"), torch.nn.Linear(3, 5), Reduce("b h w c -> b c", "mean"))
assert model(x).shape == (2, 5)
