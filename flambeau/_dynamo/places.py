"""Places as PyTorch writes them (`L['x']`, `G['scale']`, `L['self']._modules['inner'].x`), and settings that list them.

Programs name the values that are to be symbols from the first call on in `compiler.config.dynamic_sources`.
"""

from __future__ import annotations

import functools
import re

from flambeau._dynamo.source import ARGUMENT, ATTRIBUTE, CELL, CONSTANT, DICT_ITEM, INSTANCE, ITEM, Source


def name_of(source: Source, parameters: tuple[str, ...]) -> str:
    """The text of a place; `parameters` are the names of the function's flat arguments."""
    if source.kind == ARGUMENT:
        name = parameters[source.key] if source.key < len(parameters) else f"arg{source.key}"
        return f"L[{name!r}]"
    if source.kind == CONSTANT:
        return "G" if isinstance(source.key, dict) else getattr(source.key, "__qualname__", type(source.key).__name__)
    if source.parent is None:
        return ""
    base = name_of(source.parent, parameters)
    if source.kind in (ITEM, DICT_ITEM):
        return f"{base}[{source.key!r}]"
    if source.kind in (ATTRIBUTE, INSTANCE):
        return f"{base}.{source.key}"
    return f"{base}.cell_contents" if source.kind == CELL else f"{source.kind}({base})"


def is_global(source: Source) -> bool:
    """Whether a place is found through the globals of a module."""
    while source.parent is not None:
        source = source.parent
    return source.kind == CONSTANT and isinstance(source.key, dict)


@functools.cache
def _patterns(listed: str) -> tuple[str, ...]:
    return tuple(part for part in (one.strip() for one in listed.split(",")) if part)


def is_listed(source: Source, parameters: tuple[str, ...], listed: str) -> bool:
    """Whether a setting names a place among those whose values vary."""
    patterns = _patterns(listed)
    if not patterns:
        return False
    name = name_of(source, parameters)
    return any(pattern == name or re.match(pattern, name) for pattern in patterns)
