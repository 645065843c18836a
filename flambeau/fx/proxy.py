"""Proxies: values that stand for nodes while a function is traced, and what makes nodes out of their uses.

Every operator, method, attribute and torch function applied to a Proxy adds a node to the tracer's graph and returns a
Proxy for it. What Python itself must know now (a branch's condition, a length, an iteration's end) cannot be recorded,
and raises TraceError with the user's line and what to do instead.
"""

from __future__ import annotations

import dis
import enum
import operator
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import flambeau
from flambeau._ops import OpOverload
from flambeau.fx import traceback as fx_traceback
from flambeau.fx._user_frames import describe_user_line, is_own_frame
from flambeau.fx.graph import Graph, inplace_methods, magic_methods, reflectable_magic_methods
from flambeau.fx.node import _METHODS, Argument, Node, Target
from flambeau.ops import tags

# Types whose instances are arguments as they are.
_CONSTANTS = frozenset(
    {int, float, bool, complex, str, bytes, type(None), type(Ellipsis), flambeau.dtype, flambeau.device,
     flambeau.layout, flambeau.memory_format, types.FunctionType, types.BuiltinFunctionType, Node, type,
     flambeau._C.Function, flambeau._C.Method}
)  # fmt: skip
base_types = (int, float, bool, complex, str, bytes, flambeau.dtype, flambeau.device, flambeau.layout)


class TraceError(ValueError, RuntimeError):
    """Code that cannot be recorded in a graph; the message names the user's line and the cure."""


class Scope:
    """The module whose forward is being traced."""

    __slots__ = ("module_path", "module_type")

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path = module_path
        self.module_type = module_type


