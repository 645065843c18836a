"""`FullyShardedDataParallel`: wrappers whose parameters are divided over a group, as `fully_shard` does for modules in place.

    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))

Each wrapper owns the parameters of its module that no wrapper inside it owns. Programs see parts of the parameters as `DTensor`s, whether
`use_orig_params` is set or not. State dicts hold whole tensors unless `state_dict_type` says otherwise, under the names of the plain module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau.distributed import _groups
from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh
from flambeau.distributed.fsdp import _optimizer_state
from flambeau.distributed.fsdp._fully_shard import MixedPrecisionPolicy, _State
from flambeau.distributed.fsdp._options import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from flambeau.distributed.fsdp._parameters import ParameterGroup, ShardedParameter
from flambeau.distributed.tensor._api import DTensor, distribute_tensor

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "FullyShardedDataParallel",
    "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "OptimStateKeyType",
    "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig", "StateDictSettings",
    "StateDictType",
]  # fmt: skip

_PREFIX = "_fsdp_wrapped_module."
_WHOLE_IN_BACKWARD = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


def _mesh_of(group: Any, strategy: ShardingStrategy, kind: str) -> DeviceMesh:
    """The mesh that a strategy divides over: its last dimension; the one before it holds replicas."""
    if isinstance(group, tuple):
        shard, replicate = group
        rows = [None] * replicate.size()
        own = _groups.get_process_group_ranks(shard)
        flambeau.distributed.all_gather_object(rows, own, group=replicate)
        return DeviceMesh.from_group([replicate, shard], kind, mesh=rows)
    if strategy is ShardingStrategy.NO_SHARD and group is _groups._get_default_group():
        return init_device_mesh(kind, (group.size(), 1))
    if strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
        local = _groups._local_world_size(group)
        return init_device_mesh(kind, (group.size() // local, local))
    return DeviceMesh.from_group(group, kind)


class FullyShardedDataParallel(flambeau.nn.Module):
    """Calls its module, whose parameters are divided over a group."""

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
        kind = next((p.device.type for p in module.parameters() if p.device.type != "meta"), "cpu")
        if cpu_offload is not None and cpu_offload.offload_params and kind != "cpu":
            raise NotImplementedError(
                "[FullyShardedDataParallel] expected parameters on the CPU with offload_params, got others"
            )
        self.sharding_strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        group = process_group if process_group is not None else _groups._get_default_group()
        self.mesh = device_mesh or _mesh_of(group, self.sharding_strategy, kind)
        self.process_group = self.mesh.get_group(self.mesh.ndim - 1)
        self.mixed_precision, self.use_orig_params = mixed_precision or MixedPrecision(), use_orig_params
        ignored = _ignored(module, ignored_modules, ignored_states)
        options = {
            "sharding_strategy": self.sharding_strategy, "mixed_precision": mixed_precision, "device_mesh": self.mesh,
            "use_orig_params": use_orig_params, "ignored_states": ignored, "cpu_offload": cpu_offload,
        }  # fmt: skip
        self._prepare(module, param_init_fn, group if sync_module_states else None)
        _wrap_children(module, auto_wrap_policy, options, {id(p) for p in ignored})
        self._fsdp_wrapped_module = module
        self._shard(module, ignored)
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config: Any = FullStateDictConfig()
        self._optim_state_dict_config: Any = FullOptimStateDictConfig()
        self._summoned = False
        self.register_state_dict_post_hook(_after_state_dict)
        self.register_load_state_dict_pre_hook(_before_loading)

    def _prepare(self, module: Any, param_init_fn: Any, sync_group: Any) -> None:
        """Memory for parameters on meta, dtypes of buffers, the values of rank 0 for all."""
        for one in module.modules():
            if any(p.device.type == "meta" for p in one._parameters.values() if p is not None):
                if param_init_fn is not None:
                    param_init_fn(one)
                else:
                    one.to_empty(device=self.mesh.device_type, recurse=False)
                    one.reset_parameters()
        if self.mixed_precision.buffer_dtype is not None:
            for one in module.modules():
                for name, buffer in one._buffers.items():
                    if buffer is not None and buffer.is_floating_point():
                        one._buffers[name] = buffer.to(self.mixed_precision.buffer_dtype)
        if sync_group is not None:
            from flambeau.distributed import _reducer

            state = [t.detach() for t in (*module.parameters(), *module.buffers()) if not isinstance(t, DTensor)]
            _reducer._broadcast_coalesced(sync_group, state, 0, 0)

    def _shard(self, module: Any, ignored: list[Any]) -> None:
        precision = self.mixed_precision
        policy = MixedPrecisionPolicy(precision.param_dtype, precision.reduce_dtype, None, True)
        places = _own_parameters(module, {id(p) for p in ignored})
        shared = [ShardedParameter(owners, p, self.mesh, 0, policy) for p, owners in places.values()]
        group = ParameterGroup(shared, self.mesh, policy, self.sharding_strategy not in _WHOLE_IN_BACKWARD)
        for sharded in shared:
            sharded.show(False)
        object.__setattr__(self, "_fsdp_state", _State(self, group, policy))

    @property
    def module(self) -> Any:
        return self._fsdp_wrapped_module

    @property
    def _group(self) -> ParameterGroup:
        return self._fsdp_state.group

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._fsdp_state.before_forward(self, args, kwargs)
        return self._fsdp_state.after_forward(self, args, self._fsdp_wrapped_module(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_fsdp_wrapped_module"), name)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        for one in self.fsdp_modules(self):
            one._group.reshard()
        result = super()._apply(*args, **kwargs)
        for one in self.fsdp_modules(self):
            for parameter in one._group.parameters:
                parameter.adopt()
        return result

    def apply(self, fn: Any) -> Any:
        """Applies a function to every module, with whole parameters."""
        with self.summon_full_params(self):
            return super().apply(fn)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A `with` block in which gradients are only accumulated."""
        wrapped = self.fsdp_modules(self)
        for one in wrapped:
            one._group.reduces = False
        try:
            yield
        finally:
            for one in wrapped:
                one._group.reduces = True

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        norm = flambeau.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """`hook(state, gradient, part)` reduces the gradients of a wrapper into the part of this process."""
        if not self.check_is_root():
            raise AssertionError("[register_comm_hook] register_comm_hook can only be called on a root instance.")
        for one in self.fsdp_modules(self):
            one._group.comm_hook = (state, hook)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, "") if self._summoned else name, parameter

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(_PREFIX, "") if self._summoned else name, buffer

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Any,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """A `with` block in which parameters are whole; what is written to them is kept unless `writeback` is off."""
        if writeback and rank0_only:
            raise NotImplementedError("[summon_full_params] writeback=True and rank0_only=True is not supported yet")
        wrapped = FullyShardedDataParallel.fsdp_modules(module) if recurse else [module]
        before = [(one._group.is_whole, one._summoned) for one in wrapped]
        for one in wrapped:
            one._group.unshard(cast=False)
            one._summoned = True
            if with_grads:
                one._group.show_gradients()
        try:
            yield
        finally:
            for one, (was_whole, was_summoned) in zip(wrapped, before):
                if writeback:
                    one._group.write_back()
                one._group.forget_whole()
                one._summoned = was_summoned
                if was_whole:
                    one._group.unshard()

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Any, state_dict_type: StateDictType, state_dict_config: Any = None, optim_state_dict_config: Any = None
    ) -> Iterator[None]:
        wrapped = FullyShardedDataParallel.fsdp_modules(module)
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
        """The wrappers in a module, the outermost first; with `root_only` those that are in no other."""
        wrapped = [one for one in module.modules() if isinstance(one, FullyShardedDataParallel)]
        inner = {id(child) for one in wrapped for child in one.modules() if child is not one}
        return [one for one in wrapped if id(one) not in inner] if root_only else wrapped

    def check_is_root(self) -> bool:
        return bool(self._fsdp_state.group.is_root)

    # State of optimizers, by the names of parameters.
    optim_state_dict = staticmethod(_optimizer_state.optim_state_dict)
    optim_state_dict_to_load = staticmethod(_optimizer_state.optim_state_dict_to_load)
    full_optim_state_dict = staticmethod(_optimizer_state.full_optim_state_dict)
    sharded_optim_state_dict = staticmethod(_optimizer_state.sharded_optim_state_dict)
    shard_full_optim_state_dict = staticmethod(_optimizer_state.shard_full_optim_state_dict)
    scatter_full_optim_state_dict = staticmethod(_optimizer_state.scatter_full_optim_state_dict)
    flatten_sharded_optim_state_dict = staticmethod(_optimizer_state.flatten_sharded_optim_state_dict)
    rekey_optim_state_dict = staticmethod(_optimizer_state.rekey_optim_state_dict)


