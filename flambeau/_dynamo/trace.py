"""The state of one capture: the graph, the values loaded from outside with their guards, and pending side effects.

Values from outside enter through `Tracer.wrap`, which guards them and gives the interpreter something it may change
freely: a copy of a container, a stand-in for a tensor, the object itself where all writes go through `Overlay`. Nothing
outside is touched while capturing; `rebuild.py` turns what changed into code that runs after the graph.
"""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import arrays, breaks, config, overriding
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.effects import Draw, Overlay, Shadow
from flambeau._dynamo.sizes import SYMBOLIC, Sizes, SymbolicSize, SymInt
from flambeau._dynamo.source import Source, Sources
from flambeau._dynamo.traced import NULL, Interpreted, Lazy, TracedNumber, TracedTensor, tensors_in
from flambeau._ops import OpOverload
from flambeau._subclasses.fake_tensor import _specialize as specialize
from flambeau.fx.graph import Graph
from flambeau.ops.shapes.geometry import same_all
from flambeau.ops.symbolic.shape_env import DataDependentOutput

Function = type(fl.sin)
OverridableFunction = type(fl.tensor)
MISSING: Any = object()
_KEY = type(functools.cmp_to_key(lambda a, b: 0))
Size = fl.Size
LITERALS = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)})
TENSOR_CONSTANTS = frozenset(
    {type(fl.float32), fl.device, type(fl.strided), type(fl.contiguous_format), fl.Size, slice, range}
)
CONSTANTS = LITERALS | TENSOR_CONSTANTS
CALLABLES = (types.BuiltinFunctionType, Function, type, types.ModuleType, type(fl.tensor), types.MethodDescriptorType,
             types.WrapperDescriptorType, type(_C.Tensor.sin), type(_C.Tensor.type), types.MethodWrapperType,
             types.GetSetDescriptorType, types.ClassMethodDescriptorType, types.CodeType)  # fmt: skip


def is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and cls is not tuple


def is_result_tuple(cls: type) -> bool:
    """The named results of an operator."""
    return issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields")


