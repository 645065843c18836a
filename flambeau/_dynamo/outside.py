"""The view that one capture has of the world outside: values loaded from it, their guards, and stores into it.

Values enter through `Outside.wrap`, which guards them and gives the interpreter something it may change freely: a copy
of a container, a stand-in for a tensor, the object itself where all writes go through an `Overlay`. Nothing outside is
touched while capturing; `rebuild.py` turns what changed into code that runs after the graph.
"""

from __future__ import annotations

import collections
import enum
import functools
import gc
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau import _C
from flambeau._dynamo import arrays, breaks, config, overriding, wrappers
from flambeau._dynamo.breaks import Unsupported
from flambeau._dynamo.effects import Overlay, Shadow
from flambeau._dynamo.kinds import (
    CALLABLES,
    CONSTANTS,
    LITERALS,
    MISSING,
    TENSOR_CONSTANTS,
    Size,
    fl_module,
    has_default_equality,
    is_mutable_class,
    is_namedtuple,
    is_parameter_class,
    is_result_tuple,
    lookup_type,
)
from flambeau._dynamo.source import Source, Sources
from flambeau._dynamo.traced import NULL, Lazy, TracedNumber, TracedTensor, VaryingInt
from flambeau._subclasses.fake_values import disabled

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer


class Known(NamedTuple):
    """An outside object that stands for itself, and where it was found first."""

    value: Any
    source: Source


