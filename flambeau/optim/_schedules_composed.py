"""Schedules made of others, and the one that watches a metric."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from flambeau.optim._schedule import EPOCH_DEPRECATION_WARNING, LRScheduler, set_value
from flambeau.optim.optimizer import Optimizer


def _check_optimizers(owner: str, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
    for i, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"[{owner}] expected schedulers, got {type(scheduler).__name__} at index {i}")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"[{owner}] expected schedulers whose step takes no metric, got a ReduceLROnPlateau at index {i}"
            )
        if optimizer is not scheduler.optimizer:
            raise ValueError(
                f"[{owner}] expected schedulers of one optimizer, got {type(scheduler).__name__} of another at index {i}"
            )


class _Composed(LRScheduler):
    """Saves the state of its parts in place of the parts."""

    _schedulers: list[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        state = {key: value for key, value in vars(self).items() if key not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(saved)


class SequentialLR(_Composed):
    """Schedules one after the other.

    - optimizer; schedulers: the schedules; milestones: the steps at which the next begins; last_epoch.

    >>> lr = flambeau.optim.lr_scheduler
    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = lr.SequentialLR(optimizer, [lr.ConstantLR(optimizer, 0.1, 2), lr.ExponentialLR(optimizer, 0.5)], [2])
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.1]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError("[SequentialLR] expected at least one scheduler, got none")
        _check_optimizers(type(self).__name__, optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"[SequentialLR] expected one milestone less than schedulers, got {len(milestones)} and {len(schedulers)}"
            )
        self._schedulers = list(schedulers)
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Making the schedules has made the first step of each: start over with the first of them alone.
        for group in optimizer.param_groups:
            set_value(group, "lr", group["initial_lr"])
        for scheduler in self._schedulers:
            self.recursive_undo(scheduler)
        self._schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Take back the step that making a schedule makes, in all the schedules that it consists of."""
        scheduler = self if sched is None else sched
        parts = getattr(scheduler, "_schedulers", None)
        if parts is not None:
            for part in parts:
                self.recursive_undo(part)
        elif hasattr(scheduler, "last_epoch"):
            scheduler.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[at]
        if at > 0 and self._milestones[at - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Composed):
    """Schedules at the same time: their factors are multiplied.

    - schedulers: of one optimizer; optimizer.

    >>> lr = flambeau.optim.lr_scheduler
    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = lr.ChainedScheduler([lr.ConstantLR(optimizer, 0.5, 9), lr.ExponentialLR(optimizer, 0.5)])
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ValueError("[ChainedScheduler] expected at least one scheduler, got none")
        optimizer = optimizer or schedulers[0].optimizer
        _check_optimizers(type(self).__name__, optimizer, schedulers)
        self._schedulers = list(schedulers)
        self.optimizer = optimizer
        self._last_lr = self._schedulers[-1]._present()

    def step(self) -> None:  # type: ignore[override]
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._schedulers[-1]._present()


class ReduceLROnPlateau(LRScheduler):
    """Rate times a factor when a quantity has stopped improving.

    - optimizer; mode: "min" or "max"; factor; patience: steps without improvement that are borne.
    - threshold, threshold_mode: what counts as improvement; cooldown, min_lr, eps.

    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = flambeau.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    >>> for loss in (1.0, 1.0, 1.0, 1.0):
    ...     schedule.step(loss)
    >>> optimizer.param_groups[0]["lr"]
    0.1
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError(f"[ReduceLROnPlateau] expected factor < 1, got {factor}")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"[{type(self).__name__}] expected an Optimizer, got {type(optimizer).__name__}")
        self.factor, self.optimizer = factor, optimizer
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != len(optimizer.param_groups):
                raise ValueError(
                    f"[ReduceLROnPlateau] expected {len(optimizer.param_groups)} values of min_lr, one for each parameter group, got {len(min_lr)}"
                )
            self.default_min_lr, self.min_lrs = None, list(min_lr)
        else:
            self.default_min_lr, self.min_lrs = min_lr, [min_lr] * len(optimizer.param_groups)
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        self.cooldown_counter = 0
        self.last_epoch = 0
        self._last_lr = self._present()
        self._init_is_better(mode=mode, threshold=threshold, threshold_mode=threshold_mode)
        self._reset()

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"[ReduceLROnPlateau] expected mode 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"[ReduceLROnPlateau] expected threshold_mode 'rel' or 'abs', got {threshold_mode!r}")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether a is better than the best so far by more than the threshold."""
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            limit = best * (1.0 + sign * self.threshold)
        else:
            limit = best + sign * self.threshold
        return a < limit if self.mode == "min" else a > limit

    _is_better = is_better

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        now = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = epoch
        if self.is_better(now, self.best):
            self.best, self.num_bad_epochs = now, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._present()

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"[ReduceLROnPlateau] expected {len(self.min_lrs)} parameter groups as at the start, got {len(groups)}; "
                    "give each group a value in min_lrs"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, smallest in zip(groups, self.min_lrs):
            old = float(group["lr"])
            new = max(old * self.factor, smallest)
            if old - new > self.eps:
                set_value(group, "lr", new)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)
