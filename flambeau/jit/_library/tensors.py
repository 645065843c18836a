"""Functions of the package that are no single operator, in the language of scripts."""

from typing import List, Optional  # noqa: UP035

import flambeau
from flambeau import Tensor

aten = flambeau.ops.aten

__all__ = ["unique", "unique_consecutive", "tensordot", "cartesian_prod"]


def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Optional[int] = None) -> Tensor:
    if dim is not None:
        result = aten.unique_dim(input, dim, sorted)[0]
    else:
        result = aten._unique2(input, sorted)[0]
    return result


def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Optional[int] = None) -> Tensor:
    return aten.unique_consecutive(input, False, False, dim)[0]


def tensordot(a: Tensor, b: Tensor, dims: int = 2) -> Tensor:
    first: List[int] = []
    second: List[int] = []
    for i in range(dims):
        first.append(i - dims)
        second.append(i)
    return aten.tensordot(a, b, first, second)


def cartesian_prod(tensors: List[Tensor]) -> Tensor:
    return aten.cartesian_prod(tensors)
