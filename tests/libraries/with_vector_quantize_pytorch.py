"""Vectors are replaced by those of codebooks that learn."""

import torch
from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize

torch.manual_seed(0)
x = torch.randn(2, 64, 16)
layer = VectorQuantize(dim=16, codebook_size=32, decay=0.8, commitment_weight=1.0)
losses = [layer(x)[2].item() for _ in range(20)]
assert losses[-1] < losses[0]
quantized, indices, _ = ResidualVQ(dim=16, codebook_size=32, num_quantizers=3)(x)
assert quantized.shape == x.shape and indices.shape == (2, 64, 3)
codes, indices = FSQ([8, 5, 5, 5], dim=16)(x)
assert codes.shape == x.shape
