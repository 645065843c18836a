"""The type and instance of a traced module: parameters, buffers and submodules of the original, without its Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.annotations import qualified_name
from flambeau.jit._frontend.callables import unique_name
from flambeau.nn import Module


@contextlib.contextmanager
def script_forms(original: Module) -> Iterator[None]:
    """Layers whose classes have a form for scripts are replaced by it: a trace cannot see into what they compute."""
    from flambeau.jit._frontend.modules import has_script_form
    from flambeau.jit._modules import script_module

    owners = {id(module): module for module in original.modules()}.values()
    replaced = [
        (owner, name, child)
        for owner in owners
        for name, child in owner._modules.items()
        if child is not None and has_script_form(child) and not has_script_form(owner)
    ]
    forms = {id(child): script_module(child) for _, _, child in replaced}
    try:
        for owner, name, child in replaced:
            owner._modules[name] = forms[id(child)]
        yield
    finally:
        for owner, name, child in replaced:
            owner._modules[name] = child


def traced_module(original: Module, top: type) -> tuple[Any, T.ClassType, dict[int, tuple[tuple[str, ...], T.JitType]]]:
    """A module with the tensors of another, its type, and the path to each of its parts."""
    paths: dict[int, tuple[tuple[str, ...], T.JitType]] = {}
    module, kind = _build(original, top, (), paths, {})
    return module, kind, paths


def _build(
    original: Module, top: type, path: tuple[str, ...], paths: dict[int, Any], done: dict[int, Any]
) -> tuple[Any, T.ClassType]:
    from flambeau.jit._modules import ScriptModule, TracedModule

    if id(original) in done:
        return done[id(original)]
    if isinstance(original, ScriptModule) and "_script_type" in original.__dict__ and path:
        kind = original.__dict__["_script_type"]
        _note(original, path, paths)
        paths.setdefault(id(original), (path, kind))
        return original, kind
    kind = T.ClassType(unique_name(qualified_name(type(original))), is_module=True)
    module = top(kind)
    done[id(original)] = (module, kind)
    paths.setdefault(id(original), (path, kind))
    for table, names in (("_parameters", kind.parameters), ("_buffers", kind.buffers)):
        for name, value in getattr(original, table).items():
            kind.attributes[name] = T.NONE if value is None else T.TENSOR
            getattr(module, table)[name] = value
            if value is not None:
                names.add(name)
                paths.setdefault(id(value), ((*path, name), T.TENSOR))
    kind.attributes["training"] = T.BOOL
    kind.attributes["_is_full_backward_hook"] = T.OptionalType(T.BOOL)
    module.__dict__["training"] = original.training
    module.__dict__["_is_full_backward_hook"] = None
    module.__dict__["_non_persistent_buffers_set"] = set(original._non_persistent_buffers_set)
    for name, child in original._modules.items():
        if child is None:
            module._modules[name] = None
            continue
        module._modules[name], kind.attributes[name] = _build(child, TracedModule, (*path, name), paths, done)
    _plain_tensors(original, module, kind, path, paths)
    return module, kind


def _note(module: Module, path: tuple[str, ...], paths: dict[int, Any]) -> None:
    for name, value in [*module._parameters.items(), *module._buffers.items()]:
        if value is not None:
            paths.setdefault(id(value), ((*path, name), T.TENSOR))
    for name, child in module._modules.items():
        if child is not None:
            _note(child, (*path, name), paths)


def _plain_tensors(
    original: Module, module: Any, kind: T.ClassType, path: tuple[str, ...], paths: dict[int, Any]
) -> None:
    """Tensors that are plain attributes of the module become attributes of the trace."""
    from flambeau import _C

    for name, value in original.__dict__.items():
        if isinstance(value, _C.Tensor) and name not in kind.attributes:
            kind.attributes[name] = T.TENSOR
            module.__dict__[name] = value
            paths.setdefault(id(value), ((*path, name), T.TENSOR))
