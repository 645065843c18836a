"""An optimizer with other parameters and state for the time of a block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau import Tensor
from flambeau.optim.optimizer import Optimizer

__all__ = ["swap_in_optimizer_params_and_state"]


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Within the block, steps work on these parameters, given in the optimizer's order, and on this state dict.

    What steps write into the given tensors stays; anything else that they change in the optimizer is undone.

    >>> weight = flambeau.nn.Parameter(flambeau.ones(1))
    >>> optimizer = flambeau.optim.SGD([weight], lr=0.1)
    >>> other = flambeau.ones(1, requires_grad=True)
    >>> other.grad = flambeau.ones(1)
    >>> state = optimizer.state_dict()
    >>> with flambeau.optim.swap_in_optimizer_params_and_state(optimizer, {"weight": other}, state):
    ...     optimizer.step()
    >>> other.detach(), weight.detach()
    (tensor([0.9000]), tensor([1.]))
    """
    new_parameters = list(swapin_parameters.values())
    groups = optimizer.param_groups
    if len(new_parameters) != sum(len(group["params"]) for group in groups):
        raise ValueError(
            f"[swap_in_optimizer_params_and_state] expected {sum(len(g['params']) for g in groups)} parameters, "
            f"got {len(new_parameters)}"
        )
    numbered: dict[Any, Tensor] = {}
    inside = []
    rest = iter(new_parameters)
    for saved in swapin_optim_state["param_groups"]:
        params = []
        for number in saved["params"]:
            numbered[number] = next(rest)
            params.append(numbered[number])
        inside.append({**saved, "params": params})
    state: defaultdict[Any, Any] = defaultdict(dict)
    for key, value in swapin_optim_state["state"].items():
        state[numbered.get(key, key)] = dict(value) if isinstance(value, dict) else value
    before = optimizer.param_groups, optimizer.state
    optimizer.param_groups, optimizer.state = inside, state
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = before
