"""Expressions: literals, operators, attributes, subscripts and comprehensions."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.control import Undefined
from flambeau.jit._frontend.sugar import Builtin, MethodRef, Several, Sugared, python_value
from flambeau.jit._ir import Value

BINARY = {
    ast.Add: ("add", "__add__"), ast.Sub: ("sub", "__sub__"), ast.Mult: ("mul", "__mul__"), ast.Div: ("div", "__truediv__"),
    ast.Mod: ("remainder", "__mod__"), ast.Pow: ("pow", "__pow__"), ast.FloorDiv: ("floordiv", "__floordiv__"),
    ast.BitAnd: ("__and__", "__and__"), ast.BitOr: ("__or__", "__or__"), ast.BitXor: ("__xor__", "__xor__"),
    ast.LShift: ("__lshift__", "__lshift__"), ast.RShift: ("__rshift__", "__rshift__"), ast.MatMult: ("matmul", "__matmul__"),
}  # fmt: skip
COMPARE = {
    ast.Eq: ("eq", "__eq__"), ast.NotEq: ("ne", "__ne__"), ast.Lt: ("lt", "__lt__"), ast.LtE: ("le", "__le__"),
    ast.Gt: ("gt", "__gt__"), ast.GtE: ("ge", "__ge__"),
}  # fmt: skip
# Attributes of tensors that operators compute.
TENSOR_ATTRIBUTES = {
    "dtype": "prim::dtype", "device": "prim::device", "grad": "prim::grad", "data": "prim::data", "shape": "aten::size",
    "is_cuda": "prim::is_cuda", "is_cpu": "prim::is_cpu", "is_xla": "prim::is_xla", "is_xpu": "prim::is_xpu",
    "is_sparse": "prim::is_sparse", "is_sparse_csr": "prim::is_sparse_csr", "is_mkldnn": "prim::is_mkldnn",
    "is_mps": "prim::is_mps", "is_mtia": "prim::is_mtia", "is_quantized": "prim::is_quantized", "is_meta": "prim::is_meta",
    "is_leaf": "aten::is_leaf", "requires_grad": "prim::requires_grad", "layout": "prim::layout", "T": "aten::numpy_T",
    "H": "aten::matrix_H", "mT": "aten::mT", "mH": "aten::mH", "output_nr": "aten::output_nr", "itemsize": "prim::itemsize",
    "nbytes": "prim::nbytes", "ndim": "aten::dim", "name": "prim::name", "real": "aten::real", "imag": "aten::imag",
    "retains_grad": "aten::retains_grad", "is_ipu": "prim::is_ipu", "is_nested": "prim::is_nested",
    "is_vulkan": "prim::is_vulkan", "is_maia": "prim::is_maia",
}  # fmt: skip


class Expressions:
    """The part of the emitter that handles expressions."""

    graph: Any
    env: dict[str, Any]

    def expression(self, node: ast.expr, hint: T.JitType | None = None) -> Any:
        if isinstance(node, Value):  # a bound of a slice that has been computed
            return node
        handler = getattr(self, f"expr_{type(node).__name__}", None)
        if handler is None:
            raise self.unsupported(node, f"{type(node).__name__} expressions aren't supported")
        self.graph.current_range = self.source.range_of(node)
        if hint is not None and isinstance(
            node, (ast.List, ast.Dict, ast.ListComp, ast.DictComp, ast.Tuple, ast.IfExp)
        ):
            return handler(node, hint)
        return handler(node)

    def value_of(self, node: ast.expr) -> Value:
        return self.as_value(self.expression(node), node)

    def as_value(self, thing: Any, node: Any) -> Value:
        if isinstance(thing, Value):
            return thing
        if isinstance(thing, Sugared):
            return thing.value(self, node)  # type: ignore[arg-type]
        if isinstance(thing, Undefined):
            raise self.error(node, thing.reason)
        return self.as_value(python_value(self, thing, node, constant=True), node)  # type: ignore[arg-type]

    # ------------------------------------------------------------------ names and literals

    def expr_Name(self, node: ast.Name) -> Any:
        if node.id in self.env:
            value = self.env[node.id]
            if isinstance(value, Undefined):
                raise self.error(node, f"{value.reason}\nand was used here")
            return value
        return self.resolve(node.id, node)

    def expr_Constant(self, node: ast.Constant) -> Any:
        if node.value is Ellipsis:
            raise self.error(node, "... is only supported in subscripts of tensors")
        if isinstance(node.value, bytes):
            raise self.unsupported(node, "bytes literals aren't supported")
        if isinstance(node.value, int) and not isinstance(node.value, bool) and not -(2**63) <= node.value < 2**63:
            raise self.error(node, f"Integer literal {node.value} does not fit into 64 bits")
        return self.graph.insertConstant(node.value)

    def expr_JoinedStr(self, node: ast.JoinedStr) -> Value:
        text, values = "", []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                if part.conversion != -1:
                    raise self.not_supported(part, "Don't support conversion in JoinedStr")
                if part.format_spec is not None:
                    raise self.not_supported(part, "Don't support formatting in JoinedStr")
                text += "{}"
                values.append(self.value_of(part.value))
        return self.operator("aten::format", [self.graph.insertConstant(text), *values], node)

    def expr_Tuple(self, node: ast.Tuple, hint: T.JitType | None = None) -> Any:
        elements: list[Any] = []
        kinds = (
            hint.items
            if isinstance(hint, T.TupleType) and len(hint.items) == len(node.elts)
            else [None] * len(node.elts)
        )
        for part, kind in zip(node.elts, kinds):
            if isinstance(part, ast.Starred):
                elements += self.elements_of(self.expression(part.value), part)
            else:
                elements.append(self.expression(part, kind))
        if all(isinstance(e, Value) for e in elements):
            return self.graph.insert(
                "prim::TupleConstruct", elements, [T.TupleType(e.type() for e in elements)]
            )._outputs[0]
        return Several(elements)

    def expr_List(self, node: ast.List, hint: T.JitType | None = None) -> Any:
        element = _element_hint(hint)
        values = [self.as_value(self.expression(part, element), part) for part in node.elts]
        return self.make_list(values, element, node)

    def make_list(self, values: list[Value], element: T.JitType | None, node: Any) -> Value:
        kind = element
        if kind is None or not all(T.is_subtype(v.type(), kind) for v in values):
            if not values:
                kind = T.TENSOR
            else:
                joined: T.JitType | None = values[0].type()
                for value in values[1:]:
                    joined = T.unify(joined, value.type()) if joined is not None else None
                kind = joined if joined is not None else self._union_element(values, node)
        self.graph.current_range = self.source.range_of(node) if node is not None else None
        return self.graph.insert(
            "prim::ListConstruct", values, [T.ListType(T.TENSOR if isinstance(kind, T.TensorType) else kind)]
        )._outputs[0]

    def _union_element(self, values: list[Value], node: Any) -> T.JitType:
        """The type of a list whose elements have no type in common."""
        if not self.declaration.in_archive:
            where = self.source.range_of(node).highlight() if node is not None else ""
            warnings.warn(
                "List consists of heterogeneous types, which means that it has been typed as containing "
                f"{T.union_of([v.type() for v in values]).annotation_str}. To use any of the values in this List, it will be "
                f"necessary to add an `assert isinstance` statement before first use to trigger type refinement.\n{where}",
                stacklevel=2,
            )
        return T.union_of([v.type() for v in values])

    def expr_Dict(self, node: ast.Dict, hint: T.JitType | None = None) -> Value:
        wanted = hint.element if isinstance(hint, T.OptionalType) else hint
        key_hint = wanted.key if isinstance(wanted, T.DictType) else None
        value_hint = wanted.value if isinstance(wanted, T.DictType) else None
        if any(key is None for key in node.keys):
            raise self.not_supported(node, "Expanding dicts with ** is not supported")
        keys = [self.as_value(self.expression(k, key_hint), k) for k in node.keys]  # type: ignore[arg-type]
        values = [self.as_value(self.expression(v, value_hint), v) for v in node.values]
        return self.make_dict(keys, values, key_hint, value_hint, node)

    def make_dict(self, keys: list[Value], values: list[Value], key: Any, value: Any, node: Any) -> Value:
        key_kind = key if key is not None else (keys[0].type() if keys else T.STRING)
        if any(not T.is_subtype(k.type(), key_kind) for k in keys):
            raise self.error(node, f"Dict keys must contain only a single type, expected: {key_kind.annotation_str}")
        kind: T.JitType | None = value
        if kind is None:
            kind = values[0].type() if values else T.TENSOR
            for one in values[1:]:
                kind = T.unify(kind, one.type(), or_union=True) if kind is not None else None
        elif any(not T.is_subtype(v.type(), kind) for v in values):
            raise self.error(
                node,
                f"Dict type annotation `Dict[{key_kind.annotation_str}, {kind.annotation_str}]` did not match the types of the actual dict items",
            )
        pairs = [x for pair in zip(keys, values) for x in pair]
        assert kind is not None
        return self.graph.insert(
            "prim::DictConstruct", pairs, [T.DictType(key_kind, T.TENSOR if isinstance(kind, T.TensorType) else kind)]
        )._outputs[0]

    # ------------------------------------------------------------------ operators

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return self.as_condition_value(self.condition(node), node)
        if (
            isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
            and isinstance(node.operand.value, (int, float, complex))
        ):
            return self.graph.insertConstant(-node.operand.value)
        value = self.value_of(node.operand)
        if isinstance(node.op, ast.UAdd):
            return value
        names = {ast.USub: ("neg", "__neg__"), ast.Invert: ("bitwise_not", "__invert__")}
        op, method = names[type(node.op)]
        if isinstance(value.type(), T.ClassType):
            return self.call_method(value, [method], [], {}, node)
        return self.operator(f"aten::{op}", [value], node)

    def expr_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.expression(node.left), self.expression(node.right)
        if isinstance(node.op, ast.Mult) and isinstance(left, Value) and isinstance(left.type(), T.TupleType):
            count = self.static_int(right)
            if count is not None:
                return Several(self.elements_of(left, node) * count).value(self, node)  # type: ignore[arg-type]
        return self.binary(type(node.op), self.as_value(left, node), self.as_value(right, node), node)

    def binary(self, op: type, left: Value, right: Value, node: Any) -> Any:
        name, method = BINARY[op]  # type: ignore[index]
        if isinstance(left.type(), T.ClassType):
            return self.call_method(left, [method], [right], {}, node)
        if op is ast.Mod and left.type() == T.STRING:
            return self.operator("aten::percentFormat", [left, right], node)
        if op is ast.Add and isinstance(left.type(), T.TupleType) and isinstance(right.type(), T.TupleType):
            return Several([*self.elements_of(left, node), *self.elements_of(right, node)]).value(self, node)  # type: ignore[arg-type]
        if op is ast.FloorDiv and isinstance(left.type(), T.TensorType):
            return self.operator("aten::floor_divide", [left, right], node)
        return self.operator(f"aten::{name}", [left, right], node)

    def expr_BoolOp(self, node: ast.BoolOp) -> Value:
        return self.as_condition_value(self.condition(node), node)

    def expr_IfExp(self, node: ast.IfExp, hint: T.JitType | None = None) -> Any:
        condition = self.condition(node.test)
        return self.choose(
            condition, lambda: self.expression(node.body, hint), lambda: self.expression(node.orelse, hint), node
        )

    def expr_Compare(self, node: ast.Compare) -> Value:
        if len(node.ops) > 1:
            return self._chain(node)
        op = node.ops[0]
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self.as_condition_value(self.condition(node), node)
        left, right = self.expression(node.left), self.expression(node.comparators[0])
        return self.compare(op, left, right, node)

    def compare(self, op: ast.cmpop, left: Any, right: Any, node: Any) -> Value:
        a = self.as_value(left, node)
        contains = None
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Sugared):
            contains = right.contains(self, a, node)  # type: ignore[arg-type]
        b = a if contains is not None else self.as_value(right, node)
        if isinstance(op, (ast.In, ast.NotIn)):
            if contains is not None:
                pass
            elif isinstance(b.type(), T.ClassType):
                contains = self.call_method(b, ["__contains__"], [a], {}, node)
            elif b.type() == T.STRING:
                stop = self.operator("aten::len", [b], node)
                place = self.operator("aten::find", [b, a, self.graph.insertConstant(0), stop], node)
                contains = self.operator("aten::ne", [place, self.graph.insertConstant(-1)], node)
            else:
                if isinstance(b.type(), T.TupleType):
                    b = self.implicitly(b, T.ListType(a.type()))
                contains = self.operator("aten::__contains__", [b, a], node)
            return self.operator("aten::__not__", [contains], node) if isinstance(op, ast.NotIn) else contains
        name, method = COMPARE[type(op)]
        if isinstance(a.type(), T.ClassType):
            return self.call_method(a, [method], [b], {}, node)
        if isinstance(a.type(), T.TupleType) and isinstance(b.type(), T.TupleType) and name in ("eq", "ne"):
            return self._compare_tuples(a, b, name, node)
        return self.operator(f"aten::{name}", [a, b], node)

    def _compare_tuples(self, a: Value, b: Value, name: str, node: Any) -> Value:
        left, right = self.elements_of(a, node), self.elements_of(b, node)
        if len(left) != len(right):
            return self.graph.insertConstant(name == "ne")
        result: Value | None = None
        for x, y in zip(left, right):
            same = self.to_bool(self.compare(ast.Eq(), x, y, node), node)
            result = same if result is None else self.operator("aten::__and__", [result, same], node)
        if result is None:
            return self.graph.insertConstant(name == "eq")
        return result if name == "eq" else self.operator("aten::__not__", [result], node)

    def _chain(self, node: ast.Compare) -> Value:
        """`a < b < c` as comparisons that all hold."""
        parts: list[ast.expr] = []
        left = node.left
        for op, right in zip(node.ops, node.comparators):
            parts.append(ast.copy_location(ast.Compare(left, [op], [right]), node))
            left = right
        return self.as_condition_value(self.condition(ast.copy_location(ast.BoolOp(ast.And(), parts), node)), node)

    # ------------------------------------------------------------------ attributes

    def expr_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.expression(node.value)
        self.graph.current_range = self.source.range_of(node)
        return self.attribute(owner, node.attr, node)

    def attribute(self, owner: Any, name: str, node: Any) -> Any:
        if isinstance(owner, Sugared):
            return owner.attr(self, name, node)  # type: ignore[arg-type]
        kind = owner.type()
        if isinstance(kind, T.TensorType):
            if name in TENSOR_ATTRIBUTES:
                return self.operator(TENSOR_ATTRIBUTES[name], [owner], node)
            return self._bound_operator(owner, name, node)
        if isinstance(kind, T.AwaitType):
            return self.attribute(self.operator("prim::awaitable_wait", [owner], node), name, node)
        if isinstance(kind, T.ClassType):
            return self.object_attribute(owner, kind, name, node)
        if isinstance(kind, T.NativeClassType):
            return Builtin(kind.method(name), owner)
        if isinstance(kind, T.InterfaceType):
            if name not in kind.methods:
                raise self.error(
                    node, f"Tried to access nonexistent attribute or method '{name}' of type '{kind.name}'"
                )
            return MethodRef(owner, [name])
        if isinstance(kind, T.TupleType) and name in kind.fields:
            return self.tuple_element(owner, kind.fields.index(name))
        if isinstance(kind, T.EnumType) and name in ("value", "name"):
            if name == "value":
                return self.graph.insert("prim::EnumValue", [owner], [kind.value])._outputs[0]
            return self.graph.insert("prim::EnumName", [owner], [T.STRING])._outputs[0]
        if kind == T.DEVICE and name in ("type", "index"):
            return self.operator(f"prim::{name}", [owner], node)
        if isinstance(kind, (T.FloatType, T.ComplexType)) and name in ("real", "imag"):
            return self.operator(f"aten::{name}", [owner], node)
        if isinstance(kind, (T.UnionType, T.OptionalType)):
            raise self.error(node, f"'{kind.annotation_str}' object has no attribute or method '{name}'")
        return self._bound_operator(owner, name, node)

    def _bound_operator(self, owner: Value, name: str, node: Any) -> Any:
        from flambeau.jit._frontend.calls import METHODS
        from flambeau.jit._schemas import signatures

        if (type(owner.type()), name) in METHODS:
            return METHODS[type(owner.type()), name](owner)
        for space in ("aten", "prim"):
            overloads = signatures(f"{space}::{name}")
            if any(s.arguments and T.bind(s.arguments[0].type, owner.type(), {}) for s in overloads) or any(
                s.variadic for s in overloads
            ):
                return Builtin(f"{space}::{name}", owner)
        raise self.error(node, f"'{owner.type().annotation_str}' object has no attribute or method '{name}'")

    def object_attribute(self, owner: Value, kind: T.ClassType, name: str, node: Any) -> Any:
        if name in kind.attributes:
            place = self.graph.insert("prim::GetAttr", [owner], [kind.attributes[name]])
            place.attributes["name"] = ("s", name)
            if name.isidentifier():
                place._outputs[0].setDebugName(name)
            return place._outputs[0]
        if name in kind.properties:
            return self.call_compiled_method(owner, kind.properties[name][0], [], {}, node)
        if name in kind.methods:
            return MethodRef(owner, [name])
        if name in kind.constants:
            return python_value(self, kind.constants[name], node, constant=True)  # type: ignore[arg-type]
        if name in kind.static_methods:
            from flambeau.jit._frontend.sugar import FunctionRef

            return FunctionRef([kind.static_methods[name]])
        hint = f" {kind.unsupported[name]}" if name in kind.unsupported else ""
        raise self.error(
            node,
            f"'{kind.name}' object has no attribute or method '{name}'. Tried to access nonexistent attribute or method '{name}' of type '{kind.name}'. Did you forget to initialize an attribute in __init__()?{hint}",
        )

    # ------------------------------------------------------------------ comprehensions

    def expr_ListComp(self, node: ast.ListComp, hint: T.JitType | None = None) -> Any:
        generator = self._generator(node)
        subject = self.iterable(self.expression(generator.iter), generator.iter)
        unrolled = subject.items(self, generator.iter)
        element_hint = _element_hint(hint)
        if unrolled is not None:
            values = []
            for item in unrolled:
                saved = dict(self.env)
                self.assign(generator.target, item, node)
                values.append(self.expression(node.elt))
                self.restore(saved)
            if all(isinstance(v, Value) for v in values):
                return self.make_list(values, element_hint, node)
            return Several(values, is_list=True)

        def element(item: Any) -> Any:
            self.assign(generator.target, item, node)
            return self.expression(node.elt, element_hint)

        return self.comprehension_over(subject, element, node, element_hint)

    expr_GeneratorExp = expr_ListComp

    def _generator(self, node: Any) -> ast.comprehension:
        if len(node.generators) != 1:
            raise self.not_supported(node, "Only a single generator is currently supported")
        if node.generators[0].ifs:
            raise self.not_supported(node, "Comprehension ifs are not supported yet")
        return node.generators[0]

    def comprehension_over(
        self, subject: Any, element: Callable[[Any], Any], node: Any, hint: T.JitType | None = None
    ) -> Value:
        """A list made by a loop."""
        elements = self.graph.insert("prim::ListConstruct", [], [T.ListType(hint or T.TENSOR)])._outputs[0]

        def body(index: Value) -> None:
            value = self.as_value(element(subject.element(self, index, node)), node)
            if hint is None:
                elements.setType(T.ListType(T.TENSOR if isinstance(value.type(), T.TensorType) else value.type()))
            self.operator("aten::append", [elements, value], node)

        self._simple_loop(subject, body, node)
        return elements

    def _simple_loop(self, subject: Any, body: Callable[[Value], None], node: Any) -> None:
        place = self.graph.insert("prim::Loop", [subject.length(self, node), self.graph.insertConstant(True)])
        block = place.addBlock()
        index = block._param.addOutput(T.INT)

        def run() -> None:
            body(index)
            block.registerOutput(self.graph.insertConstant(True))

        self.in_block(block, run)

    def expr_DictComp(self, node: ast.DictComp, hint: T.JitType | None = None) -> Value:
        generator = self._generator(node)
        subject = self.iterable(self.expression(generator.iter), generator.iter)
        wanted = hint if isinstance(hint, T.DictType) else None
        unrolled = subject.items(self, generator.iter)
        items = self.graph.insert("prim::DictConstruct", [], [wanted or T.DictType(T.STRING, T.TENSOR)])._outputs[0]

        def body(item: Any) -> None:
            saved = dict(self.env)
            self.assign(generator.target, item, node)
            key, value = self.value_of(node.key), self.value_of(node.value)
            if wanted is None:
                items.setType(T.DictType(key.type(), value.type()))
            self.operator("aten::_set_item", [items, key, value], node)
            self.restore(saved)

        if unrolled is not None:
            for item in unrolled:
                body(item)
        else:
            self._simple_loop(subject, lambda index: body(subject.element(self, index, node)), node)
        return items

    # ------------------------------------------------------------------ elements of tuples

    def tuple_element(self, owner: Value, index: int) -> Value:
        kind = owner.type()
        assert isinstance(kind, T.TupleType)
        if owner.node()._kind == "prim::TupleConstruct":
            return owner.node()._inputs[index]
        place = self.graph.insertConstant(index)
        return self.graph.insert("prim::TupleIndex", [owner, place], [kind.items[index]])._outputs[0]

    def unpack(self, value: Value) -> list[Value]:
        kind = value.type()
        assert isinstance(kind, T.TupleType)
        if value.node()._kind == "prim::TupleConstruct":
            return list(value.node()._inputs)
        return list(self.graph.insert("prim::TupleUnpack", [value], kind.items)._outputs)

    def unpack_list(self, value: Value, count: int, node: Any) -> list[Value]:
        element = value.type().element if isinstance(value.type(), T.ListType) else T.TENSOR
        if isinstance(value.type(), T.TensorType):
            value = self.operator("aten::unbind", [value], node)
        return list(self.graph.insert("prim::ListUnpack", [value], [element] * count)._outputs)

    def elements_of(self, value: Any, node: Any) -> list[Any]:
        """The elements of a tuple, or of anything whose length is known."""
        if isinstance(value, Value) and isinstance(value.type(), T.TupleType):
            return self.unpack(value)
        elements = self.iterable(value, node).items(self, node)
        if elements is None:
            kind = value.type().annotation_str if isinstance(value, Value) else value.what
            raise self.error(
                node,
                f"cannot statically infer the expected size of a list in this context: {kind} cannot be used as a tuple",
            )
        return elements

    def static_int(self, thing: Any) -> int | None:
        """The integer that something is known to be while compiling."""
        if isinstance(thing, Value) and thing.node()._kind == "prim::Constant" and thing.type() == T.INT:
            return thing.toIValue()
        return None


def _element_hint(hint: T.JitType | None) -> T.JitType | None:
    for part in T.members_of(hint) if hint is not None else ():
        if isinstance(part, T.ListType):
            return part.element
    return None
