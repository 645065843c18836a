"""The reducer of data-parallel training: averages gradients over processes while backward still runs.

Parameters are assigned to buckets in the reverse of their order, and after the first pass in the order in which the gradients
of the first process were ready. Hooks of the native reducer (`csrc/distributed/reducer.h`) count; when a bucket is full, it is
reduced in the background: in shared memory where the gradients lie, with other groups and with communication hooks in memory of the
bucket. A parameter that nobody used keeps its gradient, and no process has to know beforehand what the others use.

Where backward raises an error on one process, the others get one from the buckets that it does not reduce.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau import _distributed as native
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._process_group import ProcessGroup
from flambeau.distributed._types import ReduceOp, Work

__all__ = ["BuiltinCommHookType", "GradBucket", "Logger", "Reducer"]

_DEFAULT_FIRST_BUCKET_BYTES = 1024 * 1024
Tensor = flambeau.Tensor


class BuiltinCommHookType(enum.Enum):
    ALLREDUCE = 0
    FP16_COMPRESS = 1


class GradBucket:
    """A bucket of gradients as a communication hook sees it."""

    def __init__(
        self, index: int, buffer: Tensor, gradients: list[Tensor], parameters: list[Tensor], last: bool
    ) -> None:
        self._index, self._buffer, self._gradients = index, buffer, gradients
        self._parameters, self._last = parameters, last

    def index(self) -> int:
        return self._index

    def buffer(self) -> Tensor:
        """All gradients in one flat tensor."""
        return self._buffer

    def gradients(self) -> list[Tensor]:
        """Views of the buffer, one for each parameter."""
        return self._gradients

    def parameters(self) -> list[Tensor]:
        return self._parameters

    def is_last(self) -> bool:
        return self._last

    def set_buffer(self, tensor: Tensor) -> None:
        self._buffer = tensor


class _Bucket:
    """Some parameters, and memory for their gradients where they are not reduced where they lie. Behind those in memory are
    the counts of the processes that used each."""

    def __init__(self, indices: list[int], parameters: list[Tensor]) -> None:
        self.indices, self.parameters = indices, parameters
        self.launched: Any = None
        self._memory: Tensor | None = None

    @property
    def memory(self) -> Tensor:
        if self._memory is None:
            first = self.parameters[0]
            numbers = sum(parameter.numel() for parameter in self.parameters) + len(self.parameters)
            with flambeau.no_grad():
                self._memory = flambeau.zeros(numbers, dtype=first.dtype, device=first.device)
        return self._memory

    @property
    def flat(self) -> Tensor:
        return self.memory[: -len(self.parameters)]

    @property
    def used(self) -> Tensor:
        return self.memory[-len(self.parameters) :]

    def views(self) -> list[Tensor]:
        parts = self.flat.split([parameter.numel() for parameter in self.parameters])
        return [_view_like(part, parameter) for part, parameter in zip(parts, self.parameters)]

    @property
    def bytes(self) -> int:
        return sum(parameter.numel() * parameter.element_size() for parameter in self.parameters)


def _view_like(part: Tensor, parameter: Tensor) -> Tensor:
    """A piece of flat memory with the shape, and where that is dense the strides, of a parameter."""
    if not parameter.is_contiguous() and _is_dense(parameter):
        return part.as_strided(parameter.shape, parameter.stride(), part.storage_offset())
    return part.view(parameter.shape)


def _is_dense(parameter: Tensor) -> bool:
    """Whether the elements cover a block of memory without holes."""
    expected = 1
    for stride, size in sorted(zip(parameter.stride(), parameter.shape)):
        if size > 1 and stride != expected:
            return False
        expected *= size if size > 1 else 1
    return True


def _compute_bucket_assignment_by_size(
    tensors: Sequence[Tensor], bucket_size_limits: Sequence[int], *_: Any
) -> tuple[list[list[int]], list[int]]:
    """Indices of tensors in buckets of one dtype and device; the limits hold for the first, second … and all further ones."""
    buckets: list[list[int]] = []
    limits: list[int] = []
    open_buckets: dict[Any, tuple[list[int], int]] = {}
    for index, tensor in enumerate(tensors):
        key = (tensor.dtype, str(tensor.device))
        members, size = open_buckets.get(key, ([], 0))
        members.append(index)
        size += tensor.numel() * tensor.element_size()
        limit = bucket_size_limits[min(len(buckets), len(bucket_size_limits) - 1)]
        if size >= limit:
            buckets.append(members)
            limits.append(limit)
            open_buckets.pop(key, None)
        else:
            open_buckets[key] = (members, size)
    for members, _size in open_buckets.values():
        buckets.append(members)
        limits.append(bucket_size_limits[-1])
    order = sorted(range(len(buckets)), key=lambda i: buckets[i][0])
    return [buckets[i] for i in order], [limits[i] for i in order]


def _broadcast_coalesced(group: ProcessGroup, tensors: Sequence[Tensor], buffer_size: int, root: int = 0) -> None:
    """Tensors of one rank to all others, small ones together."""
    by_dtype: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        by_dtype.setdefault((tensor.dtype, str(tensor.device)), []).append(tensor)
    with flambeau.no_grad():
        for members in by_dtype.values():
            flat = flambeau.cat([tensor.detach().reshape(-1) for tensor in members])
            collectives.broadcast(flat, group=group, group_src=root)
            if group.rank() != root:
                for tensor, part in zip(members, flat.split([tensor.numel() for tensor in members])):
                    tensor.detach().copy_(part.view(tensor.shape))


def _verify_params_across_processes(group: ProcessGroup, tensors: Sequence[Tensor], logger: Any = None) -> None:
    """Raises on all ranks when models differ in the number or shapes of their parameters."""
    from flambeau.distributed._objects import all_gather_object

    everywhere: list[Any] = [None] * group.size()
    all_gather_object(everywhere, [(tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors], group)
    own = everywhere[group.rank()]
    for rank, theirs in enumerate(everywhere):
        if len(own) != len(theirs):
            raise RuntimeError(
                f"[DistributedDataParallel] DDP expects same model across all ranks, but Rank {group.rank()} has {len(own)} "
                f"params, while rank {rank} has inconsistent {len(theirs)} params."
            )
        for index, (mine, other) in enumerate(zip(own, theirs)):
            if mine != other:
                raise RuntimeError(
                    f"[DistributedDataParallel] params[{index}] in this process with sizes {list(mine[0])} appears not to match "
                    f"sizes of the same param in process {rank}, {list(other[0])} ({mine[1]} and {other[1]})"
                )


class Reducer:
    """Averages the gradients of parameters over a group. `static_graph`: gradients come as often in every pass."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        process_group: ProcessGroup,
        bucket_bytes: int = 25 * 1024 * 1024,
        first_bucket_bytes: int = _DEFAULT_FIRST_BUCKET_BYTES,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        self.parameters, self.group = list(parameters), process_group
        self.as_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.divisor: int | None = None  # instead of the group's size
        self.after: list[Callable[[], None]] = []  # called when the gradients of a backward pass are there
        self.hook: Callable[[Any, GradBucket], Any] | None = None
        self.hook_state: Any = None
        self.backwards = 0
        self.rebuilt = False
        self._repeats = False  # gradients came twice in one pass
        self.enabled = True  # False: gradients are only accumulated
        self._limits = [min(first_bucket_bytes, bucket_bytes), bucket_bytes]
        self._shared = self._memory_is_shared()
        self._native = native.make_reducer(self, self.parameters)
        self._assign(list(range(len(self.parameters)))[::-1])

    def _memory_is_shared(self) -> bool:
        """Whether the group reduces gradients where they lie."""
        if not isinstance(self.group._native, native.Group):
            return False
        return all(type(p.data) is Tensor and p.device.type == "cpu" for p in self.parameters)

    def _assign(self, order: list[int]) -> None:
        """Puts the parameters into buckets in this order."""
        assigned, _ = _compute_bucket_assignment_by_size([self.parameters[i] for i in order], self._limits)
        indices = [[order[i] for i in one] for one in assigned]
        self.buckets = [_Bucket(one, [self.parameters[i] for i in one]) for one in indices]
        self._native.assign(indices)
        self._has_memory = False

    # ------------------------------------------------------------------------------------ during backward

    def begin(self, *_: Any) -> None:
        """Backward has started; called by the hooks on the outputs."""
        self._native.begin()

    def _begin(self) -> tuple[Any, int, float, bool] | None:
        """How the pass that begins is reduced; None: not at all."""
        if self.group.superseded or not self.enabled:
            return None
        in_place = self._shared and self.hook is None and not self.as_view
        if not in_place and not self._has_memory:
            self._has_memory = True
            for number, bucket in enumerate(self.buckets):
                self._native.set_memory(number, bucket.views(), bucket.used)
        at_end = self._repeats or (self.static_graph and self.backwards == 0)
        return self.group._native if in_place else None, self.group.limit(), float(self.divisor or 0), at_end

    def _start(self, number: int) -> None:
        """The memory of a bucket holds its gradients: reduce it."""
        bucket = self.buckets[number]
        with flambeau.no_grad():
            if self.hook is not None:
                last = number == len(self.buckets) - 1
                seen = GradBucket(number, bucket.flat, bucket.views(), bucket.parameters, last)
                bucket.launched = self.hook(self.hook_state, seen)
            elif self.divisor is None:
                bucket.launched = collectives.all_reduce(bucket.memory, ReduceOp.AVG, self.group, async_op=True)
            else:
                bucket.flat.div_(self.divisor)
                bucket.launched = collectives.all_reduce(bucket.memory, ReduceOp.SUM, self.group, async_op=True)

    # ------------------------------------------------------------------------------------ at the end of backward

    def _finish(self) -> None:
        self.backwards += 1
        repeats = [number for number in range(len(self.buckets)) if self._native.repeats(number)]
        for number in range(len(self.buckets)):
            self._wait(number)
        for number in repeats:
            self._native.repeat(number)
            self._wait(number)
        for number in range(len(self.buckets)):
            # With a hook there are no counts: every parameter counts as used.
            self._native.hand_out(number, self.as_view, self.hook is None)
        self._learn(bool(repeats))
        for action in self.after:
            action()

    def _wait(self, number: int) -> None:
        bucket, work = self.buckets[number], self._native.work(number)
        if work is not None:
            handle = Work(work)
            handle._group = self.group
            handle.wait()
            return
        launched, bucket.launched = bucket.launched, None
        result = launched.wait()
        if self.hook is not None:
            value = result[0] if isinstance(result, (list, tuple)) else result
            if value.data_ptr() != bucket.flat.data_ptr():
                with flambeau.no_grad():
                    bucket.flat.copy_(value)

    def _learn(self, repeated: bool) -> None:
        """What the first pass showed: how often gradients come, and in which order they are ready."""
        if self.static_graph and self.backwards == 1:
            self._native.expect_repeats()
        elif repeated:
            self._repeats = True
        if self.backwards != 1 or len(self.buckets) < 2 or self.group.superseded:
            return
        order = self._native.order() or [-1] * len(self.parameters)
        with flambeau.no_grad():
            first = flambeau.tensor(order, dtype=flambeau.int64, device=self.parameters[0].device)
            collectives.broadcast(first, group=self.group, group_src=0)
        if first[0] >= 0:
            self.rebuilt = True
            self._assign(first.tolist())

    # ------------------------------------------------------------------------------------ in a captured graph

    def fits_graph(self) -> bool:
        """Whether a graph that holds the whole backward pass can average the gradients: `reduce_in_graph`."""
        return self.hook is None and self.divisor is None and not self.group.superseded

    def reduce_in_graph(self) -> None:
        """What the hooks do, where a graph is captured after its backward pass: an operator for each bucket."""
        if not self.enabled:
            return
        name = self.group.group_name
        with flambeau.no_grad():
            for bucket in self.buckets:
                sizes = [parameter.numel() for parameter in bucket.parameters]
                flat = flambeau.cat([parameter.grad.reshape(-1) for parameter in bucket.parameters])
                reduced = flambeau.ops._c10d_functional.all_reduce(flat, "avg", name)
                for parameter, part in zip(bucket.parameters, reduced.split(sizes)):
                    parameter.grad = part.view(parameter.shape)
        for action in self.after:
            action()

    def shadow(self) -> None:
        """What a process without inputs contributes to the reductions of the others: zeros."""
        how = self._begin()
        if how is not None:
            self._native.shadow(how)
            self.backwards += 1
            for number in range(len(self.buckets)):
                self._wait(number)
            self._learn(False)


