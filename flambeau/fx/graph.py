"""Graphs: a function as a list of nodes in the order they run.

A Graph owns its nodes, gives them names, and keeps where the next node is inserted. Passes walk `graph.nodes`, change
nodes through their methods, and may check the result with `lint()`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flambeau.fx._codegen import (  # noqa: F401
    _RESERVED,
    CodeGen,
    PythonCode,
    TransformCodeFunc,
    _custom_builtins,
    _CustomBuiltin,
    _format_target,
    _PyTreeCodeGen,
    _PyTreeInfo,
    dtype_abbreviation,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)
from flambeau.fx.node import Argument, Node, Target, _legal_ops, map_arg

if TYPE_CHECKING:
    from types import TracebackType

_UNCLEAN = re.compile(r"[^0-9a-zA-Z_]+")
_SUFFIX = re.compile(r"(.*)_(\d+)$")
_CAPITALS = re.compile(r"(?<=[a-z])([A-Z])")


def _snake_case(s: str) -> str:
    """`fooBar` as `foo_bar`, `FooBar` as `foo_bar`."""
    return _CAPITALS.sub(r"_\1", s).lower()


class _Namespace:
    """Names that are in use, and a fresh one for any wish."""

    __slots__ = ("_used_names", "_base_count", "_owner")

    def __init__(self) -> None:
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = {}
        self._owner: dict[Any, str] = {}

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """A name like the candidate that is legal in Python and not in use."""
        used = self._used_names
        if candidate in used and candidate in self._base_count:
            # The common case: the same function once more.
            base = candidate
            number = self._base_count[base] + 1
            name = f"{base}_{number}"
            while name in used:
                number += 1
                name = f"{base}_{number}"
            self._base_count[base] = number
            used.add(name)
            return name
        clean = _UNCLEAN.sub("_", candidate)
        if not clean:
            clean = "_unnamed"
        if clean[0].isdigit():
            clean = f"_{clean}"
        match = _SUFFIX.match(clean)
        base, number = (clean, 0) if match is None else (match[1], int(match[2]))
        name = clean if match is None else f"{base}_{number}"
        if number == 0:
            number = self._base_count.get(base, 0)
        while name in used or self._is_illegal_name(name, obj):
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        self._base_count[base] = number
        return name

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Mark a name as taken."""
        self._used_names.add(name)

    def _is_illegal_name(self, name: str, obj: Any) -> bool:
        return name in _RESERVED

    def _rename_object(self, obj: Any, name: str) -> None:
        self._used_names.add(name)


class _node_list:
    """The nodes of a graph, first to last. Erasing the current node or inserting others while walking is fine."""

    __slots__ = ("graph", "direction")

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph = graph
        self.direction = direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        if self.direction == "_next":
            node = root._next
            while node is not root:
                if not node._erased:
                    yield node
                node = node._next
        else:
            node = root._prev
            while node is not root:
                if not node._erased:
                    yield node
                node = node._prev

    def __reversed__(self) -> _node_list:
        return _node_list(self.graph, "_prev" if self.direction == "_next" else "_next")


class _InsertPoint:
    """While alive in a `with` block, new nodes go to a given place; without one, from now on."""

    def __init__(self, graph: Graph, before: Node) -> None:
        self.graph = graph
        self.previous = graph._before
        graph._before = before

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.graph._before = self.previous


