"""Policies that choose the submodules which get a group of their own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy", "transformer_auto_wrap_policy", "wrap",
]  # fmt: skip

_wrapper: list[tuple[Any, dict[str, Any]]] = []  # of the `enable_wrap` blocks that are open


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """A `with` block in which `wrap` wraps modules with a class and its options."""
    _wrapper.append((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _wrapper.pop()


def wrap(module: Any, **wrap_overrides: Any) -> Any:
    """The module wrapped as the surrounding `enable_wrap` block says; itself outside of one."""
    if not _wrapper:
        return module
    wrapper, options = _wrapper[-1]
    return wrapper(module, **(options | wrap_overrides))


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    return True


class ModuleWrapPolicy:
    """Modules of some classes."""

    def __init__(self, module_classes: Iterable[type]) -> None:
        self._module_classes = tuple(module_classes)

    def __call__(self, module: Any, recurse: bool = False, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, self._module_classes)


class CustomPolicy:
    """Modules that a function chooses."""

    def __init__(self, lambda_fn: Callable[[Any], Any]) -> None:
        self._lambda_fn = lambda_fn

    def __call__(self, module: Any, recurse: bool = False, *args: Any, **kwargs: Any) -> bool:
        return recurse or bool(self._lambda_fn(module))


def lambda_auto_wrap_policy(
    module: Any, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Any], bool]
) -> bool:
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Any, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type]
) -> bool:
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Any, recurse: bool, nonwrapped_numel: int, min_num_params: int = int(1e8), **_: Any
) -> bool:
    return recurse or nonwrapped_numel >= min_num_params


_or_policy = functools.partial(lambda module, recurse, nonwrapped_numel, policies: any(
    policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies
))  # fmt: skip
