"""Small rewrites of graphs: arithmetic without effect, lists and dicts that are taken apart again, common subexpressions."""

from __future__ import annotations

import re
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._ir import Block, Graph, Node, Value
from flambeau.jit._passes import _constant_key, eliminate_dead_code, fold_branches, has_effects

_WRITERS = ("aten::append", "aten::extend", "aten::_set_item", "aten::insert", "aten::pop", "aten::remove", "aten::clear", "aten::Delete", "aten::sort", "aten::reverse", "aten::setdefault", "aten::update", "aten::popitem")  # fmt: skip


def peephole(graph: Graph, disable_shape_peepholes: bool = False) -> bool:
    """Apply the rewrites until none applies; whether anything has changed."""
    before = str(graph)
    for _ in range(8):
        text = str(graph)
        _Rewriter(graph, not disable_shape_peepholes).run(graph)
        fold_branches(graph)
        eliminate_dead_code(graph)
        if str(graph) == text:
            break
    return str(graph) != before


def _number(value: Value) -> Any:
    result = value.toIValue()
    return result if isinstance(result, (int, float)) and not isinstance(result, bool) else None


def _written(value: Value) -> bool:
    """Whether something may write to a list, dict or tensor."""
    for use in value._uses:
        if (
            use.user._kind in _WRITERS
            or (use.user._kind.endswith("_") and not use.user._kind.endswith("__"))
            or getattr(use.user.call, "is_mutable", False)
        ):
            return True
    return False


def _escapes(value: Value) -> bool:
    """Whether a container reaches more than the nodes that read it."""
    return any(
        use.user._kind not in ("aten::__getitem__", "aten::len", "aten::slice", "prim::ListUnpack")
        for use in value._uses
    )


CONVOLUTION = re.compile(r"aten::conv\dd")