def lookup_type(cls: type, name: str) -> Any:
    """Raw lookup along the bases, without descriptors; NULL when there is none."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return NULL


class Tracer:
    value_types: frozenset[type] = frozenset()  # see values.VALUES

    def __init__(
        self, breaks_at: dict[int, Any], dynamic: bool | None = None, moving: frozenset[str] = frozenset()
    ) -> None:
        self.graph = Graph()
        self.dynamic = dynamic
        self.moving = moving  # places of numbers that changed between calls
        self.sizes = Sizes(self)
        self.last_input: Any = None
        self.sources = Sources()
        self.breaks_at = breaks_at
        self.inputs: list[TracedTensor | TracedNumber] = []
        self.memo: dict[int, tuple[Any, Any]] = {}  # id of an outside object -> (object, value)
        self.known: dict[int, tuple[Any, Source]] = {}  # outside objects that stand for themselves
        self.fresh: dict[int, Any] = {}  # objects made during capture that stand for themselves
        self.shadows: dict[int, Shadow] = {}  # by id of the copy
        self.overlays: dict[int, Overlay] = {}
        self.mappings: dict[int, Any] = {}  # what instances of subclasses of dict hold
        self.constructed: dict[int, tuple[Any, ...]] = {}  # modules made during capture, and from what
        self.relations: list[tuple[str, Source, Source]] = []
        self.distinct: list[Source] = []
        self.generators: list[Any] = []
        self.traced_by_fake: dict[int, TracedTensor] = {}
        self.handled: BaseException | None = None
        self.depth = self.steps = self.operations = 0
        self.impure = False
        self.asked = False  # the function asked whether it is compiled
        self.frame: Any = None
        self.root: Any = None
        self.printed: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self.numbers: dict[Source, Any] = {}
        self.keep: list[Any] = []
        self.grad_mode: bool = _C.is_grad_enabled()
        self.last_grad_mode = self.grad_mode
        self.inference = _C.is_inference_mode_enabled()  # as the program sees it; graphs run in the mode they began in
        self.draws: list[Draw] = []  # random numbers, drawn before the graph runs
        self.function_modes: list[Any] = []  # __torch_function__ modes that the program entered
        self.overrides_disabled = ""  # or "subclasses", or "all"
        self.written_classes = False
        self.refuse_breaks: list[bool] = []  # what error_on_graph_break() said, innermost last
        self.device = "cpu"  # type of the device that tensors are on
        self.rehearsal: Any = None  # of the graph, for derivatives
        self.leaves: list[TracedTensor] = []  # made during capture
        self.retained: list[TracedTensor] = []  # that are no leaves and keep their gradients
        self.grads: dict[int, tuple[TracedTensor, Any, Any]] = {}  # .grad by id of the tensor: (tensor, before, now)

    # ------------------------------------------------------------------------------------------ values from outside

    def wrap(self, value: Any, source: Source) -> Any:
        """The interpreter's value for an outside one, guarded."""
        cls = type(value)
        if cls in LITERALS:
            if self.moving and (cls is int or cls is float) and source.describe() in self.moving:
                return self._wrap_number(value, source)
            if cls is float and _is_rate(source) and self.dynamic is not False:
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
        wrapper = WRAPPERS.get(cls)
        if wrapper is not None:
            return wrapper(self, value, source)
        if isinstance(value, _C.Tensor):
            return self._wrap_tensor(value, source)
        if cls.__name__ == "Registry" and cls.__module__ == "flambeau.nn.modules.registry":
            return self._wrap_registry(value, source)
        if isinstance(value, type) or cls in CALLABLES or cls in self.value_types:
            source.check("id", value)
            self._know(value, self.sources.constant(value))
            return value
        if isinstance(value, enum.Enum):
            source.check("id", value)
            self._know(value, self.sources.constant(value))
            return value
        if is_result_tuple(cls) or is_namedtuple(cls):
            return self._wrap_tuple(value, source)
        return (arrays.wrap if arrays.is_numpy(cls) else Tracer._wrap_object)(self, value, source)

    def _know(self, value: Any, source: Source) -> None:
        if id(value) in self.fresh:
            return
        self.memo[id(value)] = (value, value)
        self.known[id(value)] = (value, source)

    def _same(self, value: Any, source: Source) -> None:
        """A second way to an object that is known already."""
        first = self.source_of(value)
        if first is None or first is source:
            return
        if first.kind == "constant":
            source.check("id", value)
        else:
            self.relations.append(("same", first, source))

    def source_of(self, value: Any) -> Source | None:
        """Where an outside object (not its stand-in) was found first."""
        if id(value) in self.known:
            return self.known[id(value)][1]
        stand_in = self.memo[id(value)][1] if id(value) in self.memo else None
        if isinstance(stand_in, (TracedTensor, arrays.TracedArray)):
            return stand_in.source
        shadow = self.shadows.get(id(stand_in))
        return shadow.source if shadow is not None else None

    def _wrap_tensor(self, value: Any, source: Source) -> Any:
        cls = type(value)
        if cls is not _C.Tensor and not is_parameter_class(cls):
            source.check("type", cls)
            overriding.check_subclass(cls)
        traced = self.add_input(value, source)
        self.memo[id(value)] = (value, traced)
        self.distinct.append(source)
        return traced

    def _wrap_number(self, value: Any, source: Source) -> Any:
        """A number that differs from call to call, as an input of the graph."""
        known = self.numbers.get(source)
        if known is None:
            if type(value) is int:
                source.check("integer", value)
                known = self.sizes.number(value, source)
                source.checks[("integer", None)] = ("integer", self.sizes.slot_of(known))
            else:
                source.check("float")
                known = TracedNumber(self, None, value, source, {source: value})
            self.numbers[source] = known
        return known

    def placeholder(self) -> Any:
        """A new input of the graph, after the other inputs."""
        with self.graph.inserting_after(self.last_input):
            self.last_input = self.graph.placeholder(f"arg{len(self.inputs)}")
        return self.last_input

    def number_input(self, source: Source, hint: Any) -> Any:
        node = self.placeholder()
        node.meta["example_value"] = hint
        node.meta["source"] = source
        self.inputs.append(TracedNumber(self, node, hint, source, {}))
        return node

    def call_number(self, function: Callable[..., Any], *args: Any) -> Any:
        """Arithmetic with floats that are inputs of the graph."""
        hints = [a.hint if isinstance(a, TracedNumber) else int(a) if type(a) is SymInt else a for a in args]
        try:
            result = function(*hints)
        except ArithmeticError:
            return function(*[a.specialize() if isinstance(a, TracedNumber) else a for a in args])
        roots: dict[Source, float] = {}
        for a in args:
            if isinstance(a, TracedNumber):
                roots.update(a.roots)
        if function is operator.truediv and (hints[1] == 0 or isinstance(args[1], TracedNumber)):
            return function(*[a.specialize() if isinstance(a, TracedNumber) else a for a in args])
        node = self._node("call_function", function, args, {})
        node.meta["example_value"] = result
        unknown = [a.unknown for a in args if isinstance(a, TracedNumber) and a.unknown]
        return TracedNumber(self, node, result, None, roots, next(iter(sorted(unknown)), None))

    def add_input(self, value: Any, source: Source) -> TracedTensor:
        if not self.inputs:
            self.device = value.device.type
        node = self.placeholder()
        fake, slots = self.sizes.fake(overriding.unwrapped(value), source, self._dynamic_dims(value, source))
        source.check("tensor", value)
        traced = TracedTensor(self, node, fake, source, type(value))
        traced.real, traced.slots, traced.first_geometry = value, slots, fake.geometry
        self.sizes.bind(traced)
        node.meta["example_value"] = fake
        node.meta["source"] = source
        self.inputs.append(traced)
        self.traced_by_fake[id(fake)] = traced
        return traced

    def _dynamic_dims(self, value: Any, source: Source) -> list[int]:
        """Sizes of arguments are symbols, those of parameters and other fixtures are numbers."""
        if self.dynamic is False:
            return []
        state = getattr(value, "__dict__", None) or {}
        asked = state.get("_dynamo_dynamic", ())
        if source.in_module or _rooted_in_constant(source) or is_parameter_class(type(value)):
            return sorted(d % value.ndim for d in asked)
        fixed = {d % value.ndim for d in state.get("_dynamo_static", ())}
        return [d for d in range(value.ndim) if d not in fixed]

    def _items(self, values: Any, source: Source) -> list[Any]:
        return [self.wrap(value, source.item(i)) for i, value in enumerate(values)]

    def _limit(self, value: Any) -> None:
        if len(value) > config.max_container_size:
            raise Unsupported(breaks.LARGE, f"{type(value).__name__} of {len(value)}")

    def _wrap_tuple(self, value: Any, source: Source) -> Any:
        cls = type(value)
        self._limit(value)
        source.check("type", cls)
        source.check("length", len(value))
        items = self._items(value, source)
        if cls is tuple or cls is Size:
            return cls(items) if cls is tuple else value
        if is_result_tuple(cls):
            return cls(items)
        return tuple.__new__(cls, items)

    def _add_shadow(self, value: Any, copy: Any, source: Source) -> None:
        shadow = Shadow(source, value, copy)
        self.shadows[id(copy)] = shadow
        self.memo[id(value)] = (value, copy)
        self.distinct.append(source)

    def _wrap_list(self, value: Any, source: Source) -> Any:
        self._limit(value)
        source.check("type", type(value))
        source.check("length", len(value))
        copy: list[Any] = []
        self._add_shadow(value, copy, source)
        copy.extend(self._items(list(value), source))
        self.shadows[id(copy)].remember()
        return copy

    def _wrap_dict(self, value: Any, source: Source) -> Any:
        self._limit(value)
        cls = type(value)
        source.check("type", cls)
        keys = list(value)
        for key in keys:
            if not self._is_plain_key(key):
                raise Unsupported(breaks.UNKNOWN_OPERATION, f"dict with a key of type {type(key).__name__}")
        source.check("dict_keys", keys)
        copy: Any
        if cls is collections.defaultdict:
            copy = collections.defaultdict(
                self.native_callable(self.wrap(value.default_factory, source.attribute("default_factory")))
            )
        else:
            copy = cls()
        self._add_shadow(value, copy, source)
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
        self._add_shadow(value, copy, source)
        for key in keys:
            copy[key] = self.wrap(value[key], source.dict_item(key))
        self.shadows[id(copy)].remember()
        return copy

    def _is_plain_key(self, key: Any) -> bool:
        cls = type(key)
        if cls in CONSTANTS or isinstance(key, (enum.Enum, type, types.FunctionType, _C.Tensor)):
            return True
        if cls in (tuple, frozenset):
            return all(self._is_plain_key(k) for k in key)
        return has_default_equality(cls)

    def _wrap_set(self, value: Any, source: Source) -> Any:
        self._limit(value)
        cls = type(value)
        source.check("type", cls)
        source.check("length", len(value))
        if not all(type(v) in CONSTANTS or isinstance(v, (enum.Enum, type, str)) for v in value):
            raise Unsupported(breaks.UNKNOWN_OPERATION, "set of objects")
        source.check("equals_container", cls(value))
        if cls is frozenset:
            return value
        copy = cls(value)
        self._add_shadow(value, copy, source)
        self.shadows[id(copy)].remember()
        return copy

    def _wrap_deque(self, value: Any, source: Source) -> Any:
        self._limit(value)
        source.check("type", collections.deque)
        source.check("length", len(value))
        source.attribute("maxlen").check("equals", value.maxlen)
        copy: Any = collections.deque(maxlen=value.maxlen)
        self._add_shadow(value, copy, source)
        copy.extend(self.wrap(v, source.item(i)) for i, v in enumerate(list(value)))
        self.shadows[id(copy)].remember()
        return copy

    def _wrap_function(self, value: Any, source: Source) -> Any:
        if source.kind == "constant" or _rooted_in_constant(source):
            source.check("id", value)
            self._know(value, self.sources.constant(value))
            return value
        # A function made anew for each call: what matters is its code and what it closes over.
        source.check("type", type(value))
        source.check("function", value)
        self.distinct.append(source)
        self._know(value, source)
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
        made = functools.partial(function, *args, **keywords)
        self.memo[id(value)] = (value, made)
        return made

    def _wrap_cell(self, value: Any, source: Source) -> Any:
        source.check("type", types.CellType)
        self._know(value, source)
        return value

    def _wrap_builtin_method(self, value: Any, source: Source) -> Any:
        owner = value.__self__
        if owner is None or isinstance(owner, (types.ModuleType, type)):
            source.check("id", value)
            self._know(value, self.sources.constant(value))
            return value
        source.check("type", type(value))
        try:
            bound = self.wrap(owner, source.attribute("__self__"))
            source.attribute("__name__").check("equals", value.__name__)
            return self.load_attribute(bound, value.__name__)
        except Unsupported:
            self._know(value, source)  # opaque: calling it breaks the graph
            return value

    def _wrap_object(self, value: Any, source: Source) -> Any:
        """An instance of some class: it stands for itself, and its attributes are loaded one by one."""
        cls = type(value)
        source.check("type", cls)
        if isinstance(value, fl_module()):
            source.in_module = True
            source.check("module", value)
        self.distinct.append(source)
        self._know(value, source)
        return value

    # ------------------------------------------------------------------------------------------ operators

    def call_function(self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._record("call_function", target, args, kwargs)

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._record("call_method", name, args, kwargs)

    def _record(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs an operator on shapes and adds it to the graph."""
        name = target if op == "call_method" else getattr(target, "__name__", str(target))
        overridden = overriding.dispatch(self, op, target, args, kwargs)
        if overridden is not NULL:
            return overridden
        fake_args, fake_kwargs = _fake_of(args, name), _fake_of(kwargs, name)
        versions = [(t, t._version) for t in tensors_in((*fake_args, *fake_kwargs.values()))]
        try:
            if fake_kwargs.get("out") is not None:
                self._check_out(op, target, fake_args, fake_kwargs)
            result = self._run_fake(op, target, fake_args, fake_kwargs)
        except (Unsupported, UserError):
            raise
        except DataDependentOutput as error:
            if target is not operator.setitem:
                raise Unsupported(breaks.DYNAMIC_OUTPUT, f"{name}: {error}") from None
            result = None  # a mask says where to write; nothing gets a new shape
        except Exception as error:
            raise Unsupported(breaks.OPERATOR_FAILED, f"{name}: {error}") from None
        if op == "call_method" and target in _MAY_RETURN_SELF and _is_unchanged(fake_args[0], result, kwargs):
            return args[0]
        if isinstance(result, (bool, int, float, str, type(fl.float32), fl.device)) or type(result) in (
            Size,
            SymInt,
            SymbolicSize,
        ):
            return result
        writes = is_inplace(op, target) or (result is None and target is operator.setitem)
        known = self.traced_by_fake.get(id(result)) if isinstance(result, _C.Tensor) else None
        if known is not None:
            # The operator handed back its input: the same tensor in the program, too. That relu(x, inplace=True) wrote it,
            # its name does not say.
            if writes or "out" in kwargs or any(t._version != before for t, before in versions):
                self._node(op, target, args, kwargs)
                self.impure = True
            return known
        if not isinstance(result, (_C.Tensor, tuple, list)) and not (result is None and writes):
            raise Unsupported(breaks.UNKNOWN_CALL, f"{name} returns {type(result).__name__}")
        node = self._node(op, target, args, kwargs)
        self.impure = self.impure or writes
        if result is None:
            return None
        return self._traced(node, result) if isinstance(result, _C.Tensor) else self._sequence(node, result)

    def _check_out(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Graphs have tensors that keep their sizes: an out= that the operator would resize or compute for is not for them."""
        rest = {name: value for name, value in kwargs.items() if name != "out"}
        fresh = tensors_in((self._run_fake(op, target, args, rest),))
        for given, made in zip(tensors_in((kwargs["out"],)), fresh):
            if given.dtype != made.dtype or tuple(given.shape) != tuple(made.shape):
                raise Unsupported(breaks.RESHAPED_OUT, f"{tuple(made.shape)} into {tuple(given.shape)}")

    def _run_fake(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def run() -> Any:
            if op == "call_method":
                return getattr(args[0], target)(*args[1:], **kwargs)
            if isinstance(target, (Function, OverridableFunction)):
                return self.sizes.mode.call(target, args, kwargs)
            return target(*args, **kwargs)

        device = _C._set_autocast_recorded_device(self.device)  # that tensors without data stand for
        try:
            return run()
        except (Unsupported, UserError, DataDependentOutput):
            raise
        except Exception:
            if not self.sizes.slots:
                raise
            # What cannot be said of symbols may be true of the numbers.
            specialize((args, kwargs))
            return run()
        finally:
            _C._set_autocast_recorded_device(device)

    def _sequence(self, node: Any, result: Any) -> Any:
        items = []
        node.meta["example_value"] = result
        for i, value in enumerate(result):
            if isinstance(value, _C.Tensor):
                known = self.traced_by_fake.get(id(value))
                if known is None:
                    item = self.graph.call_function(operator.getitem, (node, i))
                    item.meta["stack_trace"] = node.meta.get("stack_trace")
                    known = self._traced(item, value)
                items.append(known)
            elif isinstance(value, (tuple, list)):
                item = self.graph.call_function(operator.getitem, (node, i))
                items.append(self._sequence(item, value))
            elif type(value) in CONSTANTS or type(value) in SYMBOLIC:
                items.append(value)
            else:
                raise Unsupported(breaks.UNKNOWN_CALL, f"operator returning {type(value).__name__}")
        cls = type(result)
        if cls is tuple or cls is list:
            return cls(items)
        return cls(items) if is_result_tuple(cls) else tuple(items)

    def _traced(self, node: Any, fake: Any) -> TracedTensor:
        node.meta["example_value"] = fake
        traced = TracedTensor(self, node, fake, None, _C.Tensor)
        self.traced_by_fake[id(fake)] = traced
        return traced

    def _node(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        node = self.graph.create_node(op, target, self.node_arguments(args), self.node_arguments(kwargs))
        self.operations += 1
        frame = self.frame
        if frame is not None:
            node.meta["stack_trace"] = f'File "{frame.code.co_filename}", line {frame.line()}, in {frame.code.co_name}'
        return node

    def node_arguments(self, value: Any) -> Any:
        """Arguments as a graph node holds them."""
        cls = type(value)
        if cls is TracedTensor:
            return value.node
        if cls is tuple or cls is list:
            return cls([self.node_arguments(v) for v in value])
        if cls in LITERALS:
            return value
        if cls is SymInt:
            return self.sizes.node(value)
        if cls is TracedNumber:
            if value.node is None:
                value.node = self.number_input(value.source, value.hint)
            return value.node
        if cls is dict:
            return {k: self.node_arguments(v) for k, v in value.items()}
        if cls is slice:
            parts = (value.start, value.stop, value.step)
            return slice(*(self.node_arguments(v) for v in parts))
        if cls is Size or cls is SymbolicSize:
            return tuple(self.node_arguments(v) for v in value)
        if isinstance(value, enum.Enum) and isinstance(value, (int, float)):
            return value.value
        if cls.__module__ == "numpy":
            return value.item()
        return value

    def set_mode(self, function: Callable[..., Any], *args: Any) -> Any:
        """A switch of the thread's state: thrown now, for what follows in the capture, and again in the graph."""
        previous = function(*args)
        if function is _C._set_grad_enabled:
            self.last_grad_mode = bool(args[0])
        self._node("call_function", function, args, {})
        return previous

    # ------------------------------------------------------------------------------------------ pending stores

    def overlay(self, target: Any) -> Overlay:
        overlay = self.overlays.get(id(target))
        if overlay is None:
            known = self.known.get(id(target))
            if known is None:
                raise Unsupported(breaks.STORE, f"store into {type(target).__name__}")
            overlay = self.overlays[id(target)] = Overlay(target, known[1])
        return overlay

    def pending(self, target: Any, name: str) -> Any:
        """A value stored by the program that the outside does not have yet; MISSING if there is none."""
        overlay = self.overlays.get(id(target))
        return MISSING if overlay is None else overlay.values.get(name, MISSING)

    def make_fresh(self, value: Any) -> Any:
        self.fresh[id(value)] = value
        return value

    def native_callable(self, function: Any) -> Any:
        """A callable as native code may be given it."""
        if type(function) is _KEY:
            return function
        if isinstance(function, (types.FunctionType, types.MethodType, functools.partial)) or (
            callable(function)
            and not isinstance(function, (types.BuiltinFunctionType, Interpreted, type, type(operator.itemgetter(0))))
        ):
            return Interpreted(self, function)
        if isinstance(function, type) and not is_native_class(function):
            return Interpreted(self, function)
        return function

    # These are filled in by the modules that implement them.
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from flambeau._dynamo import calls

        return calls.call(self, function, args, kwargs)

    def load_attribute(self, value: Any, name: str) -> Any:
        from flambeau._dynamo import attributes

        return attributes.load(self, value, name)

    def call_special(self, value: Any, name: str, *args: Any) -> Any:
        """Calls a special method looked up on the class, as the language does."""
        method = lookup_type(type(value), name)
        if method is NULL:
            raise UserError(TypeError(f"'{type(value).__name__}' object has no {name}"))
        self.guard_type_attribute(type(value), name)
        return self.call(method, (value, *args), {})

    def guard_type_attribute(self, cls: type, name: str) -> None:
        if cls.__module__.partition(".")[0] == "builtins":
            return
        raw = lookup_type(cls, name)
        source = self.sources.constant(cls).type_attribute(name)
        source.check("absent" if raw is NULL else "id", *(() if raw is NULL else (raw,)))

    # ------------------------------------------------------------------------------------------ sizes

    def size_relations(self) -> tuple[int, tuple[Any, ...]]:
        """How many symbols the sizes have, and what was assumed about them."""
        return self.sizes.all_relations()

    def tensor_facts(self, value: Any, source: Source) -> tuple[Any, ...]:
        traced = self.memo[id(value)][1]
        if traced.source is not source:
            return (value,) if all(slot < 0 for slot in traced.slots) else self.sizes.loose_facts(traced)
        return self.sizes.facts(traced)

    def realize(self, lazy: Lazy) -> Any:
        return self.wrap(lazy.value, lazy.source)


def _fake_of(value: Any, name: str) -> Any:
    """An argument of the operator of that name, with fakes for tensors and hints for numbers."""
    cls = type(value)
    if cls is TracedTensor:
        return value.fake
    if cls is tuple or cls is list:
        return cls([_fake_of(v, name) for v in value])
    if cls in CONSTANTS or cls is SymInt:
        return value
    if cls.__module__ == "numpy" and hasattr(cls, "item") and not value.shape:
        return value.item()
    if cls is TracedNumber:
        return value.hint
    if cls is dict:
        return {k: _fake_of(v, name) for k, v in value.items()}
    if cls is slice:
        return slice(*(_fake_of(v, name) for v in (value.start, value.stop, value.step)))
    if isinstance(value, tuple):
        return tuple(_fake_of(v, name) for v in value)
    if isinstance(value, (int, float)) and isinstance(value, enum.Enum):
        return value.value
    raise Unsupported(breaks.UNKNOWN_CALL, f"{name} of {cls.__name__}")


def has_default_equality(cls: Any) -> bool:
    """Whether instances are equal, and hashed, by identity."""
    return cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__


def is_inplace(op: str, target: Any) -> bool:
    if op == "call_method":
        return bool(target.endswith("_") and not target.endswith("__")) or target in ("__setitem__",)
    name = getattr(target, "__name__", "")
    if target in _INPLACE_OPERATORS:
        return True
    if isinstance(target, OpOverload):
        return bool(any(a.alias_info is not None and a.alias_info.is_write for a in target._schema.arguments))
    return bool(name.endswith("_") and not name.endswith("__") and getattr(operator, name, None) is not target)


# Methods that hand back the tensor itself when there is nothing to do.
_MAY_RETURN_SELF = frozenset(
    "to contiguous float double half bfloat16 int long short char byte bool cpu type type_as resolve_conj resolve_neg".split()
)


def _is_unchanged(before: Any, after: Any, kwargs: dict[str, Any]) -> bool:
    if not isinstance(after, _C.Tensor) or kwargs.get("copy") or kwargs.get("memory_format") is not None:
        return False
    if after.dtype != before.dtype or after.device != before.device:
        return False
    # Not their strides of today: of a dimension that happens to have one element, any stride is that of a contiguous one.
    return same_all(after.geometry.strides, before.geometry.strides)


_INPLACE_OPERATORS = frozenset(
    getattr(operator, "i" + name)
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
) | {operator.setitem}


def is_native_class(cls: type) -> bool:
    """A class whose construction runs no Python code."""
    return not (cls.__flags__ & (1 << 9))  # not a heap type


def is_parameter_class(cls: type) -> bool:
    module = cls.__module__
    return module == "flambeau.nn.parameter" and cls.__name__ in ("Parameter", "Buffer")


@functools.lru_cache(None)
def fl_module() -> Any:
    try:
        from flambeau.nn.modules.module import Module
    except ImportError:
        return ()
    return Module


def _is_rate(source: Source) -> bool:
    """Whether a place is the learning rate of an optimizer's parameter group, which schedules change."""
    if source.kind != "dict_item" or source.key != "lr" or source.parent is None or source.parent.parent is None:
        return False
    return bool(source.parent.parent.key == "param_groups")


def _rooted_in_constant(source: Source) -> bool:
    root = source
    while root.parent is not None:
        root = root.parent
    return root.kind == "constant"


WRAPPERS: dict[type, Callable[[Tracer, Any, Source], Any]] = {
    tuple: Tracer._wrap_tuple,
    list: Tracer._wrap_list,
    dict: Tracer._wrap_dict,
    collections.OrderedDict: Tracer._wrap_dict,
    collections.defaultdict: Tracer._wrap_dict,
    collections.Counter: Tracer._wrap_dict,
    set: Tracer._wrap_set,
    frozenset: Tracer._wrap_set,
    collections.deque: Tracer._wrap_deque,
    types.FunctionType: Tracer._wrap_function,
    types.MethodType: Tracer._wrap_method,
    types.BuiltinFunctionType: Tracer._wrap_builtin_method,
    functools.partial: Tracer._wrap_partial,
    types.CellType: Tracer._wrap_cell,
}