def _ignored(module: Any, modules: Any, states: Any) -> list[Any]:
    """Parameters that are left alone: those of modules, or named one by one."""
    listed = [*(modules or ()), *(states or ())]
    inside = [p for one in listed if isinstance(one, flambeau.nn.Module) for p in one.parameters()]
    return [*inside, *(one for one in listed if isinstance(one, flambeau.Tensor))]


def _own_parameters(module: Any, ignored: set[int]) -> dict[int, tuple[Any, list[tuple[Any, str]]]]:
    """Parameters of a module that no wrapper inside it owns, with the places where they are."""
    places: dict[int, tuple[Any, list[tuple[Any, str]]]] = {}
    inner = {
        id(child) for one in module.modules() if isinstance(one, FullyShardedDataParallel) for child in one.modules()
    }
    for one in module.modules():
        if isinstance(one, FullyShardedDataParallel):
            one._group.is_root = False
        if id(one) in inner:
            continue
        for name, parameter in one._parameters.items():
            if parameter is not None and id(parameter) not in ignored:
                places.setdefault(id(parameter), (parameter, []))[1].append((one, name))
    return places


def _wanted(policy: Any, child: Any, size: int) -> bool:
    if not callable(policy):
        return isinstance(child, tuple(policy))
    try:
        return bool(policy(module=child, recurse=False, nonwrapped_numel=size))
    except TypeError:
        return bool(policy(child))


