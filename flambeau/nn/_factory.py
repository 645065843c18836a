"""The arguments that decide where and of what dtype a module's tensors are made."""

from __future__ import annotations

from typing import Any

_NAMES = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments for tensor factories out of a module's keyword arguments, given directly or under `factory_kwargs`."""
    if kwargs is None:
        return {}
    unknown = [key for key in kwargs if key not in (*_NAMES, "factory_kwargs")]
    if unknown:
        raise TypeError(f"[factory_kwargs] expected device, dtype or memory_format, got {', '.join(unknown)}")
    options = dict(kwargs.get("factory_kwargs", {}))
    for key in _NAMES:
        if key in kwargs:
            if key in options:
                raise TypeError(f"[factory_kwargs] expected {key} once, got it directly and in factory_kwargs")
            options[key] = kwargs[key]
    return options
