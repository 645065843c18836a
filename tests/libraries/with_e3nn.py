"""Tensor products of spherical harmonics are equivariant."""

import torch
from e3nn import o3

x = torch.randn(5, 3)
turn = o3.rand_matrix()
irreps = o3.Irreps("0e + 1o + 2e")
harmonics = o3.spherical_harmonics(irreps, x, normalize=True)
turned = o3.spherical_harmonics(irreps, x @ turn.T, normalize=True)
torch.testing.assert_close(turned, harmonics @ irreps.D_from_matrix(turn).T, rtol=1e-3, atol=1e-4)
product = o3.FullyConnectedTensorProduct(irreps, irreps, "0e + 1o")
product(harmonics, harmonics).sum().backward()
