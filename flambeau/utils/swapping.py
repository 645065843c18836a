"""Exchange two tensors in place, so that everyone who holds one of the objects sees the other tensor."""

from __future__ import annotations

import weakref
from typing import Any

from flambeau import _C
from flambeau._C import Tensor

__all__ = ["swap_tensors"]


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Swap data, history, class and attributes of two tensor objects."""
    for tensor in (t1, t2):
        if weakref.getweakrefs(tensor):
            raise RuntimeError("[swap_tensors] expected tensors without weak references, got one that has some")

    def slots(tensor: Any) -> dict[str, Any]:
        names = [name for kind in type(tensor).__mro__ for name in kind.__dict__.get("__slots__", ())]
        return {name: getattr(tensor, name) for name in names if hasattr(tensor, name)}

    first, second = slots(t1), slots(t2)
    _C._swap_tensors(t1, t2)
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    one, other = dict(t1.__dict__), dict(t2.__dict__)
    t1.__dict__.clear()
    t1.__dict__.update(other)
    t2.__dict__.clear()
    t2.__dict__.update(one)
    for tensor, old, new in ((t1, first, second), (t2, second, first)):
        for name in old:
            if name not in new:
                delattr(tensor, name)
        for name, value in new.items():
            setattr(tensor, name, value)
