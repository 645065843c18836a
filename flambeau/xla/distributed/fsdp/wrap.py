"""Which parts of a module are wrapped on their own, by PyTorch's policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.distributed.fsdp.wrap import (
    always_wrap_policy,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

__all__ = [
    "always_wrap_policy", "lambda_auto_wrap_policy", "recursive_wrap", "size_based_auto_wrap_policy", "transformer_auto_wrap_policy",
]  # fmt: skip


def recursive_wrap(
    module: Any,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., Any],
    ignored_modules: set[Any],
    ignored_params: set[Any],
    only_wrap_children: bool = False,
    **options: Any,
) -> tuple[Any, int]:
    """A module with the parts that the policy names wrapped, inner ones first, and how many parameters that concerns."""
    total = sum(p.numel() for p in module.parameters() if p not in ignored_params)
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=total):
        return module, 0
    wrapped = 0
    for name, child in module.named_children():
        if child in ignored_modules:
            continue
        replaced, count = recursive_wrap(
            child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **options
        )
        setattr(module, name, replaced)
        wrapped += count
    rest = total - wrapped
    if not only_wrap_children and auto_wrap_policy(module=module, recurse=False, nonwrapped_numel=rest):
        return wrapper_cls(module, **options), total
    return module, wrapped
