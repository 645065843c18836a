"""Tables of decompositions, as programs give them to `run_decompositions` and to compilers of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["core_aten_decompositions", "decomposition_table", "get_decompositions", "register_decomposition"]

_registered: dict[Any, Callable[..., Any]] = {}  # by programs


def core_aten_decompositions() -> dict[Any, Callable[..., Any]]:
    """Functions for operators outside of ATen's core set."""
    from flambeau.export import default_decompositions

    return {**default_decompositions(), **_registered}


def _overloads(op: Any) -> list[Any]:
    return [getattr(op, name) for name in op.overloads()] if hasattr(op, "overloads") else [op]


def get_decompositions(aten_ops: Iterable[Any], type: str = "post_autograd") -> dict[Any, Callable[..., Any]]:
    """Those of the operators, or of all overloads of an operator, that there are."""
    table = core_aten_decompositions()
    return {one: table[one] for op in aten_ops for one in _overloads(op) if one in table}


def register_decomposition(
    aten_op: Any, registry: dict[Any, Any] | None = None, *, type: str = "post_autograd", unsafe: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function for one operator or several."""
    table = _registered if registry is None else registry

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in aten_op if isinstance(aten_op, (list, tuple)) else [aten_op]:
            table.update(dict.fromkeys(_overloads(op), function))
        return function

    return enter


def __getattr__(name: str) -> Any:
    if name == "decomposition_table":
        return core_aten_decompositions()
    raise AttributeError(f"module 'torch._decomp' has no attribute {name!r}")
