"""Graphs without writes: a write becomes the operator that computes the same, and all that shares memory follows.

A view of what was written is computed again from the new whole, and a write to a view puts the new values into what it is a
view of (`inverses` of the families of operators). What is written to an input is returned.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau._ops import OpOverload
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node, map_arg
from flambeau.ops.rules import apply_shape, inverse, named_arguments

__all__ = ["functionalized", "has_writes"]

_STATISTICS = ("running_mean", "running_var")  # which normalizations write in training, whatever their schemas say


def written_arguments(node: Node) -> list[str]:
    """The names of the arguments that a call writes."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return []
    arguments = node.target._schema.arguments
    names = [a.name for a in arguments if a.is_written]
    known = {a.name for a in arguments}
    if not names and known.issuperset(_STATISTICS):
        values = named_arguments(node.target, node.args, dict(node.kwargs))
        if values.get("training") or values.get("use_input_stats"):
            names = [name for name in _STATISTICS if values[name] is not None]
    return names


def has_writes(graph: Graph) -> bool:
    return any(written_arguments(node) for node in graph.nodes)


def functionalized(graph: Graph) -> tuple[Graph, list[Node]]:
    """The graph with results in place of writes; the values of inputs that it writes come first among the outputs. The other
    result is these inputs."""
    rewriter = _Rewriter()
    for node in graph.nodes:
        rewriter.visit(node)
    return rewriter.graph, list(rewriter.changed)


class _Rewriter:
    def __init__(self) -> None:
        self.graph = Graph()
        self.present: dict[Node, Node] = {}  # by node of the original: the node of the new graph that has its value
        self.writes: dict[Node, int] = {}  # how often memory was written, by the node that made it
        self.seen: dict[Node, int] = {}  # how often it had been when the value of a view was computed
        self.parents: dict[Node, Node] = {}  # of views
        self.same: dict[Node, Node] = {}  # results of writes: the tensor that was written
        self.changed: dict[Node, None] = {}  # inputs, in the order of the first write

    def visit(self, node: Node) -> None:
        if node.op == "output":
            results = map_arg(node.args[0], self.value)
            written = [self.value(n) for n in self.changed]
            self.graph.output((*written, *results)).meta.update(node.meta)
            return
        names = written_arguments(node)
        if names:
            self._write(node, names)
            return
        self.present[node] = self.graph.node_copy(node, self.value)
        parent = _viewed(node)
        if parent is not None:
            self.parents[node] = self.same.get(parent, parent)
            self.seen[node] = self.writes.get(self._root(node), 0)

    def value(self, node: Node) -> Node:
        """The present value of a node of the original."""
        node = self.same.get(node, node)
        root = self._root(node)
        if node is not root and self.seen[node] != self.writes.get(root, 0):
            self.seen[node] = self.writes[root]
            self.present[node] = self.graph.node_copy(node, self.value)
        return self.present[node]

    def _root(self, node: Node) -> Node:
        while node in self.parents:
            node = self.parents[node]
        return node

    def _write(self, node: Node, names: list[str]) -> None:
        assert isinstance(node.target, OpOverload)
        arguments = named_arguments(node.target, node.args, dict(node.kwargs))
        targets = [arguments[name] for name in names]
        form = _without_write(node) if isinstance(targets[0], Node) else None
        if form is not None:
            result = self.graph.node_copy(node, self.value)
            result.target = form
            dtypes = [n.meta["val"].dtype if "val" in n.meta else None for n in (targets[0], node)]
            if "val" in node.meta and dtypes[0] is not None:
                cast = self.graph.call_function(_as, (result, dtypes[0]))
                cast.meta.update(node.meta)
                result = cast
            self._store(targets[0], result)
            self.same[node] = self.same.get(targets[0], targets[0])
            return
        call = self.graph.node_copy(node, self.value)
        call.target = _OnCopies(node.target, names)
        call.args, call.kwargs = (), {name: map_arg(value, self.value) for name, value in arguments.items()}
        at = 1
        for target in targets:
            for one in target if isinstance(target, (list, tuple)) else (target,):
                if isinstance(one, Node):
                    self._store(one, self.graph.call_function(operator.getitem, (call, at)))
                    at += 1
        self.present[node] = self.graph.call_function(operator.getitem, (call, 0))
        returns = node.target._schema.returns
        first = targets[0]
        if isinstance(first, Node) and len(returns) == 1 and node.target._schema.arguments[0].is_written:
            self.same[node] = self.same.get(first, first)

    def _store(self, target: Node, value: Node) -> None:
        """Gives a tensor another value, and all that it is a view of."""
        target = self.same.get(target, target)
        at = target
        while at in self.parents:
            parent = self.parents[at]
            whole = self.value(parent)
            at, piece = (at.args[0], at.args[1]) if at.target is operator.getitem else (at, None)
            assert isinstance(at, Node) and isinstance(at.target, OpOverload)
            arguments = named_arguments(at.target, at.args, dict(at.kwargs))
            arguments = {name: map_arg(item, self.value) for name, item in arguments.items()}
            arguments.update(base=whole, value=value, piece=piece)
            value = self.graph.call_function(_Into(at.target), (), arguments)
            at = parent
        self.present[at] = value
        self.writes[at] = self.writes.get(at, 0) + 1
        if at.op == "placeholder":
            self.changed[at] = None


