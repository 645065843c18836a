"""Which implementation attention may use. There is one here, and the choice is only remembered."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

__all__ = ["SDPBackend", "sdpa_kernel", "WARN_FOR_UNFUSED_KERNELS"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """Implementations of scaled_dot_product_attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_SWITCHES = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}


@contextlib.contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """The implementations allowed inside a `with` block."""
    from flambeau.backends import cuda

    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not all(isinstance(backend, SDPBackend) for backend in chosen):
        raise AssertionError(f"[sdpa_kernel] expected members of SDPBackend, got {backends}")
    before = dict(cuda._attention)
    cuda._attention.update({name: backend in chosen for backend, name in _SWITCHES.items()})
    try:
        yield
    finally:
        cuda._attention.update(before)


def list_flash_attention_impls() -> list[str]:
    """Implementations from outside that can be asked for: none."""
    return []


def current_flash_attention_impl() -> str | None:
    return None


def activate_flash_attention_impl(impl: str) -> None:
    raise ModuleNotFoundError(f"[activate_flash_attention_impl] expected no implementation from outside, got {impl!r}")


def restore_flash_attention_impl(_raise_warn: bool = True) -> None:
    """Goes back to the implementation that is always used."""


def __getattr__(name: str) -> Any:
    if name == "varlen":
        from importlib import import_module

        return import_module(f"{__name__}.varlen")
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
