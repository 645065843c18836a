"""Conditions: a boolean of the graph or one known while compiling, and what each outcome says about types.

`x is not None` makes x a plain Tensor where it holds; `isinstance` picks among the members of a union. `and`, `or` and `not` combine these.
"""

from __future__ import annotations

import ast
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._ir import Value

Refinements = dict[str, T.JitType]


class Condition:
    """A test: its value, the outcome if it is known, and the refined types of variables for each outcome."""

    def __init__(
        self,
        value: Value | None,
        static: bool | None = None,
        if_true: Refinements | None = None,
        if_false: Refinements | None = None,
    ) -> None:
        self.value, self.static = value, static
        self.if_true, self.if_false = if_true or {}, if_false or {}


def _common(a: Refinements, b: Refinements) -> Refinements:
    """What holds if one of two conditions holds."""
    common: Refinements = {}
    for name in a.keys() & b.keys():
        joined = T.unify(a[name], b[name], or_union=True)
        if joined is not None:
            common[name] = joined
    return common


class Conditions:
    """The part of the emitter that evaluates tests."""

    graph: Any
    env: dict[str, Any]

    def condition(self, node: ast.expr) -> Condition:
        if isinstance(node, ast.BoolOp):
            return self._short_circuit(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            if inner.static is not None:
                return Condition(
                    self.graph.insertConstant(not inner.static), not inner.static, inner.if_false, inner.if_true
                )
            value = self.operator("aten::__not__", [inner.value], node)
            return Condition(value, None, inner.if_false, inner.if_true)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return self._identity(node)
        if isinstance(node, ast.Call):
            callee = self.callee_name(node.func)
            if callee == "isinstance":
                return self._isinstance(node)
            if callee == "hasattr":
                known = self.has_attribute(node)
                return Condition(self.graph.insertConstant(known), known)
            if callee == "is_scripting":
                return Condition(self.graph.insertConstant(True), True)
        value = self.to_bool(self.expression(node), node)
        static = value.toIValue() if value.node()._kind == "prim::Constant" else None
        return Condition(value, static if isinstance(static, bool) else None)

    def _short_circuit(self, node: ast.BoolOp) -> Condition:
        is_and = isinstance(node.op, ast.And)
        result = self.condition(node.values[0])
        for operand in node.values[1:]:
            result = self._combine(result, operand, is_and, node)
        return result

    def _combine(self, left: Condition, operand: ast.expr, is_and: bool, node: ast.expr) -> Condition:
        if left.static is not None and left.static != is_and:
            return left  # False and ..., True or ...
        refined = left.if_true if is_and else left.if_false
        if left.static is not None:
            saved = dict(self.env)
            self.refine(refined)
            right = self.condition(operand)
            self.restore(saved)
            return self._joined(left, right, is_and, right.value, right.static)
        holder: list[Condition] = []

        def evaluate() -> Value:
            right = self.condition(operand)
            holder.append(right)
            return self.as_condition_value(right, operand)

        def settled() -> Value:
            return self.graph.insertConstant(not is_and)

        bare = Condition(left.value, None, left.if_true, left.if_false)
        value = self.choose(bare, evaluate, settled, node) if is_and else self.choose(bare, settled, evaluate, node)
        right = holder[0]
        static = (not is_and) if right.static is not None and right.static != is_and else None
        return self._joined(left, right, is_and, value, static)

    def _joined(self, left: Condition, right: Condition, is_and: bool, value: Any, static: bool | None) -> Condition:
        if is_and:
            return Condition(value, static, {**left.if_true, **right.if_true}, _common(left.if_false, right.if_false))
        return Condition(value, static, _common(left.if_true, right.if_true), {**left.if_false, **right.if_false})

    def restore(self, saved: dict[str, Any]) -> None:
        self.env.clear()
        self.env.update(saved)

    def as_condition_value(self, condition: Condition, node: Any) -> Value:
        if condition.value is not None:
            return condition.value
        return self.graph.insertConstant(bool(condition.static))

    # ------------------------------------------------------------------ is None

    def _identity(self, node: ast.Compare) -> Condition:
        is_not = isinstance(node.ops[0], ast.IsNot)
        left = self.expression(node.left)
        right = self.expression(node.comparators[0])
        subject_node, subject = node.left, left
        if (
            isinstance(left, Value)
            and left.type() == T.NONE
            and not (isinstance(right, Value) and right.type() == T.NONE)
        ):
            subject_node, subject, right = node.comparators[0], right, left
        against_none = isinstance(right, Value) and right.type() == T.NONE
        if against_none and not isinstance(subject, Value):
            return Condition(self.graph.insertConstant(is_not), is_not)
        a, b = self.as_value(left, node), self.as_value(right, node)
        if not against_none:
            op = "aten::__isnot__" if is_not else "aten::__is__"
            return Condition(self.operator(op, [a, b], node))
        assert isinstance(subject, Value)
        kind = subject.type()
        if kind == T.NONE:
            return Condition(self.graph.insertConstant(not is_not), not is_not)
        if not any(part == T.NONE for part in T.members_of(kind)) and not isinstance(kind, (T.AnyType, T.VarType)):
            return Condition(self.graph.insertConstant(is_not), is_not)
        value = self.operator("aten::__isnot__" if is_not else "aten::__is__", [subject, right], node)
        name = self.refinable(subject_node)
        present: Refinements = {}
        absent: Refinements = {}
        if name is not None and not isinstance(kind, T.AnyType):
            present = {name: T.union_of([p for p in T.members_of(kind) if p != T.NONE])}
            absent = {name: T.NONE}
        return Condition(value, None, present if is_not else absent, absent if is_not else present)

    def refinable(self, node: ast.expr) -> str | None:
        return node.id if isinstance(node, ast.Name) else None

    # ------------------------------------------------------------------ isinstance

    def _isinstance(self, node: ast.Call) -> Condition:
        subject = self.expression(node.args[0])
        kinds = self.checked_types(node.args[1])
        if not isinstance(subject, Value):
            try:
                subject = self.as_value(subject, node)
            except RuntimeError:
                return Condition(self.graph.insertConstant(False), False)
        own = subject.type()
        members = T.members_of(own)
        inside = [p for p in members if any(_matches(p, k) for k in kinds)]
        unknown = any(isinstance(p, (T.AnyType, T.NumberType, T.InterfaceType)) for p in members)
        if not unknown and len(inside) == len(members):
            return Condition(self.graph.insertConstant(True), True)
        if not unknown and not inside:
            return Condition(self.graph.insertConstant(False), False)
        check = self.graph.insert("prim::isinstance", [subject], [T.BOOL])
        check.attributes["types"] = ("tys", list(kinds))
        name = self.refinable(node.args[0])
        if_true: Refinements = {}
        if_false: Refinements = {}
        if name is not None:
            outside = [p for p in members if p not in inside]
            if_true = {name: T.union_of(kinds if unknown else inside)}
            if not unknown:
                if_false = {name: T.union_of(outside)}
        return Condition(check._outputs[0], None, if_true, if_false)

    def checked_types(self, node: ast.expr) -> list[T.JitType]:
        if isinstance(node, ast.Tuple):
            return [kind for part in node.elts for kind in self.checked_types(part)]
        return [self.type_of(node)]

    # ------------------------------------------------------------------ refinement

    def refine(self, refinements: Refinements) -> None:
        for name, kind in refinements.items():
            value = self.env.get(name)
            if not isinstance(value, Value) or value.type() == kind:
                continue
            if kind == T.NONE:
                cast = self.graph.insertConstant(None, T.NONE)
            else:
                cast = self.graph.insert("prim::unchecked_cast", [value], [kind])._outputs[0].setDebugName(f"{name}.1")
            self.env[name] = cast
            self.refined[id(cast)] = (cast, value)
            self.declared.setdefault(name, value.type())


def _matches(kind: T.JitType, wanted: T.JitType) -> bool:
    if isinstance(wanted, T.AnyListType):
        return isinstance(kind, T.ListType)
    if isinstance(wanted, T.AnyTupleType):
        return isinstance(kind, T.TupleType)
    return T.is_subtype(kind, wanted)
