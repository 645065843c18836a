"""cuDNN's switches, remembered; there is no cuDNN on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

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


def is_available() -> bool:
    return False


def version() -> int | None:
    return None


def is_acceptable(tensor: object) -> bool:
    return False


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
