"""Weight normalisation by a hook (deprecated): it computes the weight from its length and direction before each forward."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fl
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter, UninitializedParameter

__all__ = ["WeightNorm", "weight_norm", "remove_weight_norm"]


class WeightNorm:
    """The hook: sets `name` to the vectors of direction `name_v` and length `name_g`."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Any:
        """The weight from its parts."""
        return fl._weight_norm(getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Replaces a parameter by its parts and registers the hook."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(
                    f"[weight_norm] expected one hook on {name}, got a second: Cannot register two weight_norm hooks"
                )
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        if isinstance(weight, UninitializedParameter):
            raise ValueError(
                f"[weight_norm] expected an initialised parameter, got the lazy {name}; run one forward pass first"
            )
        del module._parameters[name]
        module.register_parameter(f"{name}_g", Parameter(fl.norm_except_dim(weight, 2, hook.dim).data))
        module.register_parameter(f"{name}_v", Parameter(weight.data))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Puts the parameter back with its present value."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[f"{self.name}_g"]
        del module._parameters[f"{self.name}_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """A weight as a direction and a length, which are learned instead.

    - module; name: of the parameter; dim: kept by the lengths.

    `nn.utils.parametrizations.weight_norm` is its successor.

    >>> nn.utils.weight_norm(nn.Linear(2, 3)).weight_g.shape
    torch.Size([3, 1])
    """
    warnings.warn(
        "nn.utils.weight_norm is deprecated; use nn.utils.parametrizations.weight_norm", FutureWarning, stacklevel=2
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """The weight of weight_norm as a plain parameter again.

    - module; name.

    >>> nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(2, 3)))
    Linear(in_features=2, out_features=3, bias=True)
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"[remove_weight_norm] expected a weight_norm of {name!r}, got none in {module}")
