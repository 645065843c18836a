"""The guards of a capture, as tuples for the native evaluator (csrc/python/guards.cpp)."""

from __future__ import annotations

from typing import Any

from flambeau._dynamo.kinds import LITERALS
from flambeau._dynamo.source import Source
from flambeau._dynamo.trace import Tracer

_ACCESS = {
    "argument": 0, "constant": 1, "attribute": 2, "item": 3, "dict_item": 4, "cell": 5, "type": 6, "type_attribute": 7,
    "instance": 8, "tensor_grad": 9, "sequence": 10, "apply": 11,
}  # fmt: skip
_CHECK = {
    "id": 0, "type": 1, "equals": 2, "length": 3, "dict_keys": 4, "tensor": 5, "absent": 6, "function": 7,
    "equals_container": 8, "module": 9, "capture": 10, "integer": 11, "float": 12,
}  # fmt: skip


class Builder:
    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.slots: dict[Source, int] = {}

    def slot(self, source: Source) -> int:
        return self.slots.setdefault(source, len(self.slots))

    def build(self) -> tuple[Any, ...]:
        tracer = self.tracer
        same = tuple((self.slot(a), self.slot(b)) for a, b in tracer.outside.relations)
        members = dict.fromkeys(source for source in tracer.outside.distinct if _is_member(source))
        others = dict.fromkeys(source for source in tracer.outside.distinct if source not in members)
        many = len(members) + len(others) > 1
        distinct = tuple(self.slot(source) for source in others) if many else ()
        apart = tuple(self.slot(source) for source in members) if many else ()
        # Facts about arguments fail most often and are cheap: they come first.
        places = [root for root in tracer.outside.sources.roots() if id(root.key) not in tracer.outside.fresh]
        roots = [node for node in (self.node(root, False) for root in places) if node is not None]
        symbols, relations = tracer.builder.sizes.all_relations()
        return tuple(roots), same, distinct, len(self.slots), symbols, relations, apart

    def node(self, source: Source, of_module: bool) -> tuple[Any, ...] | None:
        """The node of a place; None when nothing below it is checked."""
        is_module = ("module", None) in source.checks
        is_table = source.kind == "instance" and of_module and source.key in _TABLES
        children = tuple(
            child
            for child in (self.node(place, is_module or is_table) for place in source.children.values())
            if child is not None
        )
        slot = self.slots.get(source, -1)
        if not children and not source.checks and slot < 0:
            return None
        checks = tuple(self.check(source, check) for check in source.checks.values())
        stable = of_module and (is_module or is_table or _is_fixed(source))
        key = source.key
        if source.kind == "tensor_grad":
            key = "grad"
        return _ACCESS[source.kind], key, checks, children, source.describe(), slot, stable

    def check(self, source: Source, check: tuple[Any, ...]) -> tuple[Any, ...]:
        kind, *values = check
        if kind == "tensor":
            return (_CHECK[kind], *self.tracer.outside.tensor_facts(values[0], source))
        return (_CHECK[kind], *values)


_TABLES = (
    "_parameters", "_buffers", "_modules", "_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_pre_hooks",
)  # fmt: skip


def _is_member(source: Source) -> bool:
    """Whether a place below a module holds the same object until the module or a container in it is written to."""
    while source.parent is not None and source.parent.in_module:
        if source.kind not in ("instance", "dict_item", "item"):
            return False
        source = source.parent
        if ("module", None) in source.checks:
            return True
    return False


def _is_fixed(source: Source) -> bool:
    """Whether a module's member can only change by being replaced, which the module counts."""
    if source.children:
        return False
    return all(
        kind == "absent" or kind == "id" or (kind == "equals" and type(values[0]) in LITERALS) or kind == "dict_keys"
        for kind, *values in source.checks.values()
    )


def describe(tracer: Tracer) -> list[str]:
    """The guards in words, for logs and explain()."""
    lines = []
    for root in tracer.outside.sources.roots():
        for place in root.walk():
            for kind, *values in place.checks.values():
                if kind == "tensor":
                    value = values[0]
                    text = f"{value.dtype} {tuple(value.shape)} on {value.device}, requires_grad={value.requires_grad}"
                elif kind in ("absent", "module", "capture", "integer", "float"):
                    text = kind
                elif kind == "id":
                    text = f"is {getattr(values[0], '__qualname__', None) or repr(values[0])[:60]}"
                else:
                    text = f"{kind} {repr(values[0])[:60]}"
                lines.append(f"{place.describe()}: {text}")
    lines += tracer.builder.sizes.env.guard_texts()
    return lines
