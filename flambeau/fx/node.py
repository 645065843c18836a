"""One step of a graph: what is called, on which arguments, and who uses the result.

A node's arguments may hold other nodes, nested in tuples, lists, dicts and slices. The graph relies on two facts kept
here: `users` of a node are exactly the nodes that have it among their arguments, and the nodes of a graph form a
doubly linked list around a root that is no step itself.
"""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

import flambeau
from flambeau._ops import OpOverload
from flambeau.fx.immutable_collections import immutable_dict, immutable_list
from flambeau.ops import tags

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph

BaseArgumentTypes = Any
# What an argument may be; a recursive description of tuples, lists, dicts and slices of nodes and plain values.
Argument = Any
ArgumentT = Any
Target = Union[Callable[..., Any], str]

_legal_ops = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output")

# Types that never hold a node: arguments of these need no look inside.
_PLAIN = frozenset(
    {int, float, bool, complex, str, bytes, type(None), type(Ellipsis), flambeau.dtype, flambeau.device,
     flambeau.layout, flambeau.memory_format, flambeau.Tensor, types.FunctionType, types.BuiltinFunctionType}
)  # fmt: skip

_side_effectful_functions: set[Callable[..., Any]] = set()


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Declare that calls of a function must stay in the graph though nothing uses their result."""
    _side_effectful_functions.add(fn)
    return fn


def _side_effects() -> set[Callable[..., Any]]:
    if not _side_effectful_functions:
        _side_effectful_functions.update((builtins.print, operator.setitem, operator.delitem, setattr, delattr))
        _side_effectful_functions.update(
            f for name in dir(operator) if name.startswith("i") and callable(f := getattr(operator, name))
            if name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor",
                        "ilshift", "irshift", "imatmul", "iconcat")
        )  # fmt: skip
        for name in ("_assert", "_assert_async", "manual_seed", "set_grad_enabled"):
            if (function := getattr(flambeau, name, None)) is not None:
                _side_effectful_functions.add(function)
    return _side_effectful_functions


# ---------------------------------------------------------------------------------------------- arguments


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """The same structure with fn applied to everything in it that is not a tuple, list, dict or slice."""
    cls = type(a)
    if cls is tuple:
        return tuple([map_aggregate(x, fn) for x in a])
    if cls is list or cls is immutable_list:
        return immutable_list([map_aggregate(x, fn) for x in a])
    if cls is dict or cls is immutable_dict:
        return immutable_dict({k: map_aggregate(v, fn) for k, v in a.items()})
    if cls is slice:
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    if cls in _PLAIN:
        return fn(a)
    if isinstance(a, tuple):
        values = [map_aggregate(x, fn) for x in a]
        return cls(*values) if hasattr(a, "_fields") else tuple(values)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict({k: map_aggregate(v, fn) for k, v in a.items()})
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """The same structure with fn applied to each node in it."""
    if not callable(fn):
        raise AssertionError(f"[map_arg] expected a function, got {type(fn).__name__}")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def _canonical(a: Argument, nodes: dict[Node, None]) -> Argument:
    """An argument as nodes keep it (lists and dicts immutable), with the nodes in it added to `found`."""
    cls = type(a)
    if cls is Node:
        nodes[a] = None
        return a
    if cls in _PLAIN:
        return a
    if cls is tuple:
        return tuple([_canonical(x, nodes) for x in a])
    if cls is list or cls is immutable_list:
        return immutable_list([_canonical(x, nodes) for x in a])
    if cls is slice:
        return slice(_canonical(a.start, nodes), _canonical(a.stop, nodes), _canonical(a.step, nodes))
    if isinstance(a, Node):
        nodes[a] = None
        return a
    if isinstance(a, dict):
        return immutable_dict({k: _canonical(v, nodes) for k, v in a.items()})
    if isinstance(a, tuple):
        values = [_canonical(x, nodes) for x in a]
        return cls(*values) if hasattr(a, "_fields") else tuple(values)
    if isinstance(a, list):
        return immutable_list([_canonical(x, nodes) for x in a])
    return a


# ---------------------------------------------------------------------------------------------- names of targets


def _find_module_of_method(orig_method: Any) -> str:
    """The module under which a function without `__module__` is found."""
    name = orig_method.__name__
    for module in (flambeau, flambeau.nn.functional, flambeau.linalg, flambeau.special, flambeau.fft, flambeau._C):
        if getattr(module, name, None) is orig_method:
            return str(module.__name__)
    raise RuntimeError(f"[fx] expected a function that some module names, got {orig_method!r}")


def _type_repr(obj: object) -> str:
    """A type as it is written in annotations."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        return f"{_public_module(obj.__module__)}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    if isinstance(obj, types.ModuleType):
        return f"Module({obj.__name__})"
    return repr(obj)


