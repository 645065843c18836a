"""Nodes run one at a time: on constants, which folds them, and on tensors without data, which gives the dtypes and sizes of a graph's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import _C
from flambeau.jit import _types as T
from flambeau.jit._ir import Block, Graph, Node, Value
from flambeau.jit._passes import _copy_node, eliminate_dead_code, fold_branches, has_effects

_NUMBERS: dict[T.JitType, Any] = {T.INT: 2, T.FLOAT: 1.5, T.BOOL: True, T.COMPLEX: 1j, T.NUMBER: 2}


def node_function(node: Node) -> tuple[Callable[..., Any], list[Value]]:
    """A function that runs one node, and the values that it takes; constants are part of it."""
    from flambeau.jit._functions import Function
    from flambeau.jit._lower import lower

    graph, taken = Graph(), []
    values: dict[int, Value] = {}
    for value in node._inputs:
        if id(value) in values:
            continue
        if value.node()._kind == "prim::Constant":
            copied = _copy_node(value.node(), graph, values)
            copied.owner = graph
            graph._nodes.append(copied)
        else:
            values[id(value)] = graph.addInput().setType(value.type())
            taken.append(value)
    copied = _copy_node(node, graph, values)
    copied.owner = graph
    graph._nodes.append(copied)
    for output in copied._outputs:
        graph.registerOutput(output)
    function = Function(f"__torch__.{node._kind.rpartition('::')[2]}")
    function.graph, function.done = graph, True
    return lower(function), taken


def _foldable(node: Node) -> bool:
    if node._kind == "prim::Constant" or node._blocks or not node._outputs or has_effects(node):
        return False
    if node.isNondeterministic() or not node._kind.startswith(("aten::", "prim::")):
        return False
    if node._kind in ("prim::Uninitialized", "prim::GetAttr", "prim::CreateObject", "aten::empty", "aten::empty_like"):
        return False
    return all(value.node()._kind == "prim::Constant" for value in node._inputs)


def _is_immutable(kind: T.JitType) -> bool:
    if isinstance(kind, T.TupleType):
        return all(_is_immutable(part) for part in kind.items)
    return kind in (T.INT, T.FLOAT, T.BOOL, T.COMPLEX, T.STRING, T.NONE, T.DEVICE, T.NUMBER, T.TENSOR)


def fold_constants(graph: Graph) -> None:
    """Nodes whose inputs are constants become constants, branches on constants the block that runs."""
    _fold_block(graph, graph)
    fold_branches(graph)
    _fold_block(graph, graph)
    _drop_empty_loops(graph)
    eliminate_dead_code(graph)


def _fold_block(block: Block, graph: Graph) -> None:
    for node in list(block._nodes):
        for inner in node._blocks:
            _fold_block(inner, graph)
        if node._kind == "prim::If" and len(node._blocks) == 2:
            _merge_equal_results(node)
        if not _foldable(node) or any(not _is_immutable(o.type()) for o in node._outputs):
            continue
        try:
            result = node_function(node)[0]()
        except Exception:  # it raises when the program runs
            continue
        results = [result] if len(node._outputs) == 1 else list(result)
        graph.insert_block, graph.insert_before = block, node
        for output, value in zip(list(node._outputs), results):
            if isinstance(value, _C.Tensor):
                if any(value is v.toIValue() for v in node._inputs):
                    break
                value = value.detach()
            output.replaceAllUsesWith(graph.insertConstant(value, T.NONE if value is None else output.type()))
        graph.insert_block, graph.insert_before = graph, None


def _merge_equal_results(node: Node) -> None:
    """Results that both branches take from the same value outside."""
    first, second = (block._return._inputs for block in node._blocks)
    for output, a, b in zip(list(node._outputs), list(first), list(second)):
        if a is b:
            output.replaceAllUsesWith(a)


def _drop_empty_loops(block: Block) -> None:
    for node in list(block._nodes):
        for inner in node._blocks:
            _drop_empty_loops(inner)
        if node._kind == "prim::Loop" and (node._inputs[0].toIValue() == 0 or node._inputs[1].toIValue() is False):
            for output, value in zip(list(node._outputs), node._inputs[2:]):
                output.replaceAllUsesWith(value)
            node.destroy()


# ---------------------------------------------------------------------------------------------- dtypes and sizes


def _stand_in(kind: T.JitType) -> tuple[Any, bool] | None:
    """A value of a type to compute with, and whether sizes that follow from it are known; None if there is none."""
    if isinstance(kind, T.TensorType) and kind.dtype() is not None and kind.sizes() is not None:
        if any(size is None for size in kind.sizes()):
            return flambeau.empty(
                [3 if s is None else s for s in kind.sizes()], dtype=kind.dtype(), device="meta"
            ), False
        return flambeau.empty(kind.sizes(), dtype=kind.dtype(), device="meta"), True
    if kind in _NUMBERS:
        return _NUMBERS[kind], False
    return None


def propagate_types(graph: Graph) -> None:
    """Give values the dtypes and sizes that follow from those of the graph's inputs."""
    known: dict[int, tuple[Any, bool]] = {}
    for value in graph._param._outputs:
        start = _stand_in(value.type())
        if start is not None:
            known[id(value)] = start
    _propagate(graph, known)


def _propagate(block: Block, known: dict[int, tuple[Any, bool]]) -> None:
    for node in block._nodes:
        if node._kind == "prim::Constant":
            value = node._outputs[0].toIValue()
            known[id(node._outputs[0])] = (value.to("meta") if isinstance(value, _C.Tensor) else value, True)
            continue
        for inner in node._blocks:
            _propagate(inner, known)
        if node._kind == "prim::If":
            _join(node, known)
        if node._blocks or any(id(v) not in known for v in node._inputs):
            continue
        try:
            function, taken = node_function(node)
            result = function(*(known[id(v)][0] for v in taken))
        except Exception:  # sizes that do not fit, or data that is not there
            continue
        sized = all(known[id(v)][1] for v in taken)
        results = [result] if len(node._outputs) == 1 else list(result)
        for output, value in zip(node._outputs, results):
            known[id(output)] = (value, sized)
            if isinstance(value, _C.Tensor):
                output.setType(described(value, sized))


def _join(node: Node, known: dict[int, tuple[Any, bool]]) -> None:
    for output, a, b in zip(node._outputs, *(block._return._inputs for block in node._blocks)):
        first, second = known.get(id(a)), known.get(id(b))
        if first is None or second is None:
            continue
        x, y = first[0], second[0]
        if isinstance(x, _C.Tensor) and isinstance(y, _C.Tensor) and x.dtype == y.dtype and x.dim() == y.dim():
            same = x.shape == y.shape and first[1] and second[1]
            known[id(output)] = (x, same)
            output.setType(described(x, same))


def described(tensor: Any, sized: bool = True) -> T.TensorType:
    """The type of tensors like one without data, which is on the CPU for programs that do not say where."""
    kind = T.TensorType(tensor)
    kind._device = flambeau.device("cpu") if tensor.device.type == "meta" else tensor.device
    if not sized:
        kind._sizes = [None] * tensor.dim()
        kind._strides = None
    return kind


def erase_types(graph: Graph, inputs: bool = True) -> None:
    """Forget dtypes and sizes."""
    values = [o for node in graph.walk() for o in node._outputs]
    values += [o for node in graph.walk() for block in node._blocks for o in block._param._outputs]
    for value in [*values, *(graph._param._outputs if inputs else ())]:
        if isinstance(value.type(), T.TensorType):
            value.setType(T.TENSOR)


__all__ = ["erase_types", "fold_constants", "node_function", "propagate_types"]
