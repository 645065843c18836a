"""Reading functions: their source, parameters, annotations and defaults, and the names their bodies see."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import textwrap
import weakref
from collections.abc import Callable
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._ir import Source, SourceRange
from flambeau.jit.frontend import FrontendError, NotSupportedError


class Parameter:
    def __init__(self, name: str, kind: T.JitType | None, default: Any, has_default: bool, kwarg_only: bool) -> None:
        self.name, self.kind, self.default, self.has_default, self.kwarg_only = (
            name,
            kind,
            default,
            has_default,
            kwarg_only,
        )
        self.inferred = kind is None


class Declaration:
    """A function to compile: signature, body, source, and how names in it are resolved."""

    def __init__(
        self,
        name: str,
        parameters: list[Parameter],
        result: T.JitType | None,
        body: list[ast.stmt],
        source: Source,
        resolver: Any,
        node: ast.AST,
    ) -> None:
        self.name, self.parameters, self.result, self.body = name, parameters, result, body
        self.source, self.resolver, self.node = source, resolver, node
        self.in_archive = False


class PythonResolver:
    """Names of a Python function: its closure, its globals, the builtins, and names given from outside."""

    def __init__(self, function: Any, extra: Callable[[str], Any] | None = None) -> None:
        self.globals: dict[str, Any] = getattr(function, "__globals__", {})
        self.closure: dict[str, Any] = {}
        code = getattr(function, "__code__", None)
        if code is not None and function.__closure__:
            for name, cell in zip(code.co_freevars, function.__closure__):
                try:
                    self.closure[name] = cell.cell_contents
                except ValueError:
                    continue
        self.extra = extra

    def lookup(self, name: str) -> Any:
        if name in self.closure:
            return self.closure[name]
        if name in self.globals:
            return self.globals[name]
        if self.extra is not None:
            value = self.extra(name)
            if value is not None:
                return value
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(name)

    def evaluate(self, node: ast.expr) -> Any:
        """The Python object of an annotation."""
        code = compile(ast.fix_missing_locations(ast.Expression(node)), "<annotation>", "eval")
        return eval(code, {"__builtins__": builtins}, _Names(self))


class _Names(dict[str, Any]):
    def __init__(self, resolver: PythonResolver) -> None:
        super().__init__()
        self.resolver = resolver

    def __missing__(self, name: str) -> Any:
        try:
            return self.resolver.lookup(name)
        except NameError:
            import typing

            if hasattr(typing, name):
                return getattr(typing, name)
            import flambeau

            known = {"Tensor": flambeau.Tensor, "torch": flambeau, "Device": flambeau.device}
            if name == "Future":
                from flambeau.futures import Future

                return Future
            if name in known:
                return known[name]
            raise KeyError(name) from None


# By function, not by code: functions that differ in annotations alone have equal code.
_SOURCES: weakref.WeakKeyDictionary[Any, tuple[Source, ast.FunctionDef]] = weakref.WeakKeyDictionary()


def _parse(function: Any) -> tuple[Source, ast.FunctionDef]:
    function = getattr(function, "__func__", function)
    if function in _SOURCES:
        return _SOURCES[function]
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or "<unknown>"
    except OSError as error:
        raise OSError(
            f"Can't get source for {function}. TorchScript requires source access in order to carry out compilation, "
            "make sure original .py files are available."
        ) from error
    raw = "".join(lines)
    text = textwrap.dedent(raw)
    indent = len(lines[0]) - len(lines[0].lstrip())
    source = Source(text, file, first, indent)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        place = SourceRange(source, 0, 0, error.lineno or 1, error.offset or 0)
        raise FrontendError(place, f"Expected Python source, got a syntax error: {error.msg}") from error
    definition = next((n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
    if not isinstance(definition, ast.FunctionDef):
        what = "lambda" if any(isinstance(n, ast.Lambda) for n in ast.walk(tree)) else "async"
        raise RuntimeError(f"[jit.script] expected a single top-level function, got {what} code\n{text}")
    _SOURCES[function] = (source, definition)
    return source, definition


def read_function(
    function: Any,
    self_type: T.JitType | None = None,
    extra: Callable[[str], Any] | None = None,
    result: Any = None,
) -> Declaration:
    """The declaration of a Python function; `self_type` is that of its first parameter when it is a method."""
    function = inspect.unwrap(function) if not isinstance(function, functools.partial) else function
    source, node = _parse(function)
    resolver = PythonResolver(function, extra)
    return declare(node, source, resolver, function, self_type)


def declare(
    node: ast.FunctionDef, source: Source, resolver: Any, function: Any, self_type: T.JitType | None
) -> Declaration:
    from flambeau.jit._frontend.annotations import type_of_node

    arguments = node.args
    if arguments.vararg or arguments.kwarg or (False):
        place = source.range_of(arguments.vararg or arguments.kwarg)
        raise NotSupportedError(
            place,
            "Compiled functions can't take variable number of arguments or use keyword-only arguments with defaults",
        )
    comment = _type_comment(node, source, arrow=function is not None)
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = _defaults(function, node)
    for default in arguments.kw_defaults:
        if default is not None:
            place = source.range_of(default)
            raise NotSupportedError(
                place,
                "Compiled functions can't take variable number of arguments or use keyword-only arguments with defaults",
            )
    parameters = []
    kinds = _comment_types(comment, plain, self_type is not None, resolver, source, node) if comment else None
    for index, argument in enumerate([*plain, *arguments.kwonlyargs]):
        kind = None
        if index == 0 and self_type is not None:
            kind = self_type
        elif kinds is not None:
            kind = kinds[0][index]
        elif argument.annotation is not None:
            kind = type_of_node(argument.annotation, resolver, source)
        has = argument.arg in defaults
        parameters.append(Parameter(argument.arg, kind, defaults.get(argument.arg), has, index >= len(plain)))
    result = kinds[1] if kinds is not None else None
    if result is None and node.returns is not None:
        result = type_of_node(node.returns, resolver, source)
        if result == T.ANY and getattr(function, "__module__", "").startswith("flambeau.nn."):
            result = None  # depends on the options of the layer
    return Declaration(node.name, parameters, result, node.body, source, resolver, node)


def _defaults(function: Any, node: ast.FunctionDef) -> dict[str, Any]:
    if function is None:
        return {}
    from flambeau.jit.frontend import get_default_args

    return get_default_args(function)


def _type_comment(node: ast.FunctionDef, source: Source, arrow: bool = True) -> str | None:
    """The text after `# type:` below the head of a function, also when split over its parameters; a text needs no `arrow`."""
    lines = source.text.split("\n")
    first = node.body[0].lineno
    if isinstance(node.body[0], (ast.FunctionDef, ast.ClassDef)) and node.body[0].decorator_list:
        first = node.body[0].decorator_list[0].lineno
    head = lines[node.lineno - 1 : max(first - 1, node.lineno)]
    comments = [line.partition("# type:")[2].strip() for line in head if "# type:" in line]
    comments = [text for text in comments if not text.startswith("ignore")]
    if not comments:
        return None
    if len(comments) == 1 and ("->" in comments[0] or (not arrow and comments[0].startswith("("))):
        return comments[0]
    whole = next((t for t in comments if t.startswith("(") and "->" in t), None)
    parts = [t for t in comments if t is not whole]
    result = whole.rpartition("->")[2] if whole else "None"
    return f"({', '.join(parts)}) -> {result}" if whole else None


def _comment_types(
    comment: str, plain: list[ast.arg], method: bool, resolver: Any, source: Source, node: ast.AST
) -> tuple[list[T.JitType | None], T.JitType | None]:
    from flambeau.jit._frontend.annotations import type_of_node

    inside, _, result = comment.partition("->")
    tree = ast.parse(f"f{inside.strip()}", mode="eval").body if inside.strip().startswith("(") else None
    if not isinstance(tree, ast.Call):
        raise FrontendError(
            source.range_of(node), f"[jit.script] expected '(types) -> type' after '# type:', got {comment!r}"
        )
    kinds: list[T.JitType | None] = [type_of_node(argument, resolver, source) for argument in tree.args]
    if method:
        kinds.insert(0, None)
    if len(kinds) != len(plain):
        raise FrontendError(
            source.range_of(node),
            f"Number of type annotations ({len(kinds)}) did not match the number of function parameters ({len(plain)})",
        )
    return kinds, type_of_node(ast.parse(result.strip(), mode="eval").body, resolver, source) if result else None
