"""Collectives of CUDA tensors by NCCL, which is opened at run time: PyPI's `nvidia-nccl-cu13` or the system's library.

Operations run on a stream of the group: it waits for what the caller's stream has been given, and the caller's stream waits for the result.
The host waits for neither, and all of it can be captured into a CUDA graph. `DeviceGroup` sends CUDA tensors here and the others through
the group of the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau import _distributed as native
from flambeau.distributed._exchange import average, bytes_of, pointer
from flambeau.distributed._stores import Store

__all__ = ["DeviceGroup", "NcclGroup", "is_available", "version"]

_SUM, _AVERAGE = 0, 1
_OPS = {0: 0, 1: 4, 2: 1, 3: 3, 4: 2}  # by number of the reduction
_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8,
    "bfloat16": 9, "float8_e4m3fn": 10, "float8_e5m2": 11,
}  # fmt: skip
_BYTES = 1


class _UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def _candidates() -> list[str]:
    own = os.environ.get("FLAMBEAU_NCCL")
    if own:
        return [own]
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations or []) if package is not None else []
    return [*(str(pathlib.Path(folder) / "nccl" / "lib" / "libnccl.so.2") for folder in folders), "libnccl.so.2"]


@functools.cache
def _library() -> Any:
    """The library, or None."""
    for name in _candidates():
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            library.ncclGetErrorString.restype = ctypes.c_char_p
            return library
    return None


def is_available() -> bool:
    return flambeau.cuda.is_available() and _library() is not None


def version() -> tuple[int, int, int]:
    if _library() is None:
        raise RuntimeError(
            "[nccl] expected libnccl.so.2, found none (pip install nvidia-nccl-cu13, or FLAMBEAU_NCCL=file)"
        )
    number = ctypes.c_int()
    _library().ncclGetVersion(ctypes.byref(number))
    return number.value // 10000, number.value // 100 % 100, number.value % 100


def _check(status: int, what: str) -> None:
    if status:
        text = _library().ncclGetErrorString(status).decode()
        raise native.DistBackendError(f"[{what}] expected NCCL to run, got: {text}")


class _Launched:
    """The handle of an operation on the group's stream, with the methods of the native one."""

    def __init__(self, event: Any, held: Any, source: int = -1) -> None:
        self._event, self._held, self._source = event, held, source

    def wait(self, timeout: int) -> None:
        flambeau.cuda.current_stream().wait_event(self._event)
        self._held = None

    def done(self) -> bool:
        return bool(self._event.query())

    def error(self) -> BaseException | None:
        return None

    def source(self) -> int:
        return self._source

    def then(self, callback: Callable[[], None]) -> None:
        """Runs the callback now: what it launches comes after the operation on the current stream."""
        self.wait(-1)
        callback()


def _adjacent(tensors: list[Any]) -> bool:
    """Whether tensors are dense and lie one after the other."""
    size = bytes_of(tensors[0])
    start = tensors[0].data_ptr()
    return all(
        t.is_contiguous() and bytes_of(t) == size and t.data_ptr() == start + i * size for i, t in enumerate(tensors)
    )


