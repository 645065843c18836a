"""An optimizer that averages the model after its steps, as an averager decides."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.optim import Optimizer

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Wraps an optimizer; its state dict also holds the averager's step."""

    def __init__(self, optim: Optimizer, averager: Any) -> None:
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optim.state

    def state_dict(self) -> dict[str, Any]:
        return self.optim.state_dict() | {"step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optim.load_state_dict({key: value for key, value in state_dict.items() if key != "step"})
        if "step" in state_dict:
            self.averager.step = state_dict["step"]
        else:
            warnings.warn("Loaded state dict does not contain a step counter for an averager.", stacklevel=2)
            self.averager.step = 0

    def step(self, closure: Any = None) -> Any:
        result = self.optim.step(closure) if closure is not None else self.optim.step()
        self.averager.average_parameters(params=self.param_groups)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: Any) -> None:
        self.optim.add_param_group(param_group)

    def __repr__(self) -> str:
        return repr(self.optim)
