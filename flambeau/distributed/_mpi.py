"""Groups over MPI, by MPI's standard ABI: `libmpi_abi.so.1` is opened at run time, so any implementation that has it serves.

PyPI's package `mpich` (5 or later) brings the library and `mpiexec`; `FLAMBEAU_MPI` names another file. Open MPI is reached through a
small library of its own (`_openmpi.py`). The rank, the size and the place of
the store come from MPI. Operations are started without blocking and polled, so that timeouts hold and other threads go on.
"""

from __future__ import annotations

import atexit
import ctypes
import ctypes.util
import functools
import os
import pathlib
import socket
import sys
import sysconfig
import threading
import time
from typing import Any

import flambeau
from flambeau import _distributed as native
from flambeau.distributed import _openmpi
from flambeau.distributed._exchange import (
    ExchangeGroup,
    average,
    bytes_of,
    deliver,
    dense,
    pointer,
    recording,
    run_message,
)
from flambeau.distributed._stores import Store, TCPStore

__all__ = ["MpiGroup", "is_available", "world"]

# Handles and constants of the standard ABI (MPI 5.0, appendix on the ABI).
_COMM_WORLD, _BYTE, _ERRORS_RETURN = 0x101, 0x247, 0x143
_THREAD_MULTIPLE, _ANY_SOURCE, _IN_PLACE = 4096, -1, 1
_OPS = {0: 0x21, 1: 0x21, 2: 0x24, 3: 0x22, 4: 0x23, 5: 0x28, 6: 0x29, 7: 0x2A}  # by number of the reduction
_TYPES = {
    "float32": 0x210, "float64": 0x214, "complex64": 0x212, "complex128": 0x216, "int8": 0x240, "uint8": 0x241,
    "int16": 0x248, "uint16": 0x249, "int32": 0x250, "uint32": 0x251, "int64": 0x258, "uint64": 0x259,
}  # fmt: skip
_BITWISE = (5, 6, 7)
_everyone = [ctypes.c_void_p(_COMM_WORLD)]  # the communicator of the world; another one after `reform`
_TAG_LIMIT = 1 << 20  # tags of programs; those above are the package's own


class _Status(ctypes.Structure):
    _fields_ = [("source", ctypes.c_int), ("tag", ctypes.c_int), ("error", ctypes.c_int), ("rest", ctypes.c_int * 5)]


def _handle(value: int) -> Any:
    return ctypes.c_void_p(value)


def _candidates() -> list[str]:
    own = os.environ.get("FLAMBEAU_MPI")
    beside = [pathlib.Path(sys.prefix) / "lib", pathlib.Path(sysconfig.get_paths()["platlib"]).parent.parent]
    return [own] if own else [*(str(folder / "libmpi_abi.so.1") for folder in beside), "libmpi_abi.so.1"]


@functools.cache
def _library() -> Any:
    """The library, or None."""
    if _openmpi.is_asked_for() and (own := _openmpi.open_library()) is not None:
        return own
    for name in _candidates():
        try:
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    return _openmpi.open_library()


def is_available() -> bool:
    """Whether there is a library, without loading it: that would put all of MPI into every process that asks."""
    has_abi = any(os.path.exists(name) for name in _candidates()) or ctypes.util.find_library("mpi_abi") is not None
    return has_abi or _openmpi.compiler() is not None


def _check(status: int, what: str) -> None:
    if status:
        text, length = ctypes.create_string_buffer(1024), ctypes.c_int()
        _library().MPI_Error_string(status, text, ctypes.byref(length))
        raise native.DistBackendError(
            f"[{what}] expected an exchange by MPI, got: {text.value.decode(errors='replace')}"
        )


@functools.cache
def _start() -> tuple[int, int]:
    """Initializes MPI; this process's rank and the number of processes."""
    library = _library()
    if library is None:
        raise RuntimeError(
            "[init_process_group] Distributed package doesn't have MPI built in: expected libmpi_abi.so.1 or Open MPI's mpicc, "
            "found neither (pip install mpich, or FLAMBEAU_MPI=file)"
        )
    started, provided = ctypes.c_int(), ctypes.c_int()
    _check(library.MPI_Initialized(ctypes.byref(started)), "init_process_group")
    if not started.value:
        _check(library.MPI_Init_thread(None, None, _THREAD_MULTIPLE, ctypes.byref(provided)), "init_process_group")
        if provided.value < _THREAD_MULTIPLE:
            raise RuntimeError("[init_process_group] expected an MPI with THREAD_MULTIPLE, got one without")
        atexit.register(_finish)
    library.MPI_Comm_set_errhandler(_handle(_COMM_WORLD), _handle(_ERRORS_RETURN))
    rank, size = ctypes.c_int(), ctypes.c_int()
    library.MPI_Comm_rank(_handle(_COMM_WORLD), ctypes.byref(rank))
    library.MPI_Comm_size(_handle(_COMM_WORLD), ctypes.byref(size))
    return rank.value, size.value


