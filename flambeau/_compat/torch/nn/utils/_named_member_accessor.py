"""Tensors of a module read and replaced by name, without the checks of assignment."""

from __future__ import annotations

from flambeau import Tensor
from flambeau.nn import Module

_MISSING = object()


def swap_tensor(module: Module, name: str, tensor: Tensor, allow_missing: bool = False) -> Tensor:
    """Puts a tensor in the place of a parameter, buffer or attribute of a module, and returns the one that was there."""
    if not isinstance(module, Module):
        raise TypeError(f"[swap_tensor] expected a Module, got {type(module).__name__}")
    if not name or "." in name:
        raise KeyError(f"[swap_tensor] expected the name of a tensor of the module itself, got {name!r}")
    table = next((t for t in (module._parameters, module._buffers) if name in t), None)
    former = getattr(module, name, _MISSING) if table is None else table[name]
    if former is _MISSING and not allow_missing:
        raise AttributeError(f"[swap_tensor] expected a tensor {name!r} in {type(module).__name__}, got none")
    if former is not _MISSING and former is not None and not isinstance(former, Tensor):
        raise TypeError(
            f"[swap_tensor] expected a tensor {name!r} in {type(module).__name__}, got {type(former).__name__}"
        )
    if table is not None:
        table[name] = tensor
    else:
        setattr(module, name, tensor)
    return former  # type: ignore[return-value]
