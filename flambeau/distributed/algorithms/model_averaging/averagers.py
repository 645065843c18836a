"""When models are averaged: every so many steps after a warm-up."""

from __future__ import annotations

from typing import Any

from flambeau.distributed._groups import _get_default_group
from flambeau.distributed.algorithms.model_averaging import utils

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager:
    """Counts steps and averages parameters over a group."""

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = process_group if process_group is not None else _get_default_group()
        self.step = 0

    def average_parameters(self, params: Any) -> None:
        raise NotImplementedError


class PeriodicModelAverager(ModelAverager):
    """Averages every `period` steps once `warmup_steps` are over."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("[PeriodicModelAverager] Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("[PeriodicModelAverager] Arg ``period`` must be a positive value.")
        self.warmup_steps, self.period = warmup_steps, period

    def average_parameters(self, params: Any) -> None:
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
