"""`options={"guard_filter_fn": ...}`: a function of the program's decides which facts about values are guarded.

It is given an entry for each fact, and answers with as many booleans. What it leaves out is not checked again: the program
promises that it stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau._dynamo import places
from flambeau._dynamo.source import Source

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer

# PyTorch's words for kinds of checks.
_TYPES = {
    "tensor": "TENSOR_MATCH", "id": "ID_MATCH", "equals": "EQUALS_MATCH", "type": "TYPE_MATCH", "length": "SEQUENCE_LENGTH",
    "dict_keys": "DICT_KEYS_MATCH", "module": "NN_MODULE", "absent": "NOT_PRESENT_IN_GENERIC_DICT", "present": "HASATTR",
    "equals_container": "EQUALS_MATCH", "integer": "TYPE_MATCH", "float": "TYPE_MATCH",
}  # fmt: skip


class PlaceOfModules(NamedTuple):
    """What filters ask of a place: whether it is a module's."""

    name: str
    of_module: bool
    of_own_layer: bool
    is_parameter: bool

    def is_unspecialized_nn_module(self) -> bool:
        return self.of_module

    def is_unspecialized_builtin_nn_module(self) -> bool:
        return self.of_own_layer


class OriginalGuard(NamedTuple):
    source: PlaceOfModules


class GuardFilterEntry(NamedTuple):
    """One fact about one value."""

    name: str
    has_value: bool
    value: Any
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: OriginalGuard


def left_out(
    tracer: Tracer, choose: Callable[[list[GuardFilterEntry]], Iterable[bool]]
) -> set[tuple[Source, tuple[str, Any]]]:
    """The checks that the program's function does not keep."""
    outside = tracer.outside
    modules = {known.source: known.value for known in outside.known.values()}
    checks = [
        (place, key, check)
        for root in outside.sources.roots()
        for place in root.walk()
        for key, check in place.checks.items()
    ]
    entries = [_entry(place, check, outside.parameters, modules) for place, _, check in checks]
    answers = list(choose(entries))
    if len(answers) != len(entries):
        raise RuntimeError(f"[compile] expected guard_filter_fn to return {len(entries)} booleans, got {len(answers)}")
    return {(place, key) for (place, key, _), keep in zip(checks, answers) if not keep}


def _entry(
    place: Source, check: tuple[Any, ...], parameters: tuple[str, ...], modules: dict[Source, Any]
) -> GuardFilterEntry:
    from flambeau.nn import Module, Parameter

    kind, *values = check
    name = places.name_of(place, parameters)
    local = name.removeprefix("L['")
    shown = local.replace("']", "", 1) if local != name else name
    owner = _module_of(place, modules, Module)
    own_layer = owner is not None and type(owner).__module__.startswith("flambeau.nn.")
    value = values[0] if values else None
    if kind == "tensor" and isinstance(value, Parameter):
        return _with_value(shown, value, kind, place, PlaceOfModules(name, owner is not None, own_layer, True))
    return _with_value(shown, value, kind, place, PlaceOfModules(name, owner is not None, own_layer, False))


def _with_value(shown: str, value: Any, kind: str, place: Source, source: PlaceOfModules) -> GuardFilterEntry:
    word = _TYPES.get(kind, kind.upper())
    if kind == "equals" and value is None:
        word = "CONSTANT_MATCH"
    return GuardFilterEntry(shown, True, value, word, (), places.is_global(place), OriginalGuard(source))


def _module_of(place: Source | None, modules: dict[Source, Any], kind: type) -> Any:
    """The innermost module that a place lies in, or is."""
    while place is not None:
        value = modules.get(place)
        if isinstance(value, kind):
            return value
        place = place.parent
    return None
