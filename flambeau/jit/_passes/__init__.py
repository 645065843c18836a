"""Passes over graphs: dead code, constants in one place, copies and inlining."""

from __future__ import annotations

import operator
from typing import Any

from flambeau import _C
from flambeau.jit import _types as T
from flambeau.jit._ir import Block, Graph, Node, Value

_EFFECTS = {
    "prim::Print", "prim::RaiseException", "prim::SetAttr", "prim::CallMethod", "prim::CallFunction", "prim::PythonOp",
    "prim::Enter", "prim::Exit", "prim::fork", "prim::awaitable", "prim::awaitable_wait", "aten::wait", "aten::warn", "aten::save", "aten::manual_seed",
}  # fmt: skip


def has_effects(node: Node) -> bool:
    """Whether a node does more than compute its outputs."""
    if node._kind in _EFFECTS or not (node._outputs or node._blocks or node._kind.startswith("prim::")):
        return True
    if node.call is not None and getattr(node.call, "is_mutable", False):
        return True
    return any(has_effects(inner) for block in node._blocks for inner in block._nodes)


def eliminate_dead_code(block: Block) -> None:
    for node in reversed(list(block._nodes)):
        for inner in node._blocks:
            eliminate_dead_code(inner)
        if has_effects(node) or any(o._uses for o in node._outputs):
            _trim(node)
            continue
        node.destroy()


def _trim(node: Node) -> None:
    """Drop outputs of branches and values of loops that nothing uses."""
    if node._kind == "prim::If":
        for index in reversed(range(len(node._outputs))):
            if not node._outputs[index]._uses:
                for block in node._blocks:
                    block._return.removeInput(index)
                node.eraseOutput(index)
        for block in node._blocks:
            eliminate_dead_code(block)
    if node._kind == "prim::Loop":
        block = node._blocks[0]
        for index in reversed(range(len(node._outputs))):
            carried = block._param._outputs[index + 1]
            inside = [u for u in carried._uses if not (u.user is block._return and u.offset == index + 1)]
            if not node._outputs[index]._uses and not inside:
                block._return.removeInput(index + 1)
                node.removeInput(index + 2)
                block._param.eraseOutput(index + 1)
                node.eraseOutput(index)
        eliminate_dead_code(block)


def _constant_key(node: Node) -> Any:
    kind = node._outputs[0].type()
    value = node.attributes.get("value", (None, None))[1]
    if isinstance(kind, T.FunctionType):
        return ("function", id(kind.function))
    if isinstance(value, _C.Tensor):
        return None
    try:
        hash(value)
    except TypeError:
        return None
    return (str(kind), type(value), value, str(value))


def pool_constants(graph: Graph) -> None:
    """One constant for each value, at the head of the graph."""
    known: dict[Any, Value] = {}
    heads: list[Node] = []
    for node in list(graph.walk()):
        if node._kind != "prim::Constant" and node._kind != "prim::Uninitialized":
            continue
        key = _constant_key(node) if node._kind == "prim::Constant" else ("unset", node._outputs[0].type())
        assert node.owner is not None
        if key is not None and key in known:
            node._outputs[0].replaceAllUsesWith(known[key])
            node.destroy()
            continue
        if key is not None:
            known[key] = node._outputs[0]
        node.owner._nodes.remove(node)
        node.owner = graph
        heads.append(node)
    graph._nodes[:0] = heads


def clean(graph: Graph) -> None:
    eliminate_dead_code(graph)
    _drop_tuple_round_trips(graph)
    eliminate_dead_code(graph)
    pool_constants(graph)


def _drop_tuple_round_trips(graph: Graph) -> None:
    """A tuple that is made and taken apart at once gives its elements directly."""
    for node in list(graph.walk()):
        if node._kind == "prim::TupleUnpack" and node._inputs[0].node()._kind == "prim::TupleConstruct":
            for output, value in zip(list(node._outputs), node._inputs[0].node()._inputs):
                output.replaceAllUsesWith(value)
        elif node._kind == "prim::TupleIndex" and node._inputs[0].node()._kind == "prim::TupleConstruct":
            index = node._inputs[1].toIValue()
            if isinstance(index, int):
                node._outputs[0].replaceAllUsesWith(node._inputs[0].node()._inputs[index])


# ---------------------------------------------------------------------------------------------- copies


def _copy_node(node: Node, graph: Graph, values: dict[int, Value]) -> Node:
    twin = Node(graph, node._kind)
    twin.attributes, twin.range, twin.call, twin._scope = dict(node.attributes), node.range, node.call, node._scope
    twin.callers = node.callers
    for value in node._inputs:
        twin.addInput(values[id(value)])
    for output in node._outputs:
        copy = twin.addOutput(output._type)
        if output.hasDebugName():
            copy.setDebugName(output.debugName())
        values[id(output)] = copy
    for block in node._blocks:
        _copy_block(block, twin.addBlock(), graph, values)
    return twin


def _copy_block(block: Block, twin: Block, graph: Graph, values: dict[int, Value]) -> None:
    for output in block._param._outputs:
        parameter = twin._param.addOutput(output._type)
        if output.hasDebugName():
            parameter.setDebugName(output.debugName())
        values[id(output)] = parameter
    for node in block._nodes:
        copied = _copy_node(node, graph, values)
        copied.owner = twin
        twin._nodes.append(copied)
    for value in block._return._inputs:
        twin.registerOutput(values[id(value)])


