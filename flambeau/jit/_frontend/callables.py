"""Python functions in scripts: which are compiled, which stay in Python, which raise, and their overloads."""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._functions import Function
from flambeau.jit._schemas import NO_DEFAULT, Argument, Signature

MODIFIER = "_torchscript_modifier"
UNUSED, IGNORE, EXPORT, DEFAULT = "unused", "ignore", "export", "default"
DROP = "ignore_drop"

_compiled: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()
_names: dict[str, int] = {}
_overloads: dict[str, list[Any]] = {}


def modifier(function: Any) -> str:
    function = getattr(function, "__func__", function)
    return getattr(function, MODIFIER, DEFAULT)


def unique_name(name: str) -> str:
    """A qualified name that no other compiled thing has."""
    count = _names.get(name)
    _names[name] = 0 if count is None else count + 1
    if count is None:
        return name
    head, _, tail = name.rpartition(".")
    return f"{head}.___torch_mangle_{_mangle()}.{tail}"


_mangles = [0]


def _mangle() -> int:
    _mangles[0] += 1
    return _mangles[0] - 1


def compile_function(python: Any, extra: Any = None) -> Function:
    """The compiled form of a Python function, one for each."""
    compiled = _compiled.get(python)
    if compiled is not None:
        return compiled
    from flambeau.jit._frontend.annotations import qualified_name
    from flambeau.jit._frontend.source import read_function

    def declare() -> Any:
        declaration = read_function(python, extra=extra)
        result = declaration.result
        if result is not None or all(p.kind is not None for p in declaration.parameters):
            function.schema = declared_signature(declaration) if result is not None else None
        return declaration

    function = Function(unique_name(qualified_name(python)), declare, python)
    _compiled[python] = function
    return function


def declared_signature(declaration: Any) -> Signature:
    """The signature as written, for calls of a function from its own body."""
    arguments = [
        Argument(
            p.name, p.kind or T.TensorType(inferred=True), p.default if p.has_default else NO_DEFAULT, p.kwarg_only
        )
        for p in declaration.parameters
    ]
    return Signature(declaration.name, "", arguments, [Argument("", declaration.result)])


def callable_value(e: Any, obj: Any, node: Any) -> Any:
    """What a Python function, module instance or other callable means in a script."""
    from flambeau.jit._frontend.sugar import FunctionRef, PythonCall, Raises
    from flambeau.nn import Module

    if isinstance(obj, Module):
        raise e.error(
            node,
            "Cannot call a ScriptModule that is not a submodule of the caller: "
            f"make the {type(obj).__name__} an attribute of the scripted module",
        )
    if isinstance(obj, functools.partial):
        return Partial(obj)
    if isinstance(obj, types.MethodType):
        if isinstance(obj.__self__, type):
            from flambeau.jit._frontend.classes import script_class

            return FunctionRef([script_class(obj.__self__).methods[obj.__name__]])
        raise e.error(node, f"method '{obj.__name__}' of a Python object cannot be compiled")
    boolean = getattr(obj, "__boolean_dispatch__", None)
    if boolean is not None:
        return callable_value(e, boolean, node)
    if isinstance(obj, types.BuiltinFunctionType):
        return None
    if not isinstance(obj, types.FunctionType):
        inner = getattr(obj, "__wrapped__", None)
        return callable_value(e, inner, node) if isinstance(inner, types.FunctionType) else None
    kind = modifier(obj)
    if kind in (IGNORE,):
        return PythonCall(obj)
    if kind in (UNUSED, DROP):
        signature = python_signature(obj)
        return Raises(
            f"This Python function is annotated to be ignored and cannot be run: {obj.__name__}",
            signature.result_type(),
        )
    overloads = overloads_of(obj)
    if overloads:
        return FunctionRef(overloads)
    if getattr(obj, "__script_if_tracing_wrapper", False):
        obj = obj.__original_fn
    library = _library_for(obj)
    if library:
        return library_reference(*library)
    return FunctionRef([compile_function(inspect.unwrap(obj))])


def _library_for(obj: Any) -> tuple[str, list[Any]] | None:
    """What is compiled in place of a function of the package: its key in the library and overloads, or nothing."""
    module = getattr(obj, "__module__", "") or ""
    if module.partition(".")[0] != "flambeau":
        return None
    from flambeau.jit._library import library_functions
    from flambeau.nn import functional

    name = obj.__name__
    spaces = ("functional", "torch") if getattr(functional, name, None) is obj else ("torch",)
    return next(((f"{space}.{name}", own) for space in spaces if (own := library_functions(f"{space}.{name}"))), None)


