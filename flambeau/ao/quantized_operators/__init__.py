"""`ops.quantized`: functions of quantized tensors with the grid of the result as arguments.

| module | functions |
|---|---|
| `elementwise` | sums, products, joins, activations, norms |
| `layers` | linear layers and convolutions with packed weights, static and dynamic |
| `cells` | steps of recurrent layers |
| `tables` | rows of tables in eight and four bits |
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["find", "names"]

_MODULES = ("elementwise", "layers", "cells", "tables")
_functions: dict[str, Callable[..., Any]] = {}


def _all() -> dict[str, Callable[..., Any]]:
    if not _functions:
        for module in _MODULES:
            _functions.update(import_module(f"{__name__}.{module}").FUNCTIONS)
    return _functions


class QuantizedFunction:
    """A function under the name of an operator; its overloads are chosen by the arguments."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "torch.ops.quantized"
        self.__doc__ = function.__doc__
        self._function = function
        self._qualified_op_name = f"quantized::{name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from flambeau import Tensor
        from flambeau.overrides import handle_torch_function, has_torch_function

        others = [a for a in args if hasattr(type(a), "__torch_function__") and not isinstance(a, Tensor)]
        if others or has_torch_function(()):  # such as the proxies of a tracer, or a mode
            return handle_torch_function(self, others, *args, **kwargs)
        return self._function(*args, **kwargs)

    def overloads(self) -> list[str]:
        return ["default"]

    def __getattr__(self, overload: str) -> QuantizedFunction:
        if overload.startswith("_") or overload not in ("default", "out", "Scalar", "Tensor", "new"):
            raise AttributeError(f"'quantized.{self.__name__}' has no overload {overload!r}")
        return self

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='quantized.{self.__name__}')>"

    def __reduce__(self) -> Any:
        return find, (self.__name__,)

    def __deepcopy__(self, memo: Any) -> QuantizedFunction:
        return self


def packed_class(name: str) -> Any:
    """The class of packed weights by its name in archives, such as `quantized.LinearPackedParamsBase`; None if there is none."""
    from flambeau.ao.quantized_operators import cells, layers, tables

    return {
        "rnn.CellParamsBase": cells.PackedCell,
        "quantized.LinearPackedParamsBase": layers.PackedLinear,
        "quantized.Conv2dPackedParamsBase": layers.PackedConvolution,
        "quantized.Conv3dPackedParamsBase": layers.PackedConvolution,
        "quantized.EmbeddingPackedParamsBase": tables.PackedTable,
    }.get(name)


_found: dict[str, QuantizedFunction] = {}


def find(name: str) -> QuantizedFunction | None:
    """The function of a name; None where there is none."""
    if name not in _found and name in _all():
        _found[name] = QuantizedFunction(name, _all()[name])
    return _found.get(name)


def names() -> list[str]:
    return sorted(_all())
