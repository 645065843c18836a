"""CUDA graphs: work recorded once and run again with one launch, on the same memory.

What is allocated while a graph is recorded comes from a pool of its own, so that nothing else uses that memory between
two replays. Graphs that never run at the same time may share a pool.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.cuda import _library, streams

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]

_pools = itertools.count(1)
_users: dict[int, int] = {}  # graphs by pool
_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}


def is_current_stream_capturing() -> bool:
    if not _library.available():
        return False
    device = _library.index_of(None)
    return bool(_library.call("stream_capturing", _library.call("current_stream", device)))


def graph_pool_handle() -> tuple[int, int]:
    """A name for a pool of memory that several graphs share."""
    if not _library.available():
        raise _library.missing()
    return (0, next(_pools))


class CUDAGraph:
    """Recorded work. `capture_begin` and `capture_end` enclose it, `replay` runs it again."""

    def __new__(cls, keep_graph: bool = False) -> CUDAGraph:
        if not _library.available():
            raise _library.missing()
        return object.__new__(cls)

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph = self._executable = 0
        self._pool: int | None = None
        self._device = _library.index_of(None)
        self._capturing = 0

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if self._executable or self._capturing:
            raise RuntimeError("[CUDAGraph.capture_begin] expected a new graph, got one that was captured already")
        self._device = _library.index_of(None)
        stream = _library.call("current_stream", self._device) or 0
        if not stream:
            raise RuntimeError(
                "[CUDAGraph.capture_begin] expected a stream other than the default one, which cannot be captured"
            )
        number = next(_pools) if pool is None else int(pool[1])
        _library.call("graph_begin", self._device, stream, number, _MODES[capture_error_mode])
        self._pool, self._capturing = number, stream
        _users[number] = _users.get(number, 0) + 1

    def capture_end(self) -> None:
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        stream, self._capturing = self._capturing, 0
        _library.call("graph_end", self._device, stream, ctypes.byref(graph), ctypes.byref(executable))
        self._graph, self._executable = graph.value or 0, executable.value or 0

    def instantiate(self) -> None:
        """Graphs are ready to run when their capture ends."""

    def replay(self) -> None:
        if not self._executable:
            raise RuntimeError("[CUDAGraph.replay] expected a captured graph, got one without work")
        _library.call("graph_launch", self._executable, _library.call("current_stream", self._device))

    def pool(self) -> tuple[int, int]:
        return (0, self._pool or 0)

    def reset(self) -> None:
        """Let go of the work and, when no other graph shares it, of the memory."""
        if self._graph or self._executable:
            _library.call("graph_destroy", self._device, self._graph, self._executable)
            self._graph = self._executable = 0
        if self._pool is not None:
            _users[self._pool] -= 1
            if not _users[self._pool]:
                _library.call("release_pool", self._device, self._pool)
            self._pool = None

    def enable_debug_mode(self) -> None: ...

    def __del__(self) -> None:
        if _library is not None and self.__dict__:
            self.reset()


class graph:
    """A `with` block that records a graph on a stream of its own."""

    default_capture_stream: Any = None

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
    ) -> None:
        if graph.default_capture_stream is None:
            graph.default_capture_stream = streams.Stream()
        self.cuda_graph, self.pool, self.mode = cuda_graph, pool, capture_error_mode
        self.capture_stream = stream if stream is not None else graph.default_capture_stream
        self.context = streams.StreamContext(self.capture_stream)

    def __enter__(self) -> None:
        _library.call("synchronize", _library.index_of(None))
        gc.collect()
        _library.call("empty_cache")
        self.context.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.mode)
        except BaseException:
            self.context.__exit__(None, None, None)
            raise

    def __exit__(self, *error: object) -> None:
        try:
            self.cuda_graph.capture_end()
        finally:
            self.context.__exit__(*error)


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """Functions whose forward and backward are graphs; inputs must keep the shapes of the samples."""
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    graphed = tuple(_graphed(f, tuple(a), num_warmup_iters, pool) for f, a in zip(functions, samples))
    return graphed[0] if single else graphed


def _graphed(function: Callable[..., Any], samples: tuple[Any, ...], warmup: int, pool: Any) -> Callable[..., Any]:
    parameters = tuple(function.parameters()) if isinstance(function, flambeau.nn.Module) else ()
    inputs = (*samples, *parameters)
    wanted = [t for t in inputs if t.requires_grad]
    side = streams.Stream()
    side.wait_stream(streams.current_stream())
    with streams.stream(side):
        for _ in range(warmup):
            outputs = function(*samples)
            listed = (outputs,) if isinstance(outputs, flambeau.Tensor) else tuple(outputs)
            roots = [o for o in listed if o.requires_grad]
            if roots and wanted:
                flambeau.autograd.grad(roots, wanted, [flambeau.empty_like(o) for o in roots], allow_unused=True)
    streams.current_stream().wait_stream(side)

    forward, backward = CUDAGraph(), CUDAGraph()
    with graph(forward, pool=pool):
        outputs = function(*samples)
    single = isinstance(outputs, flambeau.Tensor)
    results = (outputs,) if single else tuple(outputs)
    roots = [o for o in results if o.requires_grad]
    incoming = [flambeau.empty_like(o) for o in roots]
    gradients: Any = ()
    if roots and wanted:
        with graph(backward, pool=forward.pool()):
            gradients = flambeau.autograd.grad(roots, wanted, incoming, allow_unused=True)
    static = [o.detach() for o in results]
    places = iter(gradients)
    by_input = [next(places) if t.requires_grad else None for t in inputs] if gradients else [None] * len(inputs)

    class Graphed(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            for place, value in zip(samples, inputs):
                if place.data_ptr() != value.data_ptr():
                    place.data.copy_(value)
            forward.replay()
            return tuple(o.detach() for o in static)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            arrived = [g for g, o in zip(grads, results) if o.requires_grad]
            for place, value in zip(incoming, arrived):
                if value is not None:
                    place.copy_(value)
            backward.replay()
            return tuple(g.detach() if g is not None else None for g in by_input)

    def run(*inputs: Any) -> Any:
        outputs = Graphed.apply(*inputs, *parameters)
        return outputs[0] if single else outputs

    if isinstance(function, flambeau.nn.Module):
        original = function.forward
        captured_in = function.training

        def choose(*inputs: Any, **kwargs: Any) -> Any:
            return run(*inputs) if function.training == captured_in and not kwargs else original(*inputs, **kwargs)

        function.forward = choose
        return function
    return run
