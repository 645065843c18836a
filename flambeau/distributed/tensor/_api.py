"""`DTensor`: a tensor of which every process of a mesh holds a part, and the functions that make one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau import _C
from flambeau.autograd import Function
from flambeau.distributed import _collectives as collectives
from flambeau.distributed.device_mesh import DeviceMesh, _mesh_resources
from flambeau.distributed.tensor import _pickling
from flambeau.distributed.tensor._dispatch import dispatch
from flambeau.distributed.tensor._redistribute import redistribute_local
from flambeau.distributed.tensor._spec import DTensorSpec, TensorMeta, compute_local_shape, normalize_placements
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from flambeau.ops.recording import state as recording

__all__ = [
    "DTensor", "distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros",
]  # fmt: skip


def _for_gradient(placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """The gradient of parts that are summed is the same for each."""
    return tuple(Replicate() if isinstance(p, Partial) else p for p in placements)


class _ToLocal(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, grad_placements: Any) -> Any:
        ctx.spec, ctx.grad_placements = tensor._spec, grad_placements
        local = tensor._local_tensor
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        spec = ctx.spec
        placements = ctx.grad_placements or _for_gradient(spec.placements)
        return DTensor(gradient, DTensorSpec(spec.mesh, tuple(placements), spec.tensor_meta), requires_grad=False), None


class _FromLocal(Function):
    @staticmethod
    def forward(ctx: Any, local: Any, mesh: Any, placements: Any, shape: Any, stride: Any) -> Any:
        ctx.mesh, ctx.placements = mesh, placements
        meta = TensorMeta(flambeau.Size(shape), tuple(stride), local.dtype)
        return DTensor(local.view_as(local), DTensorSpec(mesh, placements, meta), requires_grad=local.requires_grad)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        wanted = _for_gradient(ctx.placements)
        local = redistribute_local(gradient._local_tensor, ctx.mesh, gradient.shape, gradient._spec.placements, wanted)
        return local, None, None, None, None


class _Redistribute(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any, mesh: Any, placements: Any, forward_dtype: Any, backward_dtype: Any) -> Any:
        spec = tensor._spec
        ctx.before, ctx.dtypes = spec.placements, (backward_dtype or tensor.dtype, tensor.dtype)
        local = tensor._local_tensor if forward_dtype is None else tensor._local_tensor.to(forward_dtype)
        local = redistribute_local(local, mesh, tensor.shape, spec.placements, placements)
        if local is tensor._local_tensor:
            local = local.view_as(local)
        meta = spec.geometry._replace(dtype=local.dtype)
        return DTensor(local, DTensorSpec(mesh, placements, meta), requires_grad=tensor.requires_grad)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        wanted, spec = _for_gradient(ctx.before), gradient._spec
        moved, whole = ctx.dtypes
        local = gradient._local_tensor.to(moved)
        local = redistribute_local(local, spec.mesh, gradient.shape, spec.placements, wanted).to(whole)
        meta = spec.geometry._replace(dtype=whole)
        return DTensor(local, DTensorSpec(spec.mesh, wanted, meta), requires_grad=False), *[None] * 4


def _from_local(
    local_tensor: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    run_check: bool = False,
    shape: Any = None,
    stride: Any = None,
    grad_placements: Any = None,
) -> DTensor:
    """The tensor whose part on each process is `local_tensor`; parts of a division are taken to be equally large unless
    `shape` and `stride` of the whole are given."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    normal = normalize_placements(placements, mesh, local_tensor.dim())
    inside = mesh.get_coordinate() is not None
    if run_check and inside:
        for mesh_dim, placement in enumerate(normal):
            if placement.is_replicate():
                with flambeau.no_grad():
                    collectives.broadcast(local_tensor.detach(), group=mesh.get_group(mesh_dim), group_src=0)
    if shape is None:
        sizes, steps = list(local_tensor.shape), list(local_tensor.stride())
        for mesh_dim, placement in enumerate(normal):
            if isinstance(placement, Shard):
                own, count = sizes[placement.dim], mesh.size(mesh_dim)
                sizes[placement.dim] = own * count
                for dim in range(len(steps)):
                    if dim != placement.dim and steps[dim] >= steps[placement.dim] * max(own, 1):
                        steps[dim] *= count
        shape, stride = sizes, steps
    if not inside:
        local_tensor = local_tensor.new_empty(0, requires_grad=local_tensor.requires_grad)
    return _FromLocal.apply(local_tensor, mesh, normal, tuple(shape), tuple(stride))


