"""Messages between a loader and its workers: one packet socket for each worker, and nothing else shared.

There are no queues with locks in shared memory: a worker that is killed cannot leave one taken, and its end of the
socket closes with it, which the loader sees at once. A message is a pickle. Tensors and arrays of some size travel
beside it in segments of shared memory, everything else inside it; a pickle that is too long for a packet becomes a
segment itself. Descriptors are closed when they have been mapped, so that batches use up none.
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
from flambeau.utils.data._utils.segments import Borrower, Lender, Piece

# Below this many bytes a tensor travels in the message: copying it costs less than mapping memory.
SHARED_FROM = 16384
# Task, kind, and whether the pickle is the last segment; numbers of segments, of those that pickle knows as buffers, and
# of segments dropped, returned and spoiled; bytes of the pickle. These follow in this order, then the pickle.
_HEADER = struct.Struct("<qB?HHHHHQ")
_PIECE = struct.Struct("<qQB")  # number, size, and flags: has a descriptor, is used once
DATA, ERROR, ENDED, RESUMED = range(4)
_MAX_DESCRIPTORS = 200  # the kernel passes at most 253 at once
_MAX_PACKET = 1 << 16
_ANCILLARY = socket.CMSG_SPACE(253 * 4)
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

_DTYPES = [
    flambeau.bool, flambeau.uint8, flambeau.int8, flambeau.int16, flambeau.int32, flambeau.int64, flambeau.float16,
    flambeau.bfloat16, flambeau.float32, flambeau.float64, flambeau.complex64, flambeau.complex128,
]  # fmt: skip
_DTYPE_NUMBERS = {dtype: number for number, dtype in enumerate(_DTYPES)}


class Closed(Exception):
    """The other end is gone."""


# ---------------------------------------------------------------------------------------------- tensors in messages


def _from_bytes(data: bytes, number: int, shape: tuple[int, ...], requires_grad: bool) -> Tensor:
    tensor = flambeau.empty(shape, dtype=_DTYPES[number])
    if data:
        _C._storage_memory(tensor)[:] = data
    return tensor.requires_grad_() if requires_grad else tensor


def _from_memory(memory: Tensor, number: int, shape: tuple[int, ...], stride: Any, requires_grad: bool) -> Tensor:
    tensor = flambeau.empty(0, dtype=_DTYPES[number])
    tensor = flambeau._ops._set_storage_(tensor, memory, 0, shape, stride)
    return tensor.requires_grad_() if requires_grad else tensor


class _Descriptor:
    """Stands in a pickle for memory that travels beside it."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class _Pickler(pickle.Pickler):
    """Takes large tensors and buffers out of the pickle into shared memory."""

    def __init__(self, stream: Any, lender: Lender) -> None:
        super().__init__(stream, 5, buffer_callback=self._buffer)
        self._lender = lender
        self.pieces: list[Piece] = []
        self.buffers: list[int] = []  # positions of arrays, in the order in which pickle asks for them again

    def _lend(self, data: memoryview) -> int:
        self.pieces.append(self._lender.write(data))
        return len(self.pieces) - 1

    def _stays(self, size: int) -> bool:
        return size < SHARED_FROM or len(self.pieces) >= _MAX_DESCRIPTORS

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """True leaves a buffer in the pickle."""
        raw = buffer.raw()
        if self._stays(raw.nbytes):
            return True
        self.buffers.append(self._lend(raw))
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
        # Only this tensor is copied: its storage may be a whole dataset.
        plain = (obj.detach() if obj.requires_grad else obj).contiguous()
        number, shape = _DTYPE_NUMBERS[plain.dtype], tuple(plain.shape)
        start, size = plain.storage_offset() * plain.element_size(), plain.numel() * plain.element_size()
        data = _C._storage_memory(plain)[start : start + size]
        if self._stays(size):
            return _from_bytes, (bytes(data), number, shape, obj.requires_grad)
        return _from_memory, (_Descriptor(self._lend(data)), number, shape, plain.stride(), obj.requires_grad)


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: Any, memories: list[Tensor], buffers: tuple[int, ...]) -> None:
        super().__init__(io.BytesIO(data), buffers=[memories[i].numpy() for i in buffers])
        self._memories = memories

    def persistent_load(self, index: int) -> Tensor:
        return self._memories[index]


