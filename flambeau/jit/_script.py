"""`jit.script` on whatever it is given, compilation units, and the classes it returns."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import sys
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit import _values
from flambeau.jit._functions import BoundMethod, Function, ScriptFunction
from flambeau.jit._lower import JitError as Error
from flambeau.nn import Module

__all__ = ["CompilationUnit", "Error", "ScriptFunction", "script_object"]

ScriptMethod = BoundMethod
Error.__name__ = "Error"
Error.__module__ = "torch.jit"


def script_object(obj: Any, resolve: Any = None, example_inputs: Any = None) -> Any:
    """The compiled form of a function, class, module, list or dict."""
    from flambeau.jit._frontend.callables import compile_function
    from flambeau.jit._frontend.classes import script_class
    from flambeau.jit._modules import ScriptModule, script_module

    if isinstance(obj, (ScriptModule, ScriptFunction)):
        return obj
    if isinstance(obj, Module):
        return script_module(_prepared(obj))
    if isinstance(obj, dict):
        return create_script_dict(obj)
    if isinstance(obj, list):
        return create_script_list(obj)
    if inspect.isclass(obj):
        return _script_class_object(obj, script_class)
    if getattr(obj, "__script_if_tracing_wrapper", False):
        obj = obj.__original_fn
    if isinstance(obj, functools.partial) or not callable(obj):
        raise TypeError(f"[jit.script] expected a function, class or module, got {type(obj).__name__}")
    python = inspect.unwrap(obj)
    if hasattr(python, "__func__"):
        raise RuntimeError("[jit.script] expected a function, class or module, got a method: script the module instead")
    from flambeau.jit._frontend.callables import overload_declarations

    if overload_declarations(python) and python not in overload_declarations(python):
        raise RuntimeError(
            f"Function {python.__qualname__} cannot be directly compiled because it is overloaded. It must be used in a context of a function where its inputs can determine which overload to call."
        )
    cached = getattr(python, "__script_function__", None)
    if isinstance(cached, ScriptFunction) and cached._python is python:
        return cached
    function = compile_function(python, resolve)
    function.ensure()
    scripted = ScriptFunction(function, python)
    with contextlib.suppress(AttributeError):
        python.__script_function__ = scripted
    return scripted


def _prepared(module: Module, known: dict[Module, Any] | None = None) -> Any:
    """The module with `__prepare_scriptable__` called on it and on what it holds; the program's own stays as it is."""
    known = {} if known is None else known
    if module in known:
        return known[module]
    prepared: Any = module.__prepare_scriptable__() if hasattr(module, "__prepare_scriptable__") else module
    known[module] = prepared
    if isinstance(prepared, Module):
        children = {name: child and _prepared(child, known) for name, child in prepared._modules.items()}
        if any(children[name] is not child for name, child in prepared._modules.items()):
            known[module] = prepared = copy.copy(prepared)
            prepared.__dict__["_modules"] = children
    return prepared


def _script_class_object(cls: type, script_class: Any) -> Any:
    if issubclass(cls, Module):
        raise RuntimeError(
            f"Type '{cls.__name__}' cannot be compiled since it inherits from nn.Module, consider passing an instance instead"
        )
    if hasattr(cls, "__torch_script_interface__"):
        return cls
    import enum

    if issubclass(cls, enum.Enum):
        from flambeau.jit._frontend.annotations import type_of_enum

        type_of_enum(cls)
        return cls
    if len(cls.__mro__) > 2 and not _plain_bases(cls):
        raise RuntimeError("TorchScript classes does not support inheritance yet. Please directly inherit from object.")
    script_class(cls)
    return cls


def _plain_bases(cls: type) -> bool:
    return all(base is object for base in cls.__bases__)


def create_script_dict(obj: dict[Any, Any]) -> _values.ScriptDict:
    """A dict that scripts take without copying it."""
    kind = _values.infer_type(obj)
    return _values.ScriptDict(_values.convert(obj, kind), kind)


def create_script_list(obj: list[Any], type_hint: Any = None) -> _values.ScriptList:
    """A list that scripts take without copying it."""
    kind = _values.infer_type(obj)
    return _values.ScriptList(_values.convert(obj, kind), kind)


class CompilationUnit:
    """Functions compiled from text."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, ScriptFunction] = {}
        if lang is not None:
            self.define(lang, _frames_up=_frames_up + 1)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        from flambeau.jit._frontend.units import functions_of, names_of_frame

        lookup = rcb if rcb is not None else names_of_frame(sys._getframe(_frames_up + 1))
        for function in functions_of(lang, lookup):
            self._functions[function.name.rpartition(".")[2]] = ScriptFunction(function)

    def find_function(self, name: str) -> Any:
        return self._functions.get(name)

    def get_functions(self) -> list[Any]:
        return list(self._functions.values())

    def __getattr__(self, name: str) -> Any:
        function = self.__dict__["_functions"].get(name)
        if function is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{name}'")
        return function


def last_graph() -> Any:
    raise RuntimeError("[last_executed_optimized_graph] expected a function that has run, got none")


def operator_names(module: Any) -> list[str]:
    """`aten::add.Tensor` and the like, of all methods and what they call."""
    from flambeau.jit._passes import inlined

    names = set()
    kind = module.__dict__["_script_type"]
    for method in kind.methods.values():
        for node in inlined(method.ensure().graph).walk():
            overload = getattr(node.call, "overload_name", None)
            if overload is not None and node._kind.startswith("aten::"):
                names.add(f"{node._kind}.{overload}" if overload else node._kind)
    return sorted(names)


__all__ += ["Function", "T"]