class Graph:
    """A function in terms of nodes.

    Nodes are made by the methods named after their kinds (`call_function`, `placeholder`, ...) at the current insertion
    point, which is the end unless `inserting_before` or `inserting_after` says otherwise.
    """

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: Any = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._before = self._root
        self._len = 0
        self._ordered = True
        self._counter = 0
        self._graph_namespace = _Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        self._on_replace: list[Callable[..., None]] | None = None

    # ------------------------------------------------------------------------------------------ looking

    @property
    def owning_module(self) -> Any:
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """All nodes in order."""
        return _node_list(self)

    def output_node(self) -> Node:
        """The node that holds what the graph returns."""
        for node in reversed(self.nodes):
            if node.op == "output":
                return node
        raise AssertionError("[output_node] expected a graph with an output, got one without")

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """All nodes of a kind, for calls with a given target."""
        if target is None:
            return [n for n in self.nodes if n.op == op]
        return [n for n in self.nodes if n.op == op and n.target == target]

    def _number_nodes(self) -> None:
        for number, node in enumerate(self.nodes):
            node._sort_key = number
        self._counter = self._len
        self._ordered = True

    # ------------------------------------------------------------------------------------------ making nodes

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """A new node at the insertion point. The name is a wish."""
        if op not in _legal_ops:
            raise AssertionError(f"[create_node] expected one of {', '.join(_legal_ops)}, got {op!r}")
        if args is None:
            args = ()
        elif type(args) is not tuple and not isinstance(args, tuple):
            raise AssertionError(f"[create_node] expected a tuple of arguments, got {type(args).__name__}")
        unique = self._graph_namespace.create_name(name if name is not None else self._target_to_str(target))
        node = Node(self, unique, op, target, args, kwargs if kwargs is not None else {}, type_expr)
        for used in node._input_nodes:
            if used.graph is not self:
                node._set_arguments((), {})
                raise AssertionError(
                    f"[create_node] expected arguments of this graph, got {used.name} of another for {unique}"
                )
        after = self._before
        before = after._prev
        before._next, node._prev = node, before
        node._next, after._prev = after, node
        self._len += 1
        if after is self._root:
            node._sort_key = self._counter
            self._counter += 1
        else:
            self._ordered = False
        return node

    def placeholder(self, name: str, type_expr: Any | None = None, default_value: Any = ...) -> Node:
        """An input. A default of `...` is none at all."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """A parameter, buffer or other attribute of the module, by dotted path."""
        owner = self._owning_module
        if owner is not None and not _path_exists(owner, qualified_name):
            import warnings

            warnings.warn(
                f"[get_attr] expected an attribute of the owning module, got {qualified_name!r}, which it does not have;"
                " add the attribute before the graph runs",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """The call of a submodule, by dotted path."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """The call of a method of args[0]."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: Mapping[str, Argument] | None = None,
        type_expr: Any | None = None,
        name: str | None = None,
    ) -> Node:
        """The call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any | None = None) -> Node:
        """The end of the graph, with what it returns."""
        return self.create_node("output", "output", args=(result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """A copy of a node of another graph; arg_transform says which node here stands for each of its inputs."""
        args = map_arg(node._args, arg_transform)
        kwargs = map_arg(node._kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = node.meta.copy()
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Argument | tuple[Argument, Argument] | None:
        """Copy all nodes of another graph to the insertion point, except those in val_map, which stand for what they
        map to. Gives what the other graph's output holds, in terms of the copies."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def _target_to_str(self, target: Target | None) -> str:
        """The wish for a node's name."""
        if type(target) is str:
            if target.startswith("__") and target.endswith("__"):
                target = target[2:-2]
            return _snake_case(target)
        name = getattr(target, "_opname", None) or getattr(target, "__name__", None) or type(target).__name__
        if name.startswith("__") and name.endswith("__"):
            name = name[2:-2]
        if "." in name:
            name = name.replace(".", "_")
        return _SNAKE.get(name) or _SNAKE.setdefault(name, _snake_case(name))

    # ------------------------------------------------------------------------------------------ changing

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nothing uses."""
        if to_erase.users:
            raise RuntimeError(
                f"[erase_node] expected a node without users, got {to_erase} used by {', '.join(map(str, to_erase.users))};"
                " replace its uses first, as with replace_all_uses_with"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"[erase_node] expected a node of this graph, got {to_erase} of another")
        if to_erase._erased:
            import warnings

            warnings.warn(f"[erase_node] expected a node of the graph, got {to_erase}, erased before", stacklevel=2)
            return
        if self._before is to_erase:
            self._before = to_erase._next
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        for used in to_erase._input_nodes:
            used.users.pop(to_erase, None)
        to_erase._input_nodes = {}
        to_erase._args = ()
        to_erase._kwargs = {}

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Put new nodes before one (None: at the beginning), inside a `with` block or from now on."""
        if n is None:
            return self.inserting_after(self._root)
        self._check_own(n, "inserting_before")
        return _InsertPoint(self, n)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Put new nodes after one (None: at the end), inside a `with` block or from now on."""
        if n is None:
            return _InsertPoint(self, self._root)
        self._check_own(n, "inserting_after")
        return _InsertPoint(self, n._next)

    def _check_own(self, n: Node, what: str) -> None:
        if n.graph is not self:
            raise AssertionError(f"[{what}] expected a node of this graph, got {n} of another")

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove nodes whose results nothing uses, unless they do more than compute. Whether anything changed."""
        changed = False
        is_impure = is_impure_node or Node.is_impure
        for node in reversed(self.nodes):
            if not node.users and node.op not in ("placeholder", "output") and not is_impure(node):
                self.erase_node(node)
                changed = True
        for child in self._children():
            changed |= child.graph.eliminate_dead_code(is_impure_node)
        return changed

    def _children(self) -> Iterator[Any]:
        """Graph modules that this graph calls, each once."""
        owner = self._owning_module
        if owner is None:
            return
        from flambeau.fx.graph_module import GraphModule

        for target in {str(n.target) for n in self.nodes if n.op == "call_module"}:
            child = owner.get_submodule(target)
            if isinstance(child, GraphModule):
                yield child

    # ------------------------------------------------------------------------------------------ copies

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = memo if memo is not None else {}
        copied = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        memo[id(self)] = copied
        copied._codegen = self._codegen
        mapped: dict[Node, Node] = {}
        for node in self.nodes:
            twin = copied.node_copy(node, lambda n: mapped[n])
            mapped[node] = twin
            memo[id(node)] = twin
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Nodes as a flat list, with references to nodes as their numbers: no deep recursion on long graphs."""
        order = {node: number for number, node in enumerate(self.nodes)}
        rows = [
            (n.op, n.name, n.target, map_arg(n._args, lambda x: _Reference(order[x])),
             map_arg(n._kwargs, lambda x: _Reference(order[x])), n.type, _portable(n.meta))
            for n in order
        ]  # fmt: skip
        return {"nodes": rows, "codegen": self._codegen, "tracer_cls": self._tracer_cls,
                "tracer_extras": self._tracer_extras}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        from flambeau.fx.node import map_aggregate

        Graph.__init__(self, None, state["tracer_cls"], state["tracer_extras"])
        self._codegen = state["codegen"]
        nodes: list[Node] = []
        back: Callable[[Any], Any] = lambda x: nodes[x.number] if isinstance(x, _Reference) else x  # noqa: E731
        for op, name, target, args, kwargs, kind, meta in state["nodes"]:
            node = self.create_node(op, target, map_aggregate(args, back), map_aggregate(kwargs, back), name, kind)
            node.meta.update(meta)
            nodes.append(node)

    # ------------------------------------------------------------------------------------------ code

    def process_inputs(self, *args: Any) -> Any:
        """Arguments of the function as the placeholders take them."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the output node holds as the function returns it."""
        return self._codegen.process_outputs(out)

    def set_codegen(self, codegen: CodeGen) -> None:
        self._codegen = codegen

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """The graph as the source of a function; `root_module` is what the source calls the module."""
        return self._codegen._gen_python_code(
            self.nodes,
            root_module,
            verbose=verbose,
            include_stride=include_stride,
            include_device=include_device,
            expanded_def=expanded_def,
        )

    def on_generate_code(self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]) -> Any:
        """Let a function change the lines of printed code. It is given the current one (or None) and returns the new
        one. Without a `with` block it stays."""
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)
        graph = self

        class Restore:
            def __enter__(self) -> None:
                return None

            def __exit__(self, kind: object, value: object, trace: object) -> None:
                graph._codegen._body_transformer = before

        return Restore()

    def __str__(self) -> str:
        lines = [f"    {text}" for n in self.nodes if (text := n.format_node()) is not None]
        return "graph():\n" + "\n".join(lines)

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        print(self.tabular())

    def tabular(self) -> str:
        """The nodes as a table: kind, name, target, args and kwargs."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(dict(n.kwargs))) for n in self.nodes]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(lines)

    def lint(self) -> None:
        """Check what every graph promises; RuntimeError names the rule that is broken."""
        from flambeau.fx.verifier import verify

        verify(self)


class _Reference:
    """A node in a pickled graph, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Reference, (self.number,))


def _portable(meta: dict[str, Any]) -> dict[str, Any]:
    """The part of a node's notes that means something in another process."""
    return {k: v for k, v in meta.items() if k in ("stack_trace", "tensor_meta", "nn_module_stack") and _is_plain(v)}


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool, type(None))) or hasattr(value, "_fields")


def _path_exists(owner: Any, path: str) -> bool:
    for atom in path.split("."):
        if not hasattr(owner, atom):
            return False
        owner = getattr(owner, atom)
    return True


_SNAKE: dict[str, str] = {}