class Outside:
    """Objects from outside that the capture has met, and what the program wants stored into them."""

    value_types: frozenset[type] = frozenset()  # see values.VALUES

    def __init__(self, tracer: Tracer, dynamic: bool | None, varying: frozenset[str]) -> None:
        self.tracer = tracer
        self.dynamic = dynamic
        self.varying = varying  # places of numbers that changed between calls
        self.parameters: tuple[str, ...] = ()  # names of the function's arguments
        self.sources = Sources()
        self.memo: dict[int, tuple[Any, Any]] = {}  # by id of an outside object: (object, value)
        self.known: dict[int, Known] = {}  # by id: outside objects that stand for themselves
        self.fresh: dict[int, Any] = {}  # objects made during capture that stand for themselves
        self.shadows: dict[int, Shadow] = {}  # by id of the copy
        self.overlays: dict[int, Overlay] = {}
        self.references: dict[int, Any] = {}  # by id of what they refer to: weak references that the program made
        self.proxies: dict[int, Known] = {}  # by id: stand-ins for a mappingproxy
        self.mappings: dict[int, Any] = {}  # contents of instances of subclasses of dict
        self.constructed: dict[int, tuple[Any, ...]] = {}  # modules made during capture: class and arguments
        self.relations: list[tuple[Source, Source]] = []  # places that hold the same object
        self.distinct: list[Source] = []  # places that hold different objects
        self.functions: dict[int, Any] = {}  # by id: functions whose code is captured
        self.classes: dict[int, type] = {}  # by id: classes that can change, and of which something is known
        self.tensor_members: dict[str, None] = {}  # names that were looked up in the class Tensor
        self.numbers: dict[Source, Any] = {}
        self.written_classes = False

    def wrap(self, value: Any, source: Source) -> Any:
        """The interpreter's value for an outside one, guarded."""
        cls = type(value)
        if cls in LITERALS:
            if cls is int and self._is_listed(source):
                return self._wrap_number(value, source)
            if (cls is int and config.specialize_int) or (cls is float and config.specialize_float):
                source.check("equals", value)
                return value
            if self.varying and (cls is int or cls is float) and source.describe() in self.varying:
                return self._wrap_number(value, source)
            if cls is float and _is_rate(source) and self.dynamic is not False:
                return self._wrap_number(value, source)
            if self.dynamic is True and cls is int and not 0 <= value <= 1 and source.kind == "argument":
                return self._wrap_number(value, source)
            source.check("equals", value)
            return value
        known = self.memo.get(id(value))
        if known is not None:
            self._same(value, source)
            return known[1]
        if cls in TENSOR_CONSTANTS:
            if cls is slice and not all(type(v) in LITERALS for v in (value.start, value.stop, value.step)):
                source.check("type", slice)
                start, stop, step = (
                    self.wrap(getattr(value, n), source.attribute(n)) for n in ("start", "stop", "step")
                )
                return slice(start, stop, step)
            source.check("equals", value)
            return value
        if cls is VaryingInt:
            value.symbol = self._wrap_number(int(value), source)
            return value.symbol
        wrapper = WRAPPERS.get(cls)
        if wrapper is not None:
            return wrapper(self, value, source)
        if isinstance(value, _C.Tensor):
            return self._wrap_tensor(value, source)
        if cls.__name__ == "Registry" and cls.__module__ == "flambeau.nn.modules.registry":
            return self._wrap_registry(value, source)
        if isinstance(value, type) or cls in CALLABLES or cls in self.value_types:
            if isinstance(value, type):
                self.guard_class(value)
                self.guard_class(cls)
            source.check("id", value)
            self.register(value, self.sources.constant(value))
            return value
        if isinstance(value, enum.Enum):
            source.check("id", value)
            self.register(value, self.sources.constant(value))
            return value
        if is_result_tuple(cls) or is_namedtuple(cls):
            return self._wrap_tuple(value, source)
        return arrays.wrap(self.tracer, value, source) if arrays.is_numpy(cls) else self.wrap_object(value, source)

    def register(self, value: Any, source: Source) -> None:
        if id(value) in self.fresh:
            return
        self.memo[id(value)] = (value, value)
        self.known[id(value)] = Known(value, source)

    def _same(self, value: Any, source: Source) -> None:
        """A second way to an object that is known already."""
        first = self.source_of(value)
        if first is None or first is source:
            return
        if first.kind == "constant":
            source.check("id", value)
        else:
            self.relations.append((first, source))

    def source_of(self, value: Any) -> Source | None:
        """Where an outside object (not its stand-in) was found first."""
        if id(value) in self.known:
            return self.known[id(value)].source
        stand_in = self.memo[id(value)][1] if id(value) in self.memo else None
        if isinstance(stand_in, (TracedTensor, arrays.TracedArray)):
            return stand_in.source
        shadow = self.shadows.get(id(stand_in))
        return shadow.source if shadow is not None else None

    def _wrap_tensor(self, value: Any, source: Source) -> Any:
        cls = type(value)
        if cls is not _C.Tensor and not is_parameter_class(cls):
            source.check("type", cls)
            if wrappers.is_wrapper(cls):
                wrappers.check_input(value, source)
            else:
                overriding.check_subclass(cls)
        with disabled():  # what a subclass answers about itself is no fact
            traced = self.tracer.builder.add_input(value, source)
        self.memo[id(value)] = (value, traced)
        self.distinct.append(source)
        return traced

    def _wrap_number(self, value: Any, source: Source) -> Any:
        """A number that differs from call to call, as an input of the graph."""
        known = self.numbers.get(source)
        if known is None:
            if type(value) is int:
                source.check("integer", value)
                known = self.tracer.builder.sizes.number(value, source)
                source.checks[("integer", None)] = ("integer", self.tracer.builder.sizes.slot_of(known))
            else:
                source.check("float")
                known = TracedNumber(self.tracer, None, value, source, {source: value})
            self.numbers[source] = known
        return known

    def _is_listed(self, source: Source) -> bool:
        """Whether the program named the place among those that vary."""
        lists = sys.modules.get("flambeau.compiler.config")
        if lists is None or not (lists.dynamic_sources or lists.unbacked_sources):
            return False
        from flambeau._dynamo import places

        return places.is_listed(source, self.parameters, f"{lists.dynamic_sources},{lists.unbacked_sources}")

    def _dynamic_dims(self, value: Any, source: Source) -> list[int]:
        """Sizes of arguments are symbols, those of parameters and other fixtures are numbers."""
        if self._is_listed(source):
            return list(range(value.ndim))
        if self.dynamic is False or wrappers.is_wrapper(type(value)):
            return []
        state = getattr(value, "__dict__", None) or {}
        asked = {*state.get("_dynamo_dynamic", ()), *state.get("_dynamo_weak_dynamic", ())}
        fixture = source.in_module or _rooted_in_constant(source) or is_parameter_class(type(value))
        if fixture or _is_optimizer_state(source):
            return sorted(d % value.ndim for d in asked)
        fixed = {d % value.ndim for d in state.get("_dynamo_static", ())}
        return [d for d in range(value.ndim) if d not in fixed]

    def _items(self, values: Any, source: Source) -> list[Any]:
        return [self.wrap(value, source.item(i)) for i, value in enumerate(values)]

    def check_length(self, value: Any) -> None:
        if len(value) > config.max_container_size:
            raise Unsupported(breaks.LARGE, f"{type(value).__name__} of {len(value)}")

    def _wrap_tuple(self, value: Any, source: Source) -> Any:
        cls = type(value)
        self.check_length(value)
        source.check("type", cls)
        source.check("length", len(value))
        items = self._items(value, source)
        if cls is tuple or cls is Size:
            return cls(items) if cls is tuple else value
        if is_result_tuple(cls):
            return cls(items)
        return tuple.__new__(cls, items)

    def add_shadow(self, value: Any, copy: Any, source: Source) -> None:
        shadow = Shadow(source, value, copy)
        self.shadows[id(copy)] = shadow
        self.memo[id(value)] = (value, copy)
        self.distinct.append(source)

    def _wrap_list(self, value: Any, source: Source) -> Any:
        self.check_length(value)
        source.check("type", type(value))
        source.check("length", len(value))
        copy: list[Any] = []
        self.add_shadow(value, copy, source)
        copy.extend(self._items(list(value), source))
        self.shadows[id(copy)].remember()
        return copy

    def _wrap_dict(self, value: Any, source: Source) -> Any:
        self.check_length(value)
        cls = type(value)
        source.check("type", cls)
        keys = list(value)
        for key in keys:
            if not self.is_plain_key(key):
                raise Unsupported(breaks.UNKNOWN_OPERATION, f"dict with a key of type {type(key).__name__}")
        source.check("dict_keys", keys)
        copy: Any
        if cls is collections.defaultdict:
            copy = collections.defaultdict(
                self.tracer.native_callable(self.wrap(value.default_factory, source.attribute("default_factory")))
            )
        else:
            copy = cls()
        self.add_shadow(value, copy, source)
        for key in keys:
            stand_in = key
            if isinstance(key, _C.Tensor):
                stand_in = self.wrap(key, self.sources.constant(key))
            copy[stand_in] = self.wrap(value[key], source.dict_item(key))
        self.shadows[id(copy)].remember()
        return copy

    def _wrap_registry(self, value: Any, source: Source) -> Any:
        """The members or hooks of a module, as an ordinary ordered dict."""
        if id(value) in self.overlays:
            raise Unsupported(breaks.UNKNOWN_OPERATION, "members of a module that was written to")
        keys = list(value)
        source.check("dict_keys", keys)
        copy: Any = collections.OrderedDict()
        self.add_shadow(value, copy, source)
        for key in keys:
            copy[key] = self.wrap(value[key], source.dict_item(key))
        self.shadows[id(copy)].remember()
        return copy

    def is_plain_key(self, key: Any) -> bool:
        cls = type(key)
        if cls in CONSTANTS or isinstance(key, (enum.Enum, type, types.FunctionType, _C.Tensor)):
            return True
        if cls in (tuple, frozenset):
            return all(self.is_plain_key(k) for k in key)
        return has_default_equality(cls) or self.is_plain_record(key)

    def is_plain_record(self, key: Any) -> bool:
        """Whether an object is a frozen dataclass of constants, which is hashed and compared by them."""
        parameters = vars(type(key)).get("__dataclass_params__")
        if parameters is None or not (parameters.frozen and parameters.eq) or "__eq__" not in vars(type(key)):
            return False
        from flambeau._dynamo.sizes import plain

        values = [plain(self.tracer.load_attribute(key, name)) for name in type(key).__dataclass_fields__]
        return all(type(value) in CONSTANTS or self.is_plain_record(value) for value in values)

    def runs_python_as_key(self, key: Any, *others: str) -> bool:
        """Whether looking an object up runs code of the program that has to be captured."""
        from flambeau._dynamo.values import python_special

        return python_special(type(key), "__hash__", "__eq__", *others) and not self.is_plain_record(key)

    def _wrap_set(self, value: Any, source: Source) -> Any:
        self.check_length(value)
        cls = type(value)
        source.check("type", cls)
        source.check("length", len(value))
        if not all(type(v) in CONSTANTS or isinstance(v, (enum.Enum, type, str)) for v in value):
            raise Unsupported(breaks.UNKNOWN_OPERATION, "set of objects")
        source.check("equals_container", cls(value))
        if cls is frozenset:
            return value
        copy = cls(value)
        self.add_shadow(value, copy, source)
        self.shadows[id(copy)].remember()
        return copy

    def _wrap_deque(self, value: Any, source: Source) -> Any:
        self.check_length(value)
        source.check("type", collections.deque)
        source.check("length", len(value))
        source.attribute("maxlen").check("equals", value.maxlen)
        copy: Any = collections.deque(maxlen=value.maxlen)
        self.add_shadow(value, copy, source)
        copy.extend(self.wrap(v, source.item(i)) for i, v in enumerate(list(value)))
        self.shadows[id(copy)].remember()
        return copy

    def _wrap_function(self, value: Any, source: Source) -> Any:
        if source.kind == "constant" or _rooted_in_constant(source):
            source.check("id", value)
            self.register(value, self.sources.constant(value))
            return value
        # A function made anew for each call: what matters is its code and what it closes over.
        source.check("type", type(value))
        source.check("function", value)
        self.distinct.append(source)
        self.register(value, source)
        return value

    def _wrap_method(self, value: Any, source: Source) -> Any:
        source.check("type", types.MethodType)
        function = self.wrap(value.__func__, source.attribute("__func__"))
        bound = types.MethodType(function, self.wrap(value.__self__, source.attribute("__self__")))
        return bound

    def _wrap_partial(self, value: Any, source: Source) -> Any:
        source.check("type", functools.partial)
        function = self.wrap(value.func, source.attribute("func"))
        args = self.wrap(value.args, source.attribute("args"))
        keywords = self.wrap(value.keywords, source.attribute("keywords"))
        stand_in = functools.partial(function, *args, **keywords)
        self.memo[id(value)] = (value, stand_in)
        return stand_in

    def _wrap_proxy(self, value: Any, source: Source) -> Any:
        """A read-only view of a dict: of the copy that stands for what it shows."""
        shown = proxied(value)
        if type(shown) not in WRAPPERS:
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"mappingproxy of a {type(shown).__name__}")
        source.check("type", types.MappingProxyType)
        stand_in = types.MappingProxyType(self.wrap(shown, source.apply(proxied)))
        self.memo[id(value)] = (value, stand_in)
        self.proxies[id(stand_in)] = Known(stand_in, source)
        return stand_in

    def _wrap_view(self, value: Any, source: Source) -> Any:
        """keys(), values() or items() of a dict."""
        source.check("type", type(value))
        shown = proxied(self.wrap(value.mapping, source.attribute("mapping")))
        view = getattr(shown, type(value).__name__.rpartition("_")[2])()
        self.memo[id(value)] = (value, view)
        return view

    def _wrap_cell(self, value: Any, source: Source) -> Any:
        source.check("type", types.CellType)
        self.register(value, source)
        return value

    def _wrap_builtin_method(self, value: Any, source: Source) -> Any:
        owner = value.__self__
        if owner is None or isinstance(owner, (types.ModuleType, type)):
            source.check("id", value)
            self.register(value, self.sources.constant(value))
            return value
        source.check("type", type(value))
        try:
            bound = self.wrap(owner, source.attribute("__self__"))
            source.attribute("__name__").check("equals", value.__name__)
            return self.tracer.load_attribute(bound, value.__name__)
        except Unsupported:
            self.register(value, source)  # opaque: calling it breaks the graph
            return value

    def wrap_object(self, value: Any, source: Source) -> Any:
        """An instance of some class: it stands for itself, and its attributes are loaded one by one."""
        cls = type(value)
        self.guard_class(cls)
        source.check("type", cls)
        if isinstance(value, _SCALARS):  # native code may look at it
            source.apply(_scalar_of).check("equals", _scalar_of(value))
        if isinstance(value, fl_module()):
            source.in_module = True
            source.check("module")
        self.distinct.append(source)
        self.register(value, source)
        return value

    def overlay(self, target: Any) -> Overlay:
        overlay = self.overlays.get(id(target))
        if overlay is None:
            known = self.known.get(id(target))
            if known is None:
                raise Unsupported(breaks.STORE, f"store into {type(target).__name__}")
            overlay = self.overlays[id(target)] = Overlay(target, known.source)
        return overlay

    def namespace(self, names: dict[str, Any]) -> dict[str, Any]:
        """The globals of a module, which stand for themselves: what functions and attributes store shows in both."""
        if id(names) in self.memo and id(names) not in self.known:
            raise Unsupported(breaks.STORE, "global of a module whose dict is in use")
        self.register(names, self.sources.constant(names))
        return names

    def pending(self, target: Any, name: str) -> Any:
        """A value stored by the program that the outside does not have yet; MISSING if there is none."""
        overlay = self.overlays.get(id(target))
        return MISSING if overlay is None else overlay.values.get(name, MISSING)

    def make_fresh(self, value: Any) -> Any:
        self.fresh[id(value)] = value
        return value

    def guard_code(self, function: Any) -> None:
        """The code of a function is what is captured."""
        known = self.known.get(id(function))
        if id(function) in self.fresh or (known is not None and ("function", None) in known.source.checks):
            return  # made during capture, or anew for each call, where a guard compares the code
        self.functions[id(function)] = function

    def guard_class(self, cls: type) -> None:
        """The bases and special methods of a class are as they are."""
        if is_mutable_class(cls) and id(cls) not in self.fresh:
            self.classes[id(cls)] = cls

    def guard_type_attribute(self, cls: type, name: str) -> None:
        if not is_mutable_class(cls):
            return
        self.guard_class(cls)
        raw = lookup_type(cls, name)
        source = self.sources.constant(cls).type_attribute(name)
        source.check("absent" if raw is NULL else "id", *(() if raw is NULL else (raw,)))

    def tensor_facts(self, value: Any, source: Source) -> tuple[Any, ...]:
        traced = self.memo[id(value)][1]
        if traced.source is not source:
            return (value,) if all(slot < 0 for slot in traced.slots) else self.tracer.builder.sizes.loose_facts(traced)
        return self.tracer.builder.sizes.facts(traced)

    def realize(self, lazy: Lazy) -> Any:
        return self.wrap(lazy.value, lazy.source)


