"""Names for the types of arguments, for use in annotations."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Union

import flambeau
from flambeau import Size, Tensor, device, dtype, layout, memory_format

__all__ = ["Number", "Device", "FileLike", "Size", "Tensor"]

_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
_TensorOrTensorsOrGradEdge = Union[Tensor, Sequence[Tensor], Any]
_dtype = dtype
_device = device
_layout = layout
_size = Union[Size, list[builtins.int], tuple[builtins.int, ...]]
_bool = builtins.bool
_int = builtins.int
_float = builtins.float
_complex = builtins.complex
_memory_format = memory_format

Number = (builtins.int, builtins.float, builtins.bool)
_Number = Union[builtins.int, builtins.float, builtins.bool]
IntLikeType = builtins.int
FloatLikeType = builtins.float
BoolLikeType = builtins.bool
Device = Union[device, str, builtins.int, None]
FileLike = Any


def __getattr__(name: str) -> Any:
    if name == "Storage":
        return flambeau.UntypedStorage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