class DTensor(flambeau.Tensor):
    """A tensor on a mesh. It has the shape of the whole; operators run on the parts and communicate as needed."""

    _local_tensor: flambeau.Tensor
    _spec: DTensorSpec
    __torch_function__ = _C._disabled_torch_function_impl
    _wraps_part = True  # see flambeau/_dynamo/wrappers.py
    _sees_parts = False  # `dispatch` takes operators apart itself
    from_local = staticmethod(_from_local)

    @staticmethod
    def __new__(cls, local_tensor: Any, spec: DTensorSpec, *, requires_grad: bool = False) -> DTensor:
        meta = spec.geometry
        self = flambeau.Tensor._make_wrapper_subclass(
            cls,  # type: ignore[arg-type]
            tuple(meta.shape), strides=tuple(meta.stride), dtype=local_tensor.dtype, device=local_tensor.device,
            requires_grad=requires_grad,
        )  # fmt: skip
        self._local_tensor = local_tensor.detach() if local_tensor.requires_grad else local_tensor
        self._spec = spec
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(DTensor, func, args, kwargs or {})

    def to_local(self, *, grad_placements: Any = None) -> Any:
        """This process's part; gradients flow back to the whole."""
        if not flambeau.is_grad_enabled():
            return self._local_tensor
        normal = (
            None if grad_placements is None else normalize_placements(grad_placements, self.device_mesh, self.dim())
        )
        return _ToLocal.apply(self, normal)

    def _to_part(self) -> Any:
        return _ToLocal.apply(self, None) if self.requires_grad and flambeau.is_grad_enabled() else self._local_tensor

    @staticmethod
    def _from_part(part: Any, spec: DTensorSpec) -> DTensor:
        if not part.requires_grad or not flambeau.is_grad_enabled():
            return DTensor(part, spec)
        meta = spec.geometry
        return _FromLocal.apply(part, spec.mesh, spec.placements, tuple(meta.shape), tuple(meta.stride))

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """The same tensor under other placements; moved, and made, as `forward_dtype`, its gradient moved as `backward_dtype`."""
        mesh = device_mesh or self.device_mesh
        if placements is None:
            raise RuntimeError("[DTensor.redistribute] placements is needed for redistribute!")
        normal = normalize_placements(placements, mesh, self.dim(), IndexError)
        for before, after in zip(self.placements, normal):
            if isinstance(after, Partial) and before != after:
                raise RuntimeError(
                    "[DTensor.redistribute] Can not redistribute to Partial, redistributing to Partial is for internal use only!"
                )
        return _Redistribute.apply(self, mesh, normal, forward_dtype, backward_dtype)

    def full_tensor(self, *, grad_placements: Any = None) -> Any:
        """The whole, on every process."""
        whole = self.redistribute(placements=[Replicate()] * self.device_mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    @property
    def device_mesh(self) -> DeviceMesh:
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self._spec.placements

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        self._local_tensor, self._spec = value._local_tensor, value._spec

    # What needs the values of the whole.

    def equal(self, other: Any) -> bool:
        """Whether all values are the same; True on processes that are not in the mesh."""
        if self.device_mesh.get_coordinate() is None:
            return True
        return self.shape == other.shape and bool(flambeau.eq(self, other).all().item())

    def item(self) -> Any:
        with flambeau.no_grad():
            return self.full_tensor().item()

    def tolist(self) -> Any:
        with flambeau.no_grad():
            return self.full_tensor().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        return self.full_tensor().numpy(*args, **kwargs)

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"DTensor(local_tensor={self._local_tensor}, device_mesh={self._spec.mesh}, placements={self._spec.placements})"

    def __deepcopy__(self, memo: Any) -> DTensor:
        if id(self) in memo:
            return memo[id(self)]
        local = copy.deepcopy(self._local_tensor.detach(), memo)
        copied = DTensor(local, self._spec, requires_grad=self.requires_grad)
        if isinstance(self, flambeau.nn.Parameter):
            copied = flambeau.nn.Parameter(copied, requires_grad=self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _pickling.reduce(self)

    def __tensor_flatten__(self) -> Any:
        return ["_local_tensor"], (self._spec, self.requires_grad)

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> DTensor:
        spec, requires_grad = context
        return DTensor(inner["_local_tensor"], spec, requires_grad=requires_grad)

    def __create_chunk_list__(self) -> Any:
        from flambeau.distributed.checkpoint._chunks import chunks_of

        return chunks_of(self)


DTensor.__module__ = "flambeau.distributed.tensor"
_pickling.register(DTensor)


def _wrap_local(local: Any, mesh: DeviceMesh, placements: tuple[Placement, ...], like: Any) -> DTensor:
    meta = TensorMeta(flambeau.Size(like.shape), tuple(like.stride()), local.dtype)
    return DTensor(local, DTensorSpec(mesh, placements, meta), requires_grad=False)


def distribute_tensor(
    tensor: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """A tensor that every process has whole, divided over a mesh. The values are those of the first process of each group,
    or each process's own with `src_data_rank=None`."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if not tensor.is_leaf:
        raise RuntimeError(
            "[distribute_tensor] `distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!"
        )
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(
                f"[distribute_tensor] Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}."
            )
        if placements is not None and tuple(placements) != tensor.placements:
            raise ValueError(
                f"[distribute_tensor] Cannot distribute a DTensor with placements {tensor.placements} to a different placements {placements}. do you want to call `redistribute` instead?"
            )
        return tensor
    normal = normalize_placements(placements, mesh, tensor.dim())
    if mesh.get_coordinate() is None:
        return _wrap_local(tensor.detach().new_empty(0), mesh, normal, tensor).requires_grad_(tensor.requires_grad)
    with flambeau.no_grad():
        whole = tensor.detach()
        if src_data_rank is not None and whole.is_meta and recording.depth:
            for mesh_dim in range(mesh.ndim):
                name = mesh.get_group(mesh_dim).group_name
                whole = flambeau.ops._c10d_functional.broadcast(whole, src_data_rank, name)
        elif src_data_rank is not None and not whole.is_meta:
            whole = whole.clone(memory_format=flambeau.contiguous_format)
            for mesh_dim in range(mesh.ndim):
                collectives.broadcast(whole, group=mesh.get_group(mesh_dim), group_src=src_data_rank)
        local = redistribute_local(whole, mesh, tensor.shape, (Replicate(),) * mesh.ndim, normal)
        if local is whole and src_data_rank is None:
            local = whole.clone()
    return _wrap_local(local, mesh, normal, tensor).requires_grad_(tensor.requires_grad)


def distribute_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Any, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Any:
    """Makes the parameters of a module distributed: by `partition_fn(name, submodule, mesh)`, the rest replicated. `input_fn` and
    `output_fn` run before and after forward."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    for name, submodule in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, submodule, mesh)
        everywhere = [Replicate()] * mesh.ndim
        for key, parameter in list(submodule._parameters.items()):
            if parameter is not None and not isinstance(parameter, DTensor):
                spread = distribute_tensor(parameter.detach(), mesh, everywhere)
                distributed = flambeau.nn.Parameter(spread, requires_grad=parameter.requires_grad)
                submodule.register_parameter(key, distributed)
        for key, buffer in list(submodule._buffers.items()):
            if buffer is not None and not isinstance(buffer, DTensor):
                submodule._buffers[key] = distribute_tensor(buffer, mesh, everywhere)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda own, inputs: _call(input_fn, own, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda own, inputs, outputs: _call(output_fn, own, outputs, mesh))
    return module


def _call(function: Any, module: Any, values: Any, mesh: DeviceMesh) -> Any:
    import inspect

    if len(inspect.signature(function).parameters) == 2:
        warnings.warn("Deprecating input_fn and output_fn that take two arguments", FutureWarning, stacklevel=3)
        return function(values, mesh)
    return function(module, values, mesh)


# ---------------------------------------------------------------------------------------------- factories


def _make(make: Any, size: Any, options: dict[str, Any], mesh: Any, placements: Any) -> DTensor:
    sizes = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
    mesh = mesh or _mesh_resources.get_current_mesh()
    normal = normalize_placements(placements, mesh, len(sizes))
    requires_grad = options.pop("requires_grad", False)
    options.pop("layout", None)
    local = make(compute_local_shape(sizes, mesh, normal), **options)
    like = flambeau.empty(sizes, device="meta")
    return _wrap_local(local, mesh, normal, like).requires_grad_(requires_grad)


def zeros(*size: Any, device_mesh: Any = None, placements: Any = None, **options: Any) -> DTensor:
    return _make(flambeau.zeros, size, options, device_mesh, placements)


def ones(*size: Any, device_mesh: Any = None, placements: Any = None, **options: Any) -> DTensor:
    return _make(flambeau.ones, size, options, device_mesh, placements)


def empty(*size: Any, device_mesh: Any = None, placements: Any = None, **options: Any) -> DTensor:
    return _make(flambeau.empty, size, options, device_mesh, placements)


def full(size: Any, fill_value: Any, *, device_mesh: Any = None, placements: Any = None, **options: Any) -> DTensor:
    return _make(lambda shape, **o: flambeau.full(shape, fill_value, **o), (size,), options, device_mesh, placements)


def _random(make: Any, size: Any, options: dict[str, Any], mesh: Any, placements: Any) -> DTensor:
    """Random numbers of the whole from a seed that the first process draws, so that they do not depend on the mesh."""
    mesh = mesh or _mesh_resources.get_current_mesh()
    sizes = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
    seed = flambeau.randint(0, 2**31, (1,))
    for mesh_dim in range(mesh.ndim) if mesh.get_coordinate() is not None else ():
        collectives.broadcast(seed, group=mesh.get_group(mesh_dim), group_src=0)
    requires_grad = options.pop("requires_grad", False)
    options.pop("layout", None)
    whole = make(sizes, generator=flambeau.Generator().manual_seed(int(seed)), **options)
    return distribute_tensor(whole, mesh, placements, src_data_rank=None).requires_grad_(requires_grad)


def rand(*size: Any, device_mesh: Any = None, placements: Any = None, **options: Any) -> DTensor:
    return _random(flambeau.rand, size, options, device_mesh, placements)


def randn(*size: Any, device_mesh: Any = None, placements: Any = None, **options: Any) -> DTensor:
    return _random(flambeau.randn, size, options, device_mesh, placements)
