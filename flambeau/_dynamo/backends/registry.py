"""The names by which programs reach for the registry of backends."""

from __future__ import annotations

from flambeau._dynamo.backends import InvalidBackend, list_backends, lookup_backend, register_backend

__all__ = ["InvalidBackend", "list_backends", "lookup_backend", "register_backend", "register_debug_backend"]


def register_debug_backend(function: object = None, name: str | None = None) -> object:
    """Registers a backend that is not among those listed by default."""
    return register_backend(function, name, tags=("debug",))
