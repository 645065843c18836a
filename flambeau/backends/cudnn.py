"""cuDNN's switches, and whether it is there: convolutions use it if it is.

`allow_tf32` and `deterministic` are those of convolutions; the others are remembered and have no effect.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flambeau import Tensor

enabled = True
benchmark = False
benchmark_limit = 10
_deterministic = False
_tf32 = True
fp32_precision = "none"


class _Precision:
    """The precision of one kind of layer."""

    fp32_precision = "none"


conv, rnn = _Precision(), _Precision()


class _Switches(types.ModuleType):
    """This module, with switches that the kernels hear of."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 convolutions may round their operands to TF32."""
        return _tf32

    @allow_tf32.setter
    def allow_tf32(self, on: bool) -> None:
        _tell("tf32", on)

    @property
    def deterministic(self) -> bool:
        """Whether convolutions must have the same bits in every run."""
        return _deterministic

    @deterministic.setter
    def deterministic(self, on: bool) -> None:
        _tell("deterministic", on)


def _tell(switch: str, on: bool) -> None:
    import flambeau as fl
    from flambeau.cuda import _library

    globals()["_" + switch] = bool(on)
    if fl.cuda.is_available():
        asked = switch == "deterministic" and fl.are_deterministic_algorithms_enabled()
        _library.call("set_convolution_" + switch, int(on or asked))


_module = sys.modules[__name__]
_module.__class__ = _Switches


def version() -> int | None:
    """Of the library that was found, 91000 for 9.10; None without one."""
    import flambeau as fl
    from flambeau.cuda import _library

    return (_library.call("cudnn_version") or None) if fl.cuda.is_available() else None


def is_available() -> bool:
    return version() is not None


def is_acceptable(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.is_floating_point() and is_available()


def set_flags(**flags: object) -> dict[str, object]:
    """Set the switches given, and return what they were."""
    before = {name: getattr(_module, name) for name in flags}
    for name, value in flags.items():
        if value is not None:
            setattr(_module, name, value)
    return before


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    before = set_flags(
        enabled=enabled,
        benchmark=benchmark,
        benchmark_limit=benchmark_limit,
        deterministic=deterministic,
        allow_tf32=allow_tf32,
    )
    try:
        yield
    finally:
        set_flags(**before)
