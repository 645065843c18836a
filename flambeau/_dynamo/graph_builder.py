"""The graph of one capture: its inputs, and operators that are run on shapes and recorded as nodes."""

from __future__ import annotations

import contextlib
import enum
import linecache
import operator
import os
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import breaks, float_facts, overriding, scalars, size_floats, wrappers
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.kinds import CONSTANTS, LITERALS, Function, OverridableFunction, Size, is_result_tuple
from flambeau._dynamo.sizes import SYMBOLIC, Sizes, SymbolicSize, SymInt
from flambeau._dynamo.source import Source
from flambeau._dynamo.traced import NULL, Lazy, TracedNumber, TracedTensor, tensors_in
from flambeau._ops import OpOverload
from flambeau._subclasses.fake_numbers import hinted
from flambeau._subclasses.fake_tensor import RESHAPES
from flambeau._subclasses.fake_values import disabled, specialize
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node
from flambeau.ops import tags
from flambeau.ops.geometry import same_all
from flambeau.ops.symbolic.numbers import hint_of
from flambeau.ops.symbolic.shape_env import DataDependentOutput
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


class Tracepoint:
    """Marks a place of a captured graph where a module is called or returns: its arguments are the leaves."""

    def __init__(self, path: str, leaves: list[Any], spec: Any) -> None:
        self.path = path
        self.leaves = leaves
        self.spec = spec
        self.__name__ = "tracepoint"

    def __call__(self, *values: Any) -> None:
        return None


def _called_as(paths: list[str], stack: dict[str, tuple[str, type]], earlier: list[str]) -> str:
    """The path of the module in one of its calls. One that is at several places is at those inside of its caller, in turn;
    further calls are told apart, as `path@1`."""
    caller = next(reversed(stack.values()))[0].partition("@")[0] if stack else ""
    inside = [path for path in paths if path.startswith(caller + ".")] if caller else paths
    chosen = inside or paths
    number = sum(path.partition("@")[0] in chosen for path in earlier)
    again = number // len(chosen)
    return chosen[number % len(chosen)] + (f"@{again}" if again else "")


def origin(frame: Any, modules: dict[int, tuple[list[str], type]], calls: dict[str, list[Any]]) -> dict[str, Any]:
    """Where a node comes from: the lines that led to it, outermost first, and the modules. `calls` has the calls of each
    module so far."""
    lines: list[str] = []
    stack: dict[str, tuple[str, type]] = {}
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.parent
    for one in reversed(frames[:-1]):  # the outermost calls the module
        code = one.code
        own = modules.get(id(one.locals[0])) if code.co_argcount else None
        if own is not None and code.co_name != "forward" and getattr(own[1].forward, "__code__", None) is not code:
            own = None  # another method
        if own is not None:
            known = calls.setdefault(own[0][0], [])
            path = next((path for other, path in known if other is one), None)
            if path is None:
                path = _called_as(own[0], stack, [path for _, path in known])
                known.append((one, path))
            stack[f"L__self__{path}"] = (path.partition("@")[0], own[1])
        if _PACKAGE not in code.co_filename:
            text = linecache.getline(code.co_filename, one.line()).strip()
            lines.append(
                f'File "{code.co_filename}", line {one.line()}, in {code.co_name}' + (f"\n    {text}" if text else "")
            )
    metadata: dict[str, Any] = {"nn_module_stack": stack}
    if lines:
        metadata["stack_trace"] = "\n".join(lines)
    return metadata


