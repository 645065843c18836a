"""Process-wide switches of the API: determinism, matmul precision, anomaly and warning flags, threads."""

from __future__ import annotations

import warnings

from flambeau import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "are_deterministic_algorithms_enabled", "compiled_with_cxx11_abi", "get_deterministic_debug_mode",
    "get_float32_matmul_precision", "get_num_interop_threads", "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled", "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled", "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_num_interop_threads", "set_warn_always", "use_deterministic_algorithms",
]  # fmt: skip

_PRECISIONS = ("highest", "high", "medium")
_state: dict[str, Any] = {
    "deterministic": False, "warn_only": False, "fill": True, "precision": "highest", "warn_always": False, "interop": 1,
}  # fmt: skip


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for results that do not depend on the order of threads. Every kernel of the CPU is deterministic as it is;
    cuDNN's convolutions hear of it. Operators that PyTorch refuses then, put_ and max_unpool, are refused, or warned about.

    >>> flambeau.use_deterministic_algorithms(True)
    >>> flambeau.use_deterministic_algorithms(False)
    """
    if not isinstance(mode, bool):
        raise TypeError(f"[use_deterministic_algorithms] expected a bool, got {type(mode).__name__}")
    from flambeau.backends import cudnn

    _state.update(deterministic=bool(mode), warn_only=bool(mode and warn_only))
    _C._set_determinism(0 if not mode else 1 if warn_only else 2)
    _tell_fill()
    cudnn._tell("deterministic", cudnn.deterministic)  # which knows of both switches


def _tell_fill() -> None:
    """Memory of new tensors is filled only while both switches are on."""
    _C._fill_uninitialized(_state["deterministic"] and _state["fill"])


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms(True)` is in force.

    >>> flambeau.are_deterministic_algorithms_enabled()
    False
    """
    return _state["deterministic"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether results that may vary are only warned about.

    >>> flambeau.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return _state["warn_only"]


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0 or "default", 1 or "warn", 2 or "error": what happens where results may vary.

    >>> flambeau.set_deterministic_debug_mode("default")
    """
    modes = {"default": 0, "warn": 1, "error": 2}
    mode = modes.get(debug_mode, debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode not in (0, 1, 2):
        raise RuntimeError(f"[set_deterministic_debug_mode] expected 'default', 'warn' or 'error', got {debug_mode!r}")
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    """0: anything goes, 1: warn where results may vary, 2: refuse it.

    >>> flambeau.get_deterministic_debug_mode()
    0
    """
    return 0 if not _state["deterministic"] else 1 if _state["warn_only"] else 2


def set_float32_matmul_precision(precision: str) -> None:
    """How precise products of float32 have to be. "medium" rounds operands to bfloat16 where the processor multiplies that faster.

    >>> flambeau.set_float32_matmul_precision("highest")
    """
    if not isinstance(precision, str):
        raise TypeError(f"[set_float32_matmul_precision] expected a str, got {type(precision).__name__}")
    if precision not in _PRECISIONS:
        warnings.warn(
            f"[set_float32_matmul_precision] expected one of {_PRECISIONS}, got {precision!r}; nothing is changed",
            stacklevel=2,
        )
        return
    from flambeau.backends import cuda

    cuda.matmul.allow_tf32 = precision != "highest"
    _C._set_rounded_products(precision == "medium")  # to bfloat16, on processors that multiply it
    _state["precision"] = precision


def get_float32_matmul_precision() -> str:
    """How precise products of float32 are: "highest", "high" or "medium".

    >>> flambeau.get_float32_matmul_precision()
    'highest'
    """
    return _state["precision"]


def is_anomaly_enabled() -> bool:
    """Whether `autograd.set_detect_anomaly` is on.

    >>> with flambeau.autograd.detect_anomaly(check_nan=False):
    ...     flambeau.is_anomaly_enabled()
    True
    """
    return bool(_C._get_anomaly_mode()[0])


def is_anomaly_check_nan_enabled() -> bool:
    """Whether NaN gradients are errors while anomalies are looked for.

    >>> flambeau.is_anomaly_check_nan_enabled()
    True
    """
    return bool(_C._get_anomaly_mode()[1])


def set_warn_always(b: bool, /) -> None:
    """Give warnings every time that are given once otherwise.

    >>> flambeau.set_warn_always(False)
    """
    _state["warn_always"] = bool(b)


def is_warn_always_enabled() -> bool:
    """Whether warnings that are given once are given every time.

    >>> flambeau.is_warn_always_enabled()
    False
    """
    return _state["warn_always"]


def set_num_interop_threads(n: int, /) -> None:
    """How many threads run independent operators of scripts; to be said before the first of them runs.

    >>> flambeau.set_num_interop_threads(flambeau.get_num_interop_threads())
    """
    if n <= 0:
        raise RuntimeError(f"[set_num_interop_threads] expected a positive number of threads, got {n}")
    _state["interop"] = n


def get_num_interop_threads() -> int:
    """How many threads run independent operators of scripts side by side.

    >>> flambeau.get_num_interop_threads() >= 1
    True
    """
    return _state["interop"]


def set_flush_denormal(mode: bool) -> bool:
    """Denormal numbers are always kept: says that the mode could not be set.

    >>> flambeau.set_flush_denormal(False)
    True
    """
    return not mode


def compiled_with_cxx11_abi() -> bool:
    """Whether the native library uses the C++11 ABI of libstdc++; it always does.

    >>> flambeau.compiled_with_cxx11_abi()
    True
    """
    return True
