"""Functions and methods given as text: `CompilationUnit` and `define`."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.callables import declared_signature, unique_name
from flambeau.jit._frontend.source import Declaration, PythonResolver, declare
from flambeau.jit._functions import Function
from flambeau.jit._ir import Source


class _UnitResolver(PythonResolver):
    """Names of a text: its own functions, `torch` and `math`, and what `extra` knows."""

    def __init__(self, functions: dict[str, Function], extra: Callable[[str], Any] | None = None) -> None:
        import math
        import typing

        import flambeau

        super().__init__(None, extra)
        names = {
            "torch": flambeau,
            "math": math,
            "Tensor": flambeau.Tensor,
            "inf": math.inf,
            "Generator": flambeau.Generator,
        }
        self.globals = {**vars(typing), **names}
        self.functions = functions

    def lookup(self, name: str) -> Any:
        return self.functions[name] if name in self.functions else super().lookup(name)


def _declaration(node: ast.FunctionDef, source: Source, resolver: Any, self_type: Any) -> Declaration:
    declaration = declare(node, source, resolver, None, self_type)
    plain = [*node.args.posonlyargs, *node.args.args]
    for argument, default in zip(plain[len(plain) - len(node.args.defaults) :], node.args.defaults):
        parameter = next(p for p in declaration.parameters if p.name == argument.arg)
        parameter.default, parameter.has_default = resolver.evaluate(default), True
    return declaration


def names_of_frame(frame: Any) -> Callable[[str], Any]:
    """Looks names up where a text is compiled: the variables of the frame, then its globals."""
    scopes = (dict(frame.f_locals), frame.f_globals)

    def lookup(name: str) -> Any:
        return next((scope[name] for scope in scopes if name in scope), None)

    return lookup


def functions_of(text: str, extra: Callable[[str], Any] | None = None) -> list[Function]:
    functions: dict[str, Function] = {}
    resolver = _UnitResolver(functions, extra)
    for node, source in _nodes(text):
        functions[node.name] = _function(unique_name(f"__torch__.{node.name}"), node, source, resolver, None)
    for function in functions.values():
        function.ensure()
    return list(functions.values())


def define_methods(kind: T.ClassType, text: str, extra: Callable[[str], Any] | None = None) -> None:
    resolver = _UnitResolver({}, extra)
    for node, source in _nodes(text):
        kind.methods[node.name] = _function(f"{kind.name}.{node.name}", node, source, resolver, kind)
    for method in list(kind.methods.values()):
        method.ensure()


def _nodes(text: str) -> list[tuple[ast.FunctionDef, Source]]:
    text = textwrap.dedent(text)
    source = Source(text)
    return [(node, source) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]


def _function(name: str, node: ast.FunctionDef, source: Source, resolver: Any, self_type: Any) -> Function:
    def read() -> Declaration:
        declaration = _declaration(node, source, resolver, self_type)
        if declaration.result is not None:
            function.schema = declared_signature(declaration)
        return declaration

    function = Function(name, read)
    return function
