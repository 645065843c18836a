"""cuDNN's switches, remembered, and whether it is there: convolutions use it if it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import flambeau as fl

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"


class _Precision:
    """The precision of one kind of layer."""

    fp32_precision = "none"


conv, rnn = _Precision(), _Precision()


def version() -> int | None:
    """Of the library that was found, 91000 for 9.10; None without one."""
    import flambeau as fl
    from flambeau.cuda import _library

    return (_library.call("cudnn_version") or None) if fl.cuda.is_available() else None


def is_available() -> bool:
    return version() is not None


def is_acceptable(tensor: fl.Tensor) -> bool:
    return tensor.is_cuda and tensor.is_floating_point() and is_available()


def set_flags(**flags: object) -> dict[str, object]:
    """Set the switches given, and return what they were."""
    before = {name: globals()[name] for name in flags}
    globals().update({name: value for name, value in flags.items() if value is not None})
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