class GraphBuilder:
    # While a whole module is captured: its submodules by address, for nodes to say where in it they come from.
    module_paths: ClassVar[dict[int, tuple[list[str], type]] | None] = None
    preserved: ClassVar[dict[int, str]] = {}  # modules whose arguments and results are noted, by address: their paths

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.graph = Graph()
        self.sizes = Sizes(tracer)
        self.inputs: list[TracedTensor | TracedNumber] = []
        self.last_input: Any = None
        self.traced_by_fake: dict[int, TracedTensor] = {}
        self.runs: list[tuple[list[Any], list[Any]]] = []  # fakes that operators were given, and returned
        self.bases: dict[int, Any] = {}  # of the first `runs_seen` of these: see _bases
        self.runs_seen = 0
        self.operations = 0
        self.device = "cpu"  # type of the device that tensors are on
        self.rehearsal: Any = None  # of the graph, for derivatives
        self.module_calls: dict[str, list[Any]] = {}

    def placeholder(self) -> Any:
        """A new input of the graph, after the other inputs."""
        with self.graph.inserting_after(self.last_input):
            self.last_input = self.graph.placeholder(f"arg{len(self.inputs)}")
        return self.last_input

    def number_input(self, source: Source, hint: Any) -> Any:
        node = self.placeholder()
        node.meta["example_value"] = hint
        node.meta["source"] = source
        self.inputs.append(TracedNumber(self.tracer, node, hint, source, {}))
        return node

    def call_number(self, function: Callable[..., Any], *args: Any) -> Any:
        """Arithmetic with floats that are inputs of the graph, or computed from sizes."""
        if size_floats.apply_to(function, *args):
            return size_floats.call(self, function, *args)
        args = tuple(a.specialize() if isinstance(a, TracedNumber) and a.of_sizes is not None else a for a in args)
        if not any(isinstance(a, TracedNumber) for a in args):
            return function(*args)
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
        node = self.add_node("call_function", function, args, {})
        node.meta["example_value"] = result
        unknown = [a.unknown for a in args if isinstance(a, TracedNumber) and a.unknown]
        number = TracedNumber(self.tracer, node, result, None, roots, next(iter(sorted(unknown)), None))
        number.computed = float_facts.computed(function, args)
        return number

    def add_input(self, value: Any, source: Source) -> TracedTensor:
        if not self.inputs:
            self.device = overriding.unwrapped(value).device.type
        node = self.placeholder()
        fake, slots = self.sizes.fake(
            overriding.unwrapped(value), source, self.tracer.outside._dynamic_dims(value, source)
        )
        source.check("tensor", value)
        traced = TracedTensor(self.tracer, node, fake, source, type(value))
        traced.real, traced.slots, traced.first_geometry = value, slots, fake.geometry
        self.sizes.bind(traced)
        node.meta["example_value"] = fake
        node.meta["source"] = source
        self.inputs.append(traced)
        self.traced_by_fake[id(fake)] = traced
        return traced

    def call_function(self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._record("call_function", target, args, kwargs)

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._record("call_method", name, args, kwargs)

    def _reshape(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A view in place: the tensor stands for another node from now on. Callers would not see that of theirs."""
        tensor, view = args[0], name[:-1]
        # Without grad mode views have no history; a tensor that is reshaped in place keeps its own.
        forgets = tensor.fake.requires_grad and not fl.is_grad_enabled()
        if tensor.source is not None or forgets or name not in tags.operators("view"):
            raise Unsupported(breaks.UNKNOWN_CALL, f"Tensor.{name}")
        result = self._record("call_method", view, args, kwargs)
        self.traced_by_fake.pop(id(tensor.fake), None)
        tensor.node, tensor.fake = result.node, result.fake
        self.traced_by_fake[id(tensor.fake)] = tensor
        return tensor

    def _record(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs an operator on shapes and adds it to the graph."""
        name = (
            target
            if op == "call_method"
            else args[1]
            if target is getattr
            else getattr(target, "__name__", str(target))
        )
        overridden = overriding.dispatch(self.tracer, op, target, args, kwargs)
        if overridden is not NULL:
            return overridden
        if name.partition(".")[0] in RESHAPES:
            return self._reshape(name.partition(".")[0], args, kwargs)
        if wrappers.among(args) or wrappers.among(kwargs.values()):
            return wrappers.record(self, op, target, args, kwargs)
        fake_args, fake_kwargs = _fake_of(args, name), _fake_of(kwargs, name)
        if op == "call_function" and type(target) is Function and target.__module__.startswith("torch._ops."):
            target = _C._resolve_call(target, *hinted(fake_args), **hinted(fake_kwargs))  # an operator of a library
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
            for numbers in scalars.in_place_of_tensors(self.tracer, args, kwargs) if type(error) is TypeError else ():
                with contextlib.suppress(Unsupported):
                    return self._record(op, target, *numbers)
            raise Unsupported(breaks.OPERATOR_FAILED, f"{name}: {error}") from None
        if self._decides_shapes(op, target, args, kwargs, result):
            args, kwargs = _with_numbers((args, kwargs), TracedNumber.specialize)
            return self._record(op, target, args, kwargs)
        self._follow_write(versions)
        if name not in _DETACHED:
            self.runs.append(([t for t, _ in versions], list(tensors_in((result,)))))
        if op == "call_method" and _may_return_self(target) and _is_unchanged(fake_args[0], result, kwargs):
            return args[0]
        if isinstance(result, (bool, int, float, str, type(fl.float32), fl.device)) or type(result) in (
            Size,
            SymInt,
            SymbolicSize,
        ):
            return self._fact(op, name, args, kwargs, result, bool(versions))
        writes = is_inplace(op, target) or (result is None and target is operator.setitem)
        known = self.traced_by_fake.get(id(result)) if isinstance(result, _C.Tensor) else None
        if known is not None:
            # The operator handed back its input: the same tensor in the program, too. That relu(x, inplace=True) wrote it,
            # its name does not say.
            if writes or "out" in kwargs or any(t._version != before for t, before in versions):
                self.add_node(op, target, args, kwargs)
                self.tracer.effects.impure = True
            return known
        writes = writes or (
            result is None and isinstance(target, types.FunctionType)
        )  # one that was allowed in the graph
        if not isinstance(result, (_C.Tensor, tuple, list)) and not (result is None and writes):
            raise Unsupported(breaks.UNKNOWN_CALL, f"{name} returns {type(result).__name__}")
        node = self.add_node(op, target, args, kwargs)
        self.tracer.effects.impure = self.tracer.effects.impure or writes
        if result is None:
            # Functions over lists that work in place answer with the list that they were called with.
            return (*args, *kwargs.values())[0] if name in tags.functions("each") else None
        return self.add_tensor(node, result) if isinstance(result, _C.Tensor) else self._sequence(node, result)

    def _decides_shapes(self, op: str, target: Any, args: Any, kwargs: Any, result: Any) -> bool:
        """Whether a float of the graph decides on the shape of a result, as in arange: with another float it has another."""
        if getattr(target, "__module__", "") == "_operator" or not _holds_number((*args, *kwargs.values())):
            return False
        if is_inplace(op, target) or kwargs.get("out") is not None:
            return False
        shapes = [tuple(hint_of(n) for n in t.shape) for t in tensors_in((result,))]
        for factor in (0.5, 2.0):
            try:
                changed = _with_numbers((args, kwargs), lambda number: number.hint * factor)  # noqa: B023
                other = self._run_fake(op, target, _fake_of(changed[0], ""), _fake_of(changed[1], ""))
            except Exception:
                continue
            if [tuple(hint_of(n) for n in t.shape) for t in tensors_in((other,))] != shapes:
                return True
        return False

    def _follow_write(self, versions: list[tuple[Any, int]]) -> None:
        """A write that brings in a gradient makes the tensor and all views of it require one."""
        written = [t for t, before in versions if t._version != before]
        if not written or not _C.is_grad_enabled() or not any(t.requires_grad for t, _ in versions):
            return
        bases = self._bases()
        roots = {id(bases.get(id(t), t)) for t in written}
        for traced in self.traced_by_fake.values():
            fake = traced.fake
            if id(bases.get(id(fake), fake)) not in roots:
                continue
            if fake.dtype.is_floating_point or fake.dtype.is_complex:
                fake.fake_requires_grad, fake.fake_is_leaf = True, False

    def _bases(self) -> dict[int, Any]:
        """By id of a fake that is a view: the fake that it is a window on."""
        bases = self.bases
        for sources, results in self.runs[self.runs_seen :]:
            by_storage = {_storage(t): t for t in sources}
            for view in results:
                source = by_storage.get(_storage(view))
                if source is not None and source is not view:
                    bases.setdefault(id(view), bases.get(id(source), source))
        self.runs_seen = len(self.runs)
        return bases

    def _fact(
        self, op: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, has_tensors: bool
    ) -> Any:
        """What an operator says of tensors without looking at their values, and the guard that it needs."""
        if not has_tensors or name in _GUARDED_FACTS:
            return result
        if name in _STRIDE_FACTS:
            self.sizes.exact_strides = True
            if not all(_has_own_strides(t) for t in self.inputs if isinstance(t, TracedTensor)):
                raise Unsupported(breaks.UNKNOWN_CALL, f"{name}, beside a tensor with unusual strides")
            return result
        tensor = args[0] if op == "call_method" else None
        rest = args[1:]
        plain = not kwargs and all(type(a) in LITERALS for a in rest)
        if not isinstance(tensor, TracedTensor) or tensor.source is None or tensor.real is None or not plain:
            raise Unsupported(breaks.UNKNOWN_CALL, f"{name}, which depends on more than shapes")
        value = getattr(tensor.real, name)(*rest)
        if type(value) not in LITERALS:
            raise Unsupported(breaks.UNKNOWN_CALL, f"{name}, which depends on more than shapes")
        tensor.source.apply(_MethodCall(name, rest)).check("equals", value)
        return value

    def _check_out(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Graphs have tensors that keep their sizes: an out= that the operator would resize or compute for is not for them."""
        rest = {name: value for name, value in kwargs.items() if name != "out"}
        fresh = tensors_in((self._run_fake(op, target, args, rest),))
        for target_tensor, result in zip(tensors_in((kwargs["out"],)), fresh):
            if target_tensor.dtype != result.dtype or tuple(target_tensor.shape) != tuple(result.shape):
                raise Unsupported(breaks.RESHAPED_OUT, f"{tuple(result.shape)} into {tuple(target_tensor.shape)}")

    def _run_fake(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def run() -> Any:
            if op == "call_method":
                return getattr(args[0], target)(*args[1:], **kwargs)
            if isinstance(target, (Function, OverridableFunction, OpOverload)):
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
                    known = self.add_tensor(item, value)
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

    def add_tensor(self, node: Any, fake: Any) -> TracedTensor:
        node.meta["example_value"] = fake
        traced = TracedTensor(self.tracer, node, fake, None, _C.Tensor)
        self.traced_by_fake[id(fake)] = traced
        if self.sizes.env.stand_ins:
            self.sizes.bind_unbacked(traced)
        return traced

    def add_node(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        node = self.graph.create_node(op, target, self.node_arguments(args), self.node_arguments(kwargs))
        self.operations += 1
        frame = self.tracer.frame
        if frame is not None:
            node.meta["stack_trace"] = f'File "{frame.code.co_filename}", line {frame.line()}, in {frame.code.co_name}'
            if self.module_paths is not None:
                node.meta.update(origin(frame, self.module_paths, self.module_calls))
        return node

    def returned(self, leaf: Any) -> Any:
        """A leaf of a result as the graph returns it."""
        if type(leaf) is Lazy:
            leaf = self.tracer.outside.realize(leaf)
        if type(leaf) is TracedTensor:
            return leaf.node
        if type(leaf) is SymInt:
            return self.sizes.node(leaf)
        if type(leaf) is TracedNumber:
            return self.node_arguments(leaf)
        if type(leaf) in LITERALS:
            return leaf
        raise RuntimeError(f"[export] expected tensors and plain values as results, got {type(leaf).__name__}")

    def note_call(self, module: Any, value: Any) -> None:
        """Marks where a preserved module is called with these arguments, or returns this."""
        leaves, spec = pytree.tree_flatten(value)
        held = [self.returned(leaf) for leaf in leaves]
        nodes = tuple(leaf for leaf in held if isinstance(leaf, Node))
        self.graph.call_function(Tracepoint(self.preserved[id(module)], held, spec), nodes)

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
            self.tracer.modes.grad_at_exit = bool(args[0])
        self.add_node("call_function", function, args, {})
        return previous


_DETACHED = frozenset(("detach", "detach_", "data"))  # share memory with a tensor, but not its history


def _storage(fake: Any) -> int:
    with disabled():
        return int(fake._storage_id())


def _has_own_strides(tensor: TracedTensor) -> bool:
    """Whether a fake has the strides of the tensor that it stands for; those of single elements may differ."""
    return tensor.real is None or [hint_of(s) for s in tensor.first_geometry.strides] == list(tensor.real.stride())


@dataclass(frozen=True)
class _MethodCall:
    """Calls a method of a tensor, at each check of the guards."""

    name: str
    args: tuple[Any, ...]

    def __call__(self, tensor: Any) -> Any:
        return getattr(tensor, self.name)(*self.args)


# Methods and functions whose results follow from what every guard on a tensor checks: sizes, dtype and device.
_GUARDED_FACTS = frozenset(
    "size dim ndimension numel nelement element_size is_floating_point is_complex is_signed get_device is_conj is_neg "
    "is_inference is_same_size is_tensor is_sparse result_type type sym_size sym_numel".split()
)
# Those that tell the strides, also of dimensions of one element, which guards otherwise leave open.
_STRIDE_FACTS = frozenset("stride is_contiguous dim_order sym_stride".split())


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


def _holds_number(values: Iterable[Any]) -> bool:
    return any(
        (type(v) is TracedNumber and type(v.hint) is float) or (type(v) in (tuple, list) and _holds_number(v))
        for v in values
    )


def _with_numbers(value: Any, change: Callable[[TracedNumber], Any]) -> Any:
    """Arguments with other numbers in place of those of the graph."""
    cls = type(value)
    if cls is TracedNumber:
        return change(value) if type(value.hint) is float else value
    if cls is tuple or cls is list:
        return cls([_with_numbers(v, change) for v in value])
    return {k: _with_numbers(v, change) for k, v in value.items()} if cls is dict else value


def is_inplace(op: str, target: Any) -> bool:
    if op == "call_method":
        return bool(target.endswith("_") and not target.endswith("__")) or target in ("__setitem__",)
    name = getattr(target, "__name__", "")
    if target in _INPLACE_OPERATORS:
        return True
    if isinstance(target, OpOverload):
        return any(a.is_written for a in target._schema.arguments)
    return bool(name.endswith("_") and not name.endswith("__") and getattr(operator, name, None) is not target)


def _may_return_self(method: str) -> bool:
    """Whether the method hands back the tensor itself when there is nothing to do."""
    return method == "type" or method in tags.functions("conversion")


def _is_unchanged(before: Any, after: Any, kwargs: dict[str, Any]) -> bool:
    if not isinstance(after, _C.Tensor) or kwargs.get("copy") or kwargs.get("memory_format") is not None:
        return False
    if after.dtype != before.dtype or after.device != before.device:
        return False
    if after.is_conj() != before.is_conj() or after.is_neg() != before.is_neg():
        return False
    # Not their strides of today: of a dimension that happens to have one element, any stride is that of a contiguous one.
    return same_all(after.geometry.strides, before.geometry.strides)


_INPLACE_OPERATORS = frozenset(
    getattr(operator, "i" + name)
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
) | {operator.setitem}
