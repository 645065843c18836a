"""Optimizers whose step is an update record over lists of tensors: what they share.

A subclass names the state it keeps, makes the state of a parameter that has none, and says which record to run with
which numbers. Gathering the lists and the arithmetic are native; Python is not involved for single parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C, Tensor, _ops
from flambeau.optim.optimizer import Optimizer, _get_scalar_dtype, _use_grad_for_differentiable

_COMPLEX, _OFF_CPU, _MISSING = 1, 2, 4  # as csrc/python/optimizer.cpp has them


def by_device(lists: list[list[Tensor]]) -> list[list[list[Tensor]]]:
    """The lists, split by the device of the first one's tensors."""
    found: dict[Any, list[list[Tensor]]] = {}
    for row in zip(*lists):
        group = found.setdefault(row[0].device, [[] for _ in lists])
        for column, value in zip(group, row):
            column.append(value)
    return list(found.values())


def run_update(record: str, lists: list[list[Tensor]], found: int, differentiable: bool, **numbers: Any) -> None:
    """Run an update record over lists of tensors: parameters first, then gradients, then state."""
    if not lists[0]:
        return
    if found & _COMPLEX:
        lists = [[fl.view_as_real(t) if t.is_complex() else t for t in each] for each in lists]
    if differentiable:
        from flambeau.ops.lists import update_evaluation

        update_evaluation.run(record, *lists, **numbers)
        return
    update = getattr(_ops, record)
    for part in by_device(lists) if found & _OFF_CPU else (lists,):
        update(*part, **numbers)


def check_at_least_zero(**values: Any) -> None:
    """Raise for the first argument that is no number or negative."""
    for name, value in values.items():
        if value is None or isinstance(value, str):
            raise TypeError(f"[optim] expected a number for {name}, got {value!r}")
        if not value >= 0.0:
            raise ValueError(f"[optim] expected {name} >= 0, got {value}")


def check_betas(betas: Any) -> None:
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"[optim] expected betas in [0, 1), got {beta} at index {i}")


def zeros_like(p: Tensor) -> Tensor:
    return fl.zeros_like(p, memory_format=fl.preserve_format)


class ListOptimizer(Optimizer):
    """A step of each group is one call of an update record."""

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Names of the state that the record takes, in its order."""
        raise NotImplementedError

    def _initial_state(self, group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        raise NotImplementedError

    def _update(self, group: dict[str, Any], lists: list[list[Tensor]], found: int) -> None:
        """Run the record over parameters, gradients and the named state."""
        raise NotImplementedError

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
            for p in group["params"]:  # checkpoints of old versions hold numbers where tensors are expected
                entry = self.state.get(p, {})
                for key in ("step", "eta", "mu", "mu_product"):
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
            params, grads, states, fresh, found = _C._gather_state(group["params"], self.state, names)
            if found & _MISSING:
                for p in fresh or params:
                    for key, value in self._initial_state(group, p).items():
                        self.state[p].setdefault(key, value)
                params, grads, states, fresh, found = _C._gather_state(group["params"], self.state, names)
            if getattr(self, "grad_scale", None) is not None:
                fl._foreach_div_(grads, self.grad_scale)
            self._update(group, [params, grads, *states], found)
        return loss
