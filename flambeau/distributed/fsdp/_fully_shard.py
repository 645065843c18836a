"""`fully_shard`: the parameters of a module divided over a mesh, whole only while it computes.

    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)          # what no block owns

Before forward and before backward of a module its parameters are gathered; after each they are given up again. Gradients
are averaged into parts as soon as all of a module's are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau import _C
from flambeau.distributed import _groups
from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh
from flambeau.distributed.fsdp import _in_graph
from flambeau.distributed.fsdp._parameters import ParameterGroup, ShardedParameter
from flambeau.distributed.tensor.placement_types import Shard

__all__ = [
    "CPUOffloadPolicy", "DataParallelMeshDims", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle",
    "fully_shard", "register_fsdp_forward_method", "share_comm_ctx",
]  # fmt: skip


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes in which modules compute, gradients are reduced and outputs are returned."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Where parts are kept: on the device."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Where parts are kept: in the memory of the host."""

    pin_memory: bool = True


@dataclass(frozen=True)
class DataParallelMeshDims:
    """Names of the dimensions of a mesh over which `fully_shard` divides, and over which it replicates."""

    shard: str | tuple[str, ...] | None = None
    replicate: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not (self.shard or self.replicate):
            raise ValueError("[DataParallelMeshDims] expected shard or replicate, got neither")

    @property
    def shard_names(self) -> tuple[str, ...]:
        return (self.shard,) if isinstance(self.shard, str) else tuple(self.shard or ())

    @property
    def replicate_names(self) -> tuple[str, ...]:
        return (self.replicate,) if isinstance(self.replicate, str) else tuple(self.replicate or ())

    def of(self, mesh: DeviceMesh) -> DeviceMesh:
        """The mesh that `fully_shard` works with: replicas first, each kind of dimension flattened to one."""
        if not self.shard_names:
            raise NotImplementedError(
                "[fully_shard] expected a dimension to shard over in dp_mesh_dims, got replicas only"
            )
        flat = [
            names[0] if len(names) == 1 else mesh[names]._flatten().mesh_dim_names[0]  # type: ignore[index]
            for names in (self.replicate_names, self.shard_names)
            if names
        ]
        return mesh[tuple(flat)] if len(flat) > 1 else mesh[flat[0]]


def share_comm_ctx(modules: list[Any]) -> None:
    """Modules that follow each other, as the stages of a pipeline do, share streams: here all do."""


class UnshardHandle:
    """A gathering that was started."""

    def __init__(self, group: ParameterGroup) -> None:
        self._group = group

    def wait(self) -> None:
        self._group.finish_gathering()


def _map(value: Any, function: Callable[[Any], Any]) -> Any:
    from flambeau.utils import _pytree as pytree

    return pytree.tree_map(lambda one: function(one) if isinstance(one, flambeau.Tensor) else one, value)


class _State:
    """What a module that was passed to `fully_shard` carries."""

    def __init__(self, module: Any, group: ParameterGroup, policy: MixedPrecisionPolicy) -> None:
        self.module, self.group, self.policy = module, group, policy
        self.is_last_backward = True
        self.queued = False
        self.forward_prefetch: list[_State] = []
        self.backward_prefetch: list[_State] = []

    def before_forward(self, module: Any, inputs: Any, kwargs: Any) -> Any:
        if flambeau.compiler.is_compiling() and self.group.fits_graph():
            _in_graph.show(self.group)
        else:
            self.group.unshard()
            for ahead in self.forward_prefetch:
                ahead.group.start_gathering()
        if self.policy.cast_forward_inputs and self.policy.param_dtype is not None:
            dtype = self.policy.param_dtype

            def cast(tensor: Any) -> Any:
                return tensor.to(dtype) if tensor.is_floating_point() else tensor

            inputs, kwargs = _map(inputs, cast), _map(kwargs, cast)
        return inputs, kwargs

    def after_forward(self, module: Any, inputs: Any, output: Any) -> Any:
        if self.policy.output_dtype is not None:
            dtype = self.policy.output_dtype
            output = _map(output, lambda t: t.to(dtype) if t.is_floating_point() else t)
        if flambeau.compiler.is_compiling() and self.group.fits_graph():
            _in_graph.hide(self.group)
            return output
        if flambeau.is_grad_enabled():
            _map(output, self._watch)
        if self.group.reshard_after_forward or not flambeau.is_grad_enabled():
            self.group.reshard()
        return output

    def _watch(self, tensor: Any) -> Any:
        if tensor.requires_grad and tensor.grad_fn is not None:
            tensor.register_hook(self.before_backward)
        return tensor

    def before_backward(self, gradient: Any) -> None:
        if not self.queued:
            self.queued = True
            _C._queue_callback(self.finish)
            self.group.unshard()
            for ahead in self.backward_prefetch:
                ahead.group.start_gathering()
            self.group.expect_gradients(self._complete)

    def _complete(self, group: ParameterGroup) -> None:
        group.reduce()
        if group.reshard_after_backward:
            group.reshard()

    def finish(self) -> None:
        """At the end of backward: parameters that got no gradient do not keep the others waiting."""
        self.queued = False
        if self.group._pending > 0:
            self.group._pending = 0
            self._complete(self.group)
        elif self.group.reshard_after_backward:
            self.group.reshard()
        self.group.finish_reducing()