class _Rewriter:
    def __init__(self, graph: Graph, shapes: bool) -> None:
        self.graph, self.shapes = graph, shapes

    def run(self, block: Block) -> None:
        for node in list(block._nodes):
            if node.owner is None:
                continue
            for inner in node._blocks:
                self.run(inner)
            rule = getattr(self, f"rule_{node._kind.rpartition('::')[2]}", None)
            if rule is None or not node._kind.startswith(("aten::", "prim::")):
                continue
            result = rule(node)
            if result is not None and result is not node._outputs[0]:
                node._outputs[0].replaceAllUsesWith(result)

    def constant(self, node: Node, value: Any, kind: T.JitType | None = None) -> Value:
        self.graph.insert_block, self.graph.insert_before = node.owner, node  # type: ignore[assignment]
        inserted = self.graph.insertConstant(value, kind)
        self.graph.insert_block, self.graph.insert_before = self.graph, None
        return inserted

    # ------------------------------------------------------------------ arithmetic

    def _without(self, node: Node, neutral: int, commutes: bool) -> Value | None:
        """The other operand of an operation with its neutral element."""
        left, right = node._inputs[:2]
        if len(node._inputs) > 2 and node._inputs[2].toIValue() != 1:
            return None
        number = _number(right)
        tensor = isinstance(left.type(), T.TensorType)
        if number == neutral and (type(number) is int or (tensor and self._is_floating(left))):
            if tensor and (_written(left) or _written(node._outputs[0]) or not self._unshared(node, left)):
                return None
            return left if left.type() == node._outputs[0].type() or tensor else None
        if commutes and _number(left) == neutral and right.type() == T.INT == node._outputs[0].type():
            return right
        return None

    def rule_add(self, node: Node) -> Value | None:
        return self._without(node, 0, True)

    def rule_sub(self, node: Node) -> Value | None:
        return self._without(node, 0, False)

    def rule_mul(self, node: Node) -> Value | None:
        return self._without(node, 1, True)

    def rule_div(self, node: Node) -> Value | None:
        return self._without(node, 1, False)

    rule_floordiv = rule_div

    def _is_floating(self, value: Value) -> bool:
        kind = value.type()
        dtype = kind.dtype() if isinstance(kind, T.TensorType) else None
        return self.shapes and dtype is not None and dtype.is_floating_point

    def _unshared(self, node: Node, operand: Value) -> bool:
        """Whether result and operand do not both leave the graph, where they are told apart."""
        if not isinstance(operand.type(), T.TensorType):
            return True
        result = node._outputs[0]
        leaves = [
            u
            for u in result._uses
            if u.user._kind in ("prim::Return", "prim::TupleConstruct", "prim::ListConstruct", "prim::SetAttr")
        ]
        return not leaves

    def _same(self, node: Node) -> Value | None:
        a, b = node._inputs[:2]
        if a is b and not isinstance(a.type(), (T.TensorType, T.FloatType, T.ClassType)):
            return self.constant(node, node._kind == "aten::eq")
        return None

    rule_eq = rule_ne = _same

    def rule_Int(self, node: Node) -> Value | None:
        return node._inputs[0] if node._inputs[0].type() == T.INT else None

    def rule_Float(self, node: Node) -> Value | None:
        return node._inputs[0] if node._inputs[0].type() == T.FLOAT else None

    def rule_neg(self, node: Node) -> Value | None:
        inner = node._inputs[0].node()
        return (
            inner._inputs[0]
            if inner._kind == "aten::neg" and not isinstance(node._inputs[0].type(), T.TensorType)
            else None
        )

    # ------------------------------------------------------------------ tensors whose type is known

    def rule_type_as(self, node: Node) -> Value | None:
        kinds = [v.type() for v in node._inputs]
        if not self.shapes or any(not isinstance(k, T.TensorType) or k.dtype() is None for k in kinds):
            return None
        same = kinds[0].dtype() == kinds[1].dtype() and kinds[0].device() == kinds[1].device()
        return node._inputs[0] if same else None

    def rule_dim(self, node: Node) -> Value | None:
        kind, source = node._inputs[0].type(), node._inputs[0].node()
        if self.shapes and isinstance(kind, T.TensorType) and kind.sizes() is not None:
            return self.constant(node, len(kind.sizes()))
        if CONVOLUTION.fullmatch(source._kind) and not _written(node._inputs[0]):
            return self.constant(node, int(source._kind[-2]) + 2)
        return None

    def rule_dtype(self, node: Node) -> Value | None:
        from flambeau.jit._values import enumerated

        kind = node._inputs[0].type()
        known = self.shapes and isinstance(kind, T.TensorType) and kind.dtype() is not None
        return self.constant(node, enumerated(kind.dtype()), T.INT) if known else None

    def rule_device(self, node: Node) -> Value | None:
        if not node._inputs or not isinstance(node._inputs[0].type(), T.TensorType):
            return None
        device = node._inputs[0].type().device()
        return self.constant(node, device, T.DEVICE) if self.shapes and device is not None else None

    def rule_is_cuda(self, node: Node) -> Value | None:
        device = node._inputs[0].type().device() if isinstance(node._inputs[0].type(), T.TensorType) else None
        return self.constant(node, device.type == "cuda") if self.shapes and device is not None else None

    def rule_size(self, node: Node) -> Value | None:
        kind = node._inputs[0].type()
        sizes = kind.sizes() if self.shapes and isinstance(kind, T.TensorType) else None
        if sizes is None:
            return None
        if len(node._inputs) == 2:
            index = _number(node._inputs[1])
            known = index is not None and -len(sizes) <= index < len(sizes) and sizes[index] is not None
            return self.constant(node, sizes[index]) if known else None
        if all(s is not None for s in sizes) and not _written(node._outputs[0]):
            self.graph.insert_block, self.graph.insert_before = node.owner, node  # type: ignore[assignment]
            parts = [self.graph.insertConstant(s) for s in sizes]
            inserted = self.graph.insert("prim::ListConstruct", parts, [T.ListType(T.INT)])._outputs[0]
            self.graph.insert_block, self.graph.insert_before = self.graph, None
            return inserted
        return None

    # ------------------------------------------------------------------ refinements and branches

    def rule_unchecked_cast(self, node: Node) -> Value | None:
        source = node._inputs[0]
        return source if T.is_subtype(source.type(), node._outputs[0].type()) else None

    rule__unwrap_optional = rule_unchecked_unwrap_optional = rule_unchecked_cast

    def _identity(self, node: Node) -> Value | None:
        a, b = (v.type() for v in node._inputs[:2])
        for one, other in ((a, b), (b, a)):
            if one == T.NONE and T.NONE not in T.members_of(other) and not isinstance(other, (T.AnyType, T.VarType)):
                return self.constant(node, node._kind == "aten::__isnot__")
        return self.constant(node, node._kind == "aten::__is__") if a == b == T.NONE else None

    rule___is__ = rule___isnot__ = _identity

    def rule_If(self, node: Node) -> Value | None:
        """`c and True`, `c or False`: the condition; optional results that are never None lose the option."""
        for index, output in enumerate(list(node._outputs)):
            values = [block._return._inputs[index] for block in node._blocks]
            constants = [v.toIValue() if v.node()._kind == "prim::Constant" else None for v in values]
            if constants[0] is True and constants[1] is False:
                output.replaceAllUsesWith(node._inputs[0])
            elif isinstance(output.type(), T.OptionalType):
                joined = T.unify(values[0].type(), values[1].type())
                if joined is not None and T.is_subtype(joined, output.type()):
                    output.setType(joined)
        return None

    # ------------------------------------------------------------------ containers

    def _elements(self, value: Value) -> list[Value] | None:
        node = value.node()
        if node._kind != "prim::ListConstruct" or _written(value) or _escapes(value):
            return None
        return node._inputs

    def _entries(self, value: Value) -> dict[Any, Value] | None:
        node = value.node()
        if node._kind != "prim::DictConstruct" or _written(value) or _escapes(value):
            return None
        keys = [k.toIValue() for k in node._inputs[::2]]
        if any(not isinstance(k, (int, float, str)) for k in keys) or len(set(keys)) != len(keys):
            return None
        return dict(zip(keys, node._inputs[1::2]))

    def rule_len(self, node: Node) -> Value | None:
        source = node._inputs[0]
        result = self._elements(source) if isinstance(source.type(), T.ListType) else self._entries(source)
        if result is not None:
            return self.constant(node, len(result))
        kind = source.node()._inputs[0].type() if source.node()._kind == "aten::size" else None
        if isinstance(kind, T.TensorType) and self.shapes and kind.sizes() is not None and not _written(source):
            return self.constant(node, len(kind.sizes()))
        return None

    def rule___getitem__(self, node: Node) -> Value | None:
        source, key = node._inputs[0], node._inputs[1].toIValue()
        if key is None:
            return None
        if isinstance(source.type(), T.DictType):
            return (self._entries(source) or {}).get(key)
        items = self._elements(source)
        if items is not None and -len(items) <= key < len(items):
            return items[key]
        return self._size_element(node, source, key)

    def _size_element(self, node: Node, source: Value, index: int) -> Value | None:
        kind = source.node()._inputs[0].type() if source.node()._kind == "aten::size" else None
        sizes = kind.sizes() if isinstance(kind, T.TensorType) and self.shapes and not _written(source) else None
        if sizes is None or not -len(sizes) <= index < len(sizes) or sizes[index] is None:
            return None
        return self.constant(node, sizes[index])

    def rule_slice(self, node: Node) -> Value | None:
        source = node._inputs[0]
        items = self._elements(source) if isinstance(source.type(), T.ListType) else None
        bounds = node._inputs[1:4]
        if items is None or any(b.node()._kind != "prim::Constant" for b in bounds) or bounds[2].toIValue() == 0:
            return None
        chosen = items[slice(*(b.toIValue() for b in bounds))]
        self.graph.insert_block, self.graph.insert_before = node.owner, node  # type: ignore[assignment]
        inserted = self.graph.insert("prim::ListConstruct", chosen, [source.type()])._outputs[0]
        self.graph.insert_block, self.graph.insert_before = self.graph, None
        return inserted


