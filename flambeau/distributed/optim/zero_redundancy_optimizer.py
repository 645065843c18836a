"""`ZeroRedundancyOptimizer`: each process keeps the optimizer state of its share of the parameters.

A process updates its parameters and broadcasts them. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models" (2019), stage 1.
"""

from __future__ import annotations

import copy
from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed import _groups as groups
from flambeau.distributed._objects import broadcast_object_list
from flambeau.distributed.algorithms.join import Joinable, JoinHook
from flambeau.optim import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class _ZeroJoinHook(JoinHook):
    def __init__(self, zero: Any) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        self.zero.step()


def _checked(params: Any) -> list[Any]:
    """The parameters or groups as a list: dense tensors of one dtype."""
    if isinstance(params, flambeau.Tensor) or not hasattr(params, "__iter__"):
        raise TypeError(
            f"[ZeroRedundancyOptimizer] `params` argument should be an iterable of Tensors or dicts, got {type(params)}"
        )
    listed = list(params)
    if not listed:
        raise ValueError("[ZeroRedundancyOptimizer] expected parameters, got an empty parameter list")
    flat = [p for one in listed for p in (one["params"] if isinstance(one, dict) else [one])]
    for parameter in flat:
        if not isinstance(parameter, flambeau.Tensor):
            raise TypeError(
                "[ZeroRedundancyOptimizer] `params` argument should be an iterable of Tensors or dicts, got a "
                f"{type(parameter).__name__} in it"
            )
        if parameter.is_sparse or parameter.dtype != flat[0].dtype:
            raise ValueError(
                "[ZeroRedundancyOptimizer] expected the same dense type for all parameters, got "
                f"{flat[0].type()} and {parameter.type()}"
            )
    return listed


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer of class `optimizer_class` whose parameters are divided among the processes of a group."""

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        listed = _checked(params)
        self.process_group = process_group if process_group is not None else groups._get_default_group()
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self.global_rank = groups.get_global_rank(self.process_group, self.rank)
        self._optimizer_class, self._defaults = optimizer_class, defaults
        self._overlap_with_ddp = overlap_with_ddp
        self._all_states: list[Any] = []
        self.initialized = False
        Optimizer.__init__(self, listed, dict(defaults))
        from flambeau.distributed.algorithms.join import _JoinConfig

        self._join_config = _JoinConfig.construct_disabled_join_config()
        self._divide()
        self.initialized = True

    # ------------------------------------------------------------------------------------ who owns what

    def _divide(self) -> None:
        """Gives each parameter, the largest first, to the process with the least so far."""
        sizes = [0] * self.world_size
        self._owner: dict[Any, int] = {}
        partitions: list[list[dict[str, Any]]] = [[] for _ in range(self.world_size)]
        for group in self.param_groups:
            shares: list[list[Any]] = [[] for _ in range(self.world_size)]
            for parameter in sorted(group["params"], key=lambda p: -p.numel()):
                rank = sizes.index(min(sizes))
                sizes[rank] += parameter.numel()
                shares[rank].append(parameter)
                self._owner[parameter] = rank
            order = {id(parameter): index for index, parameter in enumerate(group["params"])}
            for rank, share in enumerate(shares):
                share.sort(key=lambda p: order[id(p)])
                partitions[rank].append({**{k: v for k, v in group.items() if k != "params"}, "params": share})
        self._partitions = partitions
        previous = getattr(self, "optim", None)
        self.optim = self._optimizer_class([dict(group) for group in partitions[self.rank]], **self._defaults)
        if previous is not None:
            for parameter, state in previous.state.items():
                self.optim.state[parameter] = state
        self._take_settings()

    def _partition_parameters(self, params_per_rank: Any = None) -> list[list[dict[str, Any]]]:
        return self._partitions

    @property
    def _param_to_rank(self) -> dict[Any, int]:
        return self._owner

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        Optimizer.add_param_group(self, param_group)
        if getattr(self, "initialized", False):
            self._divide()

    def _copy_settings(self) -> None:
        """The learning rate and its like, which schedulers change in our groups, into those of the local optimizer."""
        for local, group in zip(self.optim.param_groups, self.param_groups):
            local.update({k: v for k, v in group.items() if k != "params"})

    def _take_settings(self) -> None:
        """Settings of the local optimizer into our groups: its defaults, and what a step of it notes."""
        for local, group in zip(self.optim.param_groups, self.param_groups):
            group.update({k: v for k, v in local.items() if k != "params"})

    # ------------------------------------------------------------------------------------ steps

    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        if self._overlap_with_ddp and closure is None:
            return None  # done at the end of backward
        return self._step(closure, **kwargs)

    def _step_after_reduction(self) -> None:
        self._step(None)

    def _step(self, closure: Any = None, **kwargs: Any) -> Any:
        from flambeau.distributed.algorithms.join import Join

        Join.notify_join_context(self)
        self._copy_settings()
        loss = self.optim.step(closure=closure, **kwargs) if closure is not None else self.optim.step(**kwargs)
        self._sync_params()
        self._take_settings()
        return loss

    def _sync_params(self) -> None:
        works = []
        with flambeau.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    owner = self._owner[parameter]
                    works.append(
                        collectives.broadcast(parameter.data, group=self.process_group, group_src=owner, async_op=True)
                    )
        for work in works:
            if work is not None:
                work.wait()

    # ------------------------------------------------------------------------------------ state

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the states of all processes on one, so that it can give the whole state dict."""
        self._copy_settings()
        self._all_states = []
        for rank in range(self.world_size):
            box = [self.optim.state_dict() if rank == self.rank else None]
            broadcast_object_list(box, group=self.process_group, group_src=rank)
            if self.rank == to:
                self._all_states.append(box[0])

    def state_dict(self) -> dict[str, Any]:
        if not self._all_states:
            raise RuntimeError(
                "[ZeroRedundancyOptimizer] Optimizer state has not been consolidated on this rank. Please call "
                "`consolidate_state_dict(to=...)` on all ranks beforehand if you meant to save the global state."
            )
        whole = Optimizer.state_dict(self)
        index_of = {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        whole["state"] = {}
        for rank, local in enumerate(self._all_states):
            members = [p for group in self._partitions[rank] for p in group["params"]]
            for local_index, parameter in enumerate(members):
                if local_index in local["state"]:
                    whole["state"][index_of[id(parameter)]] = local["state"][local_index]
        whole["state"] = dict(sorted(whole["state"].items()))
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a whole state dict; each process keeps its share."""
        members = [p for group in self.param_groups for p in group["params"]]
        for index, values in state_dict["state"].items():
            parameter = members[index]
            if self._owner[parameter] != self.rank:
                continue
            state = copy.copy(values)
            for key, value in state.items():
                if isinstance(value, flambeau.Tensor) and key != "step":
                    dtype = parameter.dtype if value.is_floating_point() else value.dtype
                    state[key] = value.to(device=parameter.device, dtype=dtype).clone()
                elif isinstance(value, flambeau.Tensor):
                    state[key] = value.clone()
            self.optim.state[parameter] = state
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            group.update({key: value for key, value in saved.items() if key != "params"})
        self._copy_settings()

    # ------------------------------------------------------------------------------------ joining

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _ZeroJoinHook(self)

    @property
    def join_device(self) -> Any:
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        return self.process_group
