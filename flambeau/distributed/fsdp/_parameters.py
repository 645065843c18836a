"""The parameters of one `fully_shard` call: their parts, the gathered wholes, and the reduction of their gradients.

All parts of a group lie in one flat buffer, so that a group is gathered, and its gradients reduced, by one collective.
"""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau._dynamo import disable
from flambeau.autograd.grad_mode import _unsafe_preserve_version_counter
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._types import ReduceOp
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor._spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor.placement_types import Replicate, Shard

__all__ = ["ParameterGroup", "ShardedParameter"]


class ShardedParameter:
    """One parameter: the part that the optimizer sees, and the whole while it is gathered."""

    def __init__(self, owners: list[tuple[Any, str]], parameter: Any, mesh: DeviceMesh, dim: int, policy: Any) -> None:
        self.owners, self.policy, self.dim = owners, policy, dim
        self.shard_group = mesh.get_group(mesh.ndim - 1)
        self.tensor_spec: DTensorSpec | None = parameter._spec if isinstance(parameter, DTensor) else None
        whole = parameter._local_tensor if isinstance(parameter, DTensor) else parameter
        whole = whole.detach()
        self.shape, self.dtype = whole.shape, whole.dtype
        count, rank = self.shard_group.size(), self.shard_group.rank()
        self.part_size = -(-whole.shape[dim] // count) if whole.dim() else 1
        flat_first = whole.movedim(dim, 0)
        size, start = Shard.local_shard_size_and_offset(flat_first.shape[0], count, rank)
        part = flat_first.narrow(0, min(start, flat_first.shape[0]), size)
        self.padded_shape = [self.part_size, *flat_first.shape[1:]]
        # The parts of all ranks have one size in collectives; what is beyond the end is zero.
        self.padded = flambeau.zeros(self.padded_shape, dtype=self.dtype, device=whole.device)
        self.padded[:size].copy_(part)
        local = self.padded[:size].movedim(0, dim)
        self.sharded = flambeau.nn.Parameter(
            DTensor(local, self._spec(mesh, parameter)), requires_grad=parameter.requires_grad
        )
        for name, value in getattr(parameter, "__dict__", {}).items():
            if not name.startswith("_"):
                setattr(self.sharded, name, value)
        self.unsharded: Any = None
        self.accumulated: Any = None  # gradients of backward passes without reduction

    def _spec(self, mesh: DeviceMesh, parameter: Any) -> DTensorSpec:
        meta = TensorMeta(parameter.shape, tuple(parameter.stride()), parameter.dtype)
        data = [*[Replicate()] * (mesh.ndim - 1), Shard(self.dim)]
        if self.tensor_spec is None:
            return DTensorSpec(mesh, tuple(data), meta)
        # Divided over another mesh already: that division is the outer one.
        outer = self.tensor_spec.mesh
        names = (*(outer.mesh_dim_names or ()), *(mesh.mesh_dim_names or ()))
        root = mesh._root or outer._root
        if root is None or len(names) != outer.ndim + mesh.ndim:
            raise ValueError("[fully_shard] expected meshes that are slices by name of one mesh, got others")
        return DTensorSpec(root._of_dims(names), (*self.tensor_spec.placements, *data), meta)

    @property
    def compute_dtype(self) -> Any:
        lowered = self.policy.param_dtype
        return lowered if lowered is not None and self.dtype.is_floating_point else self.dtype

    def fill(self, parts: list[Any]) -> None:
        """Makes the whole of everybody's parts; a whole that was made before gets its memory back."""
        rows = flambeau.cat([part.view(self.padded_shape) for part in parts])[: self._rows()]
        values = rows.movedim(0, self.dim) if self.shape else rows.view(())
        if self.unsharded is None:
            whole = values.contiguous()
            if self.tensor_spec is not None:
                meta = self.tensor_spec.tensor_meta
                spec = DTensorSpec(
                    self.tensor_spec.mesh,
                    self.tensor_spec.placements,
                    TensorMeta(meta.shape, meta.stride, whole.dtype),  # type: ignore[union-attr]
                )
                whole = DTensor(whole, spec)
            self.unsharded = flambeau.nn.Parameter(whole, requires_grad=self.sharded.requires_grad)
            return
        target = self._memory()
        with flambeau.no_grad(), _unsafe_preserve_version_counter(target):
            target.untyped_storage().resize_(target.numel() * target.element_size())
            target.copy_(values)

    def was_replaced(self) -> bool:
        """Whether the modules have another part now, as after `load_state_dict(assign=True)`."""
        module, name = self.owners[0]
        return module._parameters[name] is not self.sharded

    def adopt(self) -> None:
        """Takes over a part that was moved or replaced (`to_empty`, `to`, assignment): collectives read the padded buffer."""
        shown = self.owners[0][0]._parameters[self.owners[0][1]]
        if isinstance(shown, DTensor):
            self.sharded = shown
        local = self.sharded._local_tensor
        if local.device == self.padded.device and local.data_ptr() == self.padded.data_ptr():
            return
        self.dtype = local.dtype
        self.padded = flambeau.zeros(self.padded_shape, dtype=local.dtype, device=local.device)
        rows = local.movedim(self.dim, 0) if local.dim() else local.view(1)
        with flambeau.no_grad():
            self.padded[: rows.shape[0]].copy_(rows)
            part = self.padded[: rows.shape[0]]
            self.sharded._local_tensor = part.movedim(0, self.dim) if local.dim() else part.view(())
        self.unsharded = None

    def _rows(self) -> int:
        return self.shape[self.dim] if len(self.shape) else 1

    def _memory(self) -> Any:
        return self.unsharded._local_tensor if isinstance(self.unsharded, DTensor) else self.unsharded

    def release(self) -> None:
        self._memory().untyped_storage().resize_(0)

    def write_back(self) -> None:
        """The part takes the values of the whole."""
        if self.unsharded is None or self._memory().untyped_storage().nbytes() == 0:
            return
        with flambeau.no_grad():
            whole = self._memory().detach()
            rows = whole.movedim(self.dim, 0) if self.shape else whole.view(1)
            size, start = Shard.local_shard_size_and_offset(
                rows.shape[0], self.shard_group.size(), self.shard_group.rank()
            )
            self.padded[:size].copy_(rows.narrow(0, min(start, rows.shape[0]), size))

    def show(self, whole: bool) -> None:
        """Which of the two the modules have."""
        shown = self.unsharded if whole else self.sharded
        for module, name in self.owners:
            module._parameters[name] = shown
            if name in module.__dict__:
                module.__dict__[name] = shown
        self._changed()

    def _changed(self) -> None:
        for module, name in self.owners:
            module.register_parameter(name, module._parameters[name])

    def take_gradient(self) -> Any:
        """The gradient of the whole as a plain tensor, with what was accumulated before; None when there is none."""
        gradient = None if self.unsharded is None else self.unsharded.grad
        if isinstance(gradient, DTensor):
            target = self.tensor_spec.placements  # type: ignore[union-attr]
            if gradient.placements != target:
                gradient = gradient.redistribute(placements=target)
            gradient = gradient._local_tensor
        if self.unsharded is not None:
            self.unsharded.grad = None
        if self.accumulated is not None:
            gradient = self.accumulated if gradient is None else gradient + self.accumulated
            self.accumulated = None
        return gradient

    def zeros(self) -> Any:
        """The gradient of a whole that was not used."""
        return flambeau.zeros(self.shape, dtype=self.compute_dtype, device=self.padded.device)

    def padded_gradient(self, gradient: Any, dtype: Any) -> Any:
        """A gradient as equally large parts for all ranks, one after the other."""
        rows = gradient.to(dtype).movedim(self.dim, 0) if self.shape else gradient.to(dtype).view(1)
        missing = self.part_size * self.shard_group.size() - rows.shape[0]
        if missing:
            rows = flambeau.cat([rows, rows.new_zeros([missing, *rows.shape[1:]])])
        return rows.reshape(self.shard_group.size(), -1)

    def store_gradient(self, flat: Any) -> None:
        """The reduced gradient of this rank's part."""
        local = self.sharded._local_tensor
        size = local.shape[self.dim] if local.dim() else 1
        part = flat.view(self.padded_shape)[:size].movedim(0, self.dim).to(self.dtype)
        gradient = DTensor(part.clone(), self.sharded._spec)
        if self.sharded.grad is None:
            self.sharded.grad = gradient
        else:
            self.sharded.grad._local_tensor.add_(gradient._local_tensor)


def _wait(work: Any) -> None:
    """A collective of a program's own may have ended already, and return nothing."""
    if work is not None:
        work.wait()


class ParameterGroup:
    """The parameters that are gathered and reduced together."""

    def __init__(self, parameters: list[ShardedParameter], mesh: DeviceMesh, policy: Any, reshard: bool) -> None:
        self.parameters, self.mesh, self.policy = parameters, mesh, policy
        self.shard_group = mesh.get_group(mesh.ndim - 1)
        self.replicate_group = mesh.get_group(0) if mesh.ndim > 1 else None
        self.reshard_after_forward, self.reshard_after_backward = reshard, True
        self.reduces = True
        self.divide_factor: float | None = None
        self.is_whole = False
        self.is_root = True  # no other group's module contains this one's
        self.comm_hook: tuple[Any, Any] | None = None  # of programs, in place of the reduction
        self.all_reduce_hook: Any = None  # of programs: gets the reduced gradients of the parts before they are stored
        self.all_gather: Any = None  # of programs, in place of the collectives
        self.reduce_scatter: Any = None
        self.sums_replicas = True
        self.fills_unused = False  # parameters without a gradient are reduced as zeros
        self._of_replica: dict[tuple[int, ...], Any] = {}  # gradients that were not summed over the replicas yet
        self._pending = 0
        self._gathering: list[tuple[Any, list[ShardedParameter], Any, Any]] = []
        self._gathered_version = 0
        self._reducing: list[tuple[Any, list[ShardedParameter], Any, Any]] = []
        self._stored: list[ShardedParameter] = []  # whose hooks are to run

    def fits_graph(self) -> bool:
        """Whether a captured graph can gather and reduce (`_in_graph.py`)."""
        custom = (self.comm_hook, self.all_reduce_hook, self.all_gather, self.reduce_scatter)
        return self.reduces and self.sums_replicas and not any(custom) and not self.is_whole

    @disable
    def unshard(self, cast: bool = True) -> None:
        """Gathers the parameters, in the dtype of computation or, without `cast`, in their own."""
        if not cast:
            self.finish_gathering()
            self.forget_whole()
        if self.is_whole or not self.parameters:
            return
        self.start_gathering(cast)
        self.finish_gathering()

    @disable
    def start_gathering(self, cast: bool = True) -> None:
        """Begins to gather in the background; `finish_gathering` makes the wholes."""
        if self.is_whole or self._gathering or not self.parameters:
            return
        for parameter in self.parameters:
            if parameter.was_replaced():
                parameter.adopt()
        dtypes = [parameter.compute_dtype if cast else parameter.dtype for parameter in self.parameters]
        with flambeau.no_grad():
            for dtype in dict.fromkeys(dtypes):
                members = [p for p, own in zip(self.parameters, dtypes) if own == dtype]
                flat = flambeau.cat([parameter.padded.reshape(-1).to(dtype) for parameter in members])
                whole = self._new(self.all_gather, flat, self.shard_group.size() * flat.numel())
                gather = self.all_gather or collectives.all_gather_into_tensor
                work = gather(whole, flat, self.shard_group, async_op=True)
                self._gathering.append((work, members, flat, whole.view(self.shard_group.size(), -1)))
        self._gathered_version = self._version()

    @staticmethod
    def _new(allocator: Any, like: Any, size: int) -> Any:
        """Memory for a collective, from a program's own if it has one."""
        return (
            like.new_empty(size)
            if allocator is None
            else allocator.allocate([size], dtype=like.dtype, device=like.device)
        )

    def forget_step(self) -> None:
        """Parts again after a step that an error ended; what it began is waited for and dropped."""
        for work, *_ in (*self._gathering, *self._reducing):
            _wait(work)
        self._gathering, self._reducing, self._stored, self._pending = [], [], [], 0
        for parameter in self.parameters:
            if parameter.unsharded is not None:
                parameter.unsharded.grad = None
        self.reshard()

    def _version(self) -> int:
        return sum(parameter.padded._version for parameter in self.parameters)

    @disable
    def finish_gathering(self) -> None:
        gathering, self._gathering = self._gathering, []
        if not gathering:
            return
        if self._version() != self._gathered_version:
            # Parts were written since, on all ranks alike: what was gathered ahead is out of date.
            for work, *_ in gathering:
                _wait(work)
            self.start_gathering()
            gathering, self._gathering = self._gathering, []
        with flambeau.no_grad():
            for work, members, _, whole in gathering:
                _wait(work)
                columns = whole.split([parameter.padded.numel() for parameter in members], 1)
                for parameter, column in zip(members, columns):
                    parameter.fill(list(column.contiguous().unbind(0)))
        for parameter in self.parameters:
            parameter.show(True)
        self.is_whole = True

    @disable
    def reshard(self) -> None:
        self.finish_gathering()
        if not self.is_whole:
            return
        for parameter in self.parameters:
            parameter.show(False)
            parameter.release()
        self.is_whole = False

    def forget_whole(self) -> None:
        """Parts again; the next gathering makes new tensors, which other dtypes need."""
        self.reshard()
        for parameter in self.parameters:
            parameter.unsharded = None

    def write_back(self) -> None:
        """What was written to whole parameters goes to the parts."""
        for parameter in self.parameters:
            parameter.write_back()

    def show_gradients(self) -> None:
        """Whole gradients for whole parameters."""
        for parameter in self.parameters:
            gradient = parameter.sharded.grad
            if gradient is not None:
                parameter.unsharded.grad = gradient.full_tensor()

    def expect_gradients(self, notify: Any) -> None:
        """Calls `notify` when all gathered parameters have their gradients."""
        trained = [parameter for parameter in self.parameters if parameter.sharded.requires_grad]
        self._pending = len(trained)
        for parameter in trained:
            if not getattr(parameter.unsharded, "_fsdp_watched", False):
                parameter.unsharded._fsdp_watched = True
                parameter.unsharded.register_post_accumulate_grad_hook(lambda _: self._count(notify))

    def _count(self, notify: Any) -> None:
        self._pending -= 1
        if self._pending == 0:
            notify(self)

    def reduce(self) -> None:
        """Gradients of the wholes become gradients of the parts, averaged over all ranks."""
        if not self.reduces:
            for parameter in self.parameters:
                if parameter.unsharded is not None and parameter.unsharded.grad is not None:
                    gradient = parameter.take_gradient()
                    parameter.accumulated = gradient.to(self._reduce_dtype(gradient))
            return
        gradients = [(parameter, self._gradient(parameter)) for parameter in self.parameters]
        present = [(parameter, gradient) for parameter, gradient in gradients if gradient is not None]
        with flambeau.no_grad():
            for dtype in {self._reduce_dtype(gradient) for _, gradient in present}:
                self._reduce([pair for pair in present if self._reduce_dtype(pair[1]) == dtype], dtype)

    def _gradient(self, parameter: ShardedParameter) -> Any:
        gradient = parameter.take_gradient()
        is_unused = gradient is None and self.fills_unused and parameter.sharded.requires_grad
        return parameter.zeros() if is_unused else gradient

    def _reduce_dtype(self, gradient: Any) -> Any:
        return self.policy.reduce_dtype or gradient.dtype

    def _reduce(self, pairs: list[tuple[ShardedParameter, Any]], dtype: Any) -> None:
        rows = flambeau.cat([parameter.padded_gradient(gradient, dtype) for parameter, gradient in pairs], 1)
        own = rows.new_empty(rows.shape[1])
        members = [parameter for parameter, _ in pairs]
        if self.comm_hook is not None:
            state, hook = self.comm_hook
            hook(state, rows.contiguous().view(-1), own)
            self._store(members, own)
            return
        rows = rows.contiguous().view(-1)
        if self.reduce_scatter is not None:
            rows = self._new(self.reduce_scatter, rows, rows.numel()).copy_(rows)
            own = self._new(self.reduce_scatter, rows, own.numel())
        scatter = self.reduce_scatter or collectives.reduce_scatter_tensor
        work = scatter(own, rows, group=self.shard_group, op=ReduceOp.SUM, async_op=True)
        self._reducing.append((work, members, rows, own))

    def finish_reducing(self) -> None:
        """Waits for reductions under way and stores their gradients."""
        reducing, self._reducing = self._reducing, []
        ranks = self.shard_group.size() * (self.replicate_group.size() if self.replicate_group else 1)
        with flambeau.no_grad():
            for work, members, _, own in reducing:
                _wait(work)
                if self.replicate_group is not None and not self._sum_replicas(members, own):
                    continue
                own.div_(self.divide_factor or ranks)
                if self.all_reduce_hook is not None:
                    self.all_reduce_hook(own)
                self._store(members, own)
        self._run_hooks()

    def _sum_replicas(self, members: list[ShardedParameter], own: Any) -> bool:
        """Sums over the replicas, or keeps the gradients until a later backward pass does."""
        key = tuple(map(id, members))
        waiting = self._of_replica.pop(key, None)
        if waiting is not None:
            own.add_(waiting)
        if not self.sums_replicas:
            self._of_replica[key] = own
            return False
        collectives.all_reduce(own, ReduceOp.SUM, self.replicate_group)
        return True

    def _run_hooks(self) -> None:
        """What programs registered by `register_post_accumulate_grad_hook` on the parts: their gradients are there now."""
        stored, self._stored = self._stored, []
        for parameter in stored:
            for hook in parameter.sharded._leaf_hooks()[1]:
                if callable(hook):
                    hook(parameter.sharded)

    def _store(self, members: list[ShardedParameter], own: Any) -> None:
        self._stored += members
        for parameter, part in zip(members, own.split([parameter.padded.numel() for parameter in members])):
            parameter.store_gradient(part)
