"""Context managers that decorate functions, by PyTorch's names: the classes that `no_grad` derives from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.autograd.grad_mode import _Mode

__all__ = ["context_decorator"]


class _DecoratorContextManager(_Mode):
    """A context manager whose instances decorate functions; each call enters a fresh one."""

    def clone(self) -> Any:
        return type(self)()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One without arguments, so that the class itself decorates, too."""

    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called within a context manager, or within what a function makes for each call."""
    mode = _Mode()
    makes = callable(ctx) and (isinstance(ctx, type) or not hasattr(ctx, "__enter__"))
    mode.clone = ctx if makes else lambda: ctx  # type: ignore[attr-defined]
    return mode(func)