class NcclGroup:
    """Collectives of the CUDA tensors of a group. The communicator is made with the first tensor."""

    def __init__(self, store: Store, rank: int, size: int, name: str) -> None:
        self._store, self._rank, self._size, self._name = store, rank, size, name
        self._comm: Any = None
        self._stream: Any = None
        self._sequence = 0

    def _open(self, device: Any) -> None:
        if self._comm is not None:
            return
        library = _library()
        unique = _UniqueId()
        if self._rank == 0:
            _check(library.ncclGetUniqueId(ctypes.byref(unique)), "init_process_group")
            self._store.set("nccl", bytes(unique))
        data = self._store.get("nccl")
        ctypes.memmove(ctypes.byref(unique), data, 128)
        comm = ctypes.c_void_p()
        with flambeau.cuda.device(device):
            _check(library.ncclCommInitRank(ctypes.byref(comm), self._size, unique, self._rank), "init_process_group")
        self._stream = flambeau.cuda.Stream(device)
        self._comm = comm

    def _launch(
        self, what: str, tensors: list[Any], is_async: bool, body: Callable[[Any, Any], Any], source: int = -1
    ) -> Any:
        """Runs `body(communicator, stream)` on the group's stream, between the caller's work before and after it."""
        device = tensors[0].device
        self._open(device)
        self._sequence += 1
        current = flambeau.cuda.current_stream(device)
        with flambeau.cuda.device(device), flambeau.no_grad():
            self._stream.wait_stream(current)
            with flambeau.cuda.stream(self._stream):
                held = body(self._comm, ctypes.c_void_p(self._stream.cuda_stream))
            event = self._stream.record_event()
            for tensor in tensors:
                tensor.record_stream(self._stream)
            if not is_async:
                current.wait_event(event)
        return _Launched(event, (tensors, held), source) if is_async or source >= 0 else None

    def _call(self, what: str, *arguments: Any) -> None:
        _check(getattr(_library(), f"nccl{what}")(*arguments), what)

    def _reduction(self, tensor: Any, reduction: int) -> tuple[Any, int, Any, Any]:
        """What is reduced in place of a tensor: dense values, their number, NCCL's type and operation."""
        values, kind = dense_here(tensor), int(reduction)
        if tensor.dtype is flambeau.bool:
            kind = {0: 4, 2: 3, 5: 3, 6: 4}.get(kind, kind)  # sums and "or" are maxima, products and "and" minima
            values = values.view(flambeau.uint8)
        elif tensor.dtype.is_complex:
            if kind not in (_SUM, _AVERAGE):
                raise ValueError(
                    f"[all_reduce] all_reduce does not support this reduction on complex tensors, got {kind}"
                )
            values = flambeau.view_as_real(values)
        name = str(values.dtype).rpartition(".")[2]
        if kind not in _OPS or name not in _TYPES:
            raise ValueError(f"[all_reduce] Cannot use this reduction with NCCL, got {kind} of {tensor.dtype}")
        if kind == _AVERAGE and not values.dtype.is_floating_point:
            kind = _SUM
        return values, values.numel(), _TYPES[name], _OPS[kind]

    # ------------------------------------------------------------------------------------ collectives

    def all_reduce(self, tensor: Any, reduction: int, is_async: bool, limit: int) -> Any:
        def body(comm: Any, stream: Any) -> Any:
            values, count, kind, op = self._reduction(tensor, reduction)
            place = pointer(values)
            self._call("AllReduce", place, place, ctypes.c_size_t(count), kind, op, comm, stream)
            return self._store_back(tensor, values, reduction)

        return self._launch("all_reduce", [tensor], is_async, body)

    def _store_back(self, tensor: Any, values: Any, reduction: int) -> Any:
        if int(reduction) == _AVERAGE and not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
            average(values, self._size)
        if values.data_ptr() != tensor.data_ptr():
            whole = flambeau.view_as_complex(values) if tensor.dtype.is_complex else values.view(tensor.dtype)
            tensor.copy_(whole.view(tensor.shape))
        return values

    def broadcast(self, tensor: Any, root: int, is_async: bool, limit: int) -> Any:
        def body(comm: Any, stream: Any) -> Any:
            values = dense_here(tensor)
            place, count = pointer(values), ctypes.c_size_t(bytes_of(values))
            self._call("Broadcast", place, place, count, _BYTES, root, comm, stream)
            if values.data_ptr() != tensor.data_ptr():
                tensor.copy_(values)
            return values

        return self._launch("broadcast", [tensor], is_async, body)

    def reduce(self, tensor: Any, root: int, reduction: int, is_async: bool, limit: int) -> Any:
        def body(comm: Any, stream: Any) -> Any:
            values, count, kind, op = self._reduction(tensor, reduction)
            place = pointer(values)
            self._call("Reduce", place, place, ctypes.c_size_t(count), kind, op, root, comm, stream)
            return self._store_back(tensor, values, reduction) if self._rank == root else values

        return self._launch("reduce", [tensor], is_async, body)

    def all_gather(self, to: list[Any], tensor: Any, is_async: bool, limit: int) -> Any:
        if len(to) != self._size:
            raise RuntimeError(
                f"[all_gather] expected a list of {self._size} tensors, one for each rank, got {len(to)}"
            )

        def body(comm: Any, stream: Any) -> Any:
            values = dense_here(tensor)
            direct = _adjacent(to)
            whole = to[0] if direct else values.new_empty(self._size, values.numel())
            count = ctypes.c_size_t(bytes_of(values))
            self._call("AllGather", pointer(values), pointer(whole), count, _BYTES, comm, stream)
            if not direct:
                for place, part in zip(to, whole.unbind(0)):
                    place.copy_(part.view(place.shape))
            return values, whole

        return self._launch("all_gather", [tensor, *to], is_async, body)

    def reduce_scatter(self, tensor: Any, inputs: list[Any], reduction: int, is_async: bool, limit: int) -> Any:
        def body(comm: Any, stream: Any) -> Any:
            whole = inputs[0] if _adjacent(inputs) else flambeau.cat([one.reshape(-1) for one in inputs])
            values, count, kind, op = self._reduction(tensor, reduction)
            place = ctypes.c_size_t(count)
            self._call("ReduceScatter", pointer(whole), pointer(values), place, kind, op, comm, stream)
            self._store_back(tensor, values, reduction)
            return whole, values

        return self._launch("reduce_scatter", [tensor, *inputs], is_async, body)

    def all_to_all(self, to: list[Any], inputs: list[Any], is_async: bool, limit: int) -> Any:
        return self._swap("all_to_all", to, list(range(self._size)), inputs, list(range(self._size)), is_async)

    def gather(self, to: list[Any], tensor: Any, root: int, is_async: bool, limit: int) -> Any:
        sources = list(range(self._size)) if self._rank == root else []
        return self._swap("gather", to if sources else [], sources, [tensor], [root], is_async)

    def scatter(self, tensor: Any, inputs: list[Any], root: int, is_async: bool, limit: int) -> Any:
        targets = list(range(self._size)) if self._rank == root else []
        return self._swap("scatter", [tensor], [root], inputs if targets else [], targets, is_async)

    def _swap(
        self, what: str, to: list[Any], sources: list[int], inputs: list[Any], targets: list[int], is_async: bool
    ) -> Any:
        """Sends tensors to ranks and receives others, all at once."""

        def body(comm: Any, stream: Any) -> Any:
            sent, received = [dense_here(one) for one in inputs], [dense_here(one) for one in to]
            self._call("GroupStart")
            for values, target in zip(sent, targets):
                if values.numel():
                    count = ctypes.c_size_t(bytes_of(values))
                    self._call("Send", pointer(values), count, _BYTES, target, comm, stream)
            for values, source in zip(received, sources):
                if values.numel():
                    count = ctypes.c_size_t(bytes_of(values))
                    self._call("Recv", pointer(values), count, _BYTES, source, comm, stream)
            self._call("GroupEnd")
            for place, values in zip(to, received):
                if place.data_ptr() != values.data_ptr():
                    place.copy_(values)
            return sent, received

        return self._launch(what, [*inputs, *to], is_async, body)

    # ------------------------------------------------------------------------------------ messages

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Messages inside the block start together, so that two ranks may send to each other."""
        self._call("GroupStart")
        try:
            yield
        finally:
            self._call("GroupEnd")

    def send(self, tensor: Any, to: int, tag: int, is_async: bool, limit: int) -> Any:
        def body(comm: Any, stream: Any) -> Any:
            values = dense_here(tensor)
            self._call("Send", pointer(values), ctypes.c_size_t(bytes_of(values)), _BYTES, to, comm, stream)
            return values

        return self._launch("send", [tensor], is_async, body)

    def receive(self, tensor: Any, source: int, tag: int, is_async: bool, limit: int) -> Any:
        if source < 0:
            raise RuntimeError("[recv] expected the rank of the sender with NCCL, got none")
        if not tensor.is_contiguous():
            raise RuntimeError("[recv] expected a contiguous tensor with NCCL, got another")

        def body(comm: Any, stream: Any) -> Any:
            self._call("Recv", pointer(tensor), ctypes.c_size_t(bytes_of(tensor)), _BYTES, source, comm, stream)

        return self._launch("recv", [tensor], is_async, body, source)

    def close(self) -> None:
        comm, self._comm = self._comm, None
        if comm is not None:
            _library().ncclCommAbort(comm)  # waits for nobody


def dense_here(tensor: Any) -> Any:
    """A dense tensor on the same device that stands for another."""
    return tensor.detach().contiguous().resolve_conj().resolve_neg()


class DeviceGroup:
    """The native side of a group with NCCL: CUDA tensors by it, the others through the group of the host."""

    def __init__(self, host: Any, device: NcclGroup) -> None:
        self._host, self._device = host, device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def _for(self, tensor: Any) -> Any:
        return self._device if tensor.is_cuda else self._host

    def all_reduce(self, tensor: Any, *rest: Any) -> Any:
        return self._for(tensor).all_reduce(tensor, *rest)

    def broadcast(self, tensor: Any, *rest: Any) -> Any:
        return self._for(tensor).broadcast(tensor, *rest)

    def reduce(self, tensor: Any, *rest: Any) -> Any:
        return self._for(tensor).reduce(tensor, *rest)

    def all_gather(self, to: list[Any], tensor: Any, *rest: Any) -> Any:
        return self._for(tensor).all_gather(to, tensor, *rest)

    def gather(self, to: list[Any], tensor: Any, *rest: Any) -> Any:
        return self._for(tensor).gather(to, tensor, *rest)

    def scatter(self, tensor: Any, *rest: Any) -> Any:
        return self._for(tensor).scatter(tensor, *rest)

    def reduce_scatter(self, tensor: Any, *rest: Any) -> Any:
        return self._for(tensor).reduce_scatter(tensor, *rest)

    def all_to_all(self, to: list[Any], inputs: list[Any], *rest: Any) -> Any:
        return self._for(to[0]).all_to_all(to, inputs, *rest)

    def send(self, tensor: Any, *rest: Any) -> Any:
        return self._for(tensor).send(tensor, *rest)

    def receive(self, tensor: Any, *rest: Any) -> Any:
        return self._for(tensor).receive(tensor, *rest)

    def batch(self, tensors: list[Any]) -> Any:
        on_device = bool(tensors) and all(tensor.is_cuda for tensor in tensors)
        if not on_device:
            return contextlib.nullcontext()
        self._device._open(tensors[0].device)
        return self._device.batch()

    def barrier(self, *rest: Any) -> Any:
        """What the device has been given is done, on all ranks."""
        if flambeau.cuda.is_initialized():
            flambeau.cuda.synchronize()
        return self._host.barrier(*rest)

    def close(self) -> None:
        self._device.close()
        self._host.close()