def _finish() -> None:
    """Ends MPI; after an uncaught exception the others must not wait for this process."""
    if getattr(sys, "last_type", None) is not None:
        _library().MPI_Abort(_handle(_COMM_WORLD), 1)
    _library().MPI_Finalize()


def world() -> tuple[Store, int, int]:
    """A store that all processes of MPI reach, this one's rank, and their number."""
    rank, size = _start()
    return _common_store(_everyone[0], rank, size), rank, size


def _common_store(comm: Any, rank: int, size: int) -> Store:
    """A store of the first process of a communicator."""
    text = ctypes.create_string_buffer(256)
    server = None
    if rank == 0:
        server = TCPStore("0.0.0.0", 0, size, True, wait_for_workers=False)
        text.value = f"{socket.gethostname()} {server.port}".encode()
    _check(_library().MPI_Bcast(text, 256, _handle(_BYTE), 0, comm), "init_process_group")
    host, port = text.value.decode().split(" ")
    if server is not None:
        return server
    return TCPStore("127.0.0.1" if host == socket.gethostname() else host, int(port), size, False)


class MpiGroup(ExchangeGroup):
    """The native side of a group over MPI, with a communicator of its own."""

    _library = "mpi"

    def __init__(self, rank: int, size: int, name: str, world_ranks: list[int], comm: Any = None) -> None:
        super().__init__(rank, size, name)
        self._mpi = _library()
        self._comm = self._communicator(size, name, world_ranks) if comm is None else comm
        self._mpi.MPI_Comm_set_errhandler(self._comm, _handle(_ERRORS_RETURN))
        self._moving = threading.Lock()

    def _communicator(self, size: int, name: str, world_ranks: list[int]) -> Any:
        """A communicator of some ranks of the world."""
        everyone, members, comm = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        _check(self._mpi.MPI_Comm_group(_everyone[0], ctypes.byref(everyone)), "new_group")
        ranks = (ctypes.c_int * size)(*world_ranks)
        _check(self._mpi.MPI_Group_incl(everyone, size, ranks, ctypes.byref(members)), "new_group")
        tag = sum(name.encode()) % 1000
        _check(self._mpi.MPI_Comm_create_group(_everyone[0], members, tag, ctypes.byref(comm)), "new_group")
        return comm

    # ------------------------------------------------------------------------------------ after a process was lost

    def can_go_on(self) -> bool:
        """Whether the library can make a communicator of the processes that are left (ULFM)."""
        return hasattr(self._mpi, "MPIX_Comm_shrink")

    def survivors(self) -> tuple[MpiGroup, list[int]]:
        """The group of those that are left, which all of them ask for, and their ranks in this one."""
        self._mpi.MPIX_Comm_revoke(self._comm)
        comm, old, new = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        _check(self._mpi.MPIX_Comm_shrink(self._comm, ctypes.byref(comm)), "reform")
        rank, size = ctypes.c_int(), ctypes.c_int()
        self._mpi.MPI_Comm_rank(comm, ctypes.byref(rank))
        self._mpi.MPI_Comm_size(comm, ctypes.byref(size))
        _check(self._mpi.MPI_Comm_group(self._comm, ctypes.byref(old)), "reform")
        _check(self._mpi.MPI_Comm_group(comm, ctypes.byref(new)), "reform")
        own, in_old = (ctypes.c_int * size.value)(*range(size.value)), (ctypes.c_int * size.value)()
        _check(self._mpi.MPI_Group_translate_ranks(new, size.value, own, old, in_old), "reform")
        _everyone[0] = comm
        return MpiGroup(rank.value, size.value, self._name, [], comm), list(in_old)

    def store(self) -> Store:
        """A store that all processes of the group reach."""
        return _common_store(self._comm, self._rank, self._size)

    def _check_exchange(self, status: int, what: str) -> None:
        """Raises for an error; the others that take part are told, because they may wait for somebody else."""
        if status and self.can_go_on():
            self._mpi.MPIX_Comm_revoke(self._comm)
        _check(status, what)

    def _finish_request(self, request: Any, what: str, limit: int) -> _Status:
        """Polls a request: at once for a while, then with pauses."""
        done, status, started = ctypes.c_int(), _Status(), time.monotonic()
        turns = 0
        while True:
            self._check_exchange(
                self._mpi.MPI_Test(ctypes.byref(request), ctypes.byref(done), ctypes.byref(status)), what
            )
            if done.value:
                return status
            turns += 1
            if turns > 200:
                time.sleep(min(0.001, 1e-5 * (turns - 200)))
            if limit >= 0 and time.monotonic() - started > limit / 1000:
                raise native.DistBackendError(
                    f"[{what}] Timed out waiting {limit}ms for the other ranks of '{self._name}'"
                )

    def _run_request(self, what: str, limit: int, *arguments: Any) -> None:
        request = ctypes.c_void_p()
        self._check_exchange(getattr(self._mpi, f"MPI_I{what}")(*arguments, self._comm, ctypes.byref(request)), what)
        self._finish_request(request, what, limit)

    # ------------------------------------------------------------------------------------ primitives

    def _barrier(self, limit: int) -> None:
        self._run_request("barrier", limit)

    def _broadcast(self, values: Any, root: int, limit: int) -> None:
        self._run_request("bcast_c", limit, pointer(values), ctypes.c_int64(bytes_of(values)), _handle(_BYTE), root)

    def _gathered(self, tensor: Any, limit: int) -> Any:
        whole = tensor.new_empty(self._size * tensor.numel())
        count = ctypes.c_int64(bytes_of(tensor))
        self._run_request(
            "allgather_c", limit, pointer(tensor), count, _handle(_BYTE), pointer(whole), count, _handle(_BYTE)
        )
        return whole

    def _exchanged(
        self, sent: Any, sent_sizes: list[int], received: Any, received_sizes: list[int], limit: int
    ) -> None:
        def layout(sizes: list[int]) -> tuple[Any, Any]:
            starts = [sum(sizes[:i]) for i in range(len(sizes))]
            return (ctypes.c_int64 * self._size)(*sizes), (ctypes.c_int64 * self._size)(*starts)

        outgoing, incoming = layout(sent_sizes), layout(received_sizes)
        self._run_request(
            "alltoallv_c", limit, pointer(sent), *outgoing, _handle(_BYTE), pointer(received), *incoming, _handle(_BYTE)
        )

    def _reduced(self, tensor: Any, reduction: int, limit: int) -> Any:
        values, kind = dense(tensor).clone(), int(reduction)
        if not values.numel():
            return values
        dtype = str(values.dtype).rpartition(".")[2]
        integral = not (values.dtype.is_floating_point or values.dtype.is_complex)
        if kind in _BITWISE and not integral:
            raise RuntimeError(f"[all_reduce] Cannot use bitwise reductions with {values.dtype} dtype")
        if dtype in _TYPES:
            count = ctypes.c_int64(values.numel())
            types = (_handle(_TYPES[dtype]), _handle(_OPS[kind]))
            self._run_request("allreduce_c", limit, _handle(_IN_PLACE), pointer(values), count, *types)
        else:  # MPI has no such dtype: everybody reduces everything
            values = _reduce(self._gathered(values.view(-1), limit).view(self._size, -1), kind).view(values.shape)
        if kind == 1:
            average(values, self._size)
        return values

    # ------------------------------------------------------------------------------------ messages

    def _message(self, is_send: bool, tensor: Any, peer: int, tag: int, is_async: bool, limit: int) -> Any:
        if tag >= _TAG_LIMIT:
            raise ValueError(f"[send] expected a tag below {_TAG_LIMIT} with MPI, got {tag}")
        values, what = dense(tensor), "send" if is_send else "recv"
        record = recording(f"mpi:{what}", tensor)
        number = tag if tag >= 0 else _TAG_LIMIT
        request = ctypes.c_void_p()
        start = self._mpi.MPI_Isend_c if is_send else self._mpi.MPI_Irecv_c
        arguments = (pointer(values), ctypes.c_int64(bytes_of(values)), _handle(_BYTE), peer, number, self._comm)
        self._check_exchange(start(*arguments, ctypes.byref(request)), what)

        def action() -> int:
            status = self._finish_request(request, what, limit)
            if not is_send:
                deliver(tensor, values)
            record()
            return int(status.source) if not is_send else -1

        return run_message(action, is_async)

    def send(self, tensor: Any, to: int, tag: int, is_async: bool, limit: int) -> Any:
        return self._message(True, tensor, to, tag, is_async, limit)

    def receive(self, tensor: Any, source: int, tag: int, is_async: bool, limit: int) -> Any:
        return self._message(False, tensor, source if source >= 0 else _ANY_SOURCE, tag, is_async, limit)

    # ------------------------------------------------------------------------------------ questions

    def status(self) -> list[tuple[Any, ...]]:
        own = self._recent[-1][1] if self._recent else "no collective yet"
        return [
            (os.getpid(), self._sequence, own, self._moved, 0.0, "") if rank == self._rank else (0, 0, "over MPI", 0, 0.0, "")
            for rank in range(self._size)
        ]  # fmt: skip

    def stacks(self) -> str:
        return ""

    def write_stacks_to(self, descriptor: int) -> None: ...

    def _close_links(self) -> None:
        """Nothing: freeing a communicator is collective, and closing waits for nobody."""


def _reduce(rows: Any, kind: int) -> Any:
    """The reduction of a tensor's first dimension."""
    if kind in (0, 1):
        return (rows.any(0) if rows.dtype is flambeau.bool else rows.float().sum(0)).to(rows.dtype)
    if kind == 2:
        return (rows.all(0) if rows.dtype is flambeau.bool else rows.float().prod(0)).to(rows.dtype)
    combine = {
        3: flambeau.minimum, 4: flambeau.maximum, 5: flambeau.bitwise_and, 6: flambeau.bitwise_or,
        7: flambeau.bitwise_xor,
    }[kind]  # fmt: skip
    return functools.reduce(combine, rows.unbind(0))
