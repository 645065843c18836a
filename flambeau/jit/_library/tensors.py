"""Functions of the package that are no single operator, in the language of scripts."""

import flambeau
from flambeau import Tensor

aten = flambeau.ops.aten

__all__ = ["unique", "unique_consecutive", "tensordot", "cartesian_prod"]


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:
    if dim is not None:
        result = aten.unique_dim(input, dim, sorted)[0]
    else:
        result = aten._unique2(input, sorted)[0]
    return result


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor:
    return aten.unique_consecutive(input, False, False, dim)[0]


def tensordot(a: Tensor, b: Tensor, dims: int = 2) -> Tensor:
    first: list[int] = []
    second: list[int] = []
    for i in range(dims):
        first.append(i - dims)
        second.append(i)
    return aten.tensordot(a, b, first, second)


def cartesian_prod(tensors: list[Tensor]) -> Tensor:
    return aten.cartesian_prod(tensors)
