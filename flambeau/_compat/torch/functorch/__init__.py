"""`functorch` as programs know it from before its functions moved to `torch.func`: the same functions, with a warning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import func
from flambeau.func._stateless import FunctionalModule, FunctionalModuleWithBuffers  # noqa: F401

# Where each function is now.
_HOMES = {
    "vmap": "torch.vmap", "make_functional": "torch.func.functional_call",
    "make_functional_with_buffers": "torch.func.functional_call",
    "combine_state_for_ensemble": "torch.func.stack_module_state",
    **{name: f"torch.func.{name}" for name in (
        "grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "functionalize"
    )},
}  # fmt: skip

__version__ = fl.__version__
__all__ = [*_HOMES, "make_fx"]


def _moved(name: str, home: str) -> Callable[..., Any]:
    function = getattr(func, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"[functorch.{name}] expected the function under its present name: Please use `{home}`, of which this one is an alias",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    return call


globals().update({name: _moved(name, home) for name, home in _HOMES.items()})


def __getattr__(name: str) -> Any:
    return getattr(func, name)
