"""Forward-mode differentiation: its names, for programs that ask whether a level is entered. No dual tensors yet."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["UnpackedDualTensor", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual", "dual_level"]

_current_level = -1


class UnpackedDualTensor(NamedTuple):
    primal: Any
    tangent: Any


def _missing(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        "[forward_ad] expected reverse mode: forward mode is not supported; "
        "autograd.functional.jvp computes the same product"
    )


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """Outside every level a tensor has no tangent."""
    return UnpackedDualTensor(tensor, None)


enter_dual_level = exit_dual_level = make_dual = _missing


class dual_level:
    def __enter__(self) -> int:
        return int(_missing())

    def __exit__(self, *error: Any) -> None: ...
