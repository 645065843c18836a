"""Small helpers of layers: a number repeated for each dimension, and prefixes of state dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from types import FunctionType
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that repeats a number n times and makes a tuple of what can be iterated over."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def own_constructor(cls: Any) -> None:
    """The constructor that a layer inherits from a private base, under the layer's own name, which messages quote."""
    base: FunctionType = cls.__init__
    if "__init__" not in cls.__dict__ and cls.__module__ == base.__module__ and not cls.__name__.startswith("_"):
        own = FunctionType(base.__code__, base.__globals__, base.__name__, base.__defaults__, base.__closure__)
        own.__annotations__, own.__kwdefaults__, own.__module__ = (
            base.__annotations__,
            base.__kwdefaults__,
            base.__module__,
        )
        own.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = own


def _reverse_repeat_tuple(t: Sequence[Any], n: int) -> tuple[Any, ...]:
    """Each element n times, the last one first: padding of `nn.functional.pad` from that of a convolution."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Any, defaults: Sequence[int]) -> Any:
    """Sizes where None stands for the input's size at the same place from the end."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"[nn] expected an input of more than {len(out_size)} dimensions, got {len(defaults)}")
    return [size if size is not None else own for size, own in zip(out_size, defaults[-len(out_size) :])]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix off the keys of a state dict and of its metadata, in place."""
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in list(metadata):
            # The wrapper itself has the prefix without its dot for a name.
            if key and (key == prefix.replace(".", "") or key.startswith(prefix)):
                metadata[key[len(prefix) :]] = metadata.pop(key)
