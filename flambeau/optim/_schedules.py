"""Schedules given by a formula of the epoch."""

from __future__ import annotations

import math
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from flambeau.optim._schedule import LRScheduler, for_groups, set_value
from flambeau.optim.optimizer import Optimizer

Factor = Callable[[int], float]


class _WithFunctions(LRScheduler):
    """Functions of the epoch, one for each group. Objects with `__call__` are saved with their attributes."""

    lr_lambdas: list[Factor]

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1) -> None:
        n = len(optimizer.param_groups)
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != n:
                raise ValueError(
                    f"[{type(self).__name__}] expected {n} functions for lr_lambda, one for each parameter group, got {len(lr_lambda)}"
                )
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * n
        for fn in self.lr_lambdas:
            if not callable(fn):
                raise TypeError(
                    f"[{type(self).__name__}] expected a function for lr_lambda, got {type(fn).__name__}: lr_lambda should be a function"
                )
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        state = {key: value for key, value in vars(self).items() if key not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [
            None if isinstance(fn, types.FunctionType) else vars(fn).copy() for fn in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        functions = state_dict["lr_lambdas"]
        vars(self).update({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for fn, saved in zip(self.lr_lambdas, functions):
            if saved is not None:
                vars(fn).update(saved)


class LambdaLR(_WithFunctions):
    """Base rate times a function of the step.

    - optimizer: the one whose rates are set; lr_lambda: the function, or one for each group; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 0.9, 0.81, 0.729]
    """

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return [base * fn(self.last_epoch) for fn, base in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(_WithFunctions):
    """Last rate times a function of the step.

    - optimizer: the one whose rates are set; lr_lambda: the function, or one for each group; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 0.5, 0.25, 0.125]
    """

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial:
            return self._present()
        return [g["lr"] * fn(self.last_epoch) for fn, g in zip(self.lr_lambdas, self.optimizer.param_groups)]


class StepLR(LRScheduler):
    """Rate times gamma every step_size steps.

    - optimizer: the one whose rates are set; step_size; gamma; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 1.0, 0.1, 0.1]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._present()
        return self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Rate times gamma at given steps.

    - optimizer: the one whose rates are set; milestones: the steps, ascending; gamma; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3])
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 0.1, 0.1, 0.01]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch not in self.milestones:
            return self._present()
        return self._scaled(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Rate times a factor for a number of steps.

    - optimizer: the one whose rates are set; factor; total_iters: the number of steps; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError(f"[ConstantLR] expected factor in [0, 1], got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        if self.last_epoch != self.total_iters:
            return self._present()
        return self._scaled(1.0 / self.factor)

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * (1.0 if self.last_epoch >= self.total_iters else self.factor) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Factor of the rate that goes from start_factor to end_factor in a straight line.

    - optimizer: the one whose rates are set; start_factor, end_factor; total_iters: the number of steps; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=3)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [0.25, 0.5, 0.75, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1.0:
            raise ValueError(f"[LinearLR] expected start_factor in (0, 1], got {start_factor}")
        if not 0 <= end_factor <= 1.0:
            raise ValueError(f"[LinearLR] expected end_factor in [0, 1], got {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._present()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._scaled(1.0 + rise / before)

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * share
        return [base * factor for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Rate times gamma every step.

    - optimizer: the one whose rates are set; gamma; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        return self._present() if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Rate that falls to zero as a power of the steps that are left.

    - optimizer: the one whose rates are set; total_iters: the number of steps; power; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 0.75, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._present()
        left = 1.0 - self.last_epoch / self.total_iters
        return self._scaled((left / (1.0 - (self.last_epoch - 1) / self.total_iters)) ** self.power)

    def _get_closed_form_lr(self) -> list[Any]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (1.0 - share) ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Rate that follows half a cosine down to eta_min.

    - optimizer: the one whose rates are set; T_max: steps to the minimum; eta_min; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 0.854, 0.5, 0.146]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        if self._is_initial:
            return self._present()
        groups = self.optimizer.param_groups
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [g["lr"] + (base - self.eta_min) * rise for base, g in zip(self.base_lrs, groups)]
        ratio = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / (
            1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        )
        return [ratio * (g["lr"] - self.eta_min) + self.eta_min for g in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine that begins anew at the base rate after each period.

    - optimizer: the one whose rates are set; T_0: first period; T_mult: factor of the next ones; eta_min; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"[{type(self).__name__}] expected a positive integer for T_0, got {T_0!r}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"[{type(self).__name__}] expected an integer >= 1 for T_mult, got {T_mult!r}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"[{type(self).__name__}] expected a number for eta_min, got {type(eta_min).__name__}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min = T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to a given one, which may be a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur = self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur = self.T_cur - self.T_i
                self.T_i = self.T_i * self.T_mult
        else:
            self._restart_at(epoch)
        self.last_epoch = math.floor(epoch)
        with self._within("_get_lr_called_within_step"):
            for group, lr in zip(self.optimizer.param_groups, self.get_lr()):
                set_value(group, "lr", lr)
        self._last_lr = self._present()

    def _restart_at(self, epoch: float) -> None:
        if epoch < 0:
            raise ValueError(f"[{type(self).__name__}] expected an epoch >= 0, got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
            self.T_i = self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n


# ---------------------------------------------------------------- rate and momentum in opposite phases


def _set_momentum(group: dict[str, Any], use_beta1: bool, value: Any) -> None:
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """Rate that goes up and down between two bounds.

    - optimizer: the one whose rates are set; base_lr, max_lr: the bounds; step_size_up, step_size_down; mode, gamma, scale_fn, scale_mode; cycle_momentum, base_momentum, max_momentum; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=0.3, step_size_up=2, cycle_momentum=False)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [0.1, 0.2, 0.3, 0.2]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"[{type(self).__name__}] expected an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        base_lrs = for_groups("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups):
                set_value(group, "lr", lr)
        self.max_lrs = for_groups("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        down = float(step_size_down) if step_size_down is not None else up
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(
                f"[CyclicLR] expected mode triangular, triangular2 or exp_range, or a scale_fn, got {mode!r}"
            )
        self.mode, self.gamma = mode, gamma
        self._scale_fn_ref, self._scale_fn_custom, self.scale_mode = None, scale_fn, scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
                raise ValueError(
                    f"[{type(self).__name__}] expected an optimizer with momentum or betas for cycle_momentum=True, got {type(optimizer).__name__}"
                )
            self.use_beta1 = "betas" in optimizer.defaults
            self.base_momentums = for_groups("base_momentum", optimizer, base_momentum)
            self.max_momentums = for_groups("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for high, low, group in zip(self.max_momentums, self.base_momentums, optimizer.param_groups):
                    _set_momentum(group, self.use_beta1, high)
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """Height of the waves, relative to the first."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular2":
            return 1 / 2.0 ** (x - 1)
        return self.gamma**x if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[Any]:
        """The rates of the present epoch; sets the momentums, too."""
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for low, high, group in zip(self.base_momentums, self.max_momentums, self.optimizer.param_groups):
                _set_momentum(group, self.use_beta1, high - (high - low) * height * scale)
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state.pop("_scale_fn_ref", None)
        fn = state.pop("_scale_fn_custom")
        saved = None if fn is None or isinstance(fn, types.FunctionType) else vars(fn).copy()
        return {**state, "_scale_fn_custom": saved}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict.get("_scale_fn_custom")
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_scale_fn_custom"})
        if saved is not None:
            vars(self._scale_fn_custom).update(saved)


class OneCycleLR(LRScheduler):
    """Rate that rises to max_lr and falls far below the start, once.

    - optimizer: the one whose rates are set; max_lr; total_steps, or epochs and steps_per_epoch; pct_start: share of the rise; anneal_strategy; cycle_momentum, base_momentum, max_momentum; div_factor, final_div_factor; three_phase; last_epoch: the step to go on from.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5, cycle_momentum=False)
    >>> rates = []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step(); schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [0.04, 0.95, 0.611, 0.188]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"[{type(self).__name__}] expected an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.total_steps = self._length(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"[OneCycleLR] expected a float in [0, 1] for pct_start, got {pct_start!r}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"[OneCycleLR] expected anneal_strategy 'cos' or 'linear', got {anneal_strategy!r}")
        self._anneal_func_type = anneal_strategy
        rates, moments = ("initial_lr", "max_lr", "min_lr"), ("max_momentum", "base_momentum", "max_momentum")
        peak = float(pct_start * self.total_steps) - 1
        last = self.total_steps - 1
        if three_phase:
            ends = [peak, float(2 * pct_start * self.total_steps) - 2, last]
            lr_points: tuple[str, ...] = ("initial_lr", "max_lr", "initial_lr", "min_lr")
            momentum_points: tuple[str, ...] = (*moments, "max_momentum")
        else:
            ends, lr_points, momentum_points = [peak, last], rates, moments
        self._schedule_phases: list[dict[str, Any]] = [
            {
                "end_step": end,
                "start_lr": lr_points[i],
                "end_lr": lr_points[i + 1],
                "start_momentum": momentum_points[i],
                "end_momentum": momentum_points[i + 1],
            }
            for i, end in enumerate(ends)
        ]
        max_lrs = for_groups("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, max_lrs):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
                raise ValueError(
                    f"[{type(self).__name__}] expected an optimizer with momentum or betas for cycle_momentum=True, got {type(optimizer).__name__}"
                )
            self.use_beta1 = "betas" in optimizer.defaults
            highs = for_groups("max_momentum", optimizer, max_momentum)
            lows = for_groups("base_momentum", optimizer, base_momentum)
            if last_epoch == -1:
                for high, low, group in zip(highs, lows, optimizer.param_groups):
                    _set_momentum(group, self.use_beta1, high)
                    group["max_momentum"], group["base_momentum"] = high, low
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _length(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
        lengths = {"total_steps": total_steps} if total_steps is not None else {"epochs": epochs, "steps_per_epoch": steps_per_epoch}  # fmt: skip
        if None in lengths.values():
            raise ValueError("[OneCycleLR] expected total_steps, or epochs and steps_per_epoch, got neither")
        for name, value in lengths.items():
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"[OneCycleLR] expected a positive integer for {name}, got {value!r}")
        return total_steps if total_steps is not None else epochs * steps_per_epoch  # type: ignore[operator]

    def _anneal_func(self, start: Any, end: Any, share: float) -> Any:
        """From start to end as share goes from 0 to 1."""
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self) -> list[Any]:
        """The rates of the present step; sets the momentums, too."""
        self._warn_outside_step()
        now = self.last_epoch
        if now > self.total_steps:
            raise ValueError(f"[OneCycleLR] expected at most {self.total_steps} steps, got step {now}")
        start = 0.0
        for phase in self._schedule_phases:
            if now <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        share = (now - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                momentum = self._anneal_func(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                _set_momentum(group, self.use_beta1, momentum)
        return rates
