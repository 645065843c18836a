"""Errors of TorchScript's front end, at the place where programs look for them."""

from __future__ import annotations

from typing import Any


class FrontendError(Exception):
    """The source cannot be read as TorchScript."""

    def __init__(self, source_range: Any, msg: str) -> None:
        self.source_range, self.msg = source_range, msg
        super().__init__(msg)

    def __str__(self) -> str:
        text = self.msg
        if self.source_range is not None:
            text += ":\n" + self.source_range.highlight()
        return text


class NotSupportedError(FrontendError):
    """The source is Python that TorchScript does not have."""


class UnsupportedNodeError(NotSupportedError):
    """A syntax node that TorchScript does not have."""


def get_jit_def(fn: Any, def_name: str, self_name: str | None = None, is_classmethod: bool = False) -> Any:
    """The declaration of a function, as the front end reads it."""
    from flambeau.jit._frontend.source import read_function

    return read_function(fn)


def get_default_args(fn: Any) -> dict[str, Any]:
    """Defaults of a function's arguments by name."""
    import inspect

    if fn is None:
        return {}
    parameters = inspect.signature(fn).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
