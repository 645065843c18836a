"""Making a module without spending time on initial values that will be overwritten."""

from __future__ import annotations

from inspect import signature
from typing import Any

from flambeau.nn.modules.module import Module


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Module:
    """A module whose parameters are not initialized.

    - module_cls: its class; args, kwargs: of its constructor.

    >>> nn.utils.skip_init(nn.Linear, 2, 3)
    Linear(in_features=2, out_features=3, bias=True)
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"[skip_init] expected a class of modules, got {module_cls}")
    if "device" not in signature(module_cls).parameters:
        raise RuntimeError(f"[skip_init] expected {module_cls.__name__} to take a device, which it does not")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, **kwargs, device="meta").to_empty(device=device)
