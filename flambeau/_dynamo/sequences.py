"""Objects from outside whose class derives from list or tuple: what they hold, read and written as the base class does.

Instances stand for themselves, so that their attributes and methods are the class's; the items are a guarded copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._dynamo.effects import Shadow

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer

# Methods of list and tuple that look at nothing but the items.
METHODS = frozenset(
    "__contains__ __getitem__ __len__ __iter__ __reversed__ index count copy append extend insert pop remove clear reverse "
    "sort __setitem__ __delitem__".split()
)


def _items_of_list(value: Any) -> list[Any]:
    return [*list.__iter__(value)]


def _items_of_tuple(value: Any) -> list[Any]:
    return [*tuple.__iter__(value)]


def is_sequence(tracer: Tracer, value: Any) -> bool:
    """Whether a value is such an object."""
    return isinstance(value, (list, tuple)) and id(value) in tracer.outside.known


def contents(tracer: Tracer, value: Any) -> Any:
    """A plain list or tuple with what the object holds."""
    outside = tracer.outside
    known = outside.mappings.get(id(value))
    if known is not None:
        return known
    outside.check_length(value)
    source = outside.known[id(value)].source
    read = _items_of_list if isinstance(value, list) else _items_of_tuple
    items, place = read(value), source.apply(read)
    place.check("length", len(items))
    held: Any = [outside.wrap(item, place.item(i)) for i, item in enumerate(items)]
    if read is _items_of_tuple:
        held = tuple(held)
    else:
        shadow = outside.shadows[id(held)] = Shadow(source, value, held)
        shadow.remember()
    outside.mappings[id(value)] = held
    return held


def opened(tracer: Tracer, value: Any) -> Any:
    """The items of such an object, or the value itself."""
    return contents(tracer, value) if is_sequence(tracer, value) else value