_SCALARS = (int, float, complex, str, bytes)


def _scalar_of(value: Any) -> Any:
    """The number or text that an instance of a class derived from one of those types is."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes.__getitem__(value, slice(None))
    if isinstance(value, float):
        return float.__float__(value)
    return int.__int__(value) if isinstance(value, int) else complex(value)


def proxied(proxy: Any) -> Any:
    """The dict that a mappingproxy shows."""
    return gc.get_referents(proxy)[0]


def _is_rate(source: Source) -> bool:
    """Whether a place is the learning rate of an optimizer's parameter group, which schedules change."""
    if source.kind != "dict_item" or source.key != "lr" or source.parent is None or source.parent.parent is None:
        return False
    return bool(source.parent.parent.key == "param_groups")


def _is_optimizer_state(source: Source) -> bool:
    """Whether a place is in the state that an optimizer keeps for a parameter: of the parameter's sizes, or a single number."""
    owner = source.parent.parent if source.kind == "dict_item" and source.parent is not None else None
    return owner is not None and owner.key == "state"


def _rooted_in_constant(source: Source) -> bool:
    root = source
    while root.parent is not None:
        root = root.parent
    return root.kind == "constant"


WRAPPERS: dict[type, Callable[[Outside, Any, Source], Any]] = {
    tuple: Outside._wrap_tuple,
    list: Outside._wrap_list,
    dict: Outside._wrap_dict,
    collections.OrderedDict: Outside._wrap_dict,
    collections.defaultdict: Outside._wrap_dict,
    collections.Counter: Outside._wrap_dict,
    set: Outside._wrap_set,
    frozenset: Outside._wrap_set,
    collections.deque: Outside._wrap_deque,
    types.FunctionType: Outside._wrap_function,
    types.MethodType: Outside._wrap_method,
    types.BuiltinFunctionType: Outside._wrap_builtin_method,
    functools.partial: Outside._wrap_partial,
    types.CellType: Outside._wrap_cell,
    types.MappingProxyType: Outside._wrap_proxy,
    **dict.fromkeys((type({}.keys()), type({}.values()), type({}.items())), Outside._wrap_view),
}
