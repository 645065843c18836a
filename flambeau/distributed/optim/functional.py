"""Optimizers that take gradients as arguments: `step(gradients)` and `step_param(parameter, gradient)`.

They are made of the plain classes: gradients are put in place for the step and taken away again. Communication hooks use
`step_param` to update a parameter as soon as its gradient is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau.optim import Optimizer

__all__ = ["FunctionalOptimizer", "as_functional_optim", "functional_optim_map", "register_functional_optim"]


class FunctionalOptimizer:
    """An optimizer over parameters whose gradients are arguments of `step`."""

    optimizer_class: type[Optimizer]

    def __init__(self, params: Sequence[Any], *args: Any, _allow_empty_param_list: bool = False, **kwargs: Any) -> None:
        parameters = list(params)
        if not parameters and not _allow_empty_param_list:
            raise ValueError("[functional optimizer] optimizer got an empty parameter list")
        self._arguments, self._keywords = args, kwargs
        self.optimizer: Any = self._make(parameters) if parameters else None

    def _make(self, parameters: list[Any]) -> Optimizer:
        return self.optimizer_class(parameters, *self._arguments, **self._keywords)

    @property
    def param_group(self) -> dict[str, Any]:
        return {"params": []} if self.optimizer is None else self.optimizer.param_groups[0]

    @property
    def state(self) -> Any:
        return {} if self.optimizer is None else self.optimizer.state

    def step(self, gradients: Sequence[Any]) -> None:
        parameters = self.param_group["params"]
        if len(parameters) != len(gradients):
            raise ValueError(
                "[functional optimizer] the gradients passed in does not equal to the size of the parameters! Params "
                f"length: {len(parameters)}. Gradients length: {len(gradients)}"
            )
        self._step(parameters, gradients)

    def step_param(self, param: Any, grad: Any) -> None:
        """One step of one parameter, which may be a new one."""
        known = self.param_group["params"]
        if self.optimizer is None:
            self.optimizer = self._make([param])
        elif not any(param is one for one in known):
            known.append(param)
        self._step([param], [grad])

    def _step(self, parameters: Sequence[Any], gradients: Sequence[Any]) -> None:
        group = self.optimizer.param_groups[0]
        everything, before = group["params"], [parameter.grad for parameter in parameters]
        group["params"] = [p for p, gradient in zip(parameters, gradients) if gradient is not None]
        try:
            for parameter, gradient in zip(parameters, gradients):
                parameter.grad = gradient
            self.optimizer.step()
        finally:
            group["params"] = everything
            for parameter, gradient in zip(parameters, before):
                parameter.grad = gradient


def _functional(kind: type[Optimizer]) -> type[FunctionalOptimizer]:
    return type(f"_Functional{kind.__name__}", (FunctionalOptimizer,), {"optimizer_class": kind})


_optim = flambeau.optim
functional_optim_map: dict[type[Optimizer], type] = {
    kind: _functional(kind)
    for kind in (
        _optim.Adagrad, _optim.Adam, _optim.AdamW, _optim.SGD, _optim.Adadelta, _optim.RMSprop, _optim.Rprop, _optim.Adamax,
    )
}  # fmt: skip


def register_functional_optim(key: Any, optim: type) -> None:
    """The class that stands for an optimizer of one's own."""
    functional_optim_map.setdefault(key, optim)


def as_functional_optim(optim_cls: type[Optimizer], *args: Any, **kwargs: Any) -> Any:
    """An optimizer of this class without parameters, for `step_param`."""
    if optim_cls not in functional_optim_map:
        raise ValueError(f"[as_functional_optim] Optimizer {optim_cls} does not have a functional counterpart!")
    return functional_optim_map[optim_cls]([], *args, _allow_empty_param_list=True, **kwargs)
