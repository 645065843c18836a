"""Sparse mappings to probabilities, their losses and gradients."""

import torch
from entmax import entmax15, entmax15_loss, entmax_bisect, sparsemax

scores = torch.tensor([[2.0, 1.0, -1.0], [0.1, 0.0, 0.2]], requires_grad=True)
for mapping in (sparsemax, entmax15, lambda x, dim: entmax_bisect(x, alpha=1.3, dim=dim)):
    probabilities = mapping(scores, dim=-1)
    assert torch.allclose(probabilities.sum(-1), torch.ones(2), atol=1e-4)
assert (sparsemax(scores, dim=-1) == 0).any()
entmax15_loss(scores, torch.tensor([0, 2])).sum().backward()
assert scores.grad is not None
