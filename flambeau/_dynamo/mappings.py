"""Objects from outside whose class derives from dict: reading their items, and how any object is taken apart for copies.

Instances of such classes stand for themselves, so that their attributes are found; what they hold is read through here,
with guards. Writes go to the copy that was read, and are replayed past the class's own methods.
"""

from __future__ import annotations

import collections
import copyreg
import types
from typing import TYPE_CHECKING, Any

from flambeau._dynamo import breaks
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.effects import Shadow

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer

# Methods of dict that only read.
READS = frozenset("__getitem__ __contains__ __len__ __iter__ get keys values items copy __reversed__".split())
WRITES = frozenset("__setitem__ __delitem__ pop popitem clear update setdefault".split())


def contents(tracer: Tracer, value: Any) -> Any:
    """A plain dict with what an instance of a subclass of dict holds."""
    known = tracer.outside.mappings.get(id(value))
    if known is not None:
        return known
    source = tracer.outside.known[id(value)].source
    cls = type(value)
    if cls.__iter__ not in (dict.__iter__, collections.OrderedDict.__iter__):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"items of {cls.__name__}")
    tracer.outside.check_length(value)
    keys = list(dict.keys(value)) if not isinstance(value, collections.OrderedDict) else list(cls.__iter__(value))
    if not all(tracer.outside.is_plain_key(key) for key in keys):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"{cls.__name__} with keys that are objects")
    source.check("dict_keys", keys)
    copy: Any = collections.OrderedDict() if isinstance(value, collections.OrderedDict) else {}
    for key in keys:
        copy[key] = tracer.outside.wrap(dict.__getitem__(value, key), source.dict_item(key))
    tracer.outside.mappings[id(value)] = copy
    shadow = tracer.outside.shadows[id(copy)] = Shadow(source, value, copy)
    shadow.remember()
    return copy


def item(tracer: Tracer, value: Any, key: Any) -> Any:
    """dict.__getitem__ of such an object; only this item is guarded."""
    known = tracer.outside.mappings.get(id(value))
    if known is not None:
        if key in known:
            return known[key]
        if hasattr(type(value), "__missing__"):
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"missing key of {type(value).__name__}")
        raise UserError(KeyError(key))
    source = tracer.outside.known[id(value)].source
    if not tracer.outside.is_plain_key(key):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"key of type {type(key).__name__}")
    if not dict.__contains__(value, key):
        if hasattr(type(value), "__missing__"):
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"missing key of {type(value).__name__}")
        source.dict_item(key).check("absent")
        raise UserError(KeyError(key))
    return tracer.outside.wrap(dict.__getitem__(value, key), source.dict_item(key))


def from_keys(tracer: Tracer, value: Any) -> Any:
    """A dict with what a mapping that is no dict shows by `keys` and `__getitem__`; None for what has no keys."""
    from flambeau._dynamo.kinds import lookup_type
    from flambeau._dynamo.values import iterable_list

    if type(value) is types.MappingProxyType:
        return value.copy()
    if not isinstance(lookup_type(type(value), "keys"), types.FunctionType):
        return None
    keys = iterable_list(tracer, tracer.call_special(value, "keys"))
    return {key: tracer.call_special(value, "__getitem__", key) for key in keys}


def reduce(tracer: Tracer, value: Any) -> Any:
    """object.__reduce_ex__(4) of a plain object, which copies are made from."""
    from flambeau._dynamo import attributes
    from flambeau._dynamo.kinds import MISSING, lookup_type

    cls = type(value)
    method = lookup_type(cls, "__reduce__")
    ordered = method is lookup_type(collections.OrderedDict, "__reduce__")
    simple = method is object.__reduce__ or ordered
    slots = any("__slots__" in base.__dict__ and base.__dict__["__slots__"] for base in cls.__mro__)
    special = any(hasattr(cls, name) for name in ("__getnewargs__", "__getnewargs_ex__"))
    state_method = lookup_type(cls, "__getstate__")
    native_base = isinstance(value, (list, set, tuple, frozenset, int, str, float, BaseException, types.ModuleType))
    if not simple or slots or special or native_base or isinstance(state_method, types.FunctionType):
        raise Unsupported(breaks.UNKNOWN_CALL, f"copy of a {cls.__name__}")
    own = getattr(value, "__dict__", None)
    if own is None or not (cls.__flags__ & (1 << 9)):
        raise Unsupported(breaks.UNKNOWN_CALL, f"copy of a {cls.__name__}")
    known = tracer.outside.known.get(id(value))
    names = list(own)
    if known is not None:
        known.source.attribute("__dict__").check("dict_keys", list(names))
        overlay = tracer.outside.overlays.get(id(value))
        names += [name for name in (overlay.values if overlay is not None else ()) if name not in own]
    state = {name: attributes.instance_value(tracer, value, name) for name in names}
    state = {name: held for name, held in state.items() if held is not MISSING}
    items = None
    if isinstance(value, dict):
        held: Any = contents(tracer, value) if known is not None else value
        items = iter(list(dict.items(held)) if not ordered else list(collections.OrderedDict.items(held)))
    if ordered:
        return cls, (), state or None, None, items
    return copyreg.__newobj__, (cls,), state or None, None, items