def _register_comm_hook(reducer: Reducer, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
    if reducer.hook is not None:
        raise RuntimeError(
            "[register_comm_hook] register_comm_hook or register_builtin_comm_hook can only be called once."
        )
    reducer.hook, reducer.hook_state = hook, state


def _register_builtin_comm_hook(reducer: Reducer, kind: BuiltinCommHookType) -> None:
    from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks

    hook = default_hooks.allreduce_hook if kind == BuiltinCommHookType.ALLREDUCE else default_hooks.fp16_compress_hook
    _register_comm_hook(reducer, reducer.group, hook)


class Logger:
    """Facts about a data-parallel module, for `_get_ddp_logging_data`."""

    def __init__(self, reducer: Reducer, facts: dict[str, Any] | None = None) -> None:
        self.reducer, self.facts = reducer, facts or {}

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        reducer = self.reducer
        sizes = ", ".join(str(bucket.bytes) for bucket in reducer.buckets)
        return self.facts | {
            "world_size": reducer.group.size(),
            "rank": reducer.group.rank(),
            "backend_name": reducer.group.name(),
            "is_multi_device_module": 0,
            "bucket_sizes": sizes,
            "num_parameter_tensors": len(reducer.parameters),
            "gradient_as_bucket_view": int(reducer.as_view),
            "iteration": reducer.backwards,
            "has_rebuilt_buckets": int(reducer.rebuilt),
            "rebuilt_bucket_sizes": sizes if reducer.rebuilt else "",
        }
