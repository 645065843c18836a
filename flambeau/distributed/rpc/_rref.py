"""`RRef`: a reference to a value that one worker owns.

The owner counts the references of others. A reference that travels adds one at the owner before the message leaves, and the receiver
drops it when its object dies; messages between two workers keep their order, so the count never falls short.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

from flambeau.distributed.rpc._agent import WorkerInfo, agent
from flambeau.futures import Future

__all__ = ["PyRRef", "RRef"]

Identity = tuple[int, int]
_numbers = itertools.count()


class _Entry:
    """A value that this worker owns, which may still be computed."""

    def __init__(self) -> None:
        self.future: Any = Future()
        self.references = 0


_owned: dict[Identity, _Entry] = {}
_lock = threading.Lock()


def entry(identity: Identity) -> _Entry:
    with _lock:
        return _owned.setdefault(identity, _Entry())


def _change(identity: Identity, by: int) -> None:
    with _lock:
        entry = _owned.setdefault(identity, _Entry())
        entry.references += by
        if entry.references <= 0 and entry.future.done():
            del _owned[identity]


def add_reference(identity: Identity, rank: int) -> None:
    _change(identity, 1)


def drop_reference(identity: Identity, rank: int) -> None:
    _change(identity, -1)


def fetch(identity: Identity, rank: int) -> Any:
    return entry(identity).future


def forget_all() -> None:
    with _lock:
        _owned.clear()


def next_identity() -> Identity:
    return agent().info.id, next(_numbers)


class RRef:
    """A reference to a value, held by its owner; `to_here` brings a copy."""

    def __init__(self, value: Any, type_hint: Any = None) -> None:
        self._identity, self._owner = next_identity(), agent().info
        self._creation: Any = None
        self._entry = entry(self._identity)
        self._entry.references += 1
        self._entry.future.set_result(value)

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    @classmethod
    def _of(cls, identity: Identity, owner: WorkerInfo, creation: Any = None) -> RRef:
        self = cls.__new__(cls)
        self._identity, self._owner, self._creation = identity, owner, creation
        self._entry = entry(identity) if owner.id == agent().info.id else None  # type: ignore[assignment]
        return self

    def owner(self) -> WorkerInfo:
        return self._owner

    def owner_name(self) -> str:
        return self._owner.name

    def is_owner(self) -> bool:
        return self._owner.id == agent().info.id

    def confirmed_by_owner(self) -> bool:
        return self.is_owner() or self._creation is None or self._creation.done()

    def _get_future(self) -> Any:
        """The future of the creation on the owner."""
        if self._creation is None:
            done: Any = Future()
            done.set_result(None)
            return done
        return self._creation

    def local_value(self) -> Any:
        if not self.is_owner():
            raise RuntimeError(
                f"[RRef] Cannot call localValue() on a non-local reference, got one of {self._owner} on {agent().info}"
            )
        return self._entry.future.wait()

    def to_here(self, timeout: float = -1.0) -> Any:
        if self.is_owner():
            return self.local_value()
        if self._creation is not None and self._creation.done():
            self._creation.wait()  # raises what went wrong when the value was made
        from flambeau.distributed.rpc.api import _request

        return _request(self._owner, "fetch", self._identity, timeout).wait()

    def _get_type(self, timeout: float = -1.0, blocking: bool = True) -> Any:
        from flambeau.distributed.rpc.api import rpc_async

        future = rpc_async(self._owner, _type_of, args=(self,), timeout=timeout)
        return future.wait() if blocking else future

    def rpc_sync(self, timeout: float = -1.0) -> Any:
        from flambeau.distributed.rpc.api import rpc_sync

        return RRefProxy(self, rpc_sync, timeout)

    def rpc_async(self, timeout: float = -1.0) -> Any:
        from flambeau.distributed.rpc.api import rpc_async

        return RRefProxy(self, rpc_async, timeout)

    def remote(self, timeout: float = -1.0) -> Any:
        from flambeau.distributed.rpc.api import remote

        return RRefProxy(self, remote, timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Gradients of the value, in a context of distributed autograd or, on the owner, the ordinary one."""
        from flambeau.distributed import autograd
        from flambeau.distributed.rpc.api import rpc_sync

        if self.is_owner():
            value = self.local_value()
            if dist_autograd_ctx_id < 0:
                value.backward(retain_graph=retain_graph)
            else:
                autograd.backward(dist_autograd_ctx_id, [value], retain_graph)
        else:
            rpc_sync(self._owner, _backward_on_owner, args=(self, dist_autograd_ctx_id, retain_graph))

    def __reduce__(self) -> Any:
        agent().tell(self._owner.id, "add_reference", self._identity)
        return _received, (self._identity, tuple(self._owner))

    def __del__(self) -> None:
        try:
            current = agent()
            if self._creation is not None and not self._creation.done():
                identity, owner = self._identity, self._owner.id
                self._creation.add_done_callback(lambda _: current.tell(owner, "drop_reference", identity))
            else:
                current.tell(self._owner.id, "drop_reference", self._identity)
        except Exception:
            pass  # the agent is gone, and with it all references

    def __repr__(self) -> str:
        if self.is_owner():
            return f"OwnerRRef({self._entry.future.value() if self._entry.future.done() else '...'})"
        return f"UserRRef(RRefId = GloballyUniqueId(created_on={self._identity[0]}, local_id={self._identity[1]}))"


PyRRef = RRef


def _received(identity: Identity, owner: tuple[str, int]) -> RRef:
    return RRef._of(identity, WorkerInfo(*owner))


def _type_of(reference: RRef) -> type:
    return type(reference.local_value())


def _backward_on_owner(reference: RRef, context: int, retain_graph: bool) -> None:
    reference.backward(context, retain_graph)


def _call_method(reference: RRef, name: str, args: Any, kwargs: Any) -> Any:
    method = getattr(reference.local_value(), name)
    function = getattr(method, "__func__", method)
    result = method(*args, **kwargs)
    return result.wait() if getattr(function, "_wrapped_async_rpc_function", False) else result


class RRefProxy:
    """Methods of the value, called on its owner."""

    def __init__(self, reference: RRef, call: Any, timeout: float = -1.0) -> None:
        self._reference, self._call, self._timeout = reference, call, timeout

    def __getattr__(self, name: str) -> Any:
        def invoke(*args: Any, **kwargs: Any) -> Any:
            arguments = (self._reference, name, args, kwargs)
            return self._call(self._reference.owner(), _call_method, args=arguments, timeout=self._timeout)

        return invoke