def _public_module(module: str) -> str:
    """Modules of this package go by the name they have in printed programs, where it is imported as `torch`."""
    if module == "flambeau" or module.startswith("flambeau."):
        return "torch" + module[len("flambeau") :]
    if module.startswith("torch._ops."):
        return "torch.ops." + module[len("torch._ops.") :]
    return "torch" if module == "torch._C" else module


def _get_qualified_name(func: Any) -> str:
    """The dotted name under which printed code finds a function."""
    builtin = getattr(func, "__name__", "")
    if builtin and getattr(builtins, builtin, None) is func:
        return str(builtin)
    if isinstance(func, OpOverload):
        return f"torch.ops.{func.namespace}.{func._opname}.{func._overloadname}"
    name = getattr(func, "__name__", None) or type(func).__name__
    qualified = getattr(func, "__qualname__", name)
    if isinstance(func, _METHODS):
        return f"torch.Tensor.{name}"
    if name == "<lambda>":
        raise RuntimeError(f"[fx] expected a function with a name in a graph, got a lambda of {func.__module__}")
    module = getattr(func, "__module__", None) or _find_module_of_method(func)
    module = _public_module(module)
    if module == "_operator":
        module = "operator"
    if "<locals>" not in qualified and "." in qualified and module.startswith("torch"):
        return f"{module}.{qualified}"
    return f"{module}.{name}"


_METHODS: tuple[type, ...] = (flambeau._C.Method, type(flambeau.Tensor.size), types.MethodDescriptorType)


def _format_arg(arg: Any, max_list_len: float = float("inf")) -> str:
    """An argument for people to read: nodes by name, long lists shortened."""
    if isinstance(arg, Node):
        return f"%{arg.name}"
    if isinstance(arg, tuple):
        inside = ", ".join(_format_arg(x, max_list_len) for x in arg)
        return f"({inside},)" if len(arg) == 1 else f"({inside})"
    if isinstance(arg, list):
        shown = [_format_arg(x, max_list_len) for i, x in enumerate(arg) if i < max_list_len]
        cut = f", ...[total_len={len(arg)}]" if len(arg) > max_list_len else ""
        return f"[{', '.join(shown)}{cut}]"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_format_arg(v, max_list_len)}" for k, v in arg.items()) + "}"
    if isinstance(arg, slice):
        return f"slice({_format_arg(arg.start)}, {_format_arg(arg.stop)}, {_format_arg(arg.step)})"
    return str(arg)


# ---------------------------------------------------------------------------------------------- the node


