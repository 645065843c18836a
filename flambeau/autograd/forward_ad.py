"""Forward-mode differentiation: tensors with a tangent, and the tangents of what is computed from them.

The engine has no forward mode. A dual tensor is one that a level follows in reverse mode; the tangent of a result is
found when it is asked for, by differentiating the backward from the result with respect to what it is seeded with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau as fl
from flambeau.autograd.function import SameMemory, finding_tangents

__all__ = ["UnpackedDualTensor", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual", "dual_level"]

_current_level = -1
_enabled = True


class _Made(NamedTuple):
    """A dual tensor: what it was when it was made, and where gradients with respect to it end."""

    dual: Any
    grad_fn: Any
    root: Any
    primal: Any
    tangent: Any


_duals: list[_Made] = []  # of the level


class UnpackedDualTensor(NamedTuple):
    primal: Any
    tangent: Any


def enter_dual_level() -> int:
    """Begins a level. They cannot be nested."""
    global _current_level
    if _current_level >= 0:
        raise RuntimeError(
            "[enter_dual_level] expected no level to be entered, got a second one: Nested forward mode AD is not supported at the moment"
        )
    _current_level = 0
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends the level, and forgets its tangents."""
    global _current_level
    if _current_level < 0 or level not in (None, _current_level):
        raise RuntimeError(f"[exit_dual_level] expected the level {_current_level}, the last one entered, got {level}")
    _current_level = -1
    _duals.clear()


def _check_level(name: str) -> None:
    if _current_level < 0:
        raise RuntimeError(f"[{name}] expected to be inside of a dual_level()")


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """The tensor with a tangent, for the level that is entered."""
    _check_level("make_dual")
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(
            f"[make_dual] expected a floating point or complex tensor, got {tensor.dtype}: Expected primal to be floating point or "
            f"complex, but got: {tensor.dtype}"
        )
    if not (tangent.is_floating_point() or tangent.is_complex()):
        raise ValueError(
            f"[make_dual] expected a floating point or complex tangent, got {tangent.dtype}: Expected tangent to be floating point or "
            f"complex, but got: {tangent.dtype}"
        )
    if any(dual.dual is tangent for dual in _duals):
        raise RuntimeError(
            "[make_dual] expected a tangent without a tangent, got a dual tensor: Using a forward gradient that has a forward gradient "
            "at the same level is not supported"
        )
    if tensor.shape != tangent.shape or tensor.dtype != tangent.dtype:
        raise RuntimeError(
            f"[make_dual] expected a tangent like the tensor, {tuple(tensor.shape)} of {tensor.dtype}, got "
            f"{tuple(tangent.shape)} of {tangent.dtype}: Trying to set a forward gradient that has a different size than that of the "
            "original Tensor, this is not supported."
        )
    with fl.enable_grad():
        root = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
        dual = SameMemory.apply(root)
    _duals.append(_Made(dual, dual.grad_fn, root, tensor, tangent))
    return dual


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor and its tangent; None where it has none."""
    if _current_level < 0:
        return UnpackedDualTensor(tensor, None)
    for dual in _duals:
        if dual.dual is tensor and tensor.grad_fn is dual.grad_fn:
            return UnpackedDualTensor(dual.primal, dual.tangent)
    if not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    tangent = _tangent(tensor)
    if not fl.is_grad_enabled():
        return UnpackedDualTensor(tensor.detach(), None if tangent is None else tangent.detach())
    return UnpackedDualTensor(tensor.view_as(tensor), tangent)


def _tangent(tensor: Any) -> Any:
    with fl.enable_grad():
        seed = fl.zeros_like(tensor, requires_grad=True)
        roots = [dual.root for dual in _duals]
        with finding_tangents():
            back = fl.autograd.grad(tensor, roots, seed, create_graph=True, allow_unused=True)
        reached = [(g, dual.tangent) for g, dual in zip(back, _duals) if g is not None]
        if not reached:
            return None
        pairs = [(g, tangent) for g, tangent in reached if g.requires_grad]
        if not pairs:
            return fl.zeros_like(tensor)
        (gradient,) = fl.autograd.grad(
            [g for g, _ in pairs], seed, [t for _, t in pairs], create_graph=True, allow_unused=True
        )
    return fl.zeros_like(tensor) if gradient is None else gradient


class dual_level:
    """Inside, tensors may have tangents."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *error: Any) -> None:
        exit_dual_level()


class _set_fwd_grad_enabled:
    """Inside, and from the call on, tensors have tangents or not."""

    def __init__(self, mode: bool) -> None:
        global _enabled
        self.before = _enabled
        _enabled = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        global _enabled
        _enabled = self.before


def _is_fwd_grad_enabled() -> bool:
    return _enabled
