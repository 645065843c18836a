"""Optimizers whose step is an update record over lists of tensors: what they share.

A subclass is a table: the record, the state it keeps, and the options of a group that the record takes as scalars.
Gathering the lists and the arithmetic are native; Python is not involved for single parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import flambeau as fl
from flambeau import _C, Tensor, _ops
from flambeau.optim.optimizer import (
    Optimizer,
    ParamsT,
    _check_tensor_lr,
    _get_scalar_dtype,
    _use_grad_for_differentiable,
)

_COMPLEX, _SEVERAL_DEVICES, _MISSING = 1, 2, 4  # as csrc/python/optimizer.cpp has them


def by_device(lists: list[list[Tensor]]) -> list[list[list[Tensor]]]:
    """The lists, split by the device of the first one's tensors."""
    groups: dict[Any, list[list[Tensor]]] = {}
    for row in zip(*lists):
        group = groups.setdefault(row[0].device, [[] for _ in lists])
        for column, value in zip(group, row):
            column.append(value)
    return list(groups.values())


def run_update(record: str, lists: list[list[Tensor]], flags: int, differentiable: bool, **numbers: Any) -> None:
    """Run an update record over lists of tensors: parameters first, then gradients, then state."""
    if not lists[0]:
        return
    if flags & _COMPLEX:
        lists = [[fl.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in each] for each in lists]
    if differentiable:
        from flambeau.ops.lists import update_evaluation

        update_evaluation.run(record, *lists, **numbers)
        return
    update = getattr(_ops, record)
    for part in by_device(lists) if flags & _SEVERAL_DEVICES else (lists,):
        update(*part, **numbers)


def check_at_least_zero(**values: Any) -> None:
    """Raise for the first argument that is no number or negative."""
    for name, value in values.items():
        if value is None or isinstance(value, str):
            raise TypeError(f"[optim] expected a number for {name}, got {value!r}")
        if not value >= 0.0:
            raise ValueError(f"[optim] expected {name} >= 0, got {value}: Invalid {name} value: {value}")


def check_betas(betas: Any) -> None:
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(
                f"[optim] expected betas in [0, 1), got {beta} at index {i}: Invalid beta parameter at index {i}: {beta}"
            )


def zeros_like(p: Tensor) -> Tensor:
    return fl.zeros_like(p, memory_format=fl.preserve_format)


def filled_like(p: Tensor, value: float) -> Tensor:
    filled = fl.full_like(p, complex(value, value) if p.is_complex() else value, memory_format=fl.preserve_format)
    return filled.detach()


# State that is one scalar for a parameter: the value it starts with, or the option that says so.
_SCALARS: dict[str, float | str] = {"step": 0.0, "mu": 1.0, "mu_product": 1.0, "eta": "lr"}
# State like the parameter that starts with the value of an option; all other state starts with zeros.
_FILLED = {"sum": "initial_accumulator_value", "step_size": "lr"}
# Options that records take under other names, or as two scalars.
_RENAMED = {"decoupled_weight_decay": "decoupled"}
_PAIRS = {"betas": ("beta1", "beta2"), "etas": ("etaminus", "etaplus"), "step_sizes": ("smallest", "largest")}


class ListOptimizer(Optimizer):
    """A step of each group is one call of an update record."""

    _record: str
    _state: tuple[str, ...]  # in the order of the record
    _numbers: str  # names of options that the record takes as scalars
    _constants: ClassVar[dict[str, float]] = {}  # scalars of the record that are no options
    _single: tuple[tuple[str, str], ...]  # from _numbers: names of the record with the options that give them
    _double: tuple[tuple[str, str, str], ...]

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if names := cls.__dict__.get("_numbers", "").split():
            cls._single = tuple((_RENAMED.get(name, name), name) for name in names if name not in _PAIRS)
            cls._double = tuple((*_PAIRS[name], name) for name in names if name in _PAIRS)

    def __init__(self, params: ParamsT, at_least_zero: str, **options: Any) -> None:
        _check_tensor_lr(options["lr"])
        check_at_least_zero(**{name: options[name] for name in at_least_zero.split()})
        if "betas" in options:
            check_betas(options["betas"])
        super().__init__(params, options)
        if options.get("fused"):
            if options["differentiable"]:
                raise RuntimeError("[optim] expected fused without differentiable, got both")
            if options["foreach"]:
                raise RuntimeError("[optim] expected fused or foreach, got both")
            self._step_supports_amp_scaling = True

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Names of the state that the record takes, in its order."""
        return self._state

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        names = self._state_names(group)
        state = {}
        for name in (n for n in names if n in _SCALARS):
            value = _SCALARS[name]
            state[name] = self._step_count(p, group, float(group[value]) if isinstance(value, str) else value)
        for name in (n for n in names if n not in _SCALARS):
            state[name] = filled_like(p, float(group[_FILLED[name]])) if name in _FILLED else zeros_like(p)
        return state

    def _record_of(self, group: dict[str, Any]) -> str:
        return self._record

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], flags: int) -> None:
        """Run the record over parameters, gradients and the named state."""
        numbers = {name: group[option] for name, option in self._single}
        for first, second, option in self._double:
            numbers[first], numbers[second] = group[option]
        run_update(self._record_of(group), lists, flags, group["differentiable"], **numbers, **self._constants)

    def _step_count(self, p: Tensor, group: dict[str, Any], value: float = 0.0) -> Tensor:
        """Scalar state: on the CPU, except where steps must not wait for the device."""
        if group.get("capturable") or group.get("fused"):
            return fl.full((), value, dtype=_get_scalar_dtype(group.get("fused")), device=p.device)
        return fl.full((), value, dtype=_get_scalar_dtype(), device="cpu")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key, default in self.defaults.items():
                group.setdefault(key, default)
            for p in group["params"]:  # checkpoints of older versions hold Python scalars where tensors are expected
                entry = self.state.get(p, {})
                for key in _SCALARS:
                    if key in entry and not isinstance(entry[key], Tensor):
                        entry[key] = self._step_count(p, group, float(entry[key]))

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient. A closure computes the loss, and its gradients, again."""
        loss = None
        if closure is not None:
            with fl.enable_grad():
                loss = closure()
        if getattr(self, "found_inf", None) is not None and self.found_inf.item():
            return loss  # set by GradScaler, as is grad_scale
        for group in self.param_groups:
            names = self._state_names(group)
            params, grads, states, fresh, flags = _C._gather_state(group["params"], self.state, names)
            if flags & _MISSING:
                for p in fresh or params:
                    for key, value in self._initial_state(group, p).items():
                        self.state[p].setdefault(key, value)
                params, grads, states, fresh, flags = _C._gather_state(group["params"], self.state, names)
            if group.get("fused") and params and params[0].is_meta:
                raise RuntimeError(
                    "[optim] expected parameters with data for fused, got some on the meta device: `fused=True` requires all the "
                    "params to be floating point Tensors of supported devices"
                )
            if getattr(self, "grad_scale", None) is not None:
                fl._foreach_div_(grads, self.grad_scale)
            self._update(group, [params, grads, *states], flags)
        return loss
