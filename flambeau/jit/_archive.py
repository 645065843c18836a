"""Archives of `jit.save`: a module's class by name, and its state.

Programs run as the Python they are, so that the classes of an archive must have been imported, or defined, where it is
loaded. Nothing else of the file is trusted: it is read as a checkpoint with `weights_only=True` is, and may name classes
of modules and functions of `nn.functional` besides. PyTorch's archives hold programs in another language and are refused.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from flambeau import _C, nn, serialization
from flambeau.jit import ScriptFunction
from flambeau.jit._modules import TopLevelTracedModule, TracedModule
from flambeau.nn.modules.module import Module

__all__ = ["load", "mark", "save"]

_KEY = "flambeau.jit"


class Save:
    """The method `save` of a module that was scripted; modules have none otherwise."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __call__(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        save(self.module, f, _extra_files)

    def __reduce__(self) -> tuple[Any, ...]:
        return Save, (self.module,)


def mark(module: Module) -> Module:
    """The module itself, which can be saved from now on."""
    if not hasattr(module, "save"):
        module.__dict__["save"] = Save(module)
    return module


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a scripted or traced module, or a function of a module, so that `load` can make it again."""
    content: dict[str, Any] = {_KEY: 1, "traced": isinstance(m, (TracedModule, ScriptFunction))}
    extra = {name: data.encode() if isinstance(data, str) else data for name, data in (_extra_files or {}).items()}
    content["extra"] = extra
    original = m.__dict__["_original"] if isinstance(m, TracedModule) else m
    function = getattr(original, "__wrapped__", original)
    if not isinstance(original, Module):
        name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
        if not callable(function) or _function(name) is None:
            raise RuntimeError(f"[jit.save] expected a module or a function found by its name, got {m!r}")
        serialization.save({**content, "function": name}, f)
        return
    method = original.__dict__.get("save")
    if isinstance(method, Save):
        del original.__dict__["save"]
    try:
        serialization.save({**content, "module": original}, f)
    finally:
        if isinstance(method, Save):
            original.__dict__["save"] = method


def _named(module: str, path: str) -> Any:
    """What an imported module has under a name, None if it is not there."""
    found = sys.modules.get("flambeau" + module[len("torch") :] if module.split(".")[0] == "torch" else module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _function(name: str) -> Any:
    module, _, path = name.partition(":")
    found = _named(module, path)
    found = getattr(found, "__wrapped__", found) if isinstance(found, ScriptFunction) else found
    return found if callable(found) and not isinstance(found, type) else None


def _own_function(name: str) -> Any:
    """The function that an archive names, if this program has scripted or traced it; a file cannot choose another."""
    function = _function(name)
    return function if isinstance(function, types.FunctionType) and function in ScriptFunction.functions else None


def _acceptable(name: str) -> Any:
    """What a name in an archive stands for, if modules may be made of it."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        found = _named(".".join(parts[:end]), ".".join(parts[end:]))
        if isinstance(found, type) and issubclass(found, Module):
            return found
        if isinstance(found, _C.Function) and hasattr(nn.functional, parts[-1]):
            return found
    raise RuntimeError(
        f"[jit.load] expected an archive of modules whose classes have been imported, got one that needs {name!r}"
    )


def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, **options: Any) -> Any:
    """The module or function that `save` wrote."""
    start = f.tell() if hasattr(f, "tell") else None
    with serialization._opened(f) as source:
        if "constants.pkl" in serialization.Reader(source):
            raise NotImplementedError(
                "[jit.load] expected an archive that flambeau wrote, got one of TorchScript, whose programs are in a "
                "language of its own; save the state dict instead, and load it into the module"
            )
    if start is not None:
        f.seek(start)
    accepted = [_acceptable(name) for name in serialization.get_unsafe_globals_in_checkpoint(f)]
    if start is not None:
        f.seek(start)
    with serialization.safe_globals(accepted):
        content = serialization.load(f, map_location=map_location, weights_only=True)
    if not isinstance(content, dict) or content.get(_KEY) != 1:
        raise RuntimeError("[jit.load] expected an archive of jit.save, got another checkpoint; use torch.load")
    for name in _extra_files or ():
        if name in content["extra"]:
            _extra_files[name] = content["extra"][name]  # type: ignore[index]
    if "function" in content:
        function = _own_function(content["function"])
        if function is None:
            raise RuntimeError(
                f"[jit.load] expected a function that this program has scripted or traced, got {content['function']!r}"
            )
        return ScriptFunction(function)
    module = content["module"]
    return TopLevelTracedModule(module) if content["traced"] else mark(module)
