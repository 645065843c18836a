"""Messages between a loader and its workers: one packet socket for each worker, and nothing else shared.

There are no queues with locks in shared memory: a worker that is killed cannot leave one taken, and its end of the
socket closes with it, which the loader sees at once. A message is a pickle. Tensors and arrays of some size travel as
descriptors of shared memory beside it, everything else inside it; a pickle that is too long for a packet becomes shared
memory itself. The receiver maps the memory and closes the descriptors, so that batches use up none.
"""

from __future__ import annotations

import array
import io
import os
import pickle
import socket
import struct
from typing import Any

import flambeau
from flambeau import _C
from flambeau._C import Tensor

# Below this many bytes a tensor travels in the message: copying it costs less than mapping memory.
SHARED_FROM = 16384
# Task, kind, whether the pickle is shared memory too, the last one; how many memories there are and how many of them
# pickle knows as buffers; bytes of the pickle. The sizes of the memories, the positions of the buffers and the pickle
# follow.
_HEADER = struct.Struct("<qB?HHQ")
DATA, ERROR, ENDED, RESUMED = range(4)
_MAX_DESCRIPTORS = 200  # the kernel passes at most 253 at once
_MAX_PACKET = 1 << 16
_ANCILLARY = socket.CMSG_SPACE(253 * 4)

_DTYPES = [
    flambeau.bool, flambeau.uint8, flambeau.int8, flambeau.int16, flambeau.int32, flambeau.int64, flambeau.float16,
    flambeau.bfloat16, flambeau.float32, flambeau.float64, flambeau.complex64, flambeau.complex128,
]  # fmt: skip
_DTYPE_NUMBERS = {dtype: number for number, dtype in enumerate(_DTYPES)}


class Closed(Exception):
    """The other end is gone."""


# ---------------------------------------------------------------------------------------------- tensors in messages


def _from_bytes(data: bytes, number: int, shape: tuple[int, ...], requires_grad: bool) -> Tensor:
    made = flambeau.empty(shape, dtype=_DTYPES[number])
    if data:
        _C._storage_memory(made)[:] = data
    return made.requires_grad_() if requires_grad else made


def _from_memory(memory: Tensor, number: int, shape: tuple[int, ...], stride: Any, requires_grad: bool) -> Tensor:
    made = flambeau.empty(0, dtype=_DTYPES[number])
    made = flambeau._ops._set_storage_(made, memory, 0, shape, stride)
    return made.requires_grad_() if requires_grad else made


class _Descriptor:
    """Stands in a pickle for memory that travels beside it."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class _Memories:
    """Descriptors of shared memory with what was copied into it, closed when they are no longer held.

    The memory is written as a file: mapping it here only to fill it would cost a fault for each page.
    """

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.sizes: list[int] = []

    def add(self, data: memoryview) -> int:
        """The position of a copy of some bytes."""
        descriptor = os.memfd_create("flambeau", os.MFD_CLOEXEC)
        self._keep(descriptor, len(data))
        while len(data):
            data = data[os.write(descriptor, data) :]
        return len(self.sizes) - 1

    def add_shared(self, descriptor: int, size: int) -> int:
        """The position of memory that is shared already."""
        self._keep(os.dup(descriptor), size)
        return len(self.sizes) - 1

    def _keep(self, descriptor: int, size: int) -> None:
        self.descriptors.append(descriptor)
        self.sizes.append(size)

    def __del__(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class _Pickler(pickle.Pickler):
    """Takes large tensors and buffers out of the pickle into shared memory."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream, 5, buffer_callback=self._buffer)
        self.memories = _Memories()
        self.buffers: list[int] = []  # positions of arrays, in the order in which pickle asks for them again
        self._by_storage: dict[int, int] = {}

    def _is_full(self) -> bool:
        return len(self.memories.sizes) >= _MAX_DESCRIPTORS

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """True leaves a buffer in the pickle."""
        raw = buffer.raw()
        if raw.nbytes < SHARED_FROM or self._is_full():
            return True
        self.buffers.append(self.memories.add(raw))
        return False

    def persistent_id(self, obj: Any) -> Any:
        return obj.index if type(obj) is _Descriptor else None

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not Tensor or not obj.is_cpu or obj.__dict__:
            return NotImplemented
        if obj.requires_grad and not obj.is_leaf:
            raise RuntimeError(
                "[DataLoader] expected tensors without history from a worker, got one that is the result of an "
                "operation on tensors that require grad; detach() it in the dataset or collate_fn"
            )
        plain = obj.detach() if obj.requires_grad else obj
        size = plain.numel() * plain.element_size()
        number, shape = _DTYPE_NUMBERS[plain.dtype], tuple(plain.shape)
        whole = plain._storage_bytes() == size and not plain.storage_offset()
        if size >= SHARED_FROM and whole and (descriptor := _C._storage_descriptor(plain)) >= 0:
            index = self._by_storage.get(plain._storage_id())
            if index is None:
                index = self._by_storage[plain._storage_id()] = self.memories.add_shared(descriptor, size)
            return _from_memory, (_Descriptor(index), number, shape, plain.stride(), obj.requires_grad)
        # Only this tensor is copied: its storage may be a whole dataset.
        plain = plain.contiguous()
        start = plain.storage_offset() * plain.element_size()
        data = _C._storage_memory(plain)[start : start + size]
        if size < SHARED_FROM or self._is_full():
            return _from_bytes, (bytes(data), number, shape, obj.requires_grad)
        index = self.memories.add(data)
        return _from_memory, (_Descriptor(index), number, shape, plain.stride(), obj.requires_grad)


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: Any, memories: list[Tensor], buffers: tuple[int, ...]) -> None:
        super().__init__(io.BytesIO(data), buffers=[memories[i].numpy() for i in buffers])
        self._memories = memories

    def persistent_load(self, index: int) -> Tensor:
        return self._memories[index]


