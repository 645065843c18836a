"""Calls to other workers: `rpc_sync`, `rpc_async`, `remote`, and the beginning and end of it all."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any

from flambeau.distributed import _groups
from flambeau.distributed._hosts import _address
from flambeau.distributed._stores import PrefixStore
from flambeau.distributed.rendezvous import rendezvous
from flambeau.distributed.rpc import _agent, _rref
from flambeau.distributed.rpc._agent import Agent, WorkerInfo, agent
from flambeau.distributed.rpc._rref import PyRRef, RRef
from flambeau.distributed.rpc.options import BackendType, TensorPipeRpcBackendOptions
from flambeau.futures import Future, collect_all

__all__ = [
    "PyRRef", "RRef", "WorkerInfo", "_all_gather", "_barrier", "_is_current_rpc_agent_set", "_wait_all", "get_worker_info",
    "init_rpc", "remote", "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip

UNSET_RPC_TIMEOUT = -1.0
_times_initialized = 0


def init_rpc(
    name: str,
    backend: Any = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: Any = None,
) -> None:
    """Starts the agent of this worker and meets the others."""
    global _times_initialized
    if _agent._agent is not None:
        raise RuntimeError("[init_rpc] RPC is already initialized")
    options = rpc_backend_options or TensorPipeRpcBackendOptions()
    if not isinstance(options, TensorPipeRpcBackendOptions):
        raise TypeError(f"[init_rpc] expected TensorPipeRpcBackendOptions, got {type(options).__name__}")
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError("[init_rpc] Argument backend must be a member of BackendType")
    number = rank if rank >= 0 else int(os.environ.get("RANK", "-1"))
    size = world_size if world_size is not None else int(os.environ.get("WORLD_SIZE", "-1"))
    if _groups.is_initialized() and options.init_method == "env://":
        store: Any = _groups._get_default_store()
    else:
        limit = datetime.timedelta(seconds=60)
        store, number, size = next(iter(rendezvous(options.init_method, number, size, timeout=limit)))
    store = PrefixStore(f"rpc/{_times_initialized}", store)
    _times_initialized += 1
    started = Agent(name, number, size, store, _address(), options.rpc_timeout)
    started.handlers |= {"call": _run, "remote": _run_remote, "fetch": _rref.fetch}
    started.immediate |= {
        "add_reference": _rref.add_reference,
        "drop_reference": _rref.drop_reference,
        "remote": lambda content, rank: _rref.add_reference(content[0], rank),
    }
    from flambeau.distributed import autograd

    started.handlers |= autograd.HANDLERS
    _agent.set_agent(started)
    _meet(started, "start")


def _meet(own: Agent, where: str) -> None:
    """All workers have come this far."""
    own.store.add(where, 1)
    own.store.set(f"{where}/{own.info.id}", "")
    own.store.wait([f"{where}/{rank}" for rank in range(own.world_size)], datetime.timedelta(minutes=30))


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """Ends this worker's agent, by default when all workers are through with their calls."""
    own = agent()
    if graceful:
        _meet(own, "shutdown")
        own.settle(timeout or 60.0)
        _meet(own, "end")
    own.close()
    _agent.set_agent(None)
    _rref.forget_all()


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """A worker by its name; this one without a name."""
    return agent().info if worker_name is None else agent().worker(worker_name)


def _is_current_rpc_agent_set() -> bool:
    return _agent._agent is not None


# ---------------------------------------------------------------------------------------------- calls

_waiting = threading.local()


@contextlib.contextmanager
def _wait_all() -> Iterator[None]:
    """A `with` block at whose end all calls that were started in it are waited for."""
    _waiting.futures = []
    try:
        yield
        collect_all(_waiting.futures).wait()
        for future in _waiting.futures:
            future.wait()
    finally:
        del _waiting.futures


def _request(to: Any, kind: str, content: Any, timeout: float) -> Any:
    """Sends a request; tensors in it and in its answer belong to the context of distributed autograd, if there is one."""
    from flambeau.distributed import autograd

    own = agent()
    target = own.worker(to)
    packed, unpack = autograd.pack(content, target)
    future = own.call(target, kind, packed, timeout)
    return future if unpack is None else future.then(lambda done: unpack(done.value()))


def _call(to: Any, func: Any, args: Any, kwargs: Any, timeout: float) -> Any:
    if not callable(func):
        raise TypeError("[rpc] function should be callable.")
    future = _request(to, "call", (func, tuple(args or ()), dict(kwargs or {})), timeout)
    if hasattr(_waiting, "futures"):
        _waiting.futures.append(future)
    return future


def rpc_async(to: Any, func: Any, args: Any = None, kwargs: Any = None, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
    """Calls a function on another worker; returns the future of its result."""
    return _call(to, func, args, kwargs, timeout)


def rpc_sync(to: Any, func: Any, args: Any = None, kwargs: Any = None, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
    """Calls a function on another worker and returns its result."""
    return _call(to, func, args, kwargs, timeout).wait()


def remote(to: Any, func: Any, args: Any = None, kwargs: Any = None, timeout: float = UNSET_RPC_TIMEOUT) -> RRef:
    """Calls a function on another worker, which owns the result; returns a reference at once."""
    if not callable(func):
        raise TypeError("[remote] function should be callable.")
    target, identity = agent().worker(to), _rref.next_identity()
    creation = _request(target, "remote", (identity, func, tuple(args or ()), dict(kwargs or {})), timeout)
    return RRef._of(identity, target, creation)


def _run(content: Any, rank: int) -> Any:
    from flambeau.distributed import autograd

    (func, args, kwargs), wrap = autograd.unpack(content, rank)
    result = func(*args, **kwargs)
    if getattr(getattr(func, "__func__", func), "_wrapped_async_rpc_function", False):
        if not isinstance(result, Future):
            raise RuntimeError(
                f"[rpc] Functions decorated with @rpc.async_function must return a Future object, got {result!r}"
            )
        return result if wrap is None else result.then(lambda done: wrap(done.value()))
    return result if wrap is None else wrap(result)


def _run_remote(content: Any, rank: int) -> Any:
    from flambeau.distributed import autograd

    (identity, func, args, kwargs), _ = autograd.unpack(content, rank)
    entry = _rref.entry(identity)
    try:
        result = func(*args, **kwargs)
        if getattr(getattr(func, "__func__", func), "_wrapped_async_rpc_function", False):
            result = result.wait()
    except BaseException as error:
        entry.future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        raise
    entry.future.set_result(result)
    return None


# ---------------------------------------------------------------------------------------------- meetings

_gatherings: dict[tuple[str, ...], int] = {}


def _all_gather(obj: Any, worker_names: Any = None, timeout: float = UNSET_RPC_TIMEOUT) -> dict[str, Any]:
    """What each worker contributes, by name, through the store that the workers met at."""
    import pickle

    own = agent()
    names = tuple(sorted(worker_names or (worker.name for worker in own.workers)))
    turn = _gatherings[names] = _gatherings.get(names, -1) + 1
    prefix = f"gather/{'/'.join(names)}/{turn}"
    own.store.set(f"{prefix}/{own.info.name}", pickle.dumps(obj))
    return {name: pickle.loads(own.store.get(f"{prefix}/{name}")) for name in names}


def _barrier(worker_names: Any) -> None:
    _all_gather(None, worker_names)


def _wait_all_workers(timeout: float = UNSET_RPC_TIMEOUT) -> None:
    _all_gather(None)


def _require_initialized(func: Any) -> Any:
    @functools.wraps(func)
    def checked(*args: Any, **kwargs: Any) -> Any:
        agent()
        return func(*args, **kwargs)

    return checked
