"""Objects of PyTorch's own classes inside checkpoints: packed weights of quantized layers.

PyTorch writes them as `torch.ScriptObject` with their state and the name of their class. They are objects of the classes
that `ops.quantized` has for them, which know their state and take it.
"""

from __future__ import annotations

from pickle import UnpicklingError
from typing import Any

NAMES = ("torch.ScriptObject", "torch._C.ScriptObject")
_PREFIX = "__torch__.torch.classes."


class PackedObject:
    """An object whose class is not known before its state is."""

    def __setstate__(self, state: Any) -> None:
        if type(state) is not tuple or len(state) != 2 or not isinstance(state[1], str):
            raise UnpicklingError("[load] expected the state of an object and its class, got other values")
        parts, name = state
        from flambeau.ao.quantized_operators import packed_class

        kind = packed_class(name.removeprefix(_PREFIX))
        if kind is None:
            raise UnpicklingError(f"[load] expected packed weights of a quantized layer, got {name!r}")
        self.__class__ = kind
        self.set_script_state(parts)


def write(pickler: Any, obj: Any) -> None:
    """The object as PyTorch has it."""
    pickler.write_name("torch", "ScriptObject")
    pickler.write(b")\x81")
    pickler.memoize(obj)
    pickler.save((obj.script_state(), obj.script_class))
    pickler.write(b"b")
