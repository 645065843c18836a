"""safetensors on tensors of flambeau, without the alias.

`safetensors.torch.save_file` and `save` take dicts of flambeau's tensors, `save_model` and `load_model` its modules.
`safetensors.flambeau` is `flambeau.utils.safetensors`, which also loads files as tensors of flambeau.
"""

from __future__ import annotations

import functools
from typing import Any


def _is_own(value: Any) -> bool:
    import flambeau

    if isinstance(value, dict):
        return any(isinstance(x, flambeau.Tensor) for x in value.values())
    return isinstance(value, flambeau.nn.Module)


def add(module: Any) -> None:
    """Lets the functions of `safetensors.torch` pass what is flambeau's on to flambeau's own."""
    import flambeau
    from flambeau.utils import safetensors

    if getattr(module, "torch", None) is flambeau:  # under the alias everything is
        return
    for name in ("save", "save_file", "save_model", "load_model"):
        theirs, ours = getattr(module, name), getattr(safetensors, name)

        def either(first: Any, *args: Any, theirs: Any = theirs, ours: Any = ours, **kwargs: Any) -> Any:
            return (ours if _is_own(first) else theirs)(first, *args, **kwargs)

        setattr(module, name, functools.wraps(theirs)(either))
