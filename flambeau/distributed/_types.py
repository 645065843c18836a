"""What process groups are described with: backends, reductions, options, and the handles of running operations."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable
from typing import Any, ClassVar

import flambeau
from flambeau import _distributed as native
from flambeau.distributed._stores import milliseconds

__all__ = [
    "AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "Backend", "BackendConfig",
    "BarrierOptions", "BroadcastOptions", "DebugLevel", "GatherOptions", "ReduceOp", "ReduceOptions",
    "ReduceScatterOptions", "ScatterOptions", "Work", "get_debug_level", "set_debug_level", "set_debug_level_from_env",
]  # fmt: skip


class Backend(str):
    """The name of the library behind a group."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    FAKE = "fake"
    backend_list: ClassVar[list[str]] = ["undefined", "gloo", "nccl", "xccl", "ucc", "mpi", "fake"]
    default_device_backend_map: ClassVar[dict[str, str]] = {
        "cpu": "gloo",
        "cuda": "nccl",
        "xpu": "xccl",
        "mps": "gloo",
    }
    backend_capability: ClassVar[dict[str, list[str]]] = {
        "gloo": ["cpu", "cuda"],
        "nccl": ["cuda"],
        "xccl": ["xpu"],
        "ucc": ["cpu", "cuda"],
        "mpi": ["cpu", "cuda"],
    }
    backend_type_map: ClassVar[dict[str, Any]] = {}
    _plugins: ClassVar[dict[str, Any]] = {}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"[Backend] expected a name, got {name!r}")
        return super().__new__(cls, getattr(Backend, name.upper(), name.lower()))

    @classmethod
    def register_backend(
        cls, name: str, func: Any, extended_api: bool = False, devices: str | list[str] | None = None
    ) -> None:
        """Groups of this name are made by `func(store, rank, size, timeout)`."""
        lowered = name.lower()
        if lowered in cls._plugins:
            raise AssertionError(f"[Backend] expected a backend that is not registered, got {name!r}")
        setattr(cls, name.upper(), lowered)
        if lowered not in cls.backend_list:
            cls.backend_list.append(lowered)
        kinds = [devices] if isinstance(devices, str) else list(devices or ("cpu",))
        cls.backend_capability[lowered] = kinds
        for kind in kinds:
            cls.default_device_backend_map.setdefault(kind, lowered)
        cls._plugins[lowered] = (func, extended_api)


class BackendConfig:
    """Which backend serves which kind of device: "gloo", "cpu:gloo,cuda:nccl"."""

    def __init__(self, backend: str | None) -> None:
        text = "undefined" if backend is None else str(backend).lower()
        self.device_backend_map: dict[str, Backend] = {}
        if text == "undefined":
            self.device_backend_map = {"cpu": Backend("gloo")}
            if flambeau.cuda.is_available():
                from flambeau.distributed import _nccl

                self.device_backend_map["cuda"] = Backend("nccl" if _nccl.is_available() else "gloo")
        elif ":" in text:
            for pair in text.split(","):
                device, _, name = pair.partition(":")
                if not name or device in self.device_backend_map:
                    raise ValueError(f"[Backend] expected device:backend,device:backend, got {backend!r}")
                self._known(name)
                self.device_backend_map[device] = Backend(name)
        else:
            self._known(text)
            for device in Backend.backend_capability.get(text, ["cpu"]):
                self.device_backend_map[device] = Backend(text)

    @staticmethod
    def _known(name: str) -> None:
        if name not in Backend.backend_list:
            raise AssertionError(f"[Backend] expected one of {Backend.backend_list}, got Unknown backend type {name}")

    def get_device_backend_map(self) -> dict[str, Backend]:
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())


class _RedOpType(enum.IntEnum):
    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8

    def __repr__(self) -> str:
        return f"<RedOpType.{self.name}: {int(self)}>"

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"


class ReduceOp:
    """How the tensors of several processes become one."""

    RedOpType = _RedOpType
    SUM, AVG, PRODUCT, MIN, MAX = _RedOpType.SUM, _RedOpType.AVG, _RedOpType.PRODUCT, _RedOpType.MIN, _RedOpType.MAX
    BAND, BOR, BXOR, PREMUL_SUM = _RedOpType.BAND, _RedOpType.BOR, _RedOpType.BXOR, _RedOpType.PREMUL_SUM

    def __init__(self, op: Any = _RedOpType.SUM, factor: Any = None) -> None:
        self.op = op.op if isinstance(op, ReduceOp) else _RedOpType(op)  # type: ignore[has-type]
        self.factor = op.factor if isinstance(op, ReduceOp) and factor is None else factor  # type: ignore[has-type]

    def __eq__(self, other: object) -> bool:
        return self.op == (other.op if isinstance(other, ReduceOp) else other)

    def __hash__(self) -> int:
        return hash(self.op)

    def __int__(self) -> int:
        return int(self.op)

    def __repr__(self) -> str:
        return f"<ReduceOp.{self.op.name}>" if self.factor is None else f"<ReduceOp.{self.op.name} {self.factor}>"


