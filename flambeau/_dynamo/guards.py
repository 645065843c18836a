"""The guards of a capture, as tuples for the native evaluator (csrc/python/guards.cpp)."""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau import _C
from flambeau._dynamo.guard_filter import left_out
from flambeau._dynamo.kinds import LITERALS
from flambeau._dynamo.source import Source
from flambeau._dynamo.trace import Tracer

_ACCESS, _CHECK, _ = _C._guard_names()  # the evaluator's numbers, by name


# Methods that the language looks up in a class, present or not.
_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod"
SPECIAL_NAMES = tuple(
    f"__{name}__"
    for name in (
        "getattribute getattr setattr delattr call new init get set delete bool len iter next contains getitem setitem delitem "
        "missing reversed length_hint eq ne lt le gt ge hash str repr format bytes int float complex index trunc round neg pos "
        "invert abs enter exit instancecheck subclasscheck init_subclass class_getitem mro_entries prepare copy deepcopy "
        "reduce reduce_ex torch_function torch_dispatch array array_ufunc array_function fspath "
        + " ".join(f"{name} r{name} i{name}" for name in _BINARY.split())
    ).split()
)


class GuardNode(NamedTuple):
    """A place with its checks, in the order in which the evaluator reads the fields."""

    access: int
    key: Any  # how the place is reached from its parent
    checks: tuple[tuple[Any, ...], ...]
    children: tuple[GuardNode, ...]
    name: str
    slot: int  # where the object is kept for comparisons with others, or -1
    stable: bool  # a member of a module, which changes only together with the module's counter


class GuardTree(NamedTuple):
    """All guards of an artifact, in the order in which the evaluator reads the fields."""

    roots: tuple[GuardNode, ...]
    same: tuple[tuple[int, int], ...]  # slots of places that hold the same object
    distinct: tuple[int, ...]  # slots of places that hold different objects
    slot_count: int
    symbol_count: int
    relations: tuple[Any, ...]  # what was assumed of sizes
    members: tuple[int, ...]  # slots of members of modules, which are all different, too
    functions: tuple[Any, ...]  # whose code was captured
    classes: tuple[tuple[type, tuple[str, ...]], ...]  # whose bases were relied on, and the members with these names


class Builder:
    def __init__(self, tracer: Tracer, choose: Any = None) -> None:
        self.tracer = tracer
        self.slots: dict[Source, int] = {}
        self.left_out = left_out(tracer, choose) if choose is not None else set()

    def slot(self, source: Source) -> int:
        return self.slots.setdefault(source, len(self.slots))

    def build(self) -> GuardTree:
        outside = self.tracer.outside
        same = tuple((self.slot(a), self.slot(b)) for a, b in outside.relations)
        apart = [source for source in outside.distinct if self.is_guarded(source)]
        members = dict.fromkeys(source for source in apart if _is_member(source))
        others = dict.fromkeys(source for source in apart if source not in members)
        many = len(members) + len(others) > 1
        distinct = tuple(self.slot(source) for source in others) if many else ()
        member_slots = tuple(self.slot(source) for source in members) if many else ()
        # Facts about arguments fail most often and are cheap: they come first.
        places = [root for root in outside.sources.roots() if id(root.key) not in outside.fresh]
        roots = [node for node in (self.node(root, False) for root in places) if node is not None]
        symbol_count, relations = self.tracer.builder.sizes.all_relations()
        return GuardTree(
            tuple(roots), same, distinct, len(self.slots), symbol_count, relations, member_slots,
            tuple(outside.functions.values()), self.classes(),
        )  # fmt: skip

    def is_guarded(self, source: Source) -> bool:
        """Whether something about a place is checked that the program did not leave out."""
        return not self.left_out or any((source, key) not in self.left_out for key in source.checks)

    def classes(self) -> tuple[tuple[type, tuple[str, ...]], ...]:
        outside = self.tracer.outside
        facts = [(cls, SPECIAL_NAMES) for cls in outside.classes.values() if cls is not _C.Tensor]
        return (*facts, (_C.Tensor, SPECIAL_NAMES + tuple(outside.tensor_members)))

    def node(self, source: Source, of_module: bool) -> GuardNode | None:
        """The node of a place; None when nothing below it is checked."""
        guarded = [check for key, check in source.checks.items() if (source, key) not in self.left_out]
        is_module = ("module",) in guarded
        is_table = source.kind == "instance" and of_module and source.key in _TABLES
        children = tuple(
            child
            for child in (self.node(place, is_module or is_table) for place in source.children.values())
            if child is not None
        )
        slot = self.slots.get(source, -1)
        if not children and not guarded and slot < 0:
            return None
        checks = tuple(self.check(source, check) for check in guarded)
        stable = of_module and (is_module or is_table or _is_fixed(source))
        key = "grad" if source.kind == "tensor_grad" else source.key
        return GuardNode(_ACCESS[source.kind], key, checks, children, source.describe(), slot, stable)

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
                elif kind in ("absent", "module", "present", "integer", "float"):
                    text = kind
                elif kind == "id":
                    text = f"is {getattr(values[0], '__qualname__', None) or repr(values[0])[:60]}"
                else:
                    text = f"{kind} {repr(values[0])[:60]}"
                lines.append(f"{place.describe()}: {text}")
    lines += tracer.builder.sizes.env.guard_texts()
    return lines
