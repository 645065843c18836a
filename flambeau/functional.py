"""Functions of the top module that are not operators: they take no tensors, or make none."""

from __future__ import annotations

from typing import Sequence

from flambeau._C import Size

__all__ = ["broadcast_shapes"]


def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """The shape that tensors of these shapes broadcast to."""
    result: list[int] = []
    for position, shape in enumerate(shapes):
        sizes = [shape] if isinstance(shape, int) else [int(s) for s in shape]
        if any(s < 0 for s in sizes):
            raise ValueError(f"[broadcast_shapes] expected sizes that are not negative, got {tuple(sizes)}")
        result = [1] * (len(sizes) - len(result)) + result
        for d in range(-1, -len(sizes) - 1, -1):
            if sizes[d] == 1 or sizes[d] == result[d]:
                continue
            if result[d] != 1:
                raise RuntimeError(
                    f"[broadcast_shapes] expected shapes that broadcast together, got {tuple(sizes)} at position "
                    f"{position} after shapes that broadcast to {tuple(result)}"
                )
            result[d] = sizes[d]
    return Size(result)
