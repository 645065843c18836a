"""Statements: assignments to names, attributes, elements and tuples; loops, raise, assert, with, del."""

from __future__ import annotations

import ast
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.control import BROKE, EXITED, RAISED, RESULT, RETURNED, Undefined, has_exit
from flambeau.jit._frontend.sugar import (
    ExceptionRef,
    ExceptionValue,
    RangeRef,
    Sequence,
    Several,
    Sugared,
    Zipped,
)
from flambeau.jit._ir import Value

AUGMENTED = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Mod: "remainder", ast.Pow: "pow",
    ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor", ast.FloorDiv: "floor_divide",
    ast.LShift: "__lshift__", ast.RShift: "__rshift__", ast.MatMult: "matmul",
}  # fmt: skip
_INPLACE_METHODS = {
    ast.Add: "__iadd__",
    ast.Sub: "__isub__",
    ast.Mult: "__imul__",
    ast.Div: "__itruediv__",
    ast.Mod: "__imod__",
}


class Statements:
    """The part of the emitter that handles statements."""

    graph: Any
    env: dict[str, Any]
    entry: dict[str, Any]
    loop_depth: int

    def statement(self, node: ast.stmt) -> None:
        handler = getattr(self, f"stmt_{type(node).__name__}", None)
        if handler is None:
            raise self.unsupported(node, f"{type(node).__name__} statements aren't supported")
        handler(node)

    def stmt_Pass(self, node: ast.Pass) -> None: ...

    def stmt_Import(self, node: Any) -> None:
        raise self.unsupported(node, f"{type(node).__name__} statements aren't supported")

    stmt_ImportFrom = stmt_Import

    def stmt_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        self.expression(node.value)

    # ------------------------------------------------------------------ leaving

    def stmt_Return(self, node: ast.Return) -> None:
        expected = self.result_type
        value: Any = (
            self.expression(node.value, expected) if node.value is not None else self.graph.insertConstant(None, T.NONE)
        )
        value = self.as_value(value, node)
        if expected is not None and not isinstance(expected, T.AnyType):
            value = self.implicitly(value, expected, conversions=True)
            if not T.is_subtype(value.type(), expected):
                raise self.error(
                    node,
                    f"Return value was annotated as having type {expected.annotation_str} but is actually of type {value.type().annotation_str}",
                )
        elif expected is None and isinstance(self.env.get(RESULT), Value):
            known = self.env[RESULT].type()
            if T.unify(known, value.type()) is None:
                raise self.error(
                    node,
                    f"Previous return statement returned a value of type {known.annotation_str} but this return statement returns a value of type {value.type().annotation_str}",
                )
        self.env.update({RESULT: value, RETURNED: True, EXITED: True})
        self.returned_types.append(value.type())

    def stmt_Break(self, node: ast.Break) -> None:
        if not self.loop_depth:
            raise self.error(
                node,
                "SyntaxError: 'break' outside loop"
                + (": in an unrolled loop over modules or tuples it is not supported" if self.unrolled else ""),
            )
        self.env.update({BROKE: True, EXITED: True})

    def stmt_Continue(self, node: ast.Continue) -> None:
        if not self.loop_depth:
            raise self.error(
                node,
                "SyntaxError: 'continue' outside loop"
                + (": in an unrolled loop over modules or tuples it is not supported" if self.unrolled else ""),
            )
        self.env[EXITED] = True

    def stmt_Raise(self, node: ast.Raise) -> None:
        if node.exc is None:
            raise self.unsupported(node, "Expected an exception after raise")
        raised = self.expression(node.exc)
        if isinstance(raised, ExceptionRef):
            raised = ExceptionValue(raised.cls, [])
        if isinstance(raised, ExceptionValue):
            message = raised.args[0] if raised.args else self.graph.insertConstant("")
            if message.type() != T.STRING:
                message = self.operator("aten::str", [message], node)
            self.raise_exception(message, raised.cls, node)
            return
        self.raise_exception(self.operator("aten::str", [self.as_value(raised, node)], node), None, node)

    def raise_exception(self, message: Value, cls: Any, node: Any) -> None:
        self.graph.current_range = self.source.range_of(node)
        kind = self.graph.insertConstant(None, T.NONE)
        if cls is not None:
            kind = self.graph.insertConstant(f"{cls.__module__}.{cls.__qualname__}")
        self.graph.insert("prim::RaiseException", [message, kind])
        self.env[RAISED] = self.env[EXITED] = True

    def stmt_Assert(self, node: ast.Assert) -> None:
        condition = self.condition(node.test)

        def fail() -> None:
            message: Any = self.graph.insertConstant("AssertionError: ")
            if node.msg is not None:
                text = self.as_value(self.expression(node.msg), node)
                if text.type() != T.STRING:
                    text = self.operator("aten::str", [text], node)
                message = self.operator("aten::add", [message, text], node)
            self.raise_exception(message, None, node)

        if condition.static is True:
            self.refine(condition.if_true)
            return
        held = Condition_without(condition)
        self.emit_if(held, lambda: None, fail, node)
        self.refine(condition.if_true)

    # ------------------------------------------------------------------ branches and loops

    def stmt_If(self, node: ast.If) -> None:
        condition = self.condition(node.test)
        self.emit_if(
            condition, lambda: self.emit_statements(node.body), lambda: self.emit_statements(node.orelse), node
        )

    def stmt_While(self, node: ast.While) -> None:
        if node.orelse:
            raise self.not_supported(node.orelse[0], "else branches of while loops aren't supported")
        self.emit_loop(node, node.body, None, None, node.test, [])

    def stmt_For(self, node: ast.For) -> None:
        if node.orelse:
            raise self.not_supported(node.orelse[0], "else branches of for loops aren't supported")
        subject = self.iterable(self.expression(node.iter), node.iter)
        unrolled = subject.items(self, node.iter)
        if unrolled is not None:
            self._unroll(node, unrolled)
            return
        if isinstance(subject, (RangeRef, Zipped, Sequence, Sugared)):
            emitter: Any = self
            targets = [n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)]

            def start(index: Value) -> None:
                if isinstance(node.target, ast.Name):
                    index.setDebugName(node.target.id)
                self.assign(node.target, subject.element(emitter, index, node.iter), node)

            self.emit_loop(node, node.body, subject.length(emitter, node.iter), start, None, targets)

    def _unroll(self, node: ast.For, elements: list[Any]) -> None:
        if has_exit(node.body, (ast.Break, ast.Continue)):
            raise self.error(
                node, "'break' and 'continue' are not supported in a loop over a tuple or modules, which is unrolled"
            )
        depth, self.loop_depth = self.loop_depth, 0
        self.unrolled += 1

        def go(index: int) -> None:
            if index == len(elements):
                return
            self.assign(node.target, elements[index], node)
            self.emit_statements(node.body)
            exited = self.env.get(EXITED, False)
            if isinstance(exited, Value):
                from flambeau.jit._frontend.conditions import Condition

                def go_on() -> None:
                    self.env[EXITED] = False
                    go(index + 1)

                def skip() -> None:
                    self.env[EXITED] = True

                self.emit_if(Condition(exited), skip, go_on, node)
            elif not exited:
                go(index + 1)

        go(0)
        self.unrolled -= 1
        self.loop_depth = depth

    # ------------------------------------------------------------------ with, del

    def stmt_With(self, node: ast.With) -> None:
        entered = []
        for item in node.items:
            context = self.as_value(self.expression(item.context_expr), item.context_expr)
            kind = context.type()
            if not isinstance(kind, T.ClassType):
                raise self.error(item.context_expr, "With item must be an object")
            if "__enter__" not in kind.methods or "__exit__" not in kind.methods:
                raise self.error(
                    item.context_expr,
                    f"Object returned by with statement must define __enter__ and __exit__ methods, got {kind.name}",
                )
            result = kind.methods["__enter__"].ensure().schema.result_type()
            value = self.graph.insert("prim::Enter", [context], [result])._outputs[0]
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, node)
            entered.append(context)
        self.emit_statements(node.body)
        for context in reversed(entered):
            self.graph.insert("prim::Exit", [context], [T.TENSOR])

    def stmt_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                owner = self.as_value(self.expression(target.value), target)
                index = (
                    self.as_value(self.expression(target.slice), target)
                    if not isinstance(target.slice, ast.Slice)
                    else None
                )
                if index is None:
                    raise self.unsupported(target, "del of a slice is not supported")
                self.operator("aten::Delete", [owner, index], node)
            elif isinstance(target, ast.Name):
                if target.id not in self.env:
                    raise self.error(target, f"undefined value {target.id}")
                self.env[target.id] = Undefined(f"undefined value {target.id}")
            else:
                raise self.unsupported(target, "del with that target is not supported")

    # ------------------------------------------------------------------ assignment

    def stmt_Assign(self, node: ast.Assign) -> None:
        if (
            isinstance(node.value, ast.Tuple)
            and isinstance(node.targets[0], ast.Tuple)
            and not any(isinstance(x, ast.Starred) for x in node.value.elts)
        ):
            value: Any = Several([self.expression(x) for x in node.value.elts])
        else:
            value = self.expression(node.value, self._declared_of(node.targets[0]))
        for target in node.targets:
            self.assign(target, value, node)

    def _declared_of(self, target: ast.expr) -> T.JitType | None:
        if isinstance(target, ast.Name):
            return self.declared.get(target.id)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = self.env.get(target.value.id)
            kind = owner.type() if isinstance(owner, Value) else getattr(owner, "kind", None)
            if isinstance(kind, T.ClassType):
                return kind.attributes.get(target.attr)
        return None

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        kind = self.type_of(node.annotation)
        if node.value is None:
            raise self.unsupported(node, "without assigned value")
        with self.expecting(kind):
            value = self.as_value(self.expression(node.value, kind), node)
        value = self.implicitly(value, kind)
        if not T.is_subtype(value.type(), kind):
            raise self.error(
                node,
                f"Variable '{ast.unparse(node.target)}' is annotated with type {kind.annotation_str} but is being assigned to a value of type {value.type().annotation_str}",
            )
        if isinstance(node.target, ast.Name):
            previous = self.declared.get(node.target.id)
            if previous is not None and previous != kind and node.target.id in self.annotated:
                raise self.error(
                    node,
                    f"Attempting to declare and annotate the type of variable '{node.target.id}' that is already defined in an outer block",
                )
            self.declared[node.target.id] = kind
            self.annotated.add(node.target.id)
            if (
                value.type() != kind
                and isinstance(kind, (T.OptionalType, T.UnionType, T.AnyType))
                and isinstance(value.node()._kind, str)
            ):
                pass
            self.env[node.target.id] = self._named(value, node.target.id)
            return
        self.assign(node.target, value, node, kind)

    def _named(self, value: Value, name: str) -> Value:
        if not value.hasDebugName() and value.node()._kind != "prim::Constant" and value.node()._kind != "prim::Param":
            value.setDebugName(f"{name}.1")
        return value

    def assign(self, target: ast.expr, value: Any, node: Any, kind: T.JitType | None = None) -> None:
        if isinstance(target, ast.Name):
            self.assign_name(target.id, value, node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._assign_tuple(target, value, node)
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, value, node, kind)
        elif isinstance(target, ast.Subscript):
            self.assign_element(target, value, node)
        else:
            raise self.error(
                node, f"Expected a name, attribute, element or tuple to assign to, got {ast.unparse(target)}"
            )

    def assign_name(self, name: str, value: Any, node: Any) -> None:
        before = self.entry.get(name) if self.graph.insert_block is not self.graph else None
        if isinstance(before, Value):
            if isinstance(value, Several):
                emitter: Any = self
                value = value.value(emitter, node)
            if isinstance(value, Value):
                allowed = self.declared.get(name) or before.type()
                value = self.implicitly(value, allowed) if isinstance(allowed, T.ListType) else value
                if not T.is_subtype(value.type(), allowed) and not T.is_subtype(value.type(), before.type()):
                    raise self.error(
                        node,
                        f"Variable '{name}' previously had type {allowed.annotation_str} but is now being assigned to a value of type {value.type().annotation_str}",
                    )
        if name in self.annotated and isinstance(value, Value) and not T.is_subtype(value.type(), self.declared[name]):
            raise self.error(
                node,
                f"Variable '{name}' is annotated with type {self.declared[name].annotation_str} but is being assigned to a value of type {value.type().annotation_str}",
            )
        elif name not in self.annotated and isinstance(before, type(None)):
            self.declared.pop(name, None)
        if isinstance(value, Value):
            self._named(value, name)
        self.env[name] = value

    def _assign_tuple(self, target: Any, value: Any, node: Any) -> None:
        targets = target.elts
        starred = [i for i, t in enumerate(targets) if isinstance(t, ast.Starred)]
        if isinstance(value, Value) and isinstance(value.type(), (T.ListType, T.TensorType)):
            if starred:
                raise self.error(node, "Starred unpacking is currently only supported for tuples")
            elements: Any = self.unpack_list(value, len(targets), node)
        else:
            elements = self.elements_of(value, node)
        if starred:
            index = starred[0]
            after = len(targets) - index - 1
            if len(elements) < len(targets) - 1:
                raise self.error(node, f"need at least {len(targets) - 1} values to unpack, got {len(elements)}")
            middle = elements[index : len(elements) - after]
            elements = [*elements[:index], Several(list(middle)), *elements[len(elements) - after :]]
            targets = [t.value if isinstance(t, ast.Starred) else t for t in targets]
        if len(elements) != len(targets):
            few = "too many values to unpack" if len(elements) > len(targets) else "need more values to unpack"
            raise self.error(node, f"{few}: expected {len(targets)} values, got {len(elements)}")
        for part, element in zip(targets, elements):
            self.assign(part, element, node)

    def _assign_attribute(self, target: ast.Attribute, value: Any, node: Any, kind: T.JitType | None) -> None:
        owner = self.expression(target.value)
        self.set_attribute(owner, target.attr, value, node)

    def set_attribute(self, owner: Any, name: str, value: Any, node: Any) -> None:
        if hasattr(owner, "set_property") and owner.set_property(self, name, value, node):
            return
        place = owner.owner_value(self, node) if hasattr(owner, "owner_value") else owner
        if not isinstance(place, Value) or not isinstance(place.type(), T.ClassType):
            raise self.error(
                node,
                f"Tried to set an attribute: {name} on a non-class: {place.type() if isinstance(place, Value) else owner}",
            )
        own = place.type()
        assert isinstance(own, T.ClassType)
        if name in own.properties:
            setter = own.properties[name][1]
            if setter is None:
                raise self.error(node, f"Tried to set read-only attribute: {name}")
            self.call_compiled_method(place, setter, [self.as_value(value, node)], {}, node)
            return
        value = self.as_value(value, node)
        if name not in own.attributes:
            if (self.in_constructor and place is self.env.get("self")) or self.declaring is own:
                own.attributes[name] = T.TENSOR if isinstance(value.type(), T.TensorType) else value.type()
            else:
                raise self.error(
                    node, f"Tried to set nonexistent attribute: {name}. Did you forget to initialize it in __init__()?"
                )
        kind = own.attributes[name]
        value = self.implicitly(value, kind)
        if not T.is_subtype(value.type(), kind):
            raise self.error(
                node,
                f"Wrong type for attribute assignment. Expected {kind.annotation_str} but got {value.type().annotation_str}",
            )
        self.graph.current_range = self.source.range_of(node)
        self.graph.insert("prim::SetAttr", [place, value]).attributes["name"] = ("s", name)

    # ------------------------------------------------------------------ augmented assignment

    def stmt_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Subscript):
            self._augment_element(node, target)
            return
        load = ast.copy_location(_loaded(target), target)
        current = self.expression(load)
        result = self.augmented(current, node)
        self.assign(target, result, node)

    def augmented(self, current: Any, node: ast.AugAssign) -> Any:
        op = type(node.op)
        place = current if isinstance(current, Value) else self.as_value(current, node)
        operand = self.as_value(
            self.expression(node.value, place.type() if isinstance(place.type(), T.ListType) else None), node
        )
        owner = place.type()
        if isinstance(owner, T.ClassType):
            method = _INPLACE_METHODS.get(op)
            if method in owner.methods:
                return self.call_method(place, [method], [operand], {}, node)
            return self.binary(op, place, operand, node)
        if isinstance(place.type(), T.TensorType):
            name = f"aten::{AUGMENTED[op]}_" if not AUGMENTED[op].startswith("__") else f"aten::__i{AUGMENTED[op][2:]}"
            if op is ast.MatMult:
                return self.binary(op, place, operand, node)
            return self.operator(name, [place, operand], node)
        if isinstance(place.type(), T.ListType) and op is ast.Add:
            return self.operator("aten::add_", [place, operand], node)
        return self.binary(op, place, operand, node)

    def _augment_element(self, node: ast.AugAssign, target: ast.Subscript) -> None:
        owner = self.as_value(self.expression(target.value), target)
        if isinstance(owner.type(), T.TensorType):
            part = self.subscript(owner, target.slice, target)
            result = self.augmented(part, node)
            if self.is_advanced(part):
                self.assign_into_tensor(owner, target.slice, result, node)
            return
        index = self.as_value(self.expression(target.slice), target)
        current = self.operator("aten::__getitem__", [owner, index], target)
        result = self.as_value(self.augmented(current, node), node)
        if not isinstance(current.type(), T.TensorType):
            self.operator("aten::_set_item", [owner, index, result], node)

    # ------------------------------------------------------------------ nested functions

    def stmt_FunctionDef(self, node: ast.FunctionDef) -> None:
        from flambeau.jit._frontend.closures import Closure

        if self.in_archive:
            self.env[node.name] = Closure(node)
            return
        raise self.unsupported(node, "nested function definitions aren't supported: define the function outside")

    def stmt_Global(self, node: Any) -> None:
        raise self.unsupported(node, f"{type(node).__name__} variables aren't supported")

    stmt_Nonlocal = stmt_Global


def _loaded(target: ast.expr) -> ast.expr:
    import copy

    twin = copy.copy(target)
    if hasattr(twin, "ctx"):
        twin.ctx = ast.Load()
    return twin


def Condition_without(condition: Any) -> Any:
    """The same test for a branch whose refinements are applied afterwards."""
    from flambeau.jit._frontend.conditions import Condition

    return Condition(condition.value, condition.static)
