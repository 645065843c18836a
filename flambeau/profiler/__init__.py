"""Where a program spends its time: operators, backward included, and the ranges it names itself.

    with profile(activities=[ProfilerActivity.CPU]) as prof:
        with record_function("step"):
            model(x).sum().backward()
    print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")

Operators are seen by a dispatch mode, below autograd; recording costs a few microseconds for each.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable
from typing import Any

from flambeau.autograd.profiler import _active, record_function
from flambeau.profiler._events import EventList, FunctionEvent, FunctionEventAvg
from flambeau.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "EventList", "ExecutionTraceObserver", "FunctionEvent", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity",
    "kineto_available", "profile", "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(enum.Enum):
    """Which side is watched; only the CPU has anything to show."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """What is done in a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


def supported_activities() -> set[ProfilerActivity]:
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    return False


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """What to do in each step: wait, warm up, record; the last recorded step of a cycle hands over the results."""
    if active <= 0:
        raise AssertionError(f"[schedule] expected at least one active step, got {active}")

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        length = wait + warmup + active
        if skip_first_wait:
            step += wait
        if repeat and step // length >= repeat:
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


class _Watch(TorchDispatchMode):
    """Tells a profiler of every operator."""

    def __init__(self, profiler: profile) -> None:
        self.profiler = profiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.perf_counter_ns()
        result = func(*args, **(kwargs or {}))
        end = time.perf_counter_ns()
        shapes = [list(a.shape) if hasattr(a, "shape") else [] for a in args] if self.profiler.record_shapes else None
        self.profiler._record(f"aten::{func._opname}", start, end, "cpu_op", shapes)
        return result


class profile:
    """Records inside a `with` block, or between `start` and `stop`; `step` moves along a schedule."""

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        **options: Any,
    ) -> None:
        self.activities = set(activities) if activities is not None else supported_activities()
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready, self.record_shapes = on_trace_ready, record_shapes
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._events: list[FunctionEvent] = []
        self._watch: _Watch | None = None
        self._metadata: dict[str, str] = {}

    def _record(self, name: str, start: int, end: int, kind: str, shapes: Any = None) -> None:
        self._events.append(FunctionEvent(name, start, end, kind, shapes))

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        self._act()

    def stop(self) -> None:
        recorded = self._watch is not None
        self._pause()
        if recorded and self.on_trace_ready:
            self.on_trace_ready(self)

    def step(self) -> None:
        """The end of a step of the program."""
        finished = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if finished is ProfilerAction.RECORD_AND_SAVE:
            self._pause()
            if self.on_trace_ready:
                self.on_trace_ready(self)
            self._events = self._events if self.current_action is ProfilerAction.NONE else []
        self._act()

    def _act(self) -> None:
        recording = self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if recording and self._watch is None:
            self._watch = _Watch(self)
            self._watch.__enter__()
            _active.append(self)
        elif not recording:
            self._pause()

    def _pause(self) -> None:
        if self._watch is not None:
            self._watch.__exit__(None, None, None)
            self._watch = None
            _active.remove(self)

    def events(self) -> EventList:
        return EventList(self._events)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, **options: Any) -> EventList:
        return self.events().key_averages(group_by_input_shape)

    def export_chrome_trace(self, path: str) -> None:
        self.events().export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        raise NotImplementedError("[profile.export_stacks] expected recorded stacks, which is not written yet")

    def add_metadata(self, key: str, value: str) -> None:
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        self._metadata[key] = value

    def preset_metadata_json(self, key: str, value: str) -> None:
        self._metadata[key] = value


class _LegacyProfile(profile):
    """`autograd.profiler.profile`: the same by its older arguments."""

    def __init__(self, enabled: bool = True, *, use_cpu: bool = True, **options: Any) -> None:
        super().__init__(**{k: v for k, v in options.items() if k in ("record_shapes", "profile_memory", "with_stack")})
        self.enabled = enabled
        if not enabled:
            self.current_action = ProfilerAction.NONE

    def table(self, **options: Any) -> str:
        return self.events().table(**options)

    @property
    def function_events(self) -> EventList:
        return self.events()

    @property
    def self_cpu_time_total(self) -> float:
        return self.events().self_cpu_time_total

    def total_average(self) -> Any:
        return self.events().total_average()


class ExecutionTraceObserver:
    """Would write the graph of operators; accepted, and writes nothing."""

    def register_callback(self, output_file_path: str) -> ExecutionTraceObserver:
        return self

    def unregister_callback(self) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def cleanup(self) -> None: ...


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Any:
    """A function for on_trace_ready that writes a trace file into a folder."""
    import os
    import socket

    def write(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        end = ".gz" if use_gzip else ""
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json{end}"))

    return write
