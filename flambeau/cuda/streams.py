"""Streams and events of CUDA devices."""

from __future__ import annotations

import ctypes
from typing import Any

import flambeau
from flambeau import accelerator
from flambeau.cuda import _library

__all__ = [
    "Stream",
    "ExternalStream",
    "Event",
    "StreamContext",
    "stream",
    "set_stream",
    "current_stream",
    "default_stream",
]


class Stream(accelerator.Stream):
    """A queue of work on a device: what is on one stream runs in order."""

    cuda_stream: int
    device_index: int

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        if not _library.available():
            raise _library.missing()
        self = object.__new__(cls)
        self.device_index = kwargs.get("device_index")  # type: ignore[assignment]
        if self.device_index is None:
            self.device_index = _library.index_of(device)
        handle = kwargs.get("stream_ptr", kwargs.get("stream_id"))
        self.cuda_stream = (
            _library.made("stream_create", self.device_index, priority) if handle is None else int(handle)
        )
        self.priority = priority
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    @property
    def device(self) -> Any:
        return flambeau.device("cuda", self.device_index)

    @property
    def stream_id(self) -> int:
        return self.cuda_stream

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.cuda_stream)

    def query(self) -> bool:
        return _library.asked("stream_query", self.cuda_stream)

    def synchronize(self) -> None:
        _library.call("stream_synchronize", self.cuda_stream)

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.cuda_stream, self.device_index) == (
            other.cuda_stream,
            other.device_index,
        )

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> Stream:
        self._entered = StreamContext(self)
        self._entered.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.__exit__(*error)


class ExternalStream(Stream):
    """A stream made elsewhere, by its handle."""

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> ExternalStream:
        return super().__new__(cls, device, stream_ptr=stream_ptr)  # type: ignore[return-value]


class Event(accelerator.Event):
    """A mark in a stream, to wait for or to measure time with."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        if not _library.available():
            raise _library.missing()
        self = object.__new__(cls)
        self.cuda_event = _library.made("event_create", enable_timing, blocking, interprocess)
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def record(self, stream: Stream | None = None) -> None:
        stream = current_stream() if stream is None else stream
        _library.call("event_record", self.cuda_event, stream.cuda_stream)

    def wait(self, stream: Stream | None = None) -> None:
        stream = current_stream() if stream is None else stream
        _library.call("event_wait", stream.cuda_stream, self.cuda_event)

    def query(self) -> bool:
        return _library.asked("event_query", self.cuda_event)

    def synchronize(self) -> None:
        _library.call("event_synchronize", self.cuda_event)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two events that were made with enable_timing."""
        milliseconds = ctypes.c_float()
        _library.call("event_elapsed", self.cuda_event, end_event.cuda_event, ctypes.byref(milliseconds))
        return milliseconds.value

    def __del__(self) -> None:
        event = self.__dict__.pop("cuda_event", None)
        if event and _library is not None:
            _library.call("event_destroy", event)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>"


def current_stream(device: Any = None) -> Stream:
    index = _library.index_of(device)
    return Stream(stream_ptr=_library.call("current_stream", index) or 0, device_index=index)


def default_stream(device: Any = None) -> Stream:
    return Stream(stream_ptr=0, device_index=_library.index_of(device))


def set_stream(stream: Stream | None) -> None:
    if stream is not None:
        _library.call("set_stream", stream.device_index, stream.cuda_stream)


class StreamContext:
    """A `with` block whose work goes to a stream, and whose device is the stream's; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self.device = _library.call("current_device")
        self.before = current_stream(self.stream.device_index)
        _library.call("set_device", self.stream.device_index)
        set_stream(self.stream)

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            set_stream(self.before)
            _library.call("set_device", self.device)


def stream(stream: Stream | None) -> StreamContext:
    """Work on a stream inside a `with` block; None means nothing to change."""
    if stream is not None and not _library.available():
        raise _library.missing()
    return StreamContext(stream)
