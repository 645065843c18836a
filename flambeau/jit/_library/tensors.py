"""Functions of the package that are no single operator, in the language of scripts."""
# Annotations are those of scripts: a BroadcastingList is a list in the body, a dtype an int.
# mypy: disable-error-code="return-value"

import flambeau
from flambeau import Tensor
from flambeau.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3, BroadcastingList4

aten = flambeau.ops.aten

__all__ = [
    "unique", "unique_consecutive", "tensordot", "cartesian_prod",
    "_single", "_single__1", "_pair", "_pair__1", "_triple", "_triple__1", "_quadruple", "_quadruple__1",
]  # fmt: skip


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


def _single(x: BroadcastingList1[int]) -> list[int]:
    return x


def _single__1(x: BroadcastingList1[float]) -> list[float]:
    return x


def _pair(x: BroadcastingList2[int]) -> list[int]:
    return x


def _pair__1(x: BroadcastingList2[float]) -> list[float]:
    return x


def _triple(x: BroadcastingList3[int]) -> list[int]:
    return x


def _triple__1(x: BroadcastingList3[float]) -> list[float]:
    return x


def _quadruple(x: BroadcastingList4[int]) -> list[int]:
    return x


def _quadruple__1(x: BroadcastingList4[float]) -> list[float]:
    return x
