"""Modules as functions of lists of parameters and buffers: the interface of functorch before `functional_call`."""

from __future__ import annotations

import copy
from typing import Any

import flambeau as fl
from flambeau.func.modules import functional_call, stack_module_state

__all__ = ["combine_state_for_ensemble", "make_functional", "make_functional_with_buffers"]


def _without_data(tensor: Any) -> Any:
    empty = fl.empty_like(tensor, device="meta")
    return fl.nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, fl.nn.Parameter) else empty


class FunctionalModuleWithBuffers:
    """A module without a state of its own: `f(parameters, buffers, *args)`."""

    def __init__(self, model: Any) -> None:
        # Without data; what the model shares under several names stays shared.
        empty = {id(t): _without_data(t) for t in (*model.parameters(), *model.buffers())}
        self.stateless_model = copy.deepcopy(model, empty)
        self.param_names = tuple(name for name, _ in model.named_parameters())
        self.buffer_names = tuple(name for name, _ in model.named_buffers())

    def __call__(self, params: Any, buffers: Any, *args: Any, **kwargs: Any) -> Any:
        values = dict(zip((*self.param_names, *self.buffer_names), (*params, *buffers), strict=True))
        return functional_call(self.stateless_model, values, args, kwargs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n  (stateless_model): {self.stateless_model!r}\n)"


class FunctionalModule(FunctionalModuleWithBuffers):
    """The same for a module without buffers: `f(parameters, *args)`."""

    def __call__(self, params: Any, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(params, (), *args, **kwargs)


def _parameters(model: Any, disable_autograd_tracking: bool) -> tuple[Any, ...]:
    copies = copy.deepcopy(model)
    for p in copies.parameters():
        if disable_autograd_tracking:
            p.requires_grad_(False)
    return tuple(copies.parameters())


def make_functional(model: Any, disable_autograd_tracking: bool = False) -> Any:
    """A function of parameters and inputs, and the parameters."""
    if list(model.buffers()):
        raise RuntimeError(
            "[make_functional] expected a module without buffers, got some: make_functional_with_buffers"
        )
    return FunctionalModule(model), _parameters(model, disable_autograd_tracking)


def make_functional_with_buffers(model: Any, disable_autograd_tracking: bool = False) -> Any:
    """A function of parameters, buffers and inputs, the parameters, and the buffers."""
    function = FunctionalModuleWithBuffers(model)
    return function, _parameters(model, disable_autograd_tracking), tuple(copy.deepcopy(list(model.buffers())))


def combine_state_for_ensemble(models: Any) -> Any:
    """A function of one model of an ensemble, and the stacked parameters and buffers of all."""
    if not models:
        raise RuntimeError(
            "[combine_state_for_ensemble] expected models, got none: Expected at least one model, got 0."
        )
    params, buffers = stack_module_state(models)
    return FunctionalModuleWithBuffers(models[0]), tuple(params.values()), tuple(buffers.values())
