"""The reducer of data-parallel training: averages gradients over processes while backward still runs.

Parameters are assigned to buckets in the reverse of their order, which is about the order in which their gradients become
ready. A hook on each parameter copies its gradient into the bucket (or finds that it lies there); full buckets are all-reduced
in their order on the group's thread. When backward is through, the rest is reduced and everything waited for. Beside the
gradients a bucket carries a count for each parameter of the processes that used it: a parameter that nobody used keeps its
gradient, and no process has to know beforehand what the others use.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau import _C
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._process_group import ProcessGroup
from flambeau.distributed._types import ReduceOp

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
    """Memory for the gradients of some parameters, and behind them the counts of processes that used each."""

    def __init__(self, indices: list[int], parameters: list[Tensor]) -> None:
        self.indices, self.parameters = indices, parameters
        sizes = [parameter.numel() for parameter in parameters]
        first = parameters[0]
        self.memory = flambeau.zeros(sum(sizes) + len(sizes), dtype=first.dtype, device=first.device)
        self.flat, self.used = self.memory[: sum(sizes)], self.memory[sum(sizes) :]
        self.views = [_view_like(part, p) for part, p in zip(self.flat.split(sizes), parameters)] if sizes else []
        self.begin()

    def begin(self) -> None:
        self.waiting = len(self.indices)
        self.launched: Any = None
        self.repeat = False
        self.used.zero_()


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


class _GradientHook:
    """Tells a reducer that the gradient of one of its parameters is there."""

    __slots__ = ("index", "reducer")

    def __init__(self, reducer: Reducer, index: int) -> None:
        self.reducer, self.index = reducer, index

    def __call__(self, parameter: Tensor) -> None:
        self.reducer._on_gradient(self.index, parameter)


class Reducer:
    """Averages the gradients of parameters over a group."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        process_group: ProcessGroup,
        bucket_bytes: int = 25 * 1024 * 1024,
        first_bucket_bytes: int = _DEFAULT_FIRST_BUCKET_BYTES,
        gradient_as_bucket_view: bool = False,
        at_end: bool = False,
    ) -> None:
        self.parameters, self.group = list(parameters), process_group
        self.as_view, self.at_end = gradient_as_bucket_view, at_end
        self.enabled = True  # False: gradients are only accumulated
        self.divisor: int | None = None  # instead of the group's size
        self.after: list[Callable[[], None]] = []  # called when the gradients of a backward pass are there
        self.hook: Callable[[Any, GradBucket], Any] | None = None
        self.hook_state: Any = None
        reverse = list(range(len(self.parameters)))[::-1]
        assigned, _ = _compute_bucket_assignment_by_size(
            [self.parameters[i] for i in reverse], [min(first_bucket_bytes, bucket_bytes), bucket_bytes]
        )
        self.buckets = [
            _Bucket([reverse[i] for i in one], [self.parameters[reverse[i]] for i in one]) for one in assigned
        ]
        self._place = {i: (b, j) for b, bucket in enumerate(self.buckets) for j, i in enumerate(bucket.indices)}
        self._ready = [False] * len(self.parameters)
        self._next = 0  # the bucket to be launched next
        self._running = False
        self.backwards = 0
        self._handles = [
            parameter.register_post_accumulate_grad_hook(_GradientHook(self, index))
            for index, parameter in enumerate(self.parameters)
        ]

    def remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()

    # ------------------------------------------------------------------------------------ during backward

    def begin(self, *_: Any) -> None:
        """Backward has started; called by the hooks on the outputs, or by the first gradient."""
        if self._running or not self.enabled:
            return
        self._running, self._next = True, 0
        self._ready = [False] * len(self.parameters)
        with flambeau.no_grad():
            for bucket in self.buckets:
                bucket.begin()
        _C._queue_callback(self._finish)

    def _on_gradient(self, index: int, parameter: Tensor) -> None:
        if not self.enabled or self.group.superseded:
            return
        self.begin()
        bucket_index, place = self._place[index]
        bucket = self.buckets[bucket_index]
        if self._ready[index]:
            # A second gradient of one backward pass, as reentrant checkpoints make them.
            bucket.repeat = bucket.launched is not None
            return
        self._ready[index] = True
        bucket.waiting -= 1
        if self.at_end:
            return
        self._collect(bucket, place)
        if bucket.waiting == 0:
            self._launch_ready()

    def _collect(self, bucket: _Bucket, place: int) -> None:
        """Brings a parameter's gradient into its bucket."""
        gradient, view = bucket.parameters[place].grad, bucket.views[place]
        with flambeau.no_grad():
            if self._ready[bucket.indices[place]]:
                bucket.used[place].fill_(1)
            if gradient is None:
                view.zero_()
            elif gradient.data_ptr() != view.data_ptr() or gradient.shape != view.shape:
                view.copy_(gradient.to_dense() if gradient.is_sparse else gradient)

    def _launch_ready(self) -> None:
        while self._next < len(self.buckets) and self.buckets[self._next].waiting == 0:
            self._launch(self.buckets[self._next])
            self._next += 1

    def _launch(self, bucket: _Bucket) -> None:
        if self.hook is not None:
            bucket.launched = self.hook(self.hook_state, self._as_grad_bucket(bucket))
        elif self.divisor is None:
            bucket.launched = collectives.all_reduce(bucket.memory, ReduceOp.AVG, self.group, async_op=True)
        else:
            bucket.flat.div_(self.divisor)
            bucket.launched = collectives.all_reduce(bucket.memory, ReduceOp.SUM, self.group, async_op=True)

    def _as_grad_bucket(self, bucket: _Bucket) -> GradBucket:
        index = self.buckets.index(bucket)
        last = index == len(self.buckets) - 1
        return GradBucket(index, bucket.flat, bucket.views, bucket.parameters, last)

    # ------------------------------------------------------------------------------------ at the end of backward

    def _finish(self) -> None:
        self._running = False
        self.backwards += 1
        for bucket in self.buckets[self._next :]:
            for place in range(len(bucket.indices)):
                if self.at_end or not self._ready[bucket.indices[place]]:
                    self._collect(bucket, place)
            self._launch(bucket)
        self._next = len(self.buckets)
        for bucket in self.buckets:
            self._wait(bucket)
            if bucket.repeat:
                self._repeat(bucket)
        with flambeau.no_grad():
            for bucket in self.buckets:
                self._hand_out(bucket)
        for action in self.after:
            action()

    def _wait(self, bucket: _Bucket) -> None:
        result = bucket.launched.wait()
        if self.hook is not None:
            value = result[0] if isinstance(result, (list, tuple)) else result
            if value.data_ptr() != bucket.flat.data_ptr():
                with flambeau.no_grad():
                    bucket.flat.copy_(value)

    def _repeat(self, bucket: _Bucket) -> None:
        """Gradients came after the bucket was reduced: reduce what is there now."""
        for place in range(len(bucket.indices)):
            self._collect(bucket, place)
        self._launch(bucket)
        self._wait(bucket)

    def _hand_out(self, bucket: _Bucket) -> None:
        # With a hook there are no counts: every parameter counts as used.
        used = [1] * len(bucket.indices) if self.hook is not None else bucket.used.tolist()
        for parameter, view, count in zip(bucket.parameters, bucket.views, used):
            gradient = parameter.grad
            if not count:
                continue
            if self.as_view:
                if gradient is None or gradient.data_ptr() != view.data_ptr():
                    parameter.grad = view
            elif gradient is None or gradient.is_sparse:
                parameter.grad = view.clone()
            else:
                gradient.copy_(view)

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
        with flambeau.no_grad():
            for bucket in self.buckets:
                bucket.memory.zero_()
                self._launch(bucket)
            for bucket in self.buckets:
                self._wait(bucket)


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
        return self.facts | {
            "world_size": reducer.group.size(),
            "rank": reducer.group.rank(),
            "backend_name": reducer.group.name(),
            "is_multi_device_module": 0,
            "bucket_sizes": ", ".join(str(b.flat.numel() * b.flat.element_size()) for b in reducer.buckets),
            "num_parameter_tensors": len(reducer.parameters),
            "gradient_as_bucket_view": int(reducer.as_view),
            "iteration": reducer.backwards,
        }
