"""Functions that no operator schema describes, as their results depend on flags: unique values and grids of bins."""

from __future__ import annotations

import flambeau as fl
from flambeau._C import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["histogramdd", "unique", "unique_consecutive"]


def _unique(input: Tensor, dim: int | None, consecutive: bool, inverse: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Values, inverse positions (when asked for) and counts."""
    if dim is None:
        return fl._ops._unique(input, consecutive, inverse)
    if not -max(input.dim(), 1) <= dim < max(input.dim(), 1):
        raise IndexError(f"[unique] expected dim in [{-input.dim()}, {input.dim() - 1}], got {dim}")
    if input.dim() == 0:
        values, where, counts = fl._ops._unique(input, consecutive)
        return values.reshape(()), where.reshape(1), counts
    slices = input.movedim(dim, 0)
    if slices.numel() == 0:
        if any(size == 0 for d, size in enumerate(slices.shape) if d) and slices.size(0):
            raise RuntimeError(f"[unique] expected only dim to be empty, got shape {tuple(input.shape)} and dim {dim}")
        empty = fl.empty(0, dtype=fl.int64, device=input.device)
        return input.clone(), empty, empty.clone()
    distinct, where, counts = fl._ops._unique_rows(slices, consecutive)
    return fl.index_select(input, dim, distinct), where, counts


def _chosen(results: tuple[Tensor, Tensor, Tensor], inverse: bool, counts: bool) -> Any:
    picked = [r for r, wanted in zip(results, (True, inverse, counts)) if wanted]
    return picked[0] if len(picked) == 1 else tuple(picked)


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct values (or slices along dim) in order, with their inverse positions and counts if asked for.

    >>> flambeau.unique(flambeau.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    if fl._C._has_torch_function_unary(input):
        options = {"sorted": sorted, "return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
        return fl.overrides.handle_torch_function(unique, (input,), input, **options)
    return _chosen(_unique(input, dim, False, return_inverse), return_inverse, return_counts)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first of each run of equal values (or slices along dim).

    >>> flambeau.unique_consecutive(flambeau.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    if fl._C._has_torch_function_unary(input):
        options = {"return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
        return fl.overrides.handle_torch_function(unique_consecutive, (input,), input, **options)
    return _chosen(_unique(input, dim, True, return_inverse), return_inverse, return_counts)


class HistogramDD(tuple):
    """A pair with named parts."""

    hist = property(lambda self: self[0])
    bin_edges = property(lambda self: self[1])


def histogramdd(
    input: Tensor,
    bins: int | Sequence[int] | Sequence[Tensor],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """Counts of the points in the rows of input in a grid of bins, and the edges of the grid.

    >>> flambeau.histogramdd(flambeau.tensor([[0.0, 0.0], [1.0, 1.0]]), bins=[2, 2]).hist
    tensor([[1., 0.],
            [0., 1.]])
    """
    from flambeau.ops.reductions.statistics import histogramdd as count

    return HistogramDD(count(input, bins, range, weight, density))  # type: ignore[arg-type]


Tensor.unique = unique  # type: ignore[method-assign]
Tensor.unique_consecutive = unique_consecutive  # type: ignore[method-assign]