def library_reference(key: str, functions: list[Any]) -> Any:
    """Functions of the library; the one with more results where constants like `return_indices` ask for them."""
    from flambeau.jit._frontend.sugar import FunctionRef

    class Chosen(FunctionRef):
        def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
            return e.call_function(_with_results(key, functions, e, args, kwargs, node), args, kwargs, node)

    return Chosen(functions)


def _with_results(key: str, functions: list[Any], e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
    from flambeau.jit._library import library_functions

    wanted = []
    for place, argument in enumerate(functions[0].ensure().schema.arguments):
        verb, _, result = argument.name.partition("_")
        if verb not in ("return", "get") or not result:
            continue
        flag = kwargs.get(argument.name, args[place] if place < len(args) else None)
        if flag is not None and e.as_value(flag, node).toIValue() is True:
            wanted.append(result)
    return (wanted and library_functions(f"{key}_with_{'_and_'.join(wanted)}")) or functions


class Partial:
    """`functools.partial` of something that can be called."""

    def __new__(cls, obj: functools.partial[Any]) -> Any:
        from flambeau.jit._frontend.sugar import Sugared, python_value

        class Bound(Sugared):
            what = "partial function"

            def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
                callee = python_value(e, obj.func, node)
                fixed = [python_value(e, a, node, constant=True) for a in obj.args]
                named = {k: python_value(e, v, node, constant=True) for k, v in obj.keywords.items()}
                return e.call(callee, [*fixed, *args], {**named, **kwargs}, node)

        return Bound()


def python_signature(function: Any, owner: Any = None) -> Signature:
    """The signature of a function that stays in Python; what has no annotation is a tensor."""
    from flambeau.jit._frontend.source import read_function

    function = getattr(function, "__func__", function)
    try:
        declaration = read_function(function, self_type=T.ANY if owner is not None else None)
        parameters = declaration.parameters[1:] if owner is not None else declaration.parameters
        result = declaration.result or T.TENSOR
        arguments = [
            Argument(
                p.name, p.kind or T.TensorType(inferred=True), p.default if p.has_default else NO_DEFAULT, p.kwarg_only
            )
            for p in parameters
        ]
        return Signature(function.__name__, "", arguments, [Argument("", result)])
    except OSError:
        names = list(inspect.signature(function).parameters)
        names = names[1:] if owner is not None else names
        return Signature(function.__name__, "", [Argument(n, T.TENSOR) for n in names], [Argument("", T.TENSOR)])
    except Exception as error:
        from flambeau.jit.frontend import NotSupportedError

        if isinstance(error, NotSupportedError):
            return Signature(function.__name__, "", [], [Argument("", T.ANY)], variadic=True)
        raise


# ---------------------------------------------------------------------------------------------- overloads


def add_overload(function: Any) -> Any:
    key = f"{function.__module__}.{function.__qualname__}"
    _overloads.setdefault(key, []).append(function)
    return function


def overload_declarations(function: Any) -> list[Any]:
    return _overloads.get(f"{function.__module__}.{function.__qualname__}", [])


_overload_functions: dict[Any, list[Function]] = {}


def overloads_of(obj: Any) -> list[Function]:
    """The overloads of a function: the annotations of each with the body of the last definition."""
    declarations = overload_declarations(obj)
    if not declarations or obj in declarations:
        return []
    if obj not in _overload_functions:
        _overload_functions[obj] = [overloaded(obj, one) for one in declarations]
    return _overload_functions[obj]


def overloaded(body: Any, annotated: Any, self_type: Any = None, extra: Any = None, name: str = "") -> Function:
    from flambeau.jit._frontend.annotations import qualified_name
    from flambeau.jit._frontend.source import read_function

    def declare() -> Any:
        declaration = read_function(body, self_type, extra)
        other = read_function(annotated, self_type, extra)
        defaults = {p.name: p for p in declaration.parameters}
        for parameter in other.parameters:
            own = defaults.get(parameter.name)
            if own is not None and own.has_default and not parameter.has_default:
                parameter.default, parameter.has_default = own.default, True
        declaration.parameters, declaration.result = other.parameters, other.result
        return declaration

    return Function(unique_name(name or qualified_name(body)), declare, body)
