"""`ProcessGroup`: the collectives of one group, with lists of tensors and options as PyTorch's native class takes them.

Every method starts the operation on the group's thread and returns a handle. The functions of `flambeau.distributed` are
written over `run`, which also runs an operation on the calling thread.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau.distributed._stores import Store, milliseconds
from flambeau.distributed._types import Backend, DistBackendError, ReduceOp, Work, Works

__all__ = ["ProcessGroup", "ProcessGroupGloo"]


def reduction_of(op: Any) -> tuple[int, Any]:
    """The native number of a reduction, and the factor of PREMUL_SUM."""
    if isinstance(op, ReduceOp):
        return (int(ReduceOp.SUM), op.factor) if op.op == ReduceOp.PREMUL_SUM else (int(op.op), None)
    if op == ReduceOp.PREMUL_SUM:
        raise ValueError("[ReduceOp] expected PREMUL_SUM with a factor (_make_nccl_premul_sum), got none")
    if not isinstance(op, int):
        raise TypeError(f"[ReduceOp] expected a reduction of ReduceOp, got {op!r}")
    return int(op), None


def equal_parts(op: str, whole: Any, count: int, like: Any) -> list[Any]:
    """Views of a tensor, one for each rank, each with as many elements as `like`."""
    whole = whole.detach()
    if whole.numel() != count * like.numel():
        raise RuntimeError(
            f"[{op}] expected the larger tensor to have {count} times as many elements as the smaller, got {whole.numel()} "
            f"and {like.numel()}: tensor size must be equal to world_size times tensor size"
        )
    if whole.is_contiguous():
        return list(whole.view(-1).chunk(count)) if whole.numel() else [whole.view(-1)] * count
    return list(whole.chunk(count)) if whole.shape[0] != count or like.dim() == whole.dim() else list(whole.unbind())


class ProcessGroup:
    """Processes that exchange tensors."""

    class BackendType:
        UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, CUSTOM = range(7)

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, CUSTOM = range(7)

    _is_fake = False
    superseded = False  # survivors of a failure have formed another world
    _explicit = False

    def __init__(self, *arguments: Any) -> None:
        """For backends written in Python: `super().__init__(rank, size)`."""
        self._native: Any = None
        if len(arguments) >= 2 and all(isinstance(a, int) for a in arguments[-2:]):
            self._rank, self._size = arguments[-2:]
        self._group_name = ""
        self._timeout = datetime.timedelta(minutes=30)

    @classmethod
    def _open(
        cls,
        native: Any,
        name: str,
        rank: int,
        size: int,
        timeout: datetime.timedelta,
        config: Any,
        config_name: str,
        store: Store,
        description: str | None,
    ) -> ProcessGroup:
        self = cls.__new__(cls)
        self._native = native
        self._adopt(name, rank, size, timeout, config, config_name, store, description)
        return self

    def _adopt(
        self, name: str, rank: int, size: int, timeout: Any, config: Any, config_name: str, store: Any, desc: Any
    ) -> None:
        self._group_name, self._rank, self._size = name, rank, size
        self._timeout, self._limit = timeout, milliseconds(timeout)
        self._config, self._config_name, self._store = config, config_name, store
        self._explicit = ":" in config_name
        self.group_desc = desc or "undefined"
        self.bound_device_id: Any = None

    @classmethod
    def _fake(cls, name: str, rank: int, size: int, timeout: Any, store: Any) -> ProcessGroup:
        """A group whose collectives leave tensors as they are, to try a program of many ranks in one process."""
        from flambeau.distributed._types import BackendConfig

        self = cls.__new__(cls)
        self._native, self._is_fake = _Nothing(), True
        self._adopt(name, rank, size, timeout, BackendConfig("fake"), "fake", store, None)
        return self

    def _close(self) -> None:
        if self._native is not None:
            self._native.close()

    # ------------------------------------------------------------------------------------ questions

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return str(next(iter(self._config.device_backend_map.values())))

    _get_backend_name = getBackendName = name

    @property
    def group_name(self) -> str:
        return self._group_name

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def _set_group_desc(self, description: str) -> None:
        self.group_desc = description

    def _id(self) -> int:
        return id(self)

    _backend_id = _id

    @property
    def _device_types(self) -> list[Any]:
        return [flambeau.device(kind) for kind in self._config.device_backend_map]

    def _get_backend(self, device: Any) -> ProcessGroup:
        return self

    def get_group_store(self) -> Store:
        return self._store

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout, self._limit = timeout, milliseconds(timeout)

    _set_default_timeout = set_timeout

    @property
    def options(self) -> Any:
        from types import SimpleNamespace

        return SimpleNamespace(_timeout=self._timeout, backend=self.name(), global_ranks_in_group=[])

    def _get_sequence_number_for_group(self) -> int:
        return self._native.sequence()

    def _set_sequence_number_for_group(self) -> None: ...

    def _set_default_backend(self, kind: Any) -> None: ...

    def _has_hooks(self) -> bool:
        return False

    def shutdown(self) -> None:
        self._close()

    def abort(self) -> None:
        self._close()

    def boxed(self) -> Any:
        return self

    def __reduce__(self) -> Any:
        from flambeau.distributed._groups import _resolve_process_group

        return _resolve_process_group, (self._group_name,)

    def __deepcopy__(self, memo: Any) -> ProcessGroup:
        return self

    # ------------------------------------------------------------------------------------ running operations

    def limit(self, timeout: Any = None) -> int:
        """Milliseconds that an operation may take."""
        if isinstance(timeout, datetime.timedelta) and timeout > datetime.timedelta(0):
            return milliseconds(timeout)
        return self._limit

    def run(self, method: str, arguments: tuple[Any, ...], result: Any, wait: bool, timeout: Any = None) -> Work | None:
        """Call a native method; None when the operation was waited for."""
        try:
            handle = getattr(self._native, method)(*arguments, not wait, self.limit(timeout))
        except DistBackendError as error:
            self.record_failure(error)
            raise
        if wait:
            return None
        work = Work(handle, result)
        work._group = self
        return work

    def record_failure(self, error: BaseException) -> None:
        """Writes the flight recorder to a file, which the error names."""
        from flambeau.distributed import _watchdog

        path = _watchdog.dump(self, error)
        if path is not None and hasattr(error, "add_note"):
            error.add_note(f"The last collectives of this rank: {path}")

    def reducing(self, op: Any, tensors: Sequence[Any], in_place: bool) -> tuple[int, list[Any]]:
        """The native reduction, and what is contributed: with PREMUL_SUM multiples of the tensors."""
        number, factor = reduction_of(op)
        if factor is None:
            return number, list(tensors)
        with flambeau.no_grad():
            return number, [t.mul_(factor) if in_place else t * factor for t in tensors]

    # ------------------------------------------------------------------------------------ collectives

    def allreduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None) -> Work:
        """Several tensors are contributions of their own: each gets the reduction of all tensors of all processes."""
        chosen = _choice(opts, op)
        first, *others = listed = _alike("all_reduce", _listed(tensors))
        if first.is_sparse:
            from flambeau.distributed._collectives import all_reduce_sparse

            return Works([all_reduce_sparse(_single("all_reduce", listed), chosen, self, True)], listed)
        number, _ = self.reducing(chosen, listed, True)
        if not others:
            return self.run("all_reduce", (first, number), [first], False, timeout)  # type: ignore[return-value]
        own = self._alone("all_reduce", chosen, listed)
        return Works(
            [self.run("all_reduce", (own, number), [own], False, timeout)], listed, lambda: _spread(own, listed)
        )

    def _alone(self, name: str, op: Any, tensors: list[Any]) -> Any:
        """The reduction of this process's tensors."""
        with flambeau.no_grad():
            total = tensors[0].clone()
            for tensor in tensors[1:]:
                if op == ReduceOp.SUM:
                    total += tensor
                elif op == ReduceOp.PRODUCT:
                    total *= tensor
                elif op in (ReduceOp.MIN, ReduceOp.MAX):
                    total = flambeau.minimum(total, tensor) if op == ReduceOp.MIN else flambeau.maximum(total, tensor)
                else:
                    raise ValueError(f"[{name}] expected one tensor for {op}, got {len(tensors)}")
        return total

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        listed = _listed(tensors)
        _same_dtype("all_reduce_coalesced", listed)
        each = {id(tensor): tensor for tensor in listed}.values()
        return Works([self.allreduce([tensor], opts) for tensor in each], listed)

    def broadcast(self, tensors: Any, opts: Any = 0, root: int | None = None, timeout: Any = None) -> Work:
        """All tensors of all processes get the values of one, that at `rootTensor` of the root's list."""
        source = root if root is not None else opts if isinstance(opts, int) else opts.rootRank
        listed, place = _alike("broadcast", _listed(tensors)), getattr(opts, "rootTensor", 0)
        if not 0 <= place < len(listed):
            raise RuntimeError(
                f"[broadcast] expected a rootTensor below {len(listed)}, got invalid root tensor: {place}"
            )
        work = self.run("broadcast", (listed[place], source), [listed[place]], False, timeout)
        if len(listed) == 1:
            return work  # type: ignore[return-value]
        return Works([work], listed, lambda: _spread(listed[place], listed))

    def reduce(self, tensors: Any, opts: Any = None, root: int = 0, op: Any = None) -> Work:
        listed = _listed(tensors)
        _single("reduce", listed)
        target = opts.rootRank if opts is not None and not isinstance(opts, int) else opts or root
        number, sent = self.reducing(_choice(None if isinstance(opts, int) else opts, op), listed, False)
        return Works([self.run("reduce", (t, target, number), [t], False) for t in sent], listed)

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        if isinstance(input_tensors, flambeau.Tensor):
            return self.run("all_gather", (list(output_tensors), input_tensors), output_tensors, False)  # type: ignore[return-value]
        inputs = _alike("all_gather", _listed(input_tensors))
        if len(output_tensors) != len(inputs):
            raise RuntimeError(
                f"[all_gather] expected as many lists of outputs as inputs, {len(inputs)}, got {len(output_tensors)}"
            )
        wanted = self._size * len(inputs)
        for outputs in output_tensors:
            if len(outputs) != wanted:
                raise RuntimeError(
                    f"[all_gather] expected lists of {wanted} tensors, got {len(outputs)}: invalid output list"
                )
        # Every list gets all inputs of all processes, those of one process side by side.
        first, count = output_tensors[0], len(inputs)
        works = [self.run("all_gather", (list(first[i::count]), t), first, False) for i, t in enumerate(inputs)]
        if count == 1:
            return Works(works, list(first))
        return Works(works, _flat(output_tensors), lambda: _copy_lists(output_tensors))

    def allgather_coalesced(self, output_lists: Any, input_list: Any, opts: Any = None) -> Work:
        """Several tensors: `output_lists[rank][i]` is tensor i of a rank."""
        inputs = _listed(input_list)
        if len(output_lists) != self._size or any(len(outputs) != len(inputs) for outputs in output_lists):
            raise RuntimeError(
                f"[all_gather_coalesced] expected {self._size} lists of {len(inputs)} tensors, got "
                f"{[len(outputs) for outputs in output_lists]}: invalid output list"
            )
        works = [self.run("all_gather", ([o[i] for o in output_lists], t), None, False) for i, t in enumerate(inputs)]
        return Works(works, _flat(output_lists))

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Work:
        parts = equal_parts("all_gather_into_tensor", output, self._size, input)
        return self.run("all_gather", (parts, input), [output], False)  # type: ignore[return-value]

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return Works([self._allgather_base(o, i) for o, i in zip(outputs, inputs)], outputs)

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None, root: int = 0) -> Work:
        target = root if opts is None else opts if isinstance(opts, int) else opts.rootRank
        outputs = list(output_tensors[0]) if output_tensors else []
        return self.run("gather", (outputs, _single("gather", input_tensors), target), outputs, False)  # type: ignore[return-value]

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None, root: int = 0) -> Work:
        source = root if opts is None else opts if isinstance(opts, int) else opts.rootRank
        inputs = list(input_tensors[0]) if input_tensors else []
        return self.run("scatter", (_single("scatter", output_tensors), inputs, source), output_tensors, False)  # type: ignore[return-value]

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None, op: Any = None) -> Work:
        if isinstance(output_tensors, flambeau.Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        output, inputs = _single("reduce_scatter", output_tensors), _single("reduce_scatter", input_tensors)
        number, sent = self.reducing(_choice(opts, op), inputs, False)
        return Works([self.run("reduce_scatter", (output, sent, number), output, False)], output_tensors)

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> Work:
        parts = equal_parts("reduce_scatter_tensor", input, self._size, output)
        number, sent = self.reducing(_choice(opts, None), parts, False)
        return self.run("reduce_scatter", (output, sent, number), [output], False)  # type: ignore[return-value]

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return Works([self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs)], outputs)

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        return self.run("all_to_all", (list(output_tensors), list(input_tensors)), output_tensors, False)  # type: ignore[return-value]

    def alltoall_base(
        self, output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, opts: Any = None
    ) -> Work:
        outputs = split_for_ranks("all_to_all_single", output, output_split_sizes, self._size)
        inputs = split_for_ranks("all_to_all_single", input, input_split_sizes, self._size)
        return self.run("all_to_all", (outputs, inputs), [output], False)  # type: ignore[return-value]

    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        return self.run("barrier", (), [], False, timeout or getattr(opts, "timeout", None))  # type: ignore[return-value]

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Work:
        return self.run("send", (_listed(tensors)[0], dst, tag), tensors, False)  # type: ignore[return-value]

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Work:
        return self.run("receive", (_listed(tensors)[0], src, tag), tensors, False)  # type: ignore[return-value]

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        return self.recv(tensors, -1, tag)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        from flambeau.distributed._collectives import monitored_barrier

        monitored_barrier(self, timeout, wait_all_ranks)

    def _start_coalescing(self, device: Any = None) -> None: ...

    def _end_coalescing(self, device: Any = None) -> Work:
        return Work()