class FSDPModule(flambeau.nn.Module):
    """What the class of a module gets beside its own. A module itself, because objects have to fit their new class."""

    _fsdp_state: _State

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        original = cls.__dict__.get("_fsdp_original")
        # A slice of a container, for instance, is a plain one.
        return super().__new__(cls) if original is None else original(*args, **kwargs)

    def _states(self, recurse: bool = True) -> list[_State]:
        modules = self.modules() if recurse else [self]
        return [module._fsdp_state for module in modules if isinstance(module, FSDPModule)]

    def reshard(self) -> None:
        self._fsdp_state.group.reshard()

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        group = self._fsdp_state.group
        if not async_op:
            group.unshard()
            return None
        group.start_gathering()
        return UnshardHandle(group)

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        self._fsdp_state.is_last_backward = is_last_backward

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        for state in self._states(recurse):
            state.group.reduces = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether gradients are also summed over replicas, where a mesh has them; if not, they wait for a pass that does."""
        for state in self._states(recurse):
            state.group.sums_replicas = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        for state in self._states(recurse):
            state.group.reshard_after_forward = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        for state in self._states(recurse):
            state.group.reshard_after_backward = reshard_after_backward

    def set_gradient_divide_factor(self, factor: float) -> None:
        self._fsdp_state.group.divide_factor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_modules_to_forward_prefetch(self, modules: list[Any]) -> None:
        """Modules whose parameters are gathered in the background while this one runs forward."""
        self._fsdp_state.forward_prefetch = [module._fsdp_state for module in modules]

    def set_modules_to_backward_prefetch(self, modules: list[Any]) -> None:
        """The same for backward."""
        self._fsdp_state.backward_prefetch = [module._fsdp_state for module in modules]

    def set_all_reduce_hook(self, hook: Callable[[Any], None], *, stream: Any = None) -> None:
        """A function of this module's reduced gradients, all in one flat tensor, which it may change in place."""
        self._fsdp_state.group.all_reduce_hook = hook

    def set_custom_all_gather(self, comm: Any) -> None:
        """What gathers this module's parameters: `comm(output, input, group, async_op)`, with memory from `comm.allocate`."""
        self._fsdp_state.group.all_gather = comm

    def set_custom_reduce_scatter(self, comm: Any) -> None:
        """What reduces this module's gradients: `comm(output, input, group, op, async_op)`, with memory from `comm.allocate`."""
        self._fsdp_state.group.reduce_scatter = comm

    def set_reduce_scatter_unused_params(self, reduce_scatter_unused_params: bool, *, recurse: bool = True) -> None:
        """Whether parameters without a gradient are reduced as zeros, for ranks that use different ones."""
        for state in self._states(recurse):
            state.group.fills_unused = reduce_scatter_unused_params

    def reset_iter_state(self) -> None:
        """After an error in the middle of forward or backward: parts again, ready for the next step."""
        for state in self._states():
            state.queued = False
            state.group.forget_step()

    # Hints about when and where tensors are communicated, which change no result.

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None: ...

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None: ...

    def set_post_optim_event(self, event: Any) -> None: ...

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None: ...

    def set_separate_reduce_scatter_group(self, enable: bool = True, *, recurse: bool = True) -> None: ...

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: int, *, recurse: bool = True) -> None: ...

    def set_symm_mem_for_comm(self, backend: str = "NCCL") -> None: ...

    def _set_unshard_async_op(self, async_op: bool) -> None: ...

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """What is saved are the parts, also where a forward pass left whole parameters."""
        self.reshard()
        super()._save_to_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.reshard()
        super()._load_from_state_dict(*args, **kwargs)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        for state in self._states():
            state.group.reshard()
        result = super()._apply(*args, **kwargs)
        for state in self._states():
            for parameter in state.group.parameters:
                parameter.adopt()
        return result


