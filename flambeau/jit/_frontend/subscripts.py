"""Subscripts: elements and slices of lists, strings, tuples and dicts, and the indexing of tensors."""

from __future__ import annotations

import ast
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.sugar import EllipsisRef, Several, SliceRef, Sugared
from flambeau.jit._ir import Value


class Subscripts:
    """The part of the emitter that handles `x[...]`."""

    graph: Any
    env: dict[str, Any]

    def expr_Subscript(self, node: ast.Subscript) -> Any:
        owner = self.expression(node.value)
        return self.subscript(owner, node.slice, node)

    def _as_slice(self, index: ast.expr) -> ast.expr:
        """`slice(a, b)`, and a variable that holds one, as the syntax `a:b` means."""
        is_call = isinstance(index, ast.Call) and isinstance(index.func, ast.Name) and index.func.id == "slice"
        is_variable = isinstance(index, ast.Name) and isinstance(self.env.get(index.id), SliceRef)
        if not is_call and not is_variable:
            return index
        reference = self.expression(index)
        return reference.syntax() if isinstance(reference, SliceRef) else index

    def subscript(self, owner: Any, index: ast.expr, node: Any) -> Any:
        index = self._as_slice(index)
        if isinstance(owner, Sugared):
            if isinstance(index, ast.Slice):
                return self._slice_several(owner, index, node)
            return owner.getitem(self, self.expression(index), node)  # type: ignore[arg-type]
        kind = owner.type()
        if isinstance(kind, T.TensorType):
            return self.index_tensor(owner, index, node)
        if isinstance(kind, T.TupleType):
            return self._index_tuple(owner, kind, index, node)
        if isinstance(index, ast.Slice):
            return self._slice_list(owner, index, node)
        if isinstance(kind, (T.OptionalType, T.UnionType)):
            raise self.error(node, f"'{kind.annotation_str}' object is not subscriptable")
        return self.index_value(owner, self.expression(index), node)

    def index_value(self, owner: Value, index: Any, node: Any) -> Value:
        kind = owner.type()
        value = self.as_value(index, node)
        if isinstance(kind, T.ClassType) and "__getitem__" not in kind.methods and self.container_hint is not None:
            item = self.operator("prim::ModuleContainerIndex", [owner, value], node)
            return self.graph.insert("prim::unchecked_cast", [item], [self.container_hint])._outputs[0]
        if isinstance(kind, T.ClassType):
            return self.call_method(owner, ["__getitem__"], [value], {}, node)
        if isinstance(kind, T.TupleType):
            if len(set(kind.items)) != 1:
                raise self.error(node, "tuple index must be a compile time constant")
            owner = self.implicitly(owner, T.ListType(kind.items[0]))
        return self.operator("aten::__getitem__", [owner, value], node)

    def _slice_several(self, owner: Sugared, index: ast.Slice, node: Any) -> Any:
        elements = owner.items(self, node)  # type: ignore[arg-type]
        if elements is None:
            return self._slice_list(owner.value(self, node), index, node)  # type: ignore[arg-type]
        bounds = [None if b is None else self._static(b, node) for b in (index.lower, index.upper, index.step)]
        return Several(elements[slice(*bounds)])

    def _static(self, node: ast.expr, place: Any) -> int:
        position = self.static_int(self.expression(node))
        if position is None:
            raise self.error(place, "tuple slices and slices of modules must be compile time constants")
        return position

    def _index_tuple(self, owner: Value, kind: T.TupleType, index: ast.expr, node: Any) -> Any:
        if isinstance(index, ast.Slice):
            bounds = [None if b is None else self._static(b, node) for b in (index.lower, index.upper, index.step)]
            return Several(self.unpack(owner)[slice(*bounds)]).value(self, node)  # type: ignore[arg-type]
        place = self.expression(index)
        number = self.static_int(place)
        if number is None:
            return self.index_value(owner, place, node)
        if not -len(kind.items) <= number < len(kind.items):
            raise self.error(
                node, f"Tuple index out of range: index {number} is out of range of length {len(kind.items)}"
            )
        return self.tuple_element(owner, number % len(kind.items))

    def _slice_list(self, owner: Value, index: ast.Slice, node: Any) -> Value:
        start = self._bound(index.lower)
        stop = self._bound(index.upper)
        step = self.value_of(index.step) if index.step is not None else self.graph.insertConstant(1)
        return self.operator("aten::slice", [owner, start, stop, step], node)

    def _bound(self, node: ast.expr | None) -> Value:
        return self.graph.insertConstant(None, T.NONE) if node is None else self.value_of(node)

    # ------------------------------------------------------------------ tensors

    def _parts(self, index: ast.expr) -> list[ast.expr]:
        return list(index.elts) if isinstance(index, ast.Tuple) else [index]

    def index_tensor(self, tensor: Value, index: ast.expr, node: Any) -> Value:
        """Selects and slices one after the other, then one `aten::index` for what remains."""
        sliced, advanced = self._views(tensor, index, node)
        if not any(a is not None for a in advanced):
            return sliced
        return self.operator("aten::index", [sliced, self._index_list(advanced)], node)

    def _index_list(self, advanced: list[Value | None]) -> Value:
        last = max(i for i, a in enumerate(advanced) if a is not None)
        values = [a if a is not None else self.graph.insertConstant(None, T.NONE) for a in advanced[: last + 1]]
        return self.graph.insert("prim::ListConstruct", values, [T.ListType(T.OptionalType(T.TENSOR))])._outputs[0]

    def _views(self, tensor: Value, index: ast.expr, node: Any) -> tuple[Value, list[Value | None]]:
        parts: list[Any] = []
        for part in map(self._as_slice, self._parts(index)):
            if isinstance(part, ast.Slice):
                parts.append(part)
            elif isinstance(part, ast.Constant) and part.value is Ellipsis:
                parts.append(Ellipsis)
            else:
                value = self.expression(part)
                if isinstance(value, EllipsisRef):
                    parts.append(Ellipsis)
                    continue
                value = self.as_value(value, node)
                if isinstance(value.type(), T.TupleType) and len(self._parts(index)) == 1:
                    parts += self.unpack(value)
                else:
                    parts.append(value)
        after = 0
        if Ellipsis in [p for p in parts if not isinstance(p, (Value, ast.Slice))]:
            place = next(i for i, p in enumerate(parts) if p is Ellipsis)
            after = len(parts) - place - 1
        return self._apply_views(tensor, parts, after, node)

    def _apply_views(self, tensor: Value, parts: list[Any], after: int, node: Any) -> tuple[Value, list[Value | None]]:
        dim = 0
        advanced: list[Value | None] = []
        negative = False
        for position, part in enumerate(parts):
            if part is Ellipsis:
                rest = list(parts[position + 1 :])
                dim, negative = -sum(1 for p in rest if not (isinstance(p, Value) and p.type() == T.NONE)), True
                if any(isinstance(p, Value) and p.type() == T.NONE for p in rest):
                    dim = -len(rest)
                if any(
                    isinstance(p, Value) and not T.is_subtype(p.type(), T.INT) and p.type() != T.NONE for p in rest
                ) or any(a is not None for a in advanced):
                    raise self.error(node, "Ellipses followed by tensor indexing is currently not supported")
                continue
            place = self.graph.insertConstant(dim)
            if isinstance(part, ast.Slice):
                step = self.value_of(part.step) if part.step is not None else self.graph.insertConstant(1)
                bounds = [self._bound(part.lower), self._bound(part.upper)]
                tensor = self.operator("aten::slice", [tensor, place, *bounds, step], node)
            elif part.type() == T.NONE:
                tensor = self.operator("aten::unsqueeze", [tensor, place], node)
            elif part.type() in (T.INT,):
                tensor = self.operator("aten::select", [tensor, place, part], node)
                if negative:
                    dim += 1
                continue
            else:
                while len(advanced) < dim:
                    advanced.append(None)
                advanced.append(self._index_tensor_value(part, node))
            dim += 1
        return tensor, advanced

    def _index_tensor_value(self, value: Value, node: Any) -> Value:
        kind = value.type()
        if isinstance(kind, T.TensorType):
            return value
        if isinstance(kind, T.OptionalType) and isinstance(kind.element, T.TensorType):
            return value
        if isinstance(kind, (T.ListType, T.BoolType)):
            return self.call_operator("aten::tensor", [value], {}, node)
        if isinstance(kind, T.TupleType):
            return self.call_operator("aten::tensor", [self.implicitly(value, T.ListType(kind.items[0]))], {}, node)
        raise self.error(
            node,
            f"Unsupported operation: indexing tensor with unsupported index type '{kind.annotation_str}'. Only ints, slices, lists and tensors are supported",
        )

    def is_advanced(self, value: Value) -> bool:
        return value.node()._kind == "aten::index"

    # ------------------------------------------------------------------ assignment

    def assign_element(self, target: ast.Subscript, value: Any, node: Any) -> None:
        owner = self.as_value(self.expression(target.value), target)
        kind = owner.type()
        if isinstance(kind, T.TensorType):
            self.assign_into_tensor(owner, target.slice, self.as_value(value, node), node)
            return
        if isinstance(target.slice, ast.Slice):
            raise self.error(node, "Sliced assignment to lists is currently not supported")
        index = self.value_of(target.slice)
        item = self.as_value(value, node)
        if isinstance(kind, T.ClassType):
            self.call_method(owner, ["__setitem__"], [index, item], {}, node)
            return
        if isinstance(kind, T.DictType):
            item = self.implicitly(item, kind.value)
        self.operator("aten::_set_item", [owner, index, item], node)

    def assign_into_tensor(self, tensor: Value, index: ast.expr, value: Value, node: Any) -> None:
        sliced, advanced = self._views(tensor, index, node)
        if not isinstance(value.type(), T.TensorType):
            dtype = self.operator("prim::dtype", [sliced], node)
            device = self.operator("prim::device", [sliced], node)
            value = self.call_operator("aten::tensor", [value], {"dtype": dtype, "device": device}, node)
        if any(a is not None for a in advanced):
            self.operator("aten::index_put_", [sliced, self._index_list(advanced), value], node)
        else:
            self.operator("aten::copy_", [sliced, value], node)
