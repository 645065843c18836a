"""`ops.higher_order`: the operators that take graphs, as nodes of exported programs call them.

cond(pred, true_graph, false_graph, operands)
while_loop(cond_graph, body_graph, carried, additional)
map_impl(graph, mapped, others)
scan(graph, init, mapped, additional)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.utils import _pytree as pytree


class HigherOrderOperator:
    """An operator over functions and graphs; there is one object for each name of `ops.higher_order`.

    Programs derive their own and give it an implementation for devices, or below autograd: `@op.py_impl(DispatchKey.CPU)`.
    It is differentiated and batched as it stands, so that rules for transforms are kept and not asked.
    """

    is_higher_order = True

    def __init__(self, name: str, function: Callable[..., Any] | None = None, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = self.__qualname__ = name
        self.__module__ = "torch.ops.higher_order"
        self.namespace = "higher_order"
        self._function = function
        self._cacheable = cacheable
        self._implementations: dict[str, Callable[..., Any]] = {}

    def name(self) -> str:
        return self._name

    def cacheable(self) -> bool:
        return self._cacheable

    def py_impl(self, key: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Sets what runs for a dispatch key, a transform or a mode."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self._implementations[str(getattr(key, "name", None) or getattr(key, "__name__", key))] = function
            return function

        return add

    def py_functionalize_impl(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.py_impl("functionalize")(function)

    def py_autograd_impl(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.py_impl("Autograd")(function)

    def fallthrough(self, key: Any) -> None:
        """What lies below the key runs, as it does for keys without an implementation."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is not None:
            return self._function(*args, **kwargs)
        device = next((x.device.type for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, fl.Tensor)), "cpu")
        for key in (
            f"Autograd{device.upper()}",
            "Autograd",
            "CompositeImplicitAutograd",
            "CompositeExplicitAutograd",
            device.upper(),
        ):
            if key in self._implementations:
                return self._implementations[key](*args, **kwargs)
        raise NotImplementedError(
            f"[{self._name}] expected an implementation for {device} or for autograd, got {sorted(self._implementations) or 'none'}"
        )

    def __repr__(self) -> str:
        return self._name

    def __deepcopy__(self, memo: Any) -> HigherOrderOperator:
        return self

    def __reduce__(self) -> Any:
        return higher_order, (self._name,)


def _cond(pred: Any, true_graph: Any, false_graph: Any, operands: Any = ()) -> Any:
    return tuple(fl.cond(pred, lambda: tuple(true_graph(*operands)), lambda: tuple(false_graph(*operands))))


def _while_loop(cond_graph: Any, body_graph: Any, carried: Any, additional: Any = ()) -> Any:
    values = tuple(carried)
    while _first(cond_graph(*values, *additional)):
        results = body_graph(*values, *additional)
        values = tuple(results) if isinstance(results, (tuple, list)) else (results,)
    return values


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, (tuple, list)) else result


def _map(graph: Any, mapped: Any, others: Any = ()) -> Any:
    rows = [graph(*row, *others) for row in zip(*mapped)]
    return tuple(fl.stack(list(column)) for column in zip(*rows))


def _scan(graph: Any, init: Any, mapped: Any, additional: Any = ()) -> Any:
    carried, count = list(init), len(init)
    rows = []
    for row in zip(*mapped):
        results = list(graph(*carried, *row, *additional))
        carried = results[:count]
        rows.append(results[count:])
    return (*carried, *(fl.stack(list(column)) for column in zip(*rows)))


def _with_grad_enabled(enabled: bool, graph: Any, *args: Any, **kwargs: Any) -> Any:
    with fl.set_grad_enabled(enabled):
        return graph(*args, **kwargs)


def _with_autocast(
    device_type: str, dtype: Any, enabled: bool, cache_enabled: bool | None, graph: Any, *args: Any, **kwargs: Any
) -> Any:
    with fl.autocast(device_type, dtype, enabled, cache_enabled):
        return graph(*args, **kwargs)


def _invoke_subgraph(graph: Any, identifier: Any, *operands: Any) -> Any:
    return graph(*operands)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cond": _cond, "while_loop": _while_loop, "map_impl": _map, "scan": _scan,
    "wrap_with_set_grad_enabled": _with_grad_enabled, "wrap_with_autocast": _with_autocast,
    "invoke_subgraph": _invoke_subgraph,
}  # fmt: skip
_OPERATORS: dict[str, HigherOrderOperator] = {}


def higher_order(name: str) -> HigherOrderOperator:
    """The operator of that name."""
    if name not in _OPERATORS:
        if name not in _FUNCTIONS:
            raise AttributeError(f"[ops.higher_order] expected one of {', '.join(_FUNCTIONS)}, got {name}")
        _OPERATORS[name] = HigherOrderOperator(name, _FUNCTIONS[name])
    return _OPERATORS[name]


class Namespace:
    """What `ops.higher_order` is."""

    name = "higher_order"

    def __getattr__(self, name: str) -> HigherOrderOperator:
        if name.startswith("__"):
            raise AttributeError(name)
        return higher_order(name)


namespace = Namespace()
