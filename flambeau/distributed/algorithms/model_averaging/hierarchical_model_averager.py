"""Averages over groups of growing size: often within small groups, seldom over all processes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from flambeau.distributed import _groups
from flambeau.distributed.algorithms.model_averaging import averagers, utils

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(averagers.ModelAverager):
    """`period_group_size_dict` says every how many steps groups of which size average, both growing; the largest group is
    the whole one. A step that several periods divide averages over the largest of their groups."""

    def __init__(
        self, period_group_size_dict: OrderedDict[int, int], warmup_steps: int = 0, process_group: Any = None
    ) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("[HierarchicalModelAverager] Arg ``period_group_size_dict`` must not be empty.")
        self._periods = list(period_group_size_dict)
        if self._periods[0] <= 0:
            raise ValueError("[HierarchicalModelAverager] The minimum period must be a positive value.")
        sizes, total = list(period_group_size_dict.values()), self.process_group.size()
        if sizes != sorted(sizes) or self._periods != sorted(self._periods):
            raise ValueError(
                f"[HierarchicalModelAverager] expected growing periods and sizes, got {period_group_size_dict}"
            )
        if sizes[-1] != total:
            raise ValueError(
                f"[HierarchicalModelAverager] The last value in arg ``period_process_group_dict`` {sizes[-1]} must be equal "
                f"to the size of arg ``process_group`` {total}."
            )
        if warmup_steps < 0:
            raise ValueError("[HierarchicalModelAverager] Arg ``warmup_steps`` must be a non-negative number.")
        self.warmup_steps = warmup_steps
        self.period_process_group_dict: OrderedDict[int, Any] = OrderedDict()
        for period, size in period_group_size_dict.items():
            group = self.process_group if size == total else _groups.new_subgroups(size, self.process_group)[0]
            self.period_process_group_dict[period] = group

    def _find_process_group(self) -> Any:
        for period in reversed(self._periods):
            if self.step % period == 0:
                return self.period_process_group_dict[period]
        return None

    def average_parameters(self, params: Any) -> None:
        if self.step >= self.warmup_steps:
            group = self._find_process_group()
            if group is not None:
                utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1
