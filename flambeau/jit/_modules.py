"""The module classes of `jit`. They need `nn`, which `jit` itself does not."""

from __future__ import annotations

from typing import Any

from flambeau import nn

__all__ = ["ScriptModule", "RecursiveScriptModule", "TracedModule", "TopLevelTracedModule"]


class ScriptModule(nn.Module):
    """Base of modules written for TorchScript; an ordinary module."""

    def save(self, f: Any, _extra_files: Any = None) -> None:
        from flambeau import jit

        jit.save(self, f, _extra_files)


class RecursiveScriptModule(ScriptModule):
    """What scripting returns in PyTorch; here the module itself is returned."""


class TracedModule(ScriptModule):
    """A module that calls another and shares its parameters, buffers and submodules under the same names."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        for registry in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[registry] = getattr(original, registry)
        self.__dict__["training"] = original.training
        self.__dict__["_original"] = original

    @property
    def original_name(self) -> str:
        return type(self._original).__name__

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._original(*args, **kwargs)

    def train(self, mode: bool = True) -> Any:
        self._original.train(mode)
        return super().train(mode)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_original":
                raise
            return getattr(self.__dict__["_original"], name)


class TopLevelTracedModule(TracedModule):
    """What `trace` returns for a module."""
