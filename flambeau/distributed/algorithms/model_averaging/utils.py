"""Averages of parameters over a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._groups import _rank_not_in_group, get_world_size

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterator[Any], process_group: Any) -> None:
    """Replaces parameters by their means over the group."""
    if _rank_not_in_group(process_group):
        return
    with flambeau.no_grad():
        for parameter in params:
            parameter.data.div_(get_world_size(process_group))
            collectives.all_reduce(parameter.data, group=process_group)


def get_params_to_average(params: Iterable[Any]) -> list[Any]:
    chosen = []
    for item in params:
        members = item["params"] if isinstance(item, dict) else [item]
        chosen += [parameter for parameter in members if parameter.grad is not None]
    return chosen


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any) -> None:
    average_parameters(iter(get_params_to_average(params)), process_group)
