"""Functions of the package that are no single operator, in the language of scripts."""
# Annotations are those of scripts: a BroadcastingList is a list in the body, a dtype an int.
# mypy: disable-error-code="return-value"

import flambeau
from flambeau import Tensor
from flambeau.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3, BroadcastingList4

aten = flambeau.ops.aten

__all__ = [
    "unique", "unique_with_inverse", "unique_with_counts", "unique_with_inverse_and_counts", "unique_consecutive",
    "unique_consecutive_with_inverse", "unique_consecutive_with_counts", "unique_consecutive_with_inverse_and_counts",
    "norm", "norm__1", "norm__2", "norm__3", "norm__4", "norm__5", "lu", "lu_with_infos", "stft", "tensordot", "tensordot__1", "tensordot__2", "cartesian_prod",
    "_single", "_single__1", "_pair", "_pair__1", "_triple", "_triple__1", "_quadruple", "_quadruple__1",
]  # fmt: skip


def _p_norm(input: Tensor, p: float, dim: list[int] | None, keepdim: bool, dtype: int | None) -> Tensor:
    if dim is None:
        dims = list(range(input.dim())) if keepdim else flambeau.jit.annotate(list[int], [])
    else:
        dims = dim
    if dtype is None:
        return aten.norm(input, p, dims, keepdim)
    return aten.norm(input, p, dims, keepdim, dtype=dtype)


def norm(
    input: Tensor, p: str = "fro", dim: list[int] | None = None, keepdim: bool = False, dtype: int | None = None
) -> Tensor:
    if p == "nuc":
        if dim is None:
            return aten.nuclear_norm(input, keepdim)
        return aten.nuclear_norm(input, dim, keepdim)
    if p != "fro":
        raise RuntimeError(f"only valid string values are 'fro' (frobenius norm) and 'nuc' (nuclear norm), found {p}")
    return _p_norm(input, 2.0, dim, keepdim, dtype)


def norm__1(input: Tensor, p: str = "fro", dim: int = 0, keepdim: bool = False, dtype: int | None = None) -> Tensor:
    return norm(input, p, [dim], keepdim, dtype)


def norm__2(
    input: Tensor, p: int, dim: list[int] | None = None, keepdim: bool = False, dtype: int | None = None
) -> Tensor:
    return _p_norm(input, float(p), dim, keepdim, dtype)


def norm__3(input: Tensor, p: int, dim: int, keepdim: bool = False, dtype: int | None = None) -> Tensor:
    return _p_norm(input, float(p), [dim], keepdim, dtype)


def norm__4(
    input: Tensor, p: float, dim: list[int] | None = None, keepdim: bool = False, dtype: int | None = None
) -> Tensor:
    return _p_norm(input, p, dim, keepdim, dtype)


def norm__5(input: Tensor, p: float, dim: int, keepdim: bool = False, dtype: int | None = None) -> Tensor:
    return _p_norm(input, p, [dim], keepdim, dtype)


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:
    return unique_with_inverse_and_counts(input, sorted, return_inverse, return_counts, dim)[0]


def unique_with_inverse(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    values, inverse, _counts = unique_with_inverse_and_counts(input, sorted, return_inverse, return_counts, dim)
    return values, inverse


def unique_with_counts(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    values, _inverse, counts = unique_with_inverse_and_counts(input, sorted, return_inverse, return_counts, dim)
    return values, counts


def unique_with_inverse_and_counts(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is not None:
        result = aten.unique_dim(input, dim, sorted, return_inverse, return_counts)
    else:
        result = aten._unique2(input, sorted, return_inverse, return_counts)
    return result


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor:
    return aten.unique_consecutive(input, False, False, dim)[0]


def unique_consecutive_with_inverse(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor]:
    values, inverse, _counts = aten.unique_consecutive(input, True, False, dim)
    return values, inverse


def unique_consecutive_with_counts(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor]:
    values, _inverse, counts = aten.unique_consecutive(input, False, True, dim)
    return values, counts


def unique_consecutive_with_inverse_and_counts(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return aten.unique_consecutive(input, True, True, dim)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, Tensor]:
    factors, pivots, _infos = aten.linalg_lu_factor_ex(A, pivot=pivot)
    return factors, pivots


def lu_with_infos(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    return aten.linalg_lu_factor_ex(A, pivot=pivot)


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    return aten.stft(
        input,
        n_fft,
        hop_length,
        win_length,
        window,
        center,
        pad_mode,
        normalized,
        onesided,
        return_complex,
        align_to_window,
    )


def tensordot(a: Tensor, b: Tensor, dims: int = 2) -> Tensor:
    first: list[int] = []
    second: list[int] = []
    for i in range(dims):
        first.append(i - dims)
        second.append(i)
    return aten.tensordot(a, b, first, second)


def tensordot__1(a: Tensor, b: Tensor, dims: tuple[list[int], list[int]]) -> Tensor:
    return aten.tensordot(a, b, dims[0], dims[1])


def tensordot__2(a: Tensor, b: Tensor, dims: list[list[int]]) -> Tensor:
    return aten.tensordot(a, b, dims[0], dims[1])


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