def copy_graph(graph: Graph) -> Graph:
    twin = Graph()
    _copy_block(graph, twin, twin, {})
    return twin


# ---------------------------------------------------------------------------------------------- inlining


def inlined(graph: Graph) -> Graph:
    """A copy with the bodies of called functions and methods in place of the calls."""
    twin = copy_graph(graph)
    _inline_block(twin, twin, 0)
    eliminate_dead_code(twin)
    return twin


def inline_calls(graph: Graph, chosen: Any = None) -> None:
    """Put the bodies of called functions in place, of all or of those that `chosen` accepts."""
    _inline_block(graph, graph, 0, chosen)
    eliminate_dead_code(graph)


def _callee(node: Node, chosen: Any = None) -> Any:
    if chosen is not None:
        return (node.call, node._inputs[1:]) if node._kind == "prim::CallFunction" and chosen(node.call) else (None, ())
    if node._kind == "prim::CallFunction":
        return node.call, node._inputs[1:]
    if node._kind == "prim::CallMethod" and isinstance(node._inputs[0].type(), T.ClassType):
        kind = node._inputs[0].type()
        assert isinstance(kind, T.ClassType)
        return kind.methods.get(node.attribute("name")), node._inputs
    return None, ()


def _inline_block(block: Block, graph: Graph, depth: int, chosen: Any = None) -> None:
    _inline_copies(list(block._nodes), block, graph, depth, chosen)


def _inline_copies(copies: list[Node], block: Block, graph: Graph, depth: int, chosen: Any = None) -> None:
    for node in copies:
        for inner in node._blocks:
            _inline_block(inner, graph, depth, chosen)
        if _callee(node, chosen)[0] is not None:
            _inline_one(node, block, graph, depth, chosen)


def _note_caller(node: Node, call: Node) -> None:
    """Remember the call that a node came from, for errors."""
    if call.range is not None:
        for one in (node, *(inner for block in node._blocks for inner in block.walk())):
            one.callers = (*call.callers, call.range, *one.callers)


def _inline_one(node: Node, block: Block, graph: Graph, depth: int, chosen: Any = None) -> None:
    if depth > 200:
        raise RuntimeError("[jit] expected calls that end, got a recursion that cannot be inlined")
    function, inputs = _callee(node, chosen)
    function.ensure()
    values = {id(p): v for p, v in zip(function.graph._param._outputs, inputs)}
    place = block._nodes.index(node)
    copies = [_copy_node(inner, graph, values) for inner in function.graph._nodes]
    for copied in copies:
        copied.owner = block
        copied._scope = node._scope
        _note_caller(copied, node)
    block._nodes[place:place] = copies
    for output, result in zip(node._outputs, function.graph._return._inputs):
        output.replaceAllUsesWith(values[id(result)])
    node.destroy()
    _inline_copies(copies, block, graph, depth + 1, chosen)


# ---------------------------------------------------------------------------------------------- branches


def _static(value: Value) -> Any:
    """A constant, or a test on constants, as a Python value; None in a list if it is not known."""
    node = value.node()
    if node._kind == "prim::Constant":
        return [value.toIValue()]
    if node._kind in ("aten::__is__", "aten::__isnot__") and len(node._inputs) == 2:
        parts = [_static(v) for v in node._inputs]
        kinds = [v.type() for v in node._inputs]
        if all(parts):
            same = parts[0][0] is parts[1][0]
        elif T.NONE in kinds and not any(
            T.NONE in T.members_of(k) or isinstance(k, T.AnyType) for k in kinds if k != T.NONE
        ):
            same = False
        else:
            return []
        return [same if node._kind == "aten::__is__" else not same]
    if node._kind == "aten::__not__":
        inner = _static(node._inputs[0])
        return [not inner[0]] if inner else []
    comparison = _FOLDED.get(node._kind.removeprefix("aten::"))
    if comparison is not None and len(node._inputs) == 2:
        parts = [_static(v) for v in node._inputs]
        if all(parts) and all(isinstance(p[0], (int, float, str)) for p in parts):
            return [comparison(parts[0][0], parts[1][0])]
    if node._kind in ("prim::unchecked_cast", "prim::annotate"):
        return _static(node._inputs[0])
    return []


_FOLDED: dict[str, Any] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "gt": operator.gt, "le": operator.le, "ge": operator.ge,
}  # fmt: skip


def fold_branches(graph: Graph) -> None:
    """Replace branches whose condition is known by the block that runs."""
    _fold(graph)
    eliminate_dead_code(graph)


def _fold(block: Block) -> None:
    for node in list(block._nodes):
        if node._kind in ("prim::unchecked_cast",) and T.is_subtype(node._inputs[0].type(), node._outputs[0].type()):
            node._outputs[0].replaceAllUsesWith(node._inputs[0])
        if node._kind == "prim::If":
            known = _static(node._inputs[0])
            if known:
                _splice(block, node, node._blocks[0 if known[0] else 1])
                continue
        for inner in node._blocks:
            _fold(inner)


def _splice(block: Block, node: Node, chosen: Block) -> None:
    """Move the nodes of a branch to the place of the branch."""
    _fold(chosen)
    place = block._nodes.index(node)
    moved = list(chosen._nodes)
    chosen._nodes.clear()
    for inner in moved:
        inner.owner, inner._scope = block, node._scope
    block._nodes[place:place] = moved
    for output, value in zip(list(node._outputs), list(chosen._return._inputs)):
        output.replaceAllUsesWith(value)
    node.destroy()
