"""Operators whose result has a wider dtype than their arguments."""

from __future__ import annotations

from typing import Any

import flambeau as fl

__all__ = ["out_dtype"]


def out_dtype(op: Any, output_dtype: fl.dtype, *args: Any) -> Any:
    """An operator of tensors that are converted first: `out_dtype(ops.aten.mm.default, int32, a, b)` multiplies int8 matrices exactly.

    >>> a = flambeau.full((1, 4), 100, dtype=flambeau.int8)
    >>> out_dtype(flambeau.ops.aten.mm.default, flambeau.int32, a, a.t()).item()
    40000
    """
    if not isinstance(output_dtype, fl.dtype):
        raise TypeError(f"[out_dtype] expected a dtype, got {type(output_dtype).__name__}")
    return op(*(x.to(output_dtype) if isinstance(x, fl.Tensor) else x for x in args)).to(output_dtype)
