"""`FullyShardedDataParallel`: the wrapper class over `fully_shard`, with full state dicts."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau.distributed import _groups
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.fsdp._fully_shard import FSDPModule, MixedPrecisionPolicy, fully_shard
from flambeau.distributed.tensor._api import DTensor

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "FullyShardedDataParallel",
    "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "OptimStateKeyType",
    "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig", "StateDictSettings",
    "StateDictType",
]  # fmt: skip


class ShardingStrategy(enum.Enum):
    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3
    HYBRID_SHARD = 4
    _HYBRID_SHARD_ZERO2 = 5


class BackwardPrefetch(enum.Enum):
    BACKWARD_PRE = 1
    BACKWARD_POST = 2


class StateDictType(enum.Enum):
    FULL_STATE_DICT = 1
    LOCAL_STATE_DICT = 2
    SHARDED_STATE_DICT = 3


@dataclass
class MixedPrecision:
    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Any = ()


@dataclass
class CPUOffload:
    offload_params: bool = False


class OptimStateKeyType(enum.Enum):
    PARAM_NAME = 1
    PARAM_ID = 2


@dataclass
class StateDictConfig:
    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    _use_dtensor: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    pass


@dataclass
class OptimStateDictConfig:
    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    rank0_only: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    _use_dtensor: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    offload_to_cpu: bool = False


@dataclass
class StateDictSettings:
    """What `FullyShardedDataParallel.set_state_dict_type` was told."""

    state_dict_type: StateDictType
    state_dict_config: Any
    optim_state_dict_config: Any


class FullyShardedDataParallel(flambeau.nn.Module):
    """Calls its module, whose parameters are divided over a group. State dicts hold whole tensors unless asked otherwise."""

    def __init__(
        self,
        module: Any,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Any = None,
        param_init_fn: Any = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Any = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        group = process_group if process_group is not None else _groups._get_default_group()
        kind = next((p.device.type for p in module.parameters()), "cpu")
        self.mesh = device_mesh or DeviceMesh.from_group(group, kind)
        self.process_group, self.sharding_strategy = group, sharding_strategy or ShardingStrategy.FULL_SHARD
        if sync_module_states:
            from flambeau.distributed import _reducer

            state = [t.detach() for t in (*module.parameters(), *module.buffers())]
            _reducer._broadcast_coalesced(group, state, 0, 0)
        precision = mixed_precision or MixedPrecision()
        policy = MixedPrecisionPolicy(precision.param_dtype, precision.reduce_dtype, None, True)
        reshard = self.sharding_strategy not in (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD)
        options: dict[str, Any] = {"mesh": self.mesh, "mp_policy": policy, "reshard_after_forward": reshard}
        for child in _chosen(module, auto_wrap_policy):
            fully_shard(child, **options)
        fully_shard(module, **options)
        self._fsdp_wrapped_module = module
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config: Any = FullStateDictConfig()
        self._optim_state_dict_config: Any = FullOptimStateDictConfig()

    @property
    def module(self) -> Any:
        return self._fsdp_wrapped_module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._fsdp_wrapped_module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_fsdp_wrapped_module"), name)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A `with` block in which gradients are only accumulated."""
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        norm = flambeau.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        state = self.module.state_dict(*args, **kwargs)
        if self._state_dict_type is not StateDictType.FULL_STATE_DICT:
            return state
        with flambeau.no_grad():
            whole = {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in state.items()}
        return {} if self._state_dict_config.rank0_only and self.process_group.rank() != 0 else type(state)(whole)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        from flambeau.distributed.tensor._api import distribute_tensor

        own = self.module.state_dict()
        placed = {
            key: distribute_tensor(value, own[key].device_mesh, own[key].placements, src_data_rank=None)
            if isinstance(own.get(key), DTensor) and not isinstance(value, DTensor)
            else value
            for key, value in state_dict.items()
        }
        return self.module.load_state_dict(placed, strict=strict)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace("_fsdp_wrapped_module.", ""), parameter

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(module: Any, recurse: bool = True, writeback: bool = True, **options: Any) -> Iterator[None]:
        """A `with` block in which parameters are whole."""
        states = [one._fsdp_state for one in module.modules() if isinstance(one, FSDPModule)]
        for state in states:
            state.group.unshard()
        try:
            yield
        finally:
            for state in states:
                state.group.reshard()

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Any, state_dict_type: StateDictType, state_dict_config: Any = None, optim_state_dict_config: Any = None
    ) -> Iterator[None]:
        wrapped = [one for one in module.modules() if isinstance(one, FullyShardedDataParallel)]
        before = [(one._state_dict_type, one._state_dict_config, one._optim_state_dict_config) for one in wrapped]
        FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for one, (kind, config, optim) in zip(wrapped, before):
                one._state_dict_type, one._state_dict_config, one._optim_state_dict_config = kind, config, optim

    @staticmethod
    def set_state_dict_type(
        module: Any,
        state_dict_type: StateDictType,
        state_dict_config: Any = None,
        optim_state_dict_config: Any = None,
    ) -> StateDictSettings:
        """What state dicts hold from now on; returns what they held before."""
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for one in FullyShardedDataParallel.fsdp_modules(module):
            one._state_dict_type = state_dict_type
            one._state_dict_config = state_dict_config or FullStateDictConfig()
            one._optim_state_dict_config = optim_state_dict_config or FullOptimStateDictConfig()
        return before

    @staticmethod
    def get_state_dict_type(module: Any) -> StateDictSettings:
        wrapped = FullyShardedDataParallel.fsdp_modules(module)
        if not wrapped:
            raise ValueError(f"[FullyShardedDataParallel] expected a module with sharded parts, got {type(module)}")
        first = wrapped[0]
        return StateDictSettings(first._state_dict_type, first._state_dict_config, first._optim_state_dict_config)

    @staticmethod
    def fsdp_modules(module: Any, root_only: bool = False) -> list[Any]:
        """The wrappers in a module, the outermost first."""
        wrapped = [one for one in module.modules() if isinstance(one, FullyShardedDataParallel)]
        return wrapped[:1] if root_only else wrapped

    def check_is_root(self) -> bool:
        return True

    # ------------------------------------------------------------------------------------ state of optimizers

    @staticmethod
    def optim_state_dict(model: Any, optim: Any, optim_state_dict: Any = None, group: Any = None) -> dict[str, Any]:
        """The state of an optimizer under the names of parameters: whole tensors, or parts as the settings say."""
        from flambeau.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        settings = FullyShardedDataParallel.get_state_dict_type(model)
        whole = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        state = get_optimizer_state_dict(model, optim, options=StateDictOptions(full_state_dict=whole))
        only_first = whole and getattr(settings.optim_state_dict_config, "rank0_only", False)
        return {} if only_first and _groups.get_rank(group) != 0 else state

    @staticmethod
    def optim_state_dict_to_load(
        model: Any,
        optim: Any,
        optim_state_dict: dict[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:
        """A state by names as the optimizer's `load_state_dict` takes it, divided as the parameters are."""
        from flambeau.distributed.checkpoint.state_dict import _names, _placed_as

        names = _names(model)
        order = [names[p] for entry in optim.param_groups for p in entry["params"]]
        parameters = {names[p]: p for entry in optim.param_groups for p in entry["params"]}
        saved_groups = {name: entry for entry in optim_state_dict["param_groups"] for name in entry["params"]}
        state = {
            index: {key: _placed_as(value, parameters[name]) for key, value in optim_state_dict["state"][name].items()}
            for index, name in enumerate(order)
            if name in optim_state_dict["state"]
        }
        groups, start = [], 0
        for entry in optim.param_groups:
            numbers = list(range(start, start + len(entry["params"])))
            saved = saved_groups.get(order[start], entry) if numbers else entry
            groups.append({key: value for key, value in saved.items() if key != "params"} | {"params": numbers})
            start += len(numbers)
        loaded = {"state": state, "param_groups": groups}
        if load_directly:
            optim.load_state_dict(loaded)
        return loaded

    @staticmethod
    def full_optim_state_dict(
        model: Any, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: Any = None
    ) -> dict[str, Any]:
        """The whole state, by default on the first process only."""
        kind, config = StateDictType.FULL_STATE_DICT, FullOptimStateDictConfig(rank0_only=rank0_only)
        with FullyShardedDataParallel.state_dict_type(model, kind, None, config):
            return FullyShardedDataParallel.optim_state_dict(model, optim, group=group)


def _chosen(module: Any, policy: Any) -> list[Any]:
    """Submodules that get a group of their own, the innermost first."""
    if policy is None:
        return []
    chosen = []
    for child in [one for one in module.modules() if one is not module][::-1]:
        size = sum(p.numel() for p in child.parameters())
        if callable(policy):
            try:
                wanted = policy(module=child, recurse=False, nonwrapped_numel=size)
            except TypeError:
                wanted = policy(child)
        else:
            wanted = isinstance(child, tuple(policy))
        if wanted and size and not isinstance(child, (flambeau.nn.ModuleList, flambeau.nn.ModuleDict)):
            chosen.append(child)
    return chosen
