"""Where a program spends its time: operators, backward included, and the ranges it names itself.

    with profile(activities=[ProfilerActivity.CPU]) as prof:
        with record_function("step"):
            model(x).sum().backward()
    print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")

On a GPU of NVIDIA, kernels, copies and fills are recorded with the operators that started them, as CUPTI tells; the table
has columns for them and the trace file a process for each device.

The dispatcher records operators, also those that others are made of and those of backward; recording one costs less
than a microsecond, and not recording nothing.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from flambeau import _C
from flambeau.autograd.profiler import _active, record_function
from flambeau.profiler._device import device_events, start_device, stop_device
from flambeau.profiler._events import EventList, FunctionEvent, FunctionEventAvg, nest

__all__ = [
    "EventList", "ExecutionTraceObserver", "FunctionEvent", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity",
    "kineto_available", "profile", "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(enum.Enum):
    """Which side is watched: the CPU, and GPUs of NVIDIA."""

    CPU, XPU, MTIA, CUDA, HPU, PrivateUse1 = range(6)


class ProfilerAction(enum.Enum):
    """What is done in a step."""

    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


def supported_activities() -> set[ProfilerActivity]:
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA} if _C._accelerator()[0] > 0 else {ProfilerActivity.CPU}


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
        custom_trace_id_callback: Any = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self.activities = set(activities) if activities is not None else supported_activities()
        if not self.activities:
            raise AssertionError("[profile] expected at least one activity, got none")
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self._has_schedule = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._done: list[FunctionEvent] = []  # of recordings that have ended
        self._ranges: list[FunctionEvent] = []  # named ranges of the one that runs
        self._recording = False
        self._records_device = False
        self._step_start = 0
        self._metadata: dict[str, Any] = {}

    def _record(self, name: str, start: int, end: int, kind: str) -> None:
        """A range that the program names itself."""
        self._ranges.append(FunctionEvent(name, start, end, kind, thread=threading.get_native_id(), sequence=-1))

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        self._act()

    def stop(self) -> None:
        recorded = self._recording
        self._pause()
        if recorded and self.on_trace_ready:
            self.on_trace_ready(self)

    def step(self) -> None:
        """The end of a step of the program."""
        finished = self.current_action
        if self._recording and self._has_schedule:
            self._record(f"ProfilerStep#{self.step_num}", self._step_start, time.perf_counter_ns(), "user_annotation")
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if finished is ProfilerAction.RECORD_AND_SAVE:
            self._pause()
            if self.on_trace_ready:
                self.on_trace_ready(self)
        self._act()

    def _act(self) -> None:
        wanted = self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if wanted and not self._recording:
            if _active:
                raise RuntimeError("[profile] expected one profiler at a time, got one inside another")
            if not self.acc_events:
                self._done = []
            self._ranges = []
            self._recording = True
            _active.append(self)
            self._records_device = ProfilerActivity.CUDA in self.activities and start_device()
            _C._profiler_start(self.record_shapes, self.profile_memory, self.with_stack)
        elif not wanted:
            self._pause()
        self._step_start = time.perf_counter_ns()

    def _pause(self) -> None:
        if not self._recording:
            return
        raw = _C._profiler_stop()
        on_device = stop_device() if self._records_device else ""
        self._recording = self._records_device = False
        _active.remove(self)
        events = self._ranges
        for name, start, end, thread, memory, depth, sequence, shapes, stack in raw:
            is_named = depth < 0 or name.startswith("autograd::")
            sizes = [_parsed(shape) for shape in shapes] if self.record_shapes else None
            event = FunctionEvent(
                name if is_named else f"aten::{name}", start, end, "cpu_op", sizes, thread, memory,
                stack.split("\n") if stack else (), sequence,
            )  # fmt: skip
            event.is_async = depth < 0
            events.append(event)
        events = nest(events)
        self._done = [*self._done, *events, *device_events(on_device, events)]
        self._ranges = []

    def events(self) -> EventList:
        return EventList(self._done, self.profile_memory, self.with_stack)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: Any) -> None:
        self.events().export_chrome_trace(path, self._metadata)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        if not self.with_stack:
            raise RuntimeError("[export_stacks] expected a profile with with_stack=True, got one without")
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        import json

        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        raise NotImplementedError("[profile] expected a profile that is stopped and started, got a toggle")


def _parsed(shape: str) -> Any:
    """Sizes as lists; nothing for arguments that are not tensors."""
    import json

    return json.loads(shape) if shape else []


class _LegacyProfile(profile):
    """`autograd.profiler.profile`: the same by its older arguments."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Any = None,
    ) -> None:
        super().__init__(
            record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, acc_events=acc_events
        )
        self.enabled = enabled
        if not enabled:
            self.current_action = ProfilerAction.NONE

    def __str__(self) -> str:
        return "<unfinished profile>" if self._recording else self.key_averages().table()

    def table(self, *args: Any, **options: Any) -> str:
        return self.events().table(*args, **options)

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
