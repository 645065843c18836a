"""Neural networks: the functions of `nn.functional` come from the op records; options of theirs are found here."""

from __future__ import annotations

# Names that live in a module of their own, imported on first use.
_LAZY = {"LinearCrossEntropyOptions": "_linear_cross_entropy"}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'flambeau.nn' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
