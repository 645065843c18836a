"""Decompositions of tensors on the backend of torch, with gradients."""

import tensorly as tl
import torch
from tensorly.decomposition import parafac, tucker

tl.set_backend("pytorch")
torch.manual_seed(0)
factors = [torch.rand(n, 2) for n in (4, 5, 6)]
full = torch.einsum("ar,br,cr->abc", *factors)
found = tl.cp_to_tensor(parafac(full, rank=2, n_iter_max=200, init="svd", tol=1e-8))
assert torch.allclose(found, full, atol=0.05)
core, sides = tucker(full, rank=[2, 2, 2])
assert torch.allclose(tl.tucker_to_tensor((core, sides)), full, atol=1e-2)
