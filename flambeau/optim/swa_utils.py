"""Averages of models: stochastic weight averaging and exponential moving averages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn.modules.module import Module
from flambeau.optim._schedule import LRScheduler, for_groups
from flambeau.optim.optimizer import Optimizer

__all__ = [
    "AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn", "get_ema_avg_fn",
    "get_swa_avg_fn",
]  # fmt: skip

Tensors = "list[Tensor] | tuple[Tensor, ...]"


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"[swa_utils] expected decay in [0, 1], got {decay}")


def _can_lerp(t: Tensor) -> bool:
    return fl.is_floating_point(t) or fl.is_complex(t)


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """Exponential moving average of lists of tensors, in place."""
    _check_decay(decay)

    @fl.no_grad()
    def ema_update(ema_param_list: Any, current_param_list: Any, _: Any) -> None:
        if _can_lerp(ema_param_list[0]):
            fl._foreach_lerp_(ema_param_list, current_param_list, 1 - decay)
            return
        for average, current in zip(ema_param_list, current_param_list):
            average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """Equally weighted average of lists of tensors, in place."""

    @fl.no_grad()
    def swa_update(averaged_param_list: Any, current_param_list: Any, num_averaged: Any) -> None:
        if _can_lerp(averaged_param_list[0]):
            fl._foreach_lerp_(averaged_param_list, current_param_list, 1 / (float(num_averaged) + 1))
            return
        differences = fl._foreach_sub(current_param_list, averaged_param_list)
        for average, difference in zip(averaged_param_list, differences):
            average.copy_(average + difference / (float(num_averaged) + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Tensor]:
    """Exponential moving average of one tensor."""
    _check_decay(decay)

    @fl.no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[..., Tensor]:
    """Equally weighted average of one tensor."""

    @fl.no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters (and, if asked for, buffers) are averages over training."""

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[..., Tensor] | None = None,
        multi_avg_fn: Callable[..., None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("[AveragedModel] expected avg_fn or multi_avg_fn, got both")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", fl.tensor(0, dtype=fl.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the model's present parameters into the average."""

        def tensors(m: Module) -> list[Tensor]:
            current = itertools.chain(m.parameters(), m.buffers()) if self.use_buffers else m.parameters()
            return [t.detach() for t in current]

        averages = tensors(self.module)
        present = [t if t.device == a.device else t.to(a.device) for t, a in zip(tensors(model), averages)]
        with fl.no_grad():
            if self.n_averaged == 0:
                for average, value in zip(averages, present):
                    average.copy_(value)
            else:
                self._average(averages, present)
            if not self.use_buffers:  # they follow the model, not the average
                for ours, theirs in zip(self.module.buffers(), model.buffers()):
                    ours.detach().copy_(theirs.detach())
            self.n_averaged += 1

    def _average(self, averages: list[Tensor], present: list[Tensor]) -> None:
        if self.avg_fn is not None:
            for average, value in zip(averages, present):
                average.copy_(self.avg_fn(average, value, self.n_averaged.to(average.device)))
            return
        update = self.multi_avg_fn if self.multi_avg_fn is not None else get_swa_multi_avg_fn()
        groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        for average, value in zip(averages, present):
            group = groups.setdefault((average.device, average.dtype), ([], []))
            group[0].append(average)
            group[1].append(value)
        for (device, _), (ours, theirs) in groups.items():
            update(ours, theirs, self.n_averaged.to(device))


@fl.no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of batch normalisation anew, by one pass over the data."""
    from flambeau.nn.modules.batchnorm import _BatchNorm

    norms = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not norms:
        return
    was_training = model.training
    model.train()
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # an average over all batches
    for batch in loader:
        inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(inputs if device is None else inputs.to(device))
    for m, momentum in norms.items():
        m.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the present rates to fixed ones within some epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, lr in zip(optimizer.param_groups, for_groups("swa_lr", optimizer, swa_lr)):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"[SWALR] expected anneal_strategy 'cos' or 'linear', got {anneal_strategy!r}: anneal_strategy must by one of 'cos' or 'linear'"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"[SWALR] expected an integer >= 0 for anneal_epochs, got {anneal_epochs!r}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How far the rates have come, from 0 to 1."""
        x = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * x)) / 2 if self._anneal_strategy == "cos" else x

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            target = group["swa_lr"]
            start = target if before == 1 else (group["lr"] - before * target) / (1 - before)
            rates.append(target * now + start * (1 - now))
        return rates
