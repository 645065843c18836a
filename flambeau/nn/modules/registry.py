"""Tables of a module's members and hooks, which count every change made to any of them."""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any

# How often any module was changed; a list, so that native code can hold it and read its item.
mutations = [0]


def _changes(name: str) -> Any:
    method = getattr(OrderedDict, name)

    @functools.wraps(method)
    def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
        mutations[0] += 1
        return method(self, *args, **kwargs)

    return changed


class Registry(OrderedDict):
    """A table of a module's members or hooks, which counts its changes."""

    __setitem__ = _changes("__setitem__")
    __delitem__ = _changes("__delitem__")
    pop = _changes("pop")
    popitem = _changes("popitem")
    clear = _changes("clear")
    move_to_end = _changes("move_to_end")

    def __repr__(self) -> str:
        """As what PyTorch has in its place: a dict of members by name, an ordered one of hooks by number."""
        hooks = self and isinstance(next(iter(self)), int)
        return repr(OrderedDict(self) if hooks else dict(self))

    def __reduce__(self) -> Any:
        """As a plain dict, which PyTorch reads too; `Module.__setstate__` makes it a registry again."""
        return OrderedDict, (), None, None, iter(self.items())


TABLES = (
    "_parameters", "_buffers", "_modules", "_backward_pre_hooks", "_backward_hooks", "_forward_hooks",
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip
