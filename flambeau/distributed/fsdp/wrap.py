"""Policies that choose the submodules which get a group of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

__all__ = [
    "CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "lambda_auto_wrap_policy", "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
]  # fmt: skip


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
