"""The reducer of data-parallel training: averages gradients over processes while backward still runs.

Parameters are assigned to buckets in the reverse of their order, and after the first pass in the order in which the gradients
of the first process were ready. Hooks of the native reducer (`csrc/distributed/reducer.h`) count; when a bucket is full, it is
reduced in the background: in shared memory where the gradients lie, with other groups and with communication hooks in memory of the
bucket. A parameter that nobody used keeps its gradient, and no process has to know beforehand what the others use.

Where backward raises an error on one process, the others get one from the buckets that it does not reduce.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau import _distributed as native
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._process_group import ProcessGroup
from flambeau.distributed._types import ReduceOp, Work

__all__ = ["BuiltinCommHookType", "GradBucket", "Logger", "Reducer"]

_DEFAULT_FIRST_BUCKET_BYTES = 1024 * 1024
_PIECE_BYTES = 1024 * 1024  # of gradients that are reduced where they lie, inside a bucket
Tensor = flambeau.Tensor
_NAMES_OF_DTYPES = {flambeau.float32: "float", flambeau.float64: "double"}  # in the facts of `Logger`


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


class _Timing:
    """When forward, backward and the reduction of gradients ran, in nanoseconds: of the last training step, and on average."""

    def __init__(self) -> None:
        self.forward_start = self.forward_end = self.communication_end = 0
        self._steps = 0
        self._last: dict[str, int] = {}
        self._sums: dict[str, int] = {}

    def add(self, communication_start: int, backward_end: int) -> None:
        """A step is complete."""
        durations = {
            "forward_compute_time": self.forward_end - self.forward_start,
            "backward_compute_time": backward_end - self.forward_end,
            "backward_comm_time": self.communication_end - communication_start,
            "backward_compute_comm_overlap_time": max(
                0, min(backward_end, self.communication_end) - communication_start
            ),
        }
        if not self.forward_end or not communication_start:
            return
        self._steps += 1
        self._sums = {name: self._sums.get(name, 0) + value for name, value in durations.items()}
        self._last = durations | {
            "forward_compute_time_start": self.forward_start,
            "backward_compute_time_start": self.forward_end,
            "backward_compute_time_end": backward_end,
            "backward_comm_time_start": communication_start,
            "backward_comm_time_end": self.communication_end,
        }

    def facts(self) -> dict[str, int]:
        return self._last | {f"avg_{name}": value // self._steps for name, value in self._sums.items()}


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
        self.timing = _Timing()
        self.enabled = True  # False: gradients are only accumulated
        self._limits = [min(first_bucket_bytes, bucket_bytes), bucket_bytes]
        self._shared = self._memory_is_shared()
        self._native = native.make_reducer(self, self.parameters)
        self._in_place = False  # what the native reducer has are pieces
        self._assign(list(range(len(self.parameters)))[::-1])

    def _memory_is_shared(self) -> bool:
        """Whether the group reduces gradients where they lie."""
        if not isinstance(self.group._native, native.Group):
            return False
        return all(type(p.data) is Tensor and p.device.type == "cpu" for p in self.parameters)

    def _assign(self, order: list[int]) -> None:
        """Puts the parameters into buckets in this order."""
        indices = self._divide(order, self._limits)
        self.buckets = [_Bucket(one, [self.parameters[i] for i in one]) for one in indices]
        self._pieces = self._divide(order, [min(limit, _PIECE_BYTES) for limit in self._limits])
        self._hand_over()

    def _divide(self, order: list[int], limits: list[int]) -> list[list[int]]:
        assigned, _ = _compute_bucket_assignment_by_size([self.parameters[i] for i in order], limits)
        return [[order[i] for i in one] for one in assigned]

    def _hand_over(self) -> None:
        """Tells the native reducer what is reduced together: whole buckets, or where gradients are reduced as they lie the
        smaller pieces of them, which are still in the cache."""
        self._native.assign(self._pieces if self._in_place else [bucket.indices for bucket in self.buckets])
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
        if in_place != self._in_place:
            self._in_place = in_place
            self._hand_over()
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
                if not hasattr(bucket.launched, "wait"):
                    raise RuntimeError(
                        "[comm_hook] callback must return a torch.futures.Future object, but got "
                        f"{type(bucket.launched).__name__}"
                    )
            elif self.divisor is None:
                bucket.launched = collectives.all_reduce(bucket.memory, ReduceOp.AVG, self.group, async_op=True)
            else:
                bucket.flat.div_(self.divisor)
                bucket.launched = collectives.all_reduce(bucket.memory, ReduceOp.SUM, self.group, async_op=True)

    # ------------------------------------------------------------------------------------ at the end of backward

    def _finish(self) -> None:
        self.backwards += 1
        count = len(self._pieces if self._in_place else self.buckets)
        repeats = [number for number in range(count) if self._native.repeats(number)]
        for number in range(count):
            self._wait(number)
        for number in repeats:
            self._native.repeat(number)
            self._wait(number)
        self.timing.communication_end = time.time_ns()
        for number in range(count):
            # With a hook there are no counts: every parameter counts as used.
            self._native.hand_out(number, self.as_view, self.hook is None)
        self._learn(bool(repeats))
        self.timing.add(*self._native.times())
        for action in self.after:
            action()

    def _wait(self, number: int) -> None:
        work = self._native.work(number)
        if work is not None:
            handle = Work(work)
            handle._group = self.group
            handle.wait()
            return
        bucket = self.buckets[number]
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
            for number in range(len(self._pieces if self._in_place else self.buckets)):
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
        order = [index for bucket in reducer.buckets for index in bucket.indices]
        rebuilt = {
            "rebuilt_bucket_sizes": sizes,
            "rebuilt_per_bucket_param_indices": ", ".join(" ".join(map(str, b.indices)) for b in reducer.buckets),
            "prev_iteration_grad_ready_order_indices": ", ".join(map(str, order)),
            "num_buckets_reduced": len(reducer.buckets),
        }
        dtypes = dict.fromkeys(
            _NAMES_OF_DTYPES.get(p.dtype, str(p.dtype).partition(".")[2]) for p in reducer.parameters
        )
        hook = {"comm_hook": getattr(reducer.hook, "__qualname__", repr(reducer.hook))} if reducer.hook else {}
        return (
            self.facts
            | hook
            | self._surroundings()
            | reducer.timing.facts()
            | {
                "dtypes": ", ".join(dtypes),
                "total_parameter_size_bytes": sum(p.numel() * p.element_size() for p in reducer.parameters),
                "world_size": reducer.group.size(),
                "rank": reducer.group.rank(),
                "backend_name": reducer.group.name(),
                "is_multi_device_module": 0,
                "bucket_sizes": sizes,
                "num_parameter_tensors": len(reducer.parameters),
                "gradient_as_bucket_view": int(reducer.as_view),
                "iteration": reducer.backwards,
                "has_rebuilt_buckets": int(reducer.rebuilt),
            }
            | (rebuilt if reducer.rebuilt else {"rebuilt_bucket_sizes": ""})
        )

    @staticmethod
    def _surroundings() -> dict[str, str]:
        """Variables of the environment that tell how a job was started."""
        names = ["MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "TORCH_DISTRIBUTED_DEBUG"]
        names += ["GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT"]
        return {name.lower(): os.environ.get(name, "N/A") for name in names}