_RedOpType.__qualname__ = "ReduceOp.RedOpType"


def _make_nccl_premul_sum(factor: Any) -> ReduceOp:
    """Sums of what each process contributes times its factor."""
    return ReduceOp(_RedOpType.PREMUL_SUM, factor)


class _ReduceOpAlias(type):
    def __getattribute__(cls, name: str) -> Any:
        return getattr(ReduceOp, name) if name in _RedOpType.__members__ else super().__getattribute__(name)


class reduce_op(metaclass=_ReduceOpAlias):
    """An older name of `ReduceOp`."""


class _Options:
    """Arguments of a collective, for the methods of `ProcessGroup`."""

    def __init__(self) -> None:
        self.reduceOp: Any = ReduceOp.SUM
        self.rootRank = 0
        self.rootTensor = 0
        self.timeout: Any = None
        self.asyncOp = True
        self.device_ids: Any = None
        self.device: Any = None
        self.sparseIndices: Any = None


AllreduceOptions = type("AllreduceOptions", (_Options,), {})
AllreduceCoalescedOptions = type("AllreduceCoalescedOptions", (_Options,), {})
AllgatherOptions = type("AllgatherOptions", (_Options,), {})
AllToAllOptions = type("AllToAllOptions", (_Options,), {})
BarrierOptions = type("BarrierOptions", (_Options,), {})
BroadcastOptions = type("BroadcastOptions", (_Options,), {})
GatherOptions = type("GatherOptions", (_Options,), {})
ReduceOptions = type("ReduceOptions", (_Options,), {})
ReduceScatterOptions = type("ReduceScatterOptions", (_Options,), {})
ScatterOptions = type("ScatterOptions", (_Options,), {})


class Work:
    """A collective or message under way. `native_work` is None when it is done already."""

    def __init__(self, native_work: Any = None, result: Any = None, source: Callable[[int], int] | None = None) -> None:
        self._native, self._result, self._global = native_work, result, source
        self._error: BaseException | None = None
        self._group: Any = None  # where its failure is recorded

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Returns True when it is through; raises its error."""
        if self._native is not None:
            limit = -1 if timeout is None or timeout <= datetime.timedelta(0) else milliseconds(timeout)
            try:
                self._native.wait(limit)
            except DistBackendError as error:
                if self._group is not None and self._native.done():
                    self._group.record_failure(error)
                raise
        return True

    def is_completed(self) -> bool:
        return self._native is None or self._native.done()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        return None if self._native is None else self._native.error()

    def result(self) -> Any:
        return self._result

    def source_rank(self) -> int:
        rank = -1 if self._native is None else self._native.source()
        return self._global(rank) if self._global is not None and rank >= 0 else rank

    _source_rank = source_rank

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def get_future(self) -> Any:
        """A future of the results, for callbacks."""
        from flambeau.futures import Future

        future: Any = Future()

        def finished() -> None:
            error = self.exception()
            if error is None:
                future.set_result(self._result)
            else:
                future.set_exception(error)

        if self._native is None:
            finished()
        else:
            self._native.then(finished)
        return future

    get_future_result = get_future

    def boxed(self) -> Any:
        return self

    @staticmethod
    def unbox(work: Any) -> Any:
        return work


class Works(Work):
    """Several handles as one."""

    def __init__(self, works: list[Any], result: Any = None, finish: Callable[[], None] | None = None) -> None:
        super().__init__(None, result)
        self._works, self._finish = [work for work in works if work is not None], finish

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        for work in self._works:
            work.wait(timeout) if timeout is not None else work.wait()
        if self._finish is not None:
            finish, self._finish = self._finish, None
            finish()
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def exception(self) -> BaseException | None:
        return next((work.exception() for work in self._works if work.exception() is not None), None)

    def get_future(self) -> Any:
        from flambeau.futures import Future, collect_all

        future: Any = Future()

        def finished(_: Any) -> None:
            try:
                self.wait()
                future.set_result(self._result)
            except Exception as error:
                future.set_exception(error)

        if self._works:
            collect_all([work.get_future() for work in self._works]).add_done_callback(finished)
        else:
            finished(None)
        return future


class DebugLevel(enum.Enum):
    """How much is checked and told: `TORCH_DISTRIBUTED_DEBUG`."""

    OFF = 0
    INFO = 1
    DETAIL = 2


_debug_level = DebugLevel.OFF


def get_debug_level() -> DebugLevel:
    return _debug_level


def set_debug_level(level: DebugLevel) -> None:
    global _debug_level
    _debug_level = level


def set_debug_level_from_env() -> None:
    import os

    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise RuntimeError(
            f"[distributed] The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, got {name!r}"
        )
    set_debug_level(DebugLevel[name])


set_debug_level_from_env()

DistError, DistBackendError = native.DistError, native.DistBackendError
DistStoreError, DistNetworkError = native.DistStoreError, native.DistNetworkError
QueueEmptyError = native.QueueEmptyError