class ScopeContextManager:
    """While alive in a `with` block, a scope takes the values of another."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._before = (scope.module_path, scope.module_type)
        self._scope = scope
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *exception: object) -> None:
        self._scope.module_path, self._scope.module_type = self._before


class TracerBase:
    """What is common to all that make graphs from proxies. Override the methods to change what is recorded."""

    graph: Graph
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    # Nodes whose value was written to while nobody else knew it, with the node of the write and its true target.
    assumed_unused: dict[Node, tuple[Node, Callable[..., Any]]] | None = None
    scope: Scope
    module_stack: dict[str, Any]
    node_name_to_scope: dict[str, tuple[str, Any]]

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Add a node to the graph."""
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if self.assumed_unused is not None:
            for used in node._input_nodes:
                known = self.assumed_unused.get(used)
                if known is not None and known[0] is not node:
                    known[0].target = known[1]
                    del self.assumed_unused[used]
        if self.module_stack:
            node.meta["nn_module_stack"] = self.module_stack
        if fx_traceback._active:
            fx_traceback._annotate(node)
        return node

    def makes_new_value(self, node: Node) -> bool:
        """Whether a node's value shares memory with no other."""
        if node.op == "call_module":
            root = getattr(self, "root", None)
            if root is None:
                return False
            kind = type(root.get_submodule(str(node.target)))
            return kind.__module__.startswith("flambeau.nn") and kind.__name__.startswith(_NEW_VALUE_LAYERS)
        return node.op == "call_function" and node.target in _NEW_VALUES

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Any:
        """Add a node whose arguments may hold proxies, and the proxy that stands for it."""
        node_args = self.create_arg(args)
        node_kwargs = self.create_arg(kwargs) if kwargs else {}
        node = self.create_node(kind, target, node_args, node_kwargs, name, type_expr)
        proxy = self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)
        if self.record_stack_traces and "stack_trace" not in node.meta:
            node.meta["stack_trace"] = _user_stack()
        return proxy

    def create_arg(self, a: Any) -> Argument:
        """A value as an argument of a node: proxies become their nodes, containers are walked."""
        cls = type(a)
        if cls is Proxy:
            return a.node
        if cls in _CONSTANTS:
            return a
        if cls is tuple:
            return tuple([self.create_arg(x) for x in a])
        if cls is list:
            return [self.create_arg(x) for x in a]
        if cls is dict:
            return {self._checked_key(k): self.create_arg(v) for k, v in a.items()}
        if cls is slice:
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        return self._create_rare_arg(a)

    def _create_rare_arg(self, a: Any) -> Argument:
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            values = [self.create_arg(x) for x in a]
            return type(a)(*values) if hasattr(a, "_fields") else tuple(values)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return {self._checked_key(k): self.create_arg(v) for k, v in a.items()}
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, (*base_types, enum.Enum, OpOverload, type, flambeau.Tensor, Node)):
            return a
        if is_dataclass(a):
            kwargs = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), kwargs)
        if isinstance(a, (flambeau.SymInt, flambeau.SymFloat, flambeau.SymBool)):
            return a
        if callable(a) and hasattr(a, "__name__"):
            return a
        raise NotImplementedError(
            f"[fx] expected arguments made of proxies, numbers, strings, tensors and containers of these, got a "
            f"{type(a).__name__}{describe_user_line()}; wrap the function that takes it with fx.wrap"
        )

    def _checked_key(self, key: Any) -> Any:
        if isinstance(key, Proxy):
            raise TraceError(
                f"[fx] expected keys of a dict to be plain values, got a Proxy{describe_user_line()}; a key must be known "
                "when the function is traced"
            )
        return key

    def to_bool(self, obj: Proxy) -> bool:
        """Called where Python asks a proxy for its truth."""
        raise TraceError(
            f"[fx] expected control flow that does not depend on inputs, got a branch on {obj.node.name}"
            f"{describe_user_line()}; fix the input with concrete_args, put both branches in one expression with "
            "torch.where, or wrap the function that branches with fx.wrap"
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Called where Python iterates a proxy."""
        raise TraceError(
            f"[fx] expected loops whose number of turns is known, got an iteration over {obj.node.name}: Proxy object cannot be iterated"
            f"{describe_user_line()}; index a known number of items (x[0], x[1]), unpack into names, or wrap the function "
            "that loops with fx.wrap"
        )

    def keys(self, obj: Proxy) -> Any:
        """Called where a proxy is passed on with `**`."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """A tracer for an existing graph: `Proxy(node)` uses it, so that code can be written into a graph by running it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = {}
        self.node_name_to_scope = {}


class Proxy:
    """Stands for the value of a node: everything done with it becomes nodes of the graph."""

    node: Node
    tracer: TracerBase

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = tracer if tracer is not None else GraphAppendingTracer(node.graph)
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k in ("node", "tracer") or (k.startswith("__") and k.endswith("__")):
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        return Proxy(self.node, self.tracer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        count = _unpacked_names(sys._getframe(1))
        if count is not None:
            item: Callable[[Any], Any] = self.__getitem__
            return iter([item(i) for i in range(count)])
        return self.tracer.iter(self)

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_assert(sys._getframe(1)):
            message = "the condition of an assert in the traced code does not hold"
            self.tracer.create_proxy("call_function", flambeau._assert, (self, message), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise TraceError(
            f"[fx] expected lengths that are known when the function is traced, got len() of {self.node.name}"
            f"{describe_user_line()}; use x.shape[0] or x.size(0), which are recorded, or call fx.wrap('len') at the top of "
            "the module"
        )

    def __index__(self) -> int:
        raise TraceError(
            f"[fx] expected integers that are known when the function is traced, got {self.node.name} as one"
            f"{describe_user_line()}; a loop or an index over it has to be wrapped with fx.wrap, or fixed by concrete_args"
        )

    def __int__(self) -> int:
        raise TraceError(_NUMBER.format("int", self.node.name, describe_user_line()))

    def __float__(self) -> float:
        raise TraceError(_NUMBER.format("float", self.node.name, describe_user_line()))

    def __contains__(self, item: Any) -> bool:
        raise TraceError(
            f"[fx] expected membership that is known when the function is traced, got `in` on {self.node.name}"
            f"{describe_user_line()}; wrap the function that asks with fx.wrap"
        )

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs if kwargs else {}
        proxy = _first_proxy((*args, *kwargs.values()))
        if proxy is None:
            raise RuntimeError(f"[fx] expected a Proxy among the arguments of {orig_method}, got none")
        tracer = proxy.tracer
        subscript = _SUBSCRIPTS.get(getattr(orig_method, "__name__", ""))
        if subscript is not None:  # a tensor with data, indexed with proxies
            return tracer.create_proxy("call_function", subscript, args, kwargs)
        if isinstance(orig_method, _METHODS):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        if orig_method is flambeau.einsum and len(args) == 2 and isinstance(args[1], (list, tuple)):
            args = (args[0], *args[1])  # programs that rewrite graphs find its operands one by one
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=None)


_SUBSCRIPTS: dict[str, Callable[..., Any]] = {"__getitem__": operator.getitem, "__setitem__": operator.setitem}
_NUMBER = (
    "[fx] expected numbers that are known when the function is traced, got {0}() of {1}{2}; keep it a tensor or wrap the "
    "function that needs the number with fx.wrap"
)


class Attribute(Proxy):
    """An attribute of a proxy: a method when it is called, a node of its own otherwise."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        # Made only when it is needed: most attributes are called.
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter whose shape is known, though its values are not."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    @property
    def ndim(self) -> int:
        return int(self.param.ndim)

    def size(self, *args: Any) -> Any:
        return self.param.size(*args)

    def dim(self) -> int:
        return int(self.param.dim())

    def numel(self) -> int:
        return int(self.param.numel())

    def nelement(self) -> int:
        return int(self.param.numel())


# ---------------------------------------------------------------------------------------------- operators


def _operator_method(name: str) -> Callable[..., Any]:
    target = getattr(operator, name)

    def method(self: Proxy, *args: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, *args), {})

    return method


def _reflected_method(name: str) -> Callable[[Proxy, Any], Any]:
    target = getattr(operator, name)

    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    return method


def _inplace_method(name: str) -> Callable[[Proxy, Any], Any]:
    """`x += y`. Where x is a value that only this statement knows, writing to it cannot be told from making a new one, and
    the node is the plain sum that tools look for. Should the old value be used after all, the node becomes the write."""
    written = getattr(operator, name)
    plain = getattr(operator, name[1:] if hasattr(operator, name[1:]) else f"{name[1:]}_")

    def method(self: Proxy, other: Any) -> Any:
        node, tracer = self.node, self.tracer
        if node.users or not tracer.makes_new_value(node):
            return tracer.create_proxy("call_function", written, (self, other), {})
        result = tracer.create_proxy("call_function", plain, (self, other), {})
        if tracer.assumed_unused is None:
            tracer.assumed_unused = {}
        tracer.assumed_unused[node] = (result.node, written)
        return result

    return method


# Operators and layers whose results share memory with nothing.
_NEW_VALUES = frozenset(
    [getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "matmul", "neg", "pow")]
    + [getattr(flambeau, name, None) for name in tags.functions("pointwise", "matmul", "convolution")]
) - {None}
_NEW_VALUE_LAYERS = ("Conv", "BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "Linear", "Embedding", "Bilinear")


def _setitem(self: Proxy, key: Any, value: Any) -> None:
    self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})


def _install_operators() -> None:
    for name in magic_methods:
        setattr(Proxy, f"__{name.strip('_')}__", _operator_method(name))
    for name in reflectable_magic_methods:
        setattr(Proxy, f"__r{name.strip('_')}__", _reflected_method(name))
    for name in inplace_methods:
        setattr(Proxy, f"__{name}__", _inplace_method(name))
    setattr(Proxy, "__setitem__", _setitem)  # noqa: B010
    # Comparisons by value make a class unhashable unless it says how; proxies are keys of dicts by identity.
    Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


_install_operators()


# ---------------------------------------------------------------------------------------------- helpers


def _first_proxy(values: Iterable[Any]) -> Proxy | None:
    for value in values:
        if isinstance(value, Proxy):
            return value
        if isinstance(value, (tuple, list)):
            proxy = _first_proxy(value)
        elif isinstance(value, dict):
            proxy = _first_proxy(value.values())
        elif isinstance(value, slice):
            proxy = _first_proxy((value.start, value.stop, value.step))
        else:
            continue
        if proxy is not None:
            return proxy
    return None


def _unpacked_names(frame: types.FrameType) -> int | None:
    """How many names a frame is about to unpack a value into; None when it does something else."""
    code = frame.f_code.co_code
    at = frame.f_lasti
    if code[at] == dis.opmap["UNPACK_SEQUENCE"] and not (at >= 2 and code[at - 2] == dis.opmap["EXTENDED_ARG"]):
        return code[at + 1]
    return None


def _is_assert(frame: types.FrameType) -> bool:
    """Whether a frame asks for a truth because of an assert statement."""
    following = (i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti)
    for instruction in following:
        if instruction.opname in ("LOAD_ASSERTION_ERROR",):
            return True
        if instruction.opname == "LOAD_COMMON_CONSTANT":
            return instruction.argval is AssertionError or "AssertionError" in instruction.argrepr
        jumps = instruction.opname.startswith(("POP_JUMP", "TO_BOOL", "NOT_TAKEN", "CACHE"))
        if not jumps and instruction.offset > frame.f_lasti + 2:
            return False
    return False


def _user_stack() -> str:
    """The frames of the user's program that lead here, as in a traceback."""
    frames = [f for f in traceback.extract_stack(sys._getframe(2)) if not is_own_frame(f.filename)]
    return "".join(traceback.format_list(frames)).rstrip()