def _wrap_children(module: Any, policy: Any, options: dict[str, Any], ignored: set[int]) -> int:
    """Wraps the submodules that a policy chooses, the innermost first; returns the number of elements that were wrapped."""
    if policy is None:
        return 0
    wrapped = 0
    for name, child in list(module.named_children()):
        if isinstance(child, FullyShardedDataParallel):
            wrapped += sum(p.numel() for p in child.parameters())
            continue
        inside = _wrap_children(child, policy, options, ignored)
        size = sum(p.numel() for p in child.parameters() if id(p) not in ignored) - inside
        container = isinstance(child, (flambeau.nn.ModuleList, flambeau.nn.ModuleDict))
        if not container and _wanted(policy, child, size):
            setattr(module, name, FullyShardedDataParallel(child, **options))
            inside += size
        wrapped += inside
    return wrapped


def _after_state_dict(module: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Names of the plain module, and whole tensors where they are asked for."""
    config = module._state_dict_config
    whole = module._state_dict_type is StateDictType.FULL_STATE_DICT
    absent = whole and getattr(config, "rank0_only", False) and _groups.get_rank() != 0
    for key in [key for key in state if key.startswith(prefix + _PREFIX)]:
        value = state.pop(key)
        if whole and isinstance(value, DTensor):
            with flambeau.no_grad():
                value = value.full_tensor()
        if not absent:
            on_host = config.offload_to_cpu and isinstance(value, flambeau.Tensor)
            state[prefix + key[len(prefix) + len(_PREFIX) :]] = value.cpu() if on_host else value


def _before_loading(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Names of the wrapped module, and tensors divided as its parameters are."""
    own = dict(module._fsdp_wrapped_module.named_parameters())
    for key in [key for key in state if key.startswith(prefix) and not key.startswith(prefix + _PREFIX)]:
        value, name = state.pop(key), key[len(prefix) :]
        target = own.get(name)
        if isinstance(target, DTensor) and isinstance(value, flambeau.Tensor) and not isinstance(value, DTensor):
            value = distribute_tensor(value, target.device_mesh, target.placements, src_data_rank=None)
        state[prefix + _PREFIX + name] = value
