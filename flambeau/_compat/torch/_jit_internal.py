"""Marks and types of TorchScript under the names that libraries import them by."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final, Optional  # noqa: F401

from flambeau.jit import (  # noqa: F401
    Attribute,
    _overload,
    _overload_method,
    annotate,
    export,
    ignore,
    is_scripting,
    is_tracing,
    unused,
)
from flambeau.jit.annotations import (  # noqa: F401
    BroadcastingList1,
    BroadcastingList2,
    BroadcastingList3,
    Dict,
    List,
    Tuple,
    Union,
)


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str, func_name: str
) -> Callable[..., Any]:
    """A function that calls one of two, by the value of an argument."""

    def call(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if flag else if_false)(*args, **kwargs)

    call.__name__, call.__module__ = func_name, module_name
    return call


def _copy_to_script_wrapper(fn: Any) -> Any:
    return fn


def get_callable_argument_names(fn: Any) -> list[str]:
    """Names of the arguments that can be given by position or by name."""
    import inspect

    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def is_optional(annotation: Any) -> bool:
    """Whether an annotation is a union with None."""
    return type(None) in getattr(annotation, "__args__", ()) and getattr(annotation, "__origin__", None) is Union


@contextlib.contextmanager
def _disable_emit_hooks() -> Iterator[None]:
    yield


def check_empty_containers(obj: Any) -> None:
    if obj in ([], {}, ()):
        warnings.warn(
            "The inner type of a container is lost when calling torch.jit.isinstance in eager mode. For example, List[int] would become list and therefore falsely return True for List[float] or List[str].",
            stacklevel=2,
        )
