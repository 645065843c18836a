"""`finfo` and `iinfo`: the numerical limits of the dtypes.

Every number follows from a format's bits of exponent and mantissa, so that is all the table holds.
"""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau._compat.absent import AbsentValue

# Floating formats: bits in all, bits of the mantissa, exponent bias, largest value, decimal resolution.
_FLOATING = {
    "float64": (64, 52, 1023, (2 - 2.0**-52) * 2.0**1023, 1e-15),
    "float32": (32, 23, 127, (2 - 2.0**-23) * 2.0**127, 1e-6),
    "float16": (16, 10, 15, 65504.0, 1e-3),
    "bfloat16": (16, 7, 127, (2 - 2.0**-7) * 2.0**127, 1e-2),
    "float8_e4m3fn": (8, 3, 7, 448.0, 1.0),
    "float8_e5m2": (8, 2, 15, 57344.0, 1.0),
    "float8_e4m3fnuz": (8, 3, 8, 240.0, 1.0),
    "float8_e5m2fnuz": (8, 3, 16, 57344.0, 1.0),  # eps as PyTorch has it
    "float8_e8m0fnu": (8, 0, 127, 2.0**127, 1.0),
}
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_INTEGER = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")


def _name(dtype: Any, function: str) -> str:
    """'float32' for `flambeau.float32`."""
    if isinstance(dtype, AbsentValue):  # formats that have limits though no tensors
        return dtype.name
    if (stored := getattr(dtype, "stored_as", None)) is not None:  # a dtype of quantized numbers
        return stored
    if not isinstance(dtype, flambeau.dtype):
        got = type(dtype).__name__
        raise TypeError(f"{function}(): argument 'type' (position 1) must be flambeau.dtype, not {got}")
    return str(dtype).rsplit(".", 1)[-1]


class _Limits:
    """Read-only named numbers, equal when they describe the same dtype."""

    __slots__ = ("bits", "dtype", "max", "min")
    bits: int
    dtype: str
    min: Any
    max: Any

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"attribute {name!r} of {type(self).__name__!r} objects is not writable")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Limits) and type(self) is type(other) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash((type(self), self.dtype))


class finfo(_Limits):
    """Limits of a floating-point dtype; of its parts for a complex one; of the default dtype when none is given.

    Attributes: bits, eps, max, min, tiny, smallest_normal, resolution, dtype (its name).
    """

    __slots__ = ("eps", "resolution", "smallest_normal", "tiny")
    eps: float
    resolution: float
    smallest_normal: float
    tiny: float

    def __init__(self, *type: Any, **named: Any) -> None:
        dtype = _single_argument("finfo", type, named, optional=True)
        name = _name(flambeau.get_default_dtype() if dtype is _MISSING else dtype, "finfo")
        name = _PARTS.get(name, name)
        if name not in _FLOATING:
            raise TypeError(f"[finfo] expected a floating-point or complex dtype, got {dtype}; use iinfo for integers")
        bits, mantissa, bias, largest, resolution = _FLOATING[name]
        smallest = 2.0 ** (1 - bias)
        self._set(bits=bits, dtype=name, min=-largest, max=largest, eps=2.0**-mantissa)
        self._set(resolution=resolution, smallest_normal=smallest, tiny=smallest)
        if name == "float8_e8m0fnu":  # powers of two only, without a sign
            self._set(min=2.0**-127, smallest_normal=2.0**-127, tiny=2.0**-127)

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )

    def __reduce__(self) -> Any:
        return (finfo, (getattr(flambeau, self.dtype),))


class iinfo(_Limits):
    """Limits of an integer dtype. Attributes: bits, max, min, dtype (its name)."""

    __slots__ = ()

    def __init__(self, *type: Any, **named: Any) -> None:
        dtype = _single_argument("iinfo", type, named, optional=False)
        name = _name(dtype, "iinfo")
        if name not in _INTEGER:
            hint = "" if name == "bool" else "; use finfo for floating-point dtypes"
            raise TypeError(f"[iinfo] expected an integer dtype, got {dtype}{hint}")
        signed = name.startswith("int")
        bits = int(name[3:] if signed else name[4:])
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        self._set(bits=bits, dtype=name, min=low, max=high)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"

    def __reduce__(self) -> Any:
        return (iinfo, (getattr(flambeau, self.dtype),))


_MISSING = object()


def _single_argument(function: str, positional: tuple[Any, ...], named: dict[str, Any], optional: bool) -> Any:
    """The value of the one argument, `type`, given by position or by name. None is a value, not an absence."""
    values = [*positional, *([named.pop("type")] if "type" in named else [])]
    if named:
        raise TypeError(f"{function}() got an unexpected keyword argument {next(iter(named))!r}")
    if len(values) > 1:
        raise TypeError(f"{function}() takes 1 argument, got {len(values)}")
    if not values and not optional:
        raise TypeError(f'{function}() missing 1 required positional arguments: "type"')
    return values[0] if values else _MISSING
