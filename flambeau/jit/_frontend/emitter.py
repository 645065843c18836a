"""The compiler of one function: walks its syntax and builds its graph."""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Iterator
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.annotations import broadcast_length, type_of_node
from flambeau.jit._frontend.calls import Calls
from flambeau.jit._frontend.conditions import Conditions
from flambeau.jit._frontend.control import EXITED, RAISED, RESULT, Control
from flambeau.jit._frontend.expressions import Expressions
from flambeau.jit._frontend.source import Declaration
from flambeau.jit._frontend.statements import Statements
from flambeau.jit._frontend.subscripts import Subscripts
from flambeau.jit._frontend.sugar import python_value
from flambeau.jit._ir import Graph, Value
from flambeau.jit._schemas import NO_DEFAULT, Argument, Signature
from flambeau.jit.frontend import NotSupportedError, UnsupportedNodeError

# Names that mean numbers wherever they are not variables.
FLOATS = {"inf": math.inf, "nan": math.nan, "infj": complex(0, math.inf), "nanj": complex(0, math.nan)}


class Emitter(Statements, Control, Conditions, Expressions, Subscripts, Calls):
    """Holds the state of one compilation: the graph, variables and their declared types."""

    def __init__(self, function: Any, declaration: Declaration) -> None:
        self.function, self.declaration = function, declaration
        self.source, self.resolver = declaration.source, declaration.resolver
        self.graph = Graph()
        self.env: dict[str, Any] = {}
        self.entry: dict[str, Any] = {}
        self.declared: dict[str, T.JitType] = {}
        self.annotated: set[str] = set()
        self.refined: dict[int, tuple[Value, Value]] = {}
        self.result_type = declaration.result
        self.returned_types: list[T.JitType] = []
        self.loop_depth = self.unrolled = 0
        self.in_archive = declaration.in_archive
        self.in_constructor = False
        self.expected: T.JitType | None = None
        self.declaring: Any = None

    # ------------------------------------------------------------------ the whole function

    def compile(self) -> tuple[Graph, Signature]:
        for parameter in self.declaration.parameters:
            kind = parameter.kind or T.TensorType(inferred=True)
            value = self.graph.addInput(parameter.name if parameter.name == "self" else f"{parameter.name}.1")
            value.setType(T.TENSOR if isinstance(kind, T.TensorType) else kind)
            self.env[parameter.name] = self.wrap_self(value, kind)
            self.declared[parameter.name] = value.type()
        self.entry = dict(self.env)
        self.emit_statements(self.declaration.body)
        result = self.env.get(RESULT)
        if result is None:
            result = self._missing_result()
        elif self.env.get(EXITED) is not True:
            self._partial_result()
        self.graph.registerOutput(result)
        signature = self._signature(result)
        for parameter, value in zip(self.declaration.parameters, self.graph._param._outputs):
            if not value._uses and value.debugName() == f"{parameter.name}.1":
                value._name = parameter.name  # no other value has it: theirs have numbers
        return self.graph, signature

    def wrap_self(self, value: Value, kind: T.JitType) -> Any:
        if isinstance(kind, T.ClassType) and kind.is_module and not self.in_archive:
            from flambeau.jit._frontend.modules import ModuleRef, concrete_of

            concrete = concrete_of(kind)
            if concrete is not None:
                return ModuleRef(value, concrete)
        return value

    def _missing_result(self) -> Value:
        expected = self.result_type
        if self.env.get(RAISED):
            return self.graph.insert("prim::Uninitialized", [], [expected or T.NONE])._outputs[0]
        if expected is not None and expected != T.NONE:
            raise self.error(
                self.declaration.node,
                f"Function was annotated as having type {expected.annotation_str}, but does not return along all paths",
            )
        return self.graph.insertConstant(None, T.NONE)

    def _partial_result(self) -> None:
        kinds = [k for k in self.returned_types if k != T.NONE]
        if kinds or (self.result_type is not None and self.result_type != T.NONE):
            raise self.error(
                self.declaration.node,
                "Function does not return along all paths: expected a return statement at the end",
            )

    def _signature(self, result: Value) -> Signature:
        arguments = []
        nodes = [
            *self.declaration.node.args.posonlyargs,
            *self.declaration.node.args.args,
            *self.declaration.node.args.kwonlyargs,
        ]
        for parameter, node in zip(self.declaration.parameters, nodes):
            kind = parameter.kind or T.TensorType(inferred=True)
            default = parameter.default if parameter.has_default else NO_DEFAULT
            arguments.append(
                Argument(
                    parameter.name,
                    kind,
                    self._default(default, kind, broadcast_length(node.annotation)),
                    parameter.kwarg_only,
                    broadcast_length(node.annotation),
                )
            )
        kind = self.result_type  # type: ignore[assignment]
        if kind is None:
            kind = T.TENSOR if isinstance(result.type(), T.TensorType) else result.type()
        return Signature(self.function.name.rpartition(".")[2], "", arguments, [Argument("", kind)])

    def _default(self, value: Any, kind: T.JitType, length: int | None) -> Any:
        if value is NO_DEFAULT or self.in_archive:
            return value
        if length is not None and isinstance(value, (int, float)):
            value = [value] * length
        from flambeau.jit._values import Mismatch, convert

        try:
            return convert(value, kind)
        except Mismatch:
            raise RuntimeError(
                f"Expected a default value of type {kind.annotation_str} on parameter, got {value!r}"
            ) from None

    # ------------------------------------------------------------------ names, types and errors

    def resolve(self, name: str, node: Any) -> Any:
        if hasattr(self.resolver, "resolve"):
            return self.resolver.resolve(self, name, node)
        try:
            resolved = self.resolver.lookup(name)
        except NameError:
            if name in FLOATS:
                return self.graph.insertConstant(FLOATS[name])
            raise self.error(node, f"undefined value {name}") from None
        if name in FLOATS and isinstance(resolved, float):
            return self.graph.insertConstant(resolved)
        return python_value(self, resolved, node, name=name)

    def try_resolve(self, name: str) -> Any:
        try:
            return self.resolve(name, ast.Name(name, ast.Load()))
        except RuntimeError:
            return None

    @contextlib.contextmanager
    def expecting(self, kind: T.JitType | None) -> Iterator[None]:
        """While it lasts, the annotation says what an expression without a type of its own is."""
        before, self.expected = self.expected, kind
        try:
            yield
        finally:
            self.expected = before

    @property
    def container_hint(self) -> T.JitType | None:
        return self.expected if isinstance(self.expected, T.InterfaceType) else None

    def type_of(self, node: ast.expr) -> T.JitType:
        return type_of_node(node, self.resolver, self.source)

    def error(self, node: Any, message: str, original: bool = False) -> RuntimeError:
        place = self.source.range_of(node) if node is not None else None
        text = f"\n{message.rstrip(':')}:\n{place.highlight()}\n" if place is not None else message
        exception = RuntimeError(text)
        exception._located = True
        return exception

    def not_supported(self, node: Any, message: str) -> NotSupportedError:
        """A form of a node that is known but not taken."""
        return NotSupportedError(self.source.range_of(node), message)

    def unsupported(self, node: Any, message: str) -> UnsupportedNodeError:
        return UnsupportedNodeError(self.source.range_of(node), message)
