"""Joining dimensions into one, and taking one apart."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.nn.modules.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Several dimensions as one.

    - start_dim, end_dim: the first and the last of them; the batch dimension stays by default.

    >>> nn.Flatten()(flambeau.zeros(2, 3, 4)).shape
    torch.Size([2, 12])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension as several.

    - dim: the dimension; unflattened_size: the sizes it is divided into.

    >>> nn.Unflatten(1, (3, 4))(flambeau.zeros(2, 12)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, dim: int | str, unflattened_size: Any) -> None:
        super().__init__()
        if isinstance(dim, int):
            self._require_tuple_int(unflattened_size)
        elif isinstance(dim, str):
            self._require_tuple_tuple(unflattened_size)
        else:
            raise TypeError(f"[Unflatten] expected dim to be int or str, got {type(dim).__name__}")
        self.dim = dim
        self.unflattened_size = unflattened_size

    def _require_tuple_int(self, input: Any) -> None:
        if not isinstance(input, (tuple, list)):
            raise TypeError(f"[Unflatten] expected unflattened_size to be a tuple of ints, got {type(input).__name__}")
        for place, element in enumerate(input):
            if not isinstance(element, int):
                raise TypeError(
                    f"[Unflatten] expected unflattened_size to be a tuple of ints, got {type(element).__name__} at {place}"
                )

    def _require_tuple_tuple(self, input: Any) -> None:
        if not isinstance(input, tuple):
            raise TypeError(
                f"[Unflatten] expected unflattened_size to be a tuple of tuples, got {type(input).__name__}"
            )
        for place, element in enumerate(input):
            if not isinstance(element, tuple):
                raise TypeError(
                    f"[Unflatten] expected unflattened_size to be a tuple of tuples, got {type(element).__name__} at {place}"
                )

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