def _viewed(node: Node) -> Node | None:
    """What a node is a view of."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    source = node.args[0]
    if node.target is operator.getitem:
        return _viewed(source)
    if not isinstance(node.target, OpOverload) or not node.target._schema.arguments:
        return None
    return source if node.target._schema.arguments[0].alias_info is not None else None


def _without_write(node: Node) -> Any:
    """The operator that returns what a call writes, or None where there is none."""
    op = node.target
    assert isinstance(op, OpOverload)
    name, _, overload = op._full_name.partition(".")
    if "::" in name or not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(getattr(fl.ops, op.namespace), name.removesuffix("_"), None)
    return None if packet is None else getattr(packet, overload or "default", None)


def _as(result: fl.Tensor, dtype: Any) -> fl.Tensor:
    return result if result.dtype == dtype else result.to(dtype)


class _Into:
    """The whole with a value where a view is."""

    def __init__(self, op: OpOverload) -> None:
        self.rule = inverse.find(op._full_name)
        self.__name__ = "into_" + op._full_name.partition(".")[0]
        if self.rule is None:
            raise RuntimeError(f"[run_decompositions] expected writes to views that are undone, got one to {op}")

    def __call__(self, /, **arguments: Any) -> Any:
        assert self.rule is not None
        return apply_shape(self.rule, arguments)


class _OnCopies:
    """An operator that writes, called on copies of what it writes: its result and the copies."""

    def __init__(self, op: OpOverload, names: Sequence[str]) -> None:
        self.op = op
        self.names = names
        self.__name__ = op._full_name.partition(".")[0].replace("::", "_")

    def __call__(self, /, **arguments: Any) -> Any:
        copies: list[Any] = []

        def copied(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [copied(one) for one in value]
            if value is not None:
                value = value.clone()
                copies.append(value)
            return value

        for name in self.names:
            arguments[name] = copied(arguments[name])
        formals = self.op._schema.arguments
        call: Callable[..., Any] = self.op
        result = call(
            *(arguments[a.name] for a in formals if not a.kwarg_only),
            **{a.name: arguments[a.name] for a in formals if a.kwarg_only},
        )
        return [result, *copies]


def recorded(function: Callable[..., Any], without_views: bool, args: Any, kwargs: Any) -> Any:
    """Calls a function for a recorder that is active: without writes, but for copies into the arguments that it changes."""
    from flambeau._subclasses.fake_tensor import FakeTensor
    from flambeau.fx.experimental.proxy_tensor import make_fx
    from flambeau.fx.graph_module import GraphModule
    from flambeau.fx.interpreter import Interpreter
    from flambeau.utils import _pytree as pytree
    from flambeau.utils._python_dispatch import _disable_current_modes

    leaves, spec = pytree.tree_flatten((args, kwargs))
    if any(isinstance(leaf, FakeTensor) for leaf in leaves):
        raise NotImplementedError(
            "[functionalize] expected tensors with data in a call that is recorded, got fake ones"
        )
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, fl.Tensor)]
    structure: list[Any] = []

    def flat(*tensors: Any) -> list[Any]:
        values = list(leaves)
        for i, tensor in zip(at, tensors):
            values[i] = tensor
        positional, named = pytree.tree_unflatten(values, spec)
        results, result_spec = pytree.tree_flatten(function(*positional, **named))
        structure.append(result_spec)
        return results

    with _disable_current_modes():
        traced = make_fx(flat)(*(leaves[i].detach().clone() for i in at))
    graph, changed = functionalized(traced.graph)
    module = GraphModule(traced, graph)

    class WithoutViews(Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(_copying(target) if without_views else target, args, kwargs)

    inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
    outputs = WithoutViews(module).run(*(leaves[i] for i in at))
    for node, value in zip(changed, outputs):
        argument = leaves[at[inputs.index(node)]]
        argument = argument if argument.shape == value.shape else argument.resize_(value.shape)
        argument.copy_(value)
    return pytree.tree_unflatten(list(outputs[len(changed) :]), structure[-1])


def _copying(target: Any) -> Any:
    """The operator that copies what another one views; others as they are."""
    if not isinstance(target, OpOverload):
        return target
    packet = getattr(fl.ops.aten, f"{target._opname}_copy", None)
    return getattr(packet, target._overloadname, target) if packet is not None else target
