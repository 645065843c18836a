"""How tensors and storages travel through queues, pipes and process arguments: by descriptor, without copying.

Sending a tensor moves its storage to shared memory; the receiver maps the same memory. The memory has no name: it goes
when the last process lets go of it, killed or not.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import weakref
from multiprocessing import queues, resource_sharer, util
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

import flambeau
from flambeau import _C, _utils
from flambeau._C import Tensor
from flambeau.storage import LEGACY_CLASSES, TypedStorage, UntypedStorage, storage_of

# Storages that were received, by the file they map: one that comes twice is mapped once.
_received: weakref.WeakValueDictionary[tuple[int, int], UntypedStorage] = weakref.WeakValueDictionary()
_keep_descriptors = True


def keep_descriptors(value: bool) -> None:
    """Whether received storages hold on to their descriptor, by which they are sent on without copying."""
    global _keep_descriptors
    _keep_descriptors = value


def rebuild_storage(handle: Any, size: int) -> UntypedStorage:
    descriptor = handle.detach()
    try:
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino)
        received = _received.get(key)
        if received is not None and received.nbytes() == size:
            return received
        storage = storage_of(_C._map_shared(descriptor, size, _keep_descriptors))
        _received[key] = storage
        return storage
    finally:
        os.close(descriptor)


class StorageWeakRef:
    """A storage by identity, without keeping it alive."""

    __slots__ = ("_alive", "cdata")

    def __init__(self, storage: Any) -> None:
        storage = storage.untyped()
        self.cdata = storage._cdata
        self._alive = weakref.ref(storage)

    def expired(self) -> bool:
        return self._alive() is None

    def __hash__(self) -> int:
        return hash(self.cdata)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, StorageWeakRef) and self.cdata == other.cdata)


def rebuild_plain_storage(size: int, device: str) -> UntypedStorage:
    return UntypedStorage(size, device=device)


_untaken: set[int] = set()  # descriptors that were sent and not fetched yet


def _let_receivers_take(seconds: float = 5.0) -> None:
    """Before a child ends: give others time to fetch the descriptors of what it has just sent."""
    if multiprocessing.parent_process() is None:
        return
    for finish in list(util._finalizer_registry.values()):
        if getattr(finish, "_callback", None) is queues.Queue._finalize_join:
            finish()  # what is still buffered is sent now
    until = time.monotonic() + seconds
    while _untaken and time.monotonic() < until:
        time.sleep(0.002)


def _wait_at_exit(wait: Any) -> None:
    """In each process: after queues were told to end (priority 10), before the socket receivers ask at goes (0)."""
    _untaken.clear()
    util.Finalize(None, wait, exitpriority=9)


def _handle(descriptor: int) -> Any:
    """A descriptor that can be pickled; what fetches it asks this process for it."""
    handle = DupFd(descriptor)
    if isinstance(handle, resource_sharer.DupFd):
        waiting, key = resource_sharer._resource_sharer._cache, handle._id[1]
        send, close = waiting[key]

        def taken() -> None:
            close()
            _untaken.discard(key)

        _untaken.add(key)
        waiting[key] = (send, taken)
    return handle


def reduce_storage(storage: UntypedStorage) -> Any:
    if storage.device.type == "meta":
        return rebuild_plain_storage, (storage.nbytes(), "meta")
    if storage.device.type != "cpu":
        return storage.__reduce__()
    if _C._storage_descriptor(storage._bytes) < 0:
        _C._share_storage(storage._bytes)
    return rebuild_storage, (_handle(_C._storage_descriptor(storage._bytes)), storage.nbytes())


def rebuild_typed_storage(storage: UntypedStorage, dtype: Any) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def reduce_typed_storage(storage: TypedStorage) -> Any:
    return rebuild_typed_storage, (storage.untyped(), storage.dtype)


def rebuild_tensor(cls: Any, storage: UntypedStorage, metadata: Any) -> Tensor:
    offset, size, stride, requires_grad, dtype, noted = metadata
    tensor = flambeau.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)
    tensor = _utils._as_noted(tensor, noted)
    if cls is not Tensor:
        return cls(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor


def reduce_tensor(tensor: Tensor) -> Any:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "[multiprocessing] expected a tensor without history, got the result of an operation on tensors that "
            "require grad; autograd does not cross processes, send detach() of it"
        )
    if tensor.device.type not in ("cpu", "meta") or tensor.__dict__:
        return tensor.__reduce_ex__(2)
    metadata = (
        tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.requires_grad, tensor.dtype,
        _utils._metadata_of(tensor),
    )  # fmt: skip
    return rebuild_tensor, (type(tensor), storage_of(tensor), metadata)


def init_reductions() -> None:
    """Teach the pickler of multiprocessing about tensors."""
    _wait_at_exit(_let_receivers_take)
    util.register_after_fork(_let_receivers_take, _wait_at_exit)  # forked children forget what is to be done at exit
    ForkingPickler.register(Tensor, reduce_tensor)
    ForkingPickler.register(flambeau.nn.Parameter, reduce_tensor)
    ForkingPickler.register(UntypedStorage, reduce_storage)
    for kind in (TypedStorage, *LEGACY_CLASSES.values()):
        ForkingPickler.register(kind, reduce_typed_storage)