class ProcessGroupGloo(ProcessGroup):
    """The name that programs ask for when they mean the groups of CPU tensors; called, it makes one outside the world's tables."""

    class _Options:
        """What a group is made with. Devices are kept for programs that read them: ranks find each other by their hosts."""

        def __init__(self) -> None:
            self._timeout: Any = datetime.timedelta(minutes=30)
            self._threads = 2
            self._devices: list[Any] = []
            self.group_name, self.backend = "", "gloo"
            self.global_ranks_in_group: list[int] = []

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "_timeout" and isinstance(value, (int, float)):
                value = datetime.timedelta(seconds=value)
            super().__setattr__(name, value)

    Options = _Options

    def __init__(self, store: Store, rank: int, size: int, options: Any = None) -> None:
        from flambeau.distributed._groups import _open_native
        from flambeau.distributed._types import BackendConfig

        super().__init__(rank, size)
        timeout = options if isinstance(options, datetime.timedelta) else getattr(options, "_timeout", self._timeout)
        name = getattr(options, "group_name", "") or "gloo"
        self._native = _open_native(store, rank, size, name, timeout)
        self._adopt(name, rank, size, timeout, BackendConfig(Backend("gloo")), "gloo", store, None)

    @staticmethod
    def create_device(hostname: str = "", interface: str = "", lazy_init: bool | None = None) -> Any:
        """A description of a network device."""
        if hostname and interface:
            raise ValueError(f"[create_device] expected a hostname or an interface, got {hostname!r} and {interface!r}")
        from types import SimpleNamespace

        return SimpleNamespace(hostname=hostname or "localhost", interface=interface)

    @staticmethod
    def create_default_device(lazy_init: bool | None = None) -> Any:
        return ProcessGroupGloo.create_device()


