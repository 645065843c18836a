"""Shape rules: the sizes of an operator's results in terms of the sizes of its arguments, symbolic ones included.

A rule takes arguments of the operator by name. Tensors come as `Geometry`; it returns the sizes of the result, a
`Geometry` for a view, or a list with one of either for each of several results. Only symbolic calls use rules: with
plain sizes the kernels for the meta device answer, and tests hold the two against each other. An operator without a
rule still works: the symbols of its arguments become plain numbers by a guard.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flambeau.ops.shapes.geometry import Geometry, Int, Ints

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)
RULES: dict[str, tuple[Rule, tuple[str, ...]]] = {}

__all__ = ["RULES", "Geometry", "Int", "Ints", "apply", "find", "shape"]


def shape(*names: str) -> Callable[[R], R]:
    """Decorator: the rule of operators, by full name."""

    def decorate(rule: R) -> R:
        parameters = tuple(inspect.signature(rule).parameters)
        for name in names:
            RULES[name] = (rule, parameters)
        return rule

    return decorate


def find(name: str) -> tuple[Rule, tuple[str, ...]] | None:
    """The rule of an operator."""
    if not RULES:
        _load()
    return RULES.get(name)


def _load() -> None:
    from flambeau.ops.shapes import matrices, networks, results, views  # noqa: F401


def apply(name: str, arguments: Mapping[str, Any]) -> Any:
    """What an operator's rule says for the given arguments."""
    found = find(name)
    if found is None:
        raise KeyError(name)
    rule, parameters = found
    return rule(**{p: arguments.get(p) for p in parameters})
