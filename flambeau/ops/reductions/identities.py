"""What reductions leave as it is: the elements that may be put in place of those that do not count."""

from __future__ import annotations

from math import inf
from typing import Any

import flambeau as fl


def lowest(dtype: fl.dtype) -> float:
    return -inf if dtype.is_floating_point else 0 if dtype == fl.bool else fl.iinfo(dtype).min


def highest(dtype: fl.dtype) -> float:
    return inf if dtype.is_floating_point else 1 if dtype == fl.bool else fl.iinfo(dtype).max


def reduction_identity(op_name: str, input: fl.Tensor, *args: Any) -> fl.Tensor | None:
    """What may be put in place of an element without a change of a reduction of that name; None where nothing may."""
    name, dtype = op_name.rpartition(".")[2], input.dtype
    if name in ("mean", "var", "std"):
        return None
    if name in ("sum", "cumsum", "prod", "cumprod"):
        value: Any = int(name in ("prod", "cumprod"))
    elif name in ("amax", "argmax", "logaddexp", "logsumexp"):
        value = complex(-inf) if dtype.is_complex and name == "logsumexp" else lowest(dtype)
    elif name in ("amin", "argmin"):
        value = highest(dtype)
    elif name == "norm":
        value = inf if args and args[0] == -inf else 0
    elif name == "median":
        value, dtype = float("nan"), dtype if dtype.is_floating_point else fl.float32
    else:
        raise NotImplementedError(
            f"[reduction_identity] expected a reduction with an identity, got {op_name} of {dtype}"
        )
    return fl.tensor(value, dtype=dtype, device=input.device)