_Choice = Callable[[Any, Any], Any]


def _choice(opts: Any, op: Any) -> Any:
    """The reduction of an argument that is an option object, a reduction or nothing."""
    if op is not None:
        return op
    if opts is None:
        return ReduceOp.SUM
    return opts.reduceOp if hasattr(opts, "reduceOp") else opts


def _listed(tensors: Any) -> list[Any]:
    if isinstance(tensors, flambeau.Tensor):
        return [tensors]
    if not tensors:
        raise RuntimeError(
            "[ProcessGroup] expected one tensor or more, got an empty list: requires non-empty tensor list"
        )
    return list(tensors)


def _single(op: str, tensors: Any) -> Any:
    if len(tensors) != 1:
        raise RuntimeError(f"[{op}] expected one tensor, got {len(tensors)}: requires a single-element tensor list")
    return tensors[0]


def _same_dtype(op: str, tensors: list[Any]) -> None:
    first = tensors[0]
    for tensor in tensors[1:]:
        if tensor.dtype != first.dtype or tensor.device != first.device or tensor.layout != first.layout:
            raise RuntimeError(
                f"[{op}] expected tensors of one dtype, device and layout, got {first.dtype} on {first.device} and "
                f"{tensor.dtype} on {tensor.device}: invalid tensor type"
            )


