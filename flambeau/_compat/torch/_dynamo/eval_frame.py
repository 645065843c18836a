"""The names under which PyTorch's programs reach for compiled modules and the handling of frames."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from flambeau._dynamo import disable, explain, optimize, reset, run

__all__ = [
    "OptimizedModule", "disable", "explain", "innermost_fn", "is_dynamo_supported", "is_inductor_supported", "optimize", "reset",
    "run", "set_eval_frame", "skip_code",
]  # fmt: skip


class _Compiled(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return "_orig_mod" in type(instance).__dict__


class OptimizedModule(metaclass=_Compiled):
    """What `compile(module)` returns is an instance of this class and of the module's own."""

    def __new__(cls, mod: Any, dynamo_ctx: Callable[[Any], Any] | None = None) -> Any:
        return (dynamo_ctx or optimize())(mod)


def skip_code(code: CodeType) -> None:
    """Frames of this code are never captured by the frame hook."""
    from flambeau import _C
    from flambeau._dynamo import compile  # noqa: F401  (prepares the hook)

    _C._skip_code(code)


def innermost_fn(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that was compiled."""
    while hasattr(fn, "_dynamo_function"):
        fn = fn._dynamo_function
    return fn


def set_eval_frame(callback: Any) -> Any:
    """Frames are evaluated by compiled functions only while they need it: None, or the error that says so."""
    if callback is not None:
        raise NotImplementedError("[set_eval_frame] expected None, got a callback; use compile() or optimize(backend)")
    return None


def is_dynamo_supported() -> bool:
    return True


def is_inductor_supported() -> bool:
    from flambeau._inductor import build

    return build.compiler() is not None