def _default_mesh() -> DeviceMesh:
    if not _groups.is_initialized():
        _groups.init_process_group()
    kind = "cuda" if flambeau.cuda.is_available() else "cpu"
    return init_device_mesh(kind, (_groups.get_world_size(),))


def _owned(modules: list[Any], ignored: set[Any]) -> dict[int, tuple[Any, list[tuple[Any, str]]]]:
    """Parameters that belong to the modules and to no module that was sharded before, with the places where they are."""
    taken = {id(module) for root in modules for module in root.modules() if isinstance(module, FSDPModule)}
    inner = {
        id(child) for root in modules for module in root.modules() if id(module) in taken for child in module.modules()
    }
    places: dict[int, tuple[Any, list[tuple[Any, str]]]] = {}
    for root in modules:
        for module in root.modules():
            if id(module) in inner:
                continue
            for name, parameter in module._parameters.items():
                if parameter is None or any(parameter is one for one in ignored):
                    continue
                places.setdefault(id(parameter), (parameter, []))[1].append((module, name))
    return places


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Any], Shard | None] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Any] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """Divides the parameters of a module (or of several, as one group) over a mesh of one dimension, or over the second of two;
    along the first they are then replicated."""
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    for one in modules:
        if isinstance(one, (flambeau.nn.ModuleList, flambeau.nn.ModuleDict)):
            raise ValueError(
                f"[fully_shard] fully_shard does not support containers that do not implement forward: {one}"
            )
        if isinstance(one, FSDPModule):
            raise AssertionError("[fully_shard] expected a module that is not sharded yet, got one that is")
    mesh = mesh or _default_mesh()
    if dp_mesh_dims is not None:
        if any(hasattr(parameter, "placements") for one in modules for parameter in one.parameters()):
            raise NotImplementedError("[fully_shard] expected plain parameters with dp_mesh_dims, got distributed ones")
        mesh = dp_mesh_dims.of(mesh)
    if mesh.ndim not in (1, 2):
        raise ValueError(f"[fully_shard] fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if isinstance(offload_policy, CPUOffloadPolicy) and mesh.device_type != "cpu":
        raise NotImplementedError(
            f"[fully_shard] expected a mesh of CPUs with CPUOffloadPolicy, got one of {mesh.device_type}: parameters "
            "are not moved between host and device yet"
        )
    policy = mp_policy or MixedPrecisionPolicy()
    shared: list[ShardedParameter] = []
    for parameter, owners in _owned(modules, ignored_params or set()).values():
        placement = shard_placement_fn(parameter) if shard_placement_fn is not None else None
        dim = 0 if placement is None else placement.dim % parameter.dim()
        shared.append(ShardedParameter(owners, parameter, mesh, dim, policy))
    reshard = True if reshard_after_forward is None else bool(reshard_after_forward)
    group = ParameterGroup(shared, mesh, policy, reshard)
    for sharded in shared:
        sharded.show(False)
    for one in modules:
        _attach(one, _State(one, group, policy))
    return module


def _attach(module: Any, state: _State) -> None:
    original = module.__class__
    body = {"__module__": original.__module__, "_fsdp_original": original}
    module.__class__ = type(f"FSDP{original.__name__}", (FSDPModule, original), body)
    object.__setattr__(module, "_fsdp_state", state)
    module.register_forward_pre_hook(state.before_forward, prepend=True, with_kwargs=True)
    module.register_forward_hook(state.after_forward, prepend=False)


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """A method that computes, beside `forward`: parameters are gathered for it, too."""
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name)
    state = module._fsdp_state

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = state.before_forward(module, args, kwargs)
        return state.after_forward(module, args, method(*args, **kwargs))

    setattr(module, method_name, wrapped)