def _alike(op: str, tensors: list[Any]) -> list[Any]:
    _same_dtype(op, tensors)
    for tensor in tensors[1:]:
        if tensor.shape != tensors[0].shape:
            raise RuntimeError(
                f"[{op}] expected tensors of one shape, got {tuple(tensors[0].shape)} and {tuple(tensor.shape)}: invalid tensor size"
            )
    return tensors


def _spread(value: Any, tensors: list[Any]) -> None:
    with flambeau.no_grad():
        for tensor in tensors:
            if tensor is not value:
                tensor.copy_(value)


def _copy_lists(lists: Any) -> None:
    first, *others = lists
    for other in others:
        for value, tensor in zip(first, other):
            _spread(value, [tensor])


def _flat(lists: Any) -> list[Any]:
    return [tensor for one in lists for tensor in one]


def split_for_ranks(op: str, tensor: Any, sizes: Any, count: int) -> list[Any]:
    """Parts of a tensor along its first dimension, one for each rank."""
    tensor = tensor.detach()
    if sizes:
        if len(sizes) != count or sum(sizes) != tensor.shape[0]:
            raise RuntimeError(
                f"[{op}] expected {count} split sizes that add up to {tensor.shape[0]}, got {list(sizes)}: Split sizes "
                "doesn't match total dim 0 size"
            )
        return list(tensor.split(list(sizes)))
    if tensor.dim() == 0 or tensor.shape[0] % count:
        raise RuntimeError(
            f"[{op}] expected a first dimension that is a multiple of the {count} ranks, got {tuple(tensor.shape)}: Tensor's "
            "dim 0 does not divide equally across group size"
        )
    return list(tensor.split(tensor.shape[0] // count)) if tensor.shape[0] else [tensor] * count


class _Nothing:
    """The native side of a fake group: everything is done at once and changes nothing but all-gathers, which copy."""

    def all_gather(self, to: list[Any], source: Any, *_: Any) -> None:
        with flambeau.no_grad():
            for part in to:
                part.view(-1).copy_(source.reshape(-1))

    def sequence(self) -> int:
        return 0

    def status(self) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


Backend.backend_type_map.update({"gloo": ProcessGroup.GLOO, "nccl": ProcessGroup.NCCL, "mpi": ProcessGroup.MPI})
