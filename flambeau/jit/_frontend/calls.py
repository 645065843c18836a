"""Calls: operators by their signatures, functions, methods, Python's builtins and the functions of `jit`."""

from __future__ import annotations

import ast
import functools
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.sugar import (
    PYTHON_BUILTINS,
    Builtin,
    Cast,
    FunctionRef,
    MethodRef,
    PythonCall,
    RangeRef,
    Sequence,
    Several,
    SliceRef,
    Special,
    Sugared,
    Zipped,
)
from flambeau.jit._ir import Value
from flambeau.jit._schemas import Match, Signature, convert, match_any, signatures
from flambeau.jit._values import CASTS

# Operators of a number and a tensor, which ATen has for a tensor and a number only: what is done to the tensor first, and
# the operator of both the other way round.
NUMBER_FIRST = {
    "aten::add": ("", "aten::add"),
    "aten::sub": ("aten::neg", "aten::add"),
    "aten::mul": ("", "aten::mul"),
    "aten::div": ("aten::reciprocal", "aten::mul"),
    "aten::lt": ("", "aten::gt"),
    "aten::gt": ("", "aten::lt"),
    "aten::le": ("", "aten::ge"),
    "aten::ge": ("", "aten::le"),
    "aten::eq": ("", "aten::eq"),
    "aten::ne": ("", "aten::ne"),
}


def _number_before_tensor(left: Value, right: Value) -> bool:
    return isinstance(right.type(), T.TensorType) and (left.type() in T.NUMBERS or left.type() == T.NUMBER)