# ---------------------------------------------------------------------------------------------- packets


class Packet:
    """A message ready to be sent."""

    def __init__(self, parts: list[Any], pieces: list[Piece]) -> None:
        self._parts = parts
        self._once = [piece.descriptor for piece in pieces if piece.once]
        descriptors = array.array("i", [piece.descriptor for piece in pieces if piece.descriptor >= 0])
        self._ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []

    def send(self, end: socket.socket) -> bool:
        """False when the socket is full, which only an end that does not block reports."""
        try:
            end.sendmsg(self._parts, self._ancillary)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error
        return True

    def __del__(self) -> None:
        for descriptor in self._once:
            os.close(descriptor)


class Channel:
    """One end of the connection: its socket, the segments it lends and those it has borrowed."""

    def __init__(self, end: socket.socket, recycle: bool) -> None:
        self.end = end
        self._lender, self._borrower = Lender(recycle), Borrower()

    def packet(self, task: int, kind: int, value: Any) -> Packet:
        """A message; carries news about segments as well."""
        stream = io.BytesIO()
        pickler = _Pickler(stream, self._lender)
        pieces = pickler.pieces
        try:
            pickler.dump(value)
            payload: Any = stream.getbuffer()
            length = len(payload)
            if outside := length > _MAX_PACKET:
                pieces.append(self._lender.write(payload))
                payload = b""
        except BaseException:
            self._lender.cancel(pieces)
            raise
        dropped = self._lender.dropped()
        returned, spoiled = self._borrower.news()
        counts = (len(pieces), len(pickler.buffers), len(dropped), len(returned), len(spoiled))
        table = b"".join(_PIECE.pack(p.number, p.size, (p.descriptor >= 0) | p.once << 1) for p in pieces)
        news = array.array("q", [*dropped, *returned, *spoiled])
        header = _HEADER.pack(task, kind, outside, *counts, length)
        return Packet([header, table, array.array("H", pickler.buffers), news, payload], pieces)

    def receive(self) -> tuple[int, int, Any]:
        """Task, kind and value of the next message; BlockingIOError when there is none."""
        try:
            data, ancillary, _, _ = self.end.recvmsg(_MAX_PACKET + 16384, _ANCILLARY, _CLOSE_ON_EXEC)
        except ConnectionResetError as error:
            raise Closed from error
        if not data:
            raise Closed
        descriptors = array.array("i")
        for level, kind, body in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(body[: len(body) - len(body) % descriptors.itemsize])
        try:
            task, kind, outside, count, *counts, length = _HEADER.unpack_from(data)
            at = _HEADER.size
            pieces = []
            arrived = iter(descriptors)
            for number, size, flags in _PIECE.iter_unpack(data[at : at + count * _PIECE.size]):
                pieces.append(Piece(number, size, next(arrived, -2) if flags & 1 else -1, bool(flags & 2)))
            if any(piece.descriptor == -2 for piece in pieces):
                raise RuntimeError(
                    f"[DataLoader] expected the memory of a batch, got {len(descriptors)} descriptors: this process "
                    "has too many open files; raise the limit (ulimit -n)"
                )
            at += count * _PIECE.size
            buffers = struct.unpack_from(f"<{counts[0]}H", data, at)
            at += 2 * counts[0]
            news = struct.unpack_from(f"<{sum(counts[1:])}q", data, at)
            at += 8 * len(news)
            self._borrower.unmap(news[: counts[1]])
            self._lender.take_back(list(news[counts[1] : counts[1] + counts[2]]))
            self._lender.forget(list(news[counts[1] + counts[2] :]))
            memories = [self._borrower.memory(piece) for piece in pieces]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if outside:
            whole = memories.pop()
            payload = _C._storage_memory(whole)[:length]
        else:
            payload = memoryview(data)[at:]
        return task, kind, _Unpickler(payload, memories, buffers).load()

    def close(self) -> None:
        self.end.close()
        self._lender.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """The loader's end, which never blocks, and the worker's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    ours.setblocking(False)
    return ours, theirs