class Node:
    """One operation of a graph. `op` says how `target` is meant:

    placeholder    an input of the function; target is the parameter's name, args[0] its default if there is one
    get_attr       an attribute of the module, by dotted path
    call_function  target(*args, **kwargs)
    call_method    args[0].target(*args[1:], **kwargs)
    call_module    a submodule by dotted path, called with args and kwargs
    output         the end; args[0] is what the graph returns
    """

    __slots__ = ("graph", "name", "op", "target", "_args", "_kwargs", "_input_nodes", "users", "type", "_prev", "_next",
                 "_erased", "_repr_fn", "meta", "_sort_key", "__dict__", "__weakref__")  # fmt: skip

    graph: Graph
    name: str
    op: str
    target: Target
    users: dict[Node, None]
    meta: dict[str, Any]

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: Mapping[str, Argument],
        return_type: Any | None = None,
    ) -> None:
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.users = {}
        self.type: Any | None = return_type
        self.meta = {}
        self._prev: Node = self
        self._next: Node = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._sort_key = 0
        nodes: dict[Node, None] = {}
        self._args: tuple[Argument, ...] = tuple([_canonical(x, nodes) for x in args])
        self._kwargs: Mapping[str, Argument] = (
            immutable_dict({k: _canonical(v, nodes) for k, v in kwargs.items()}) if kwargs else _NO_KWARGS
        )
        self._input_nodes: dict[Node, None] = nodes
        for node in nodes:
            node.users[self] = None

    # ------------------------------------------------------------------------------------------ place in the graph

    @property
    def next(self) -> Node:
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    def _unlink(self) -> None:
        before, after = self._prev, self._next
        before._next, after._prev = after, before

    def prepend(self, x: Node) -> None:
        """Move x to just before this node."""
        if x.graph is not self.graph:
            raise AssertionError(f"[prepend] expected a node of the same graph, got {x} of another")
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x
        self.graph._ordered = False

    def append(self, x: Node) -> None:
        """Move x to just after this node."""
        if x is not self:
            self._next.prepend(x)

    def __lt__(self, other: Node) -> bool:
        """Whether this node comes before another of its graph."""
        if not self.graph._ordered:
            self.graph._number_nodes()
        return self._sort_key < other._sort_key

    def __gt__(self, other: Node) -> bool:
        return other < self

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or other < self

    # ------------------------------------------------------------------------------------------ arguments

    @property
    def args(self) -> tuple[Argument, ...]:
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._set_arguments(a, self._kwargs)

    @property
    def kwargs(self) -> Mapping[str, Argument]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: Mapping[str, Argument]) -> None:
        self._set_arguments(self._args, k)

    def _set_arguments(self, args: Iterable[Argument], kwargs: Mapping[str, Argument]) -> None:
        nodes: dict[Node, None] = {}
        self._args = tuple([_canonical(x, nodes) for x in args])
        self._kwargs = immutable_dict({k: _canonical(v, nodes) for k, v in kwargs.items()}) if kwargs else _NO_KWARGS
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._input_nodes = nodes
        for node in nodes:
            node.users[self] = None

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace one positional argument."""
        args = list(self._args)
        args[idx] = arg
        self._set_arguments(args, self._kwargs)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Insert a positional argument before the one at `idx`."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError(f"[insert_arg] expected an index between 0 and {len(self._args)}, got {idx}")
        self._set_arguments((*self._args[:idx], arg, *self._args[idx:]), self._kwargs)

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replace or add one keyword argument."""
        self._set_arguments(self._args, {**self._kwargs, key: arg})

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use new_input wherever the arguments hold old_input."""
        swap: Callable[[Node], Node] = lambda n: new_input if n is old_input else n  # noqa: E731
        replaced = getattr(self.graph, "_on_replace", None)
        if replaced:
            for hook in replaced:
                hook(old=old_input, new=new_input.name, user=self)
        self._set_arguments(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Make every user (for which delete_user_cb is true) use another node instead; the users that changed."""
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError("[replace_all_uses_with] expected a node with empty meta to propagate to")
            replace_with.meta.update(self.meta)
        users = [user for user in self.users if delete_user_cb is None or delete_user_cb(user)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    def _replace_input_with(self, old_input: Node, new_input: Node) -> None:
        self.replace_input_with(old_input, new_input)

    # ------------------------------------------------------------------------------------------ questions

    @property
    def stack_trace(self) -> str | None:
        """Where the user's code made this node, if that was recorded."""
        return self.meta.get("stack_trace", None)

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does more than compute its result, and so must not be removed when nothing uses it."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            target = self.target
            if target in _side_effects():
                return True
            schema = getattr(target, "_schema", None)
            if schema is not None:
                return bool(schema.is_mutable) or (impure_random and _is_random(target))
            name = getattr(target, "__name__", "")
            if name.endswith("_") and not name.endswith("__") and isinstance(target, flambeau._C.Function):
                return True
            return (bool(self._kwargs) and self._kwargs.get("out") is not None) or (
                impure_random and _is_random(target)
            )
        if self.op == "call_method":
            name = str(self.target)
            return (name.endswith("_") and not name.endswith("__")) or name in ("__setitem__", "__iadd__", "backward")
        if self.op == "call_module":
            module = self.graph.owning_module
            if module is None:
                raise AssertionError(
                    f"[is_impure] expected a graph owned by a module, to look at {self.target!r} in it"
                )
            submodule = module.get_submodule(str(self.target))
            return bool(getattr(submodule, "_is_impure", False))
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any | None:
        """Arguments under their parameter names, as an ArgsKwargsPair; None when the signature is not known."""
        from flambeau.fx.operator_schemas import normalize_function, normalize_module

        if self.op == "call_function":
            return normalize_function(self.target, self.args, dict(self.kwargs), arg_types, kwarg_types,
                                      normalize_to_only_use_kwargs)  # fmt: skip
        if self.op == "call_module":
            return normalize_module(root, str(self.target), self.args, dict(self.kwargs), normalize_to_only_use_kwargs)
        return None

    # ------------------------------------------------------------------------------------------ printing

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    def _pretty_print_target(self, target: object) -> str:
        """The target for people to read."""
        if isinstance(target, str):
            return target
        name = getattr(target, "__name__", None) or str(target)
        if getattr(target, "__module__", None) in ("builtins", "_operator"):
            return ("operator." if target.__module__ == "_operator" else "builtins.") + name
        try:
            return _get_qualified_name(target)
        except RuntimeError:
            return name

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """One line that describes the node. With the two lists given, placeholders and the return type are added to
        them for a heading, and placeholders print as None."""
        if self.op == "placeholder":
            annotation = f" : {_type_repr(self.type)}" if self.type else ""
            if placeholder_names is not None:
                placeholder_names.append(f"{self.target}{annotation}")
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            shown = f"{_type_repr(self.type)} " if self.type else ""
            return f"%{self.name} : {shown}[num_users={len(self.users)}] = {self.op}[target={self.target}]{default}"
        if self.op == "get_attr":
            shown = f"{_type_repr(self.type)} " if self.type is not None else ""
            return f"%{self.name} : {shown}[num_users={len(self.users)}] = {self.op}[target={self.target}]"
        if self.op == "output":
            if self.type and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self.args[0]}"
        annotation = f"[type={_type_repr(self.type)}] " if self.type else ""
        value = self.meta.get("val", self.meta.get("tensor_meta")) if include_tensor_metadata else None
        shown = f"({value}) " if value is not None else ""
        return (
            f"%{self.name} : {annotation}{shown}[num_users={len(self.users)}] = {self.op}"
            f"[target={self._pretty_print_target(self.target)}](args = {_format_arg(self.args)}, "
            f"kwargs = {_format_arg(dict(self.kwargs))})"
        )

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, self)

    # Deep copies of a node alone would drag the whole graph along; Graph copies nodes itself.
    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        copied = memo.get(id(self))
        if copied is None:
            from copy import deepcopy

            deepcopy(self.graph, memo)
            copied = memo[id(self)]
        return copied  # type: ignore[no-any-return]


_NO_KWARGS: Mapping[str, Argument] = immutable_dict()


def _is_random(target: Any) -> bool:
    return getattr(target, "__name__", "").split(".")[0] in tags.functions("random")