# ---------------------------------------------------------------------------------------------- packets


def pair() -> tuple[socket.socket, socket.socket]:
    """The loader's end, which never blocks, and the worker's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    ours.setblocking(False)
    return ours, theirs


class Packet:
    """A message ready to be sent; holds the shared memory in it until that has happened."""

    def __init__(self, task: int, kind: int, value: Any) -> None:
        stream = io.BytesIO()
        pickler = _Pickler(stream)
        pickler.dump(value)
        payload: Any = stream.getbuffer()
        length = len(payload)
        memories = self._memories = pickler.memories
        if outside := length > _MAX_PACKET:
            memories.add(payload)
            payload = b""
        header = _HEADER.pack(task, kind, outside, len(memories.sizes), len(pickler.buffers), length)
        self.parts = [header, array.array("Q", memories.sizes), array.array("H", pickler.buffers), payload]
        descriptors = array.array("i", memories.descriptors)
        self.ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []

    def send(self, end: socket.socket) -> bool:
        """False when the socket is full, which only an end that does not block reports."""
        try:
            end.sendmsg(self.parts, self.ancillary)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error
        return True


def receive(end: socket.socket) -> tuple[int, int, Any]:
    """Task, kind and value of the next message; BlockingIOError when there is none."""
    try:
        data, ancillary, _, _ = end.recvmsg(_MAX_PACKET + 8192, _ANCILLARY, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    except ConnectionResetError as error:
        raise Closed from error
    if not data:
        raise Closed
    descriptors = array.array("i")
    for level, kind, body in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(body[: len(body) - len(body) % descriptors.itemsize])
    try:
        task, kind, outside, count, buffer_count, length = _HEADER.unpack_from(data)
        if len(descriptors) != count:
            raise RuntimeError(
                f"[DataLoader] expected {count} descriptors with a batch, got {len(descriptors)}: this process has too "
                "many open files; raise the limit (ulimit -n)"
            )
        sizes = struct.unpack_from(f"<{count}Q", data, _HEADER.size)
        buffers = struct.unpack_from(f"<{buffer_count}H", data, _HEADER.size + 8 * count)
        memories = [_C._map_shared(d, size, False) for d, size in zip(descriptors, sizes, strict=True)]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if outside:
        whole = memories.pop()
        payload = _C._storage_memory(whole)[:length]
    else:
        payload = memoryview(data)[_HEADER.size + 8 * count + 2 * buffer_count :]
    return task, kind, _Unpickler(payload, memories, buffers).load()