class Calls:
    """The part of the emitter that handles calls."""

    graph: Any
    env: dict[str, Any]

    def expr_Call(self, node: ast.Call) -> Any:
        name = self.callee_name(node.func)
        if name == "super":
            raise self.error(node, "super() is only supported to call a method of the base class")
        callee = self.expression(node.func)
        if isinstance(callee, Special):
            self._refuse_keywords(callee.name, node)
            return callee.call(self, [], {}, node)  # type: ignore[arg-type]
        args, kwargs = self.arguments(node)
        self.graph.current_range = self.source.range_of(node)
        return self.call(callee, args, kwargs, node)

    def call(self, callee: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        if isinstance(callee, Sugared):
            return callee.call(self, args, kwargs, node)  # type: ignore[arg-type]
        if isinstance(callee, Value):
            kind = callee.type()
            if isinstance(kind, T.FunctionType):
                return self.call_function([kind.function], args, kwargs, node)
            if isinstance(kind, T.ClassType) and "__call__" in kind.methods:
                return self.call_method(callee, ["__call__"], args, kwargs, node)
            if isinstance(kind, (T.ClassType, T.InterfaceType)) and kind.is_module and "forward" in kind.methods:
                return self.call_method(callee, ["forward"], args, kwargs, node)
            raise self.error(node, f"'{kind.annotation_str}' object is not callable")
        raise self.error(node, f"Expected something that can be called, got {callee}")

    def _refuse_keywords(self, name: str, node: ast.Call) -> None:
        if node.keywords and name in PYTHON_BUILTINS and name not in ("dict", "enumerate"):
            raise self.error(node, f"'{name}' takes no keyword arguments in TorchScript, got '{node.keywords[0].arg}'")

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        for part in node.args:
            if isinstance(part, ast.Starred):
                args += self.elements_of(self.expression(part.value), part)
            else:
                args.append(self.expression(part))
        kwargs = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.not_supported(node, "keyword-arg expansion is not supported")
            kwargs[keyword.arg] = self.expression(keyword.value)
        return args, kwargs

    def callee_name(self, node: ast.expr) -> str | None:
        """The name of a builtin or function of `jit` that a call's head stands for."""
        if (
            isinstance(node, ast.Name)
            and node.id not in self.env
            and node.id in ("isinstance", "hasattr", "super", "is_scripting")
        ):
            callee = self.try_resolve(node.id)
            return callee.name if isinstance(callee, Special) else None
        if isinstance(node, ast.Attribute) and node.attr in ("isinstance", "is_scripting"):
            callee = self.expression(node)
            return callee.name if isinstance(callee, Special) else None
        return None

    # ------------------------------------------------------------------ operators

    def operator(self, name: str, inputs: list[Value], node: Any) -> Any:
        return self.call_operator(name, inputs, {}, node)

    def call_operator(self, name: str, args: list[Value], kwargs: dict[str, Value], node: Any) -> Any:
        if name in NUMBER_FIRST and len(args) == 2 and not kwargs and _number_before_tensor(*args):
            unary, name = NUMBER_FIRST[name]
            tensor = self.operator(unary, [args[1]], node) if unary else args[1]
            args = [tensor, args[0]]
        candidates = signatures(name)
        if not candidates:
            raise self.error(
                node,
                f"Unknown builtin op: {name}.\nCould not find any similar ops to {name}. This op may not exist or may not be currently supported in TorchScript",
            )
        if "out" in kwargs and not any(a.name == "out" for c in candidates for a in c.arguments):
            return self.written_to(kwargs["out"], name, args, {k: v for k, v in kwargs.items() if k != "out"}, node)
        result = match_any(candidates, args, kwargs)
        if not isinstance(result, Match):
            raise self.no_match(name, result, args, node)
        if node is not None:
            self.graph.current_range = self.source.range_of(node)
        return self.insert_match(name, result)

    def written_to(self, out: Value, name: str, args: list[Value], kwargs: dict[str, Value], node: Any) -> Any:
        """`torch.add(x, y, out=z)`: the table of signatures has the operators without it."""
        result = self.call_operator(name, args, kwargs, node)
        if isinstance(out.type(), T.NoneType):
            return result
        if not (isinstance(out.type(), T.TensorType) and isinstance(result.type(), T.TensorType)):
            raise self.unsupported(node, "out= for operators with several results is not supported")
        self.operator("aten::resize_as_", [out, result], node)
        return self.operator("aten::copy_", [out, result], node)

    def insert_match(self, name: str, result: Match) -> Any:
        inputs = result.apply(self.graph)
        place = self.graph.insert(name, inputs, result.returns())
        place.call = result.signature
        outputs = place._outputs
        if not outputs:
            return self.graph.insertConstant(None, T.NONE)
        return outputs[0] if len(outputs) == 1 else self.tuple_of(outputs, result.signature)

    def tuple_of(self, outputs: list[Value], signature: Signature) -> Value:
        kinds = [o.type() for o in outputs]
        names = [r.name for r in signature.returns]
        fields = names if all(names) and len(set(names)) == len(names) else ()
        return self.graph.insert("prim::TupleConstruct", outputs, [T.TupleType(kinds, fields=fields)])._outputs[0]

    def no_match(self, name: str, reasons: list[tuple[Signature, str]], args: list[Value], node: Any) -> Exception:
        if len(reasons) == 1:
            text = f"\n{reasons[0][0]}:\n{reasons[0][1]}\n"
            return self.error(node, f"{text}:", original=True)
        lines = ["\nArguments for call are not valid.", "The following variants are available:"]
        for signature, reason in reasons:
            lines += ["  ", f"  {signature}:", f"  {reason}"]
        return self.error(node, "\n".join([*lines, "\nThe original call is"]))

    # ------------------------------------------------------------------ functions and methods

    def call_function(self, functions: list[Any], args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        function, result = self._matched(functions, [], args, kwargs, node)
        self.graph.current_range = self.source.range_of(node)
        inputs = result.apply(self.graph)
        constant = self.function_constant(function)
        place = self.graph.insert("prim::CallFunction", [constant, *inputs], [result.signature.result_type()])
        place.call = function
        return place._outputs[0]

    def function_constant(self, function: Any) -> Value:
        place = self.graph.insert("prim::Constant", [], [T.FunctionType(function)])
        place.attributes["name"] = ("s", function.name.rpartition(".")[2])
        return place._outputs[0]

    def _matched(
        self, functions: list[Any], bound: list[Value], args: list[Any], kwargs: dict[str, Any], node: Any
    ) -> tuple[Any, Match]:
        values = [*bound, *(self.argument(a, node) for a in args)]
        named = {k: self.argument(v, node) for k, v in kwargs.items()}
        reasons = []
        for conversions in (False, True):
            for function in functions:
                self.compile_callee(function, node)
                from flambeau.jit._schemas import match

                result = match(function.schema, values, named, conversions)
                if isinstance(result, Match):
                    return function, result
                reasons.append((function.schema, result))
        raise self.no_match(functions[0].name, reasons[-len(functions) :], values, node)

    def argument(self, thing: Any, node: Any) -> Value:
        return self.as_value(thing, node)

    def compile_callee(self, function: Any, node: Any) -> None:
        if function._compiling:
            name = function.name.rpartition(".")[2]
            raise self.error(node, f"function '{name}' is called recursively. Recursive calls are not supported")
        try:
            function.ensure()
        except RuntimeError as error:
            if not getattr(error, "_located", False) or function.done:
                raise
            caller = self.function.name.rpartition(".")[2]
            callee = function.name.rpartition(".")[2]
            extended = type(error)(
                f"{error}\n'{callee}' is being compiled since it was called from '{caller}'\n{self.source.range_of(node).highlight()}\n"
            )
            extended._located = True
            raise extended from None

    def call_method(self, owner: Value, names: list[str], args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        kind = owner.type()
        if isinstance(kind, T.InterfaceType):
            return self._call_interface(owner, kind, names[0], args, kwargs, node)
        assert isinstance(kind, T.ClassType)
        methods = [kind.methods[n] for n in names if n in kind.methods]
        if not methods:
            raise self.error(node, f"'{kind.name}' object has no attribute or method '{names[0]}'")
        function, result = self._matched(methods, [owner], args, kwargs, node)
        return self._insert_call(function, names[methods.index(function)], result, node)

    def call_compiled_method(
        self, owner: Value, method: Any, args: list[Any], kwargs: dict[str, Any], node: Any
    ) -> Any:
        function, result = self._matched([method], [owner], args, kwargs, node)
        return self._insert_call(function, function.name.rpartition(".")[2], result, node)

    def _insert_call(self, function: Any, name: str, result: Match, node: Any) -> Value:
        self.graph.current_range = self.source.range_of(node)
        place = self.graph.insert("prim::CallMethod", result.apply(self.graph), [result.signature.result_type()])
        place.attributes["name"] = ("s", name)
        place.call = function
        return place._outputs[0]

    def _call_interface(
        self, owner: Value, kind: T.InterfaceType, name: str, args: list[Any], kwargs: dict[str, Any], node: Any
    ) -> Value:
        if name not in kind.methods:
            raise self.error(node, f"Tried to access nonexistent attribute or method '{name}' of type '{kind.name}'")
        from flambeau.jit._schemas import match

        signature = kind.methods[name]
        values = [owner, *(self.as_value(a, node) for a in args)]
        result = match(signature, values, {k: self.as_value(v, node) for k, v in kwargs.items()}, True)
        if not isinstance(result, Match):
            raise self.no_match(name, [(signature, result)], values, node)
        place = self.graph.insert("prim::CallMethod", result.apply(self.graph), [signature.result_type()])
        place.attributes["name"] = ("s", name)
        return place._outputs[0]

    def call_python(self, function: Any, owner: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        """A call of a function that stays in Python."""
        from flambeau.jit._frontend.callables import python_signature
        from flambeau.jit._schemas import match

        signature = python_signature(function, owner)
        values = [self.as_value(a, node) for a in args]
        result = match(signature, values, {k: self.as_value(v, node) for k, v in kwargs.items()}, True)
        if not isinstance(result, Match):
            raise self.no_match(signature.name, [(signature, result)], values, node)
        place = self.graph.insert("prim::PythonOp", result.apply(self.graph), [signature.result_type()])
        bound = function if owner is None else getattr(owner, function.__name__, function)
        place.attributes["name"] = ("s", getattr(function, "__name__", "python"))
        place.call = bound
        return place._outputs[0]

    def raise_at_run_time(self, message: str, result: T.JitType | None, node: Any) -> Any:
        self.graph.current_range = self.source.range_of(node)
        text = self.graph.insertConstant(message)
        self.graph.insert("prim::RaiseException", [text, self.graph.insertConstant(None, T.NONE)])
        return self.graph.insert("prim::Uninitialized", [], [result or T.TENSOR])._outputs[0]

    # ------------------------------------------------------------------ conversions

    def implicitly(self, value: Value, kind: T.JitType, conversions: bool = False) -> Value:
        """The value as one of a type, when a tuple can become a list or, with conversions, a tensor a number."""
        if T.is_subtype(value.type(), kind):
            return value
        maker = convert(value, kind, {}, conversions)
        return value if maker is None else maker(self.graph)

    def to_bool(self, thing: Any, node: Any) -> Value:
        if isinstance(thing, Several):
            return self.graph.insertConstant(bool(thing.elements))
        value = self.as_value(thing, node)
        kind = value.type()
        if kind == T.BOOL:
            return value
        if isinstance(kind, T.ClassType):
            for name in ("__bool__", "__len__"):
                if name in kind.methods:
                    result = self.call_method(value, [name], [], {}, node)
                    return result if name == "__bool__" else self.operator("aten::Bool", [result], node)
            return self.graph.insertConstant(True)
        if isinstance(kind, (T.ListType, T.DictType, T.StringType)):
            return self.operator("aten::Bool", [self.operator("aten::len", [value], node)], node)
        if kind in (T.INT, T.FLOAT, T.COMPLEX, T.NUMBER, T.TENSOR):
            if value.node()._kind == "prim::Constant" and kind != T.TENSOR:
                return self.graph.insertConstant(bool(value.toIValue()))
            return self.operator("aten::Bool", [value], node)
        raise self.error(node, f"Could not cast value of type {kind.annotation_str} to bool")

    def iterable(self, thing: Any, node: Any) -> Sugared:
        if isinstance(thing, Value):
            kind = thing.type()
            if isinstance(kind, T.DictType):
                return Sequence(self.operator("aten::keys", [thing], node))
            if isinstance(kind, (T.ListType, T.StringType, T.TensorType, T.TupleType)):
                return Sequence(thing)
            raise self.error(node, f"'{kind.annotation_str}' object is not iterable")
        if isinstance(thing, Sugared):
            return thing
        raise self.error(node, f"{thing} is not iterable")

    # ------------------------------------------------------------------ builtins of Python

    def special_print(self, node: ast.Call) -> Any:
        values = [self.value_of(a) for a in node.args]
        self.graph.insert("prim::Print", values)
        return self.graph.insertConstant(None, T.NONE)

    def special_range(self, node: ast.Call) -> RangeRef:
        values = [self.implicitly(self.value_of(a), T.INT, True) for a in node.args]
        for value in values:
            if value.type() != T.INT:
                raise self.error(node, f"range() expected an int, found {value.type().annotation_str}")
        if not 1 <= len(values) <= 3:
            limit = "at least 1" if not values else "at most 3"
            raise self.error(node, f"range expected {limit} arguments, got {len(values)}")
        if len(values) == 1:
            return RangeRef(None, values[0], None)
        return RangeRef(values[0], values[1], values[2] if len(values) > 2 else self.graph.insertConstant(1))

    def special_slice(self, node: ast.Call) -> SliceRef:
        if node.keywords:
            raise self.error(node, "Slice does not accept any keyword arguments")
        if not 1 <= len(node.args) <= 3:
            raise self.error(node, f"slice() expected 1 to 3 arguments, got {len(node.args)}")
        values = [self.value_of(a) for a in node.args]
        bounds = [None if v.type() == T.NONE else v for v in values]
        if len(bounds) == 1:
            bounds.insert(0, None)
        return SliceRef([*bounds, *[None] * (3 - len(bounds))])

    def special_zip(self, node: ast.Call) -> Zipped:
        return Zipped([self.expression(a) for a in node.args])

    def special_enumerate(self, node: ast.Call) -> Zipped:
        start = self.value_of(node.args[1]) if len(node.args) > 1 else None
        for keyword in node.keywords:
            start = self.value_of(keyword.value)
        return Zipped([self.expression(node.args[0])], start or self.graph.insertConstant(0))

    def special_reversed(self, node: ast.Call) -> Any:
        thing = self.expression(node.args[0])
        elements = self.iterable(thing, node).items(self, node)  # type: ignore[arg-type]
        if elements is not None:
            return Several(elements[::-1])
        value = self.as_value(thing, node)
        step = self.graph.insertConstant(-1)
        none = self.graph.insertConstant(None, T.NONE)
        return self.operator("aten::slice", [value, none, none, step], node)

    def special_iter(self, node: ast.Call) -> Any:
        return self.expression(node.args[0])

    def special_len(self, node: ast.Call) -> Value:
        thing = self.expression(node.args[0])
        if isinstance(thing, Value):
            kind = thing.type()
            if isinstance(kind, T.TupleType):
                return self.graph.insertConstant(len(kind.items))
            if isinstance(kind, T.ClassType):
                return self.call_method(thing, ["__len__"], [], {}, node)
            return self.operator("aten::len", [thing], node)
        elements = thing.items(self, node)
        return self.graph.insertConstant(len(elements)) if elements is not None else thing.length(self, node)

    def special_isinstance(self, node: ast.Call) -> Value:
        return self.as_condition_value(self._isinstance(node), node)

    def special_hasattr(self, node: ast.Call) -> Value:
        return self.graph.insertConstant(self.has_attribute(node))

    def has_attribute(self, node: ast.Call) -> bool:
        owner, name = self.expression(node.args[0]), self._literal(node.args[1], node)
        if isinstance(owner, Sugared):
            return owner.has_attr(self, name)  # type: ignore[arg-type]
        kind = owner.type()
        if isinstance(kind, T.ClassType):
            return name in kind.attributes or name in kind.methods or name in kind.properties or name in kind.constants
        if isinstance(kind, T.TupleType):
            return name in kind.fields
        try:
            self.attribute(owner, name, node)
            return True
        except RuntimeError:
            return False

    def _literal(self, part: ast.expr, node: Any) -> str:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            return part.value
        value = self.expression(part)
        text = value.toIValue() if isinstance(value, Value) else None
        if not isinstance(text, str):
            raise self.error(node, "Expected a string literal for the name of an attribute")
        return text

    def special_getattr(self, node: ast.Call) -> Any:
        owner, name = self.expression(node.args[0]), self._literal(node.args[1], node)
        if len(node.args) > 2 and not self.has_attribute(node):
            return self.expression(node.args[2])
        return self.attribute(owner, name, node)

    def _convert(self, node: ast.Call, op: str, default: Any, method: str) -> Value:
        if not node.args:
            return self.graph.insertConstant(default)
        value = self.value_of(node.args[0])
        if isinstance(value.type(), T.ClassType):
            return self.call_method(value, [method], [], {}, node)
        if type(default) is type(value.toIValue()) and value.node()._kind == "prim::Constant":
            return value
        if op == "aten::Complex" and len(node.args) > 1:
            return self.operator(op, [value, self.value_of(node.args[1])], node)
        return self.operator(op, [value], node)

    def special_int(self, node: ast.Call) -> Value:
        return self._convert(node, "aten::Int", 0, "__int__")

    def special_float(self, node: ast.Call) -> Value:
        return self._convert(node, "aten::Float", 0.0, "__float__")

    def special_complex(self, node: ast.Call) -> Value:
        return self._convert(node, "aten::Complex", 0j, "__complex__")

    def special_bool(self, node: ast.Call) -> Value:
        return self.to_bool(self.expression(node.args[0]), node) if node.args else self.graph.insertConstant(False)

    def special_str(self, node: ast.Call) -> Value:
        if not node.args:
            return self.graph.insertConstant("")
        value = self.value_of(node.args[0])
        if isinstance(value.type(), T.ClassType):
            return self.call_method(value, ["__str__"], [], {}, node)
        return self.operator("aten::str", [value], node)

    def special_list(self, node: ast.Call) -> Any:
        if not node.args:
            expected = self.expected
            return self.make_list([], expected.element if isinstance(expected, T.ListType) else None, node)
        thing = self.expression(node.args[0])
        if isinstance(thing, Value) and isinstance(thing.type(), (T.ListType, T.StringType)):
            return self.operator("aten::list", [thing], node)
        subject = self.iterable(thing, node)
        elements = subject.items(self, node)  # type: ignore[arg-type]
        if elements is not None:
            return self.make_list([self.as_value(x, node) for x in elements], None, node)
        if isinstance(subject, Sequence) and isinstance(thing, Value) and isinstance(thing.type(), T.DictType):
            return subject.content
        return self.comprehension_over(subject, lambda item: item, node)

    def special_tuple(self, node: ast.Call) -> Any:
        if not node.args:
            return Several([]).value(self, node)  # type: ignore[arg-type]
        if len(node.args) > 1:
            raise self.error(node, f"tuple expected at most 1 argument, got {len(node.args)}")
        return Several(self.elements_of(self.expression(node.args[0]), node)).value(self, node)  # type: ignore[arg-type]

    def special_dict(self, node: ast.Call) -> Any:
        keys = [self.graph.insertConstant(k.arg) for k in node.keywords]
        values = [self.value_of(k.value) for k in node.keywords]
        hint = self.expected if isinstance(self.expected, T.DictType) else None
        empty = node.args and isinstance(node.args[0], (ast.List, ast.Dict, ast.Tuple)) and not _items(node.args[0])
        if not node.args or empty:
            return self.make_dict(keys, values, hint.key if hint else None, hint.value if hint else None, node)
        thing = self.expression(node.args[0])
        if isinstance(thing, Zipped):
            thing = thing.value(self, node)  # type: ignore[arg-type]
        mapping = self.operator("aten::dict", [self.as_value(thing, node)], node)
        for key, value in zip(keys, values):
            self.operator("aten::_set_item", [mapping, key, value], node)
        return mapping

    def _reduce(self, node: ast.Call, op: str) -> Value:
        values = [self.value_of(a) for a in node.args]
        if len(values) == 1 and isinstance(values[0].type(), T.TupleType):
            values = self.unpack(values[0])
        if any(isinstance(v.type(), T.TensorType) for v in values):
            return self.operator(op.replace("prim", "aten"), values, node)
        result = values[0]
        if len(values) == 1:
            return self.operator(op, values, node)
        for value in values[1:]:
            result = self.operator(op, [result, value], node)
        return result

    def special_min(self, node: ast.Call) -> Value:
        return self._reduce(node, "prim::min")

    def special_max(self, node: ast.Call) -> Value:
        return self._reduce(node, "prim::max")

    def special_abs(self, node: ast.Call) -> Value:
        value = self.value_of(node.args[0])
        return self.operator("aten::abs" if isinstance(value.type(), T.TensorType) else "prim::abs", [value], node)

    def special_round(self, node: ast.Call) -> Value:
        return self.operator("aten::round", [self.value_of(node.args[0])], node)

    def special_sum(self, node: ast.Call) -> Value:
        return self.operator("aten::sum", [self.value_of(node.args[0])], node)

    def special_any(self, node: ast.Call) -> Value:
        return self.operator("aten::any", [self.value_of(node.args[0])], node)

    def special_all(self, node: ast.Call) -> Value:
        return self.operator("aten::all", [self.value_of(node.args[0])], node)

    def special_sorted(self, node: ast.Call) -> Value:
        value = self.value_of(node.args[0])
        if isinstance(value.type(), T.DictType):
            value = self.operator("aten::keys", [value], node)
        return self.operator("aten::sorted", [value], node)

    # ------------------------------------------------------------------ functions of jit

    def special_is_scripting(self, node: ast.Call) -> Value:
        return self.graph.insertConstant(True)

    def special_is_tracing(self, node: ast.Call) -> Value:
        return self.graph.insertConstant(False)

    def special_annotate(self, node: ast.Call) -> Value:
        if len(node.args) != 2:
            raise self.error(node, f"Expected a type and a value for annotate, got {len(node.args)} arguments")
        kind = self.type_of(node.args[0])
        with self.expecting(kind):
            value = self.as_value(self.expression(node.args[1], kind), node)
        value = self.implicitly(value, kind, conversions=True)
        if not T.is_subtype(value.type(), kind):
            raise self.error(
                node, f"expected an expression of type {kind.annotation_str} but found {value.type().annotation_str}"
            )
        if (value.type() != kind and value.node()._kind != "prim::Constant") or value.type() == T.NONE:
            place = self.graph.insert("prim::annotate", [value], [kind])
            return place._outputs[0]
        return value

    def special_fork(self, node: ast.Call) -> Value:
        return self._closure("fork", node)

    def special_awaitable(self, node: ast.Call) -> Value:
        return self._closure("awaitable", node)

    def _closure(self, what: str, node: ast.Call) -> Value:
        if not node.args:
            raise self.error(node, f"Expected at least one argument to {what}(): the function to call")
        callee = self.expression(node.args[0])
        rest = ast.copy_location(ast.Call(node.func, node.args[1:], node.keywords), node)
        args, kwargs = self.arguments(rest)
        from flambeau.jit._frontend.closures import emit_closure

        return emit_closure(what, self, callee, args, kwargs, node)

    def special_wait(self, node: ast.Call) -> Value:
        return self.operator("aten::wait", [self.value_of(node.args[0])], node)

    def special_awaitable_wait(self, node: ast.Call) -> Value:
        return self.operator("prim::awaitable_wait", [self.value_of(node.args[0])], node)

    def special_awaitable_nowait(self, node: ast.Call) -> Value:
        return self.operator("prim::awaitable_nowait", [self.value_of(node.args[0])], node)

    def special_torch_assert(self, node: ast.Call) -> Value:
        message = node.args[1] if len(node.args) > 1 else None
        self.stmt_Assert(ast.copy_location(ast.Assert(node.args[0], message), node))
        return self.graph.insertConstant(None, T.NONE)


def _items(node: Any) -> list[Any]:
    return node.keys if isinstance(node, ast.Dict) else node.elts


METHODS: dict[tuple[type, str], Any] = {
    (T.TensorType, "tolist"): lambda owner: ToList(owner),
    (T.TensorType, "is_floating_point"): lambda owner: Builtin("aten::is_floating_point", owner),
    (T.TensorType, "__len__"): lambda owner: Builtin("aten::len", owner),
    (T.TensorType, "type"): lambda owner: Builtin("aten::to", owner),
    (T.FutureType, "wait"): lambda owner: Builtin("aten::wait", owner),
    (T.TensorType, "new_tensor"): lambda owner: NewTensor(owner),
    (T.TensorType, "where"): lambda owner: Where(owner),
    **{(T.TensorType, name): functools.partial(Cast, name) for name in CASTS},
}


class ToList(Sugared):
    """`x.tolist()`, whose type the annotation around it gives."""

    def __init__(self, owner: Value) -> None:
        self.owner = owner

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        kind, dims = e.expected, 0
        while isinstance(kind, T.ListType):
            kind, dims = kind.element, dims + 1
        codes = {T.INT: 0, T.FLOAT: 1, T.BOOL: 2, T.COMPLEX: 3}
        if kind not in codes:
            raise e.error(node, "Expected type hint for result of tolist()")
        inputs = [self.owner, e.graph.insertConstant(dims), e.graph.insertConstant(codes[kind])]
        return e.graph.insert("prim::tolist", inputs, [e.expected])._outputs[0]


class Where(Sugared):
    """`x.where(condition, other)`: the operator takes the condition first."""

    def __init__(self, owner: Value) -> None:
        self.owner = owner

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        condition, other = [*args, *(kwargs[name] for name in ("condition", "other") if name in kwargs)]
        values = [e.as_value(condition, node), self.owner, e.as_value(other, node)]
        return e.call_operator("aten::where", values, {}, node)


class NewTensor(Sugared):
    def __init__(self, owner: Value) -> None:
        self.owner = owner

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        kwargs.setdefault("dtype", e.operator("prim::dtype", [self.owner], node))
        kwargs.setdefault("device", e.operator("prim::device", [self.owner], node))
        values = {k: e.as_value(v, node) for k, v in kwargs.items()}
        return e.call_operator("aten::tensor", [e.as_value(args[0], node)], values, node)


__all__ = ["Calls", "FunctionRef", "MethodRef", "PythonCall"]