# ---------------------------------------------------------------------------------------------- common subexpressions


def eliminate_common(graph: Graph) -> bool:
    """Nodes that compute what an earlier one has computed give way to it; nothing that is written to is shared."""
    return _common(graph, {})


def _key(node: Node) -> Any:
    if node._kind == "prim::Constant":
        key = _constant_key(node)
        return None if key is None else ("constant", key)
    pure = node._outputs and not node._blocks and not has_effects(node) and not node.isNondeterministic()
    if not pure or node._kind in (
        "prim::Uninitialized",
        "prim::CreateObject",
        "prim::ListConstruct",
        "prim::DictConstruct",
    ):
        return None
    if any(_written(v) for v in (*node._inputs, *node._outputs)):
        return None
    attributes = tuple(sorted((k, str(v)) for k, v in node.attributes.items()))
    return (node._kind, tuple(id(v) for v in node._inputs), attributes, tuple(str(o.type()) for o in node._outputs))


def _common(block: Block, above: dict[Any, Node]) -> bool:
    known = dict(above)
    changed = False
    for node in list(block._nodes):
        for inner in node._blocks:
            changed |= _common(inner, known)
        key = _key(node)
        if key is None:
            continue
        if key in known:
            for output, other in zip(list(node._outputs), known[key]._outputs):
                output.replaceAllUsesWith(other)
            node.destroy()
            changed = True
        else:
            known[key] = node
    return changed


def lower_tuples(graph: Graph) -> None:
    """Arguments and results that are tuples become their elements."""
    for value in list(graph._param._outputs):
        if isinstance(value.type(), T.TupleType):
            parts = [graph.addInput().setType(kind) for kind in value.type().contained()]
            node = graph.create("prim::TupleConstruct", parts, 1)
            node._outputs[0].setType(value.type())
            graph.prependNode(node)
            value.replaceAllUsesWith(node._outputs[0])
            graph._param.eraseOutput(value.offset)
    results = []
    for value in graph._return._inputs:
        results += list(value.node()._inputs) if value.node()._kind == "prim::TupleConstruct" else [value]
    graph._return.removeAllInputs()
    for value in results:
        graph.registerOutput(value)
    from flambeau.jit._passes import clean

    clean(graph)
