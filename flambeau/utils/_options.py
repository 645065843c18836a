"""Modules of settings: plain variables that can be changed for a while, by name, together.

    patch, options = settings(__name__)

A name with a dot is an attribute of a class in the module: `cpp.threads`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

__all__ = ["settings"]


def settings(module_name: str) -> tuple[Callable[..., Any], Callable[[], dict[str, Any]]]:
    """A module's `patch`, a context manager and decorator, and the function that gives all settings by name."""

    def options() -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in vars(sys.modules[module_name]).items():
            if name.startswith("_") or name.isupper() or isinstance(value, ModuleType):
                continue
            if isinstance(value, type) and value.__module__ == module_name:
                values |= {f"{name}.{k}": v for k, v in vars(value).items() if not k.startswith("_")}
            elif not callable(value) and name != "annotations":
                values[name] = value
        return values

    @contextlib.contextmanager
    def patch(changes: str | dict[str, Any] | None = None, value: Any = None, **named: Any) -> Iterator[None]:
        """The settings as given inside a `with` block, or during calls of the function this decorates."""
        wanted = {**({changes: value} if isinstance(changes, str) else changes or {}), **named}
        known = options()
        for name in wanted:
            if name not in known:
                raise AttributeError(f"[{module_name}] expected one of {', '.join(sorted(known))}, got {name!r}")
        try:
            for name, new in wanted.items():
                _assign(sys.modules[module_name], name, new)
            yield
        finally:
            for name in wanted:
                _assign(sys.modules[module_name], name, known[name])

    return patch, options


def _assign(module: ModuleType, name: str, value: Any) -> None:
    group, _, last = name.rpartition(".")
    setattr(getattr(module, group) if group else module, last, value)
