"""The base of all schedules: it counts epochs and writes the learning rates it is told into the parameter groups."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau import Tensor
from flambeau.optim.optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available. Please open an issue if you are unable to "
    "replicate your use case: https://github.com/pytorch/pytorch/issues/new/choose."
)


def copied(value: Any) -> Any:
    """A value that does not change when the group's tensor is written to."""
    return value.clone() if isinstance(value, Tensor) else value


def set_value(group: dict[str, Any], key: str, value: Any) -> None:
    """Write an option of a group: into its tensor, if it is one."""
    if isinstance(group[key], Tensor):
        group[key].fill_(value.squeeze() if isinstance(value, Tensor) and value.dim() else value)
    else:
        group[key] = value


def for_groups(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for each parameter group, from one for all or a list. Tensors are copied: callers may write to theirs."""
    n = len(optimizer.param_groups)
    if isinstance(value, (list, tuple)):
        if len(value) != n:
            raise ValueError(
                f"[lr_scheduler] expected {n} values of {name}, one for each parameter group, got {len(value)}"
            )
        return [_copied(v) for v in value]
    return [_copied(value) for _ in range(n)]


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


class LRScheduler:
    """Base class of schedules: `get_lr` returns the learning rates of the groups at step `last_epoch`.

    - optimizer: the one whose rates are set; last_epoch: the step to go on from.

    >>> class Halve(flambeau.optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [base * 0.5**self.last_epoch for base in self.base_lrs]
    >>> optimizer = flambeau.optim.SGD([nn.Parameter(flambeau.zeros(1))], lr=1.0)
    >>> schedule = Halve(optimizer)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"[{type(self).__name__}] expected an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    f"last_epoch >= 0. This typically happens when initializing a scheduler with a non-default "
                    f"last_epoch for an optimizer that had no scheduler"
                )
        self.base_lrs: list[Any] = [copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._watch_steps()
        self._initial_step()

    def _watch_steps(self) -> None:
        """Have the optimizer remember that it made a step, to tell when the two are called in the wrong order."""
        optimizer = self.optimizer
        if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
            return
        method = optimizer.step
        held = weakref.ref(optimizer)

        @functools.wraps(method.__func__ if hasattr(method, "__func__") else method)
        def step(*args: Any, **kwargs: Any) -> Any:
            it = held()
            it._opt_called = True  # type: ignore[union-attr]
            return type(it).step(it, *args, **kwargs) if plain else method(*args, **kwargs)  # type: ignore[arg-type, union-attr]

        # A bound method would keep the optimizer alive through itself.
        plain = getattr(method, "__func__", None) is type(optimizer).step
        if plain:
            del method
        step._wrapped_by_lr_sched = True
        optimizer.step = step  # type: ignore[method-assign]

    @contextmanager
    def _within(self, flag: str) -> Iterator[None]:
        setattr(self, flag, True)
        try:
            yield
        finally:
            setattr(self, flag, False)

    def _initial_step(self) -> None:
        self._step_count = 0
        with self._within("_is_initial"):
            self.step()

    def state_dict(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates set last."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        raise NotImplementedError

    def _present(self, key: str = "lr") -> list[Any]:
        return [copied(group[key]) for group in self.optimizer.param_groups]

    def _scaled(self, factor: float) -> list[Any]:
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or, deprecated, to the given one)."""
        if self._step_count == 1:
            if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
                warnings.warn(
                    "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                    "Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. See "
                    "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
                    UserWarning,
                    stacklevel=2,
                )
            elif not getattr(self.optimizer, "_opt_called", False):
                warnings.warn(
                    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite "
                    "order: `optimizer.step()` before `lr_scheduler.step()`; otherwise the first value of the "
                    "learning rate schedule is skipped. See https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
                    UserWarning,
                    stacklevel=2,
                )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        with self._within("_get_lr_called_within_step"):
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed: Callable[[], list[Any]] | None = getattr(self, "_get_closed_form_lr", None)
                values = closed() if closed is not None else self.get_lr()
        for group, lr in zip(self.optimizer.param_groups, values):
            set_value(group, "lr", lr)
        self._last_lr: list[Any] = self._present()


class _LRScheduler(LRScheduler):
    """The older name of the base class."""
