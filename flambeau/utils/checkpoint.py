"""Checkpointing: what a part of the model saves for backward is computed again instead of being kept.

Two ways. Reentrant: the part runs without recording and backward runs it again, with a backward of its own inside.
Non-reentrant: the part is recorded, but its saved tensors are dropped; the first that backward asks for runs the part
again and collects them all.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import flambeau as fl
from flambeau._C import Tensor
from flambeau.autograd import Function
from flambeau.autograd.graph import saved_tensors_hooks
from flambeau.utils._pytree import tree_leaves
from flambeau.utils._selective import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "checkpoint", "checkpoint_sequential", "CheckpointFunction", "check_backward_validity", "detach_variable",
    "CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts",
    "set_checkpoint_early_stop", "set_checkpoint_debug_enabled", "noop_context_fn", "get_device_states",
    "set_device_states",
]  # fmt: skip

_EARLY_STOP: bool | None = None  # what `set_checkpoint_early_stop` asks for, over the argument of checkpoint()
_DEBUG: bool | None = None  # the same for `set_checkpoint_debug_enabled`


class CheckpointError(RuntimeError):
    """The part computed something else the second time."""


_ASK_FOR_REENTRANT = "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. use_reentrant=False is recommended."


class _Done(Exception):
    """Everything that was saved the first time is there again."""


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool | None) -> Iterator[None]:
    """Whether running a part again stops once all its saved tensors are there."""
    global _EARLY_STOP
    outer, _EARLY_STOP = _EARLY_STOP, enable
    try:
        yield
    finally:
        _EARLY_STOP = outer


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Whether the operators of both runs are recorded, to be shown when they differ."""
    global _DEBUG
    outer, _DEBUG = _DEBUG, enabled
    try:
        yield
    finally:
        _DEBUG = outer


def noop_context_fn() -> tuple[Any, Any]:
    return contextlib.nullcontext(), contextlib.nullcontext()


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Indices of the accelerators that arguments lie on, and the states of their random generators."""
    devices = sorted(
        {x.device for x in tree_leaves(args) if isinstance(x, Tensor) and x.device.type == "cuda"}, key=str
    )
    return [d.index for d in devices], [fl.cuda.get_rng_state(d) for d in devices]  # type: ignore[misc]


def set_device_states(devices: list[int], states: list[Tensor], *, device_type: str | None = None) -> None:
    """Put the states that `get_device_states` returned back."""
    for index, state in zip(devices, states):
        fl.cuda.set_rng_state(state, fl.device("cuda", index))


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inputs without history that require grad as they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"[checkpoint] expected a tuple of Tensors, got {type(inputs).__name__}")
    detached = []
    for x in inputs:
        if isinstance(x, Tensor):
            fresh = x.detach()
            fresh.requires_grad = x.requires_grad
            detached.append(fresh)
        else:
            detached.append(x)
    return tuple(detached)


def check_backward_validity(inputs: Any) -> None:
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3)


class _State:
    """The random numbers and the mixed precision with which a part ran, to run it the same again."""

    def __init__(self, preserve_rng_state: bool) -> None:
        self.rng = fl.random.states() if preserve_rng_state else None
        self.precision = _precision()
        self.cache_enabled = fl.is_autocast_cache_enabled()

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            now = _precision()
            for device_type, (enabled, dtype) in self.precision.items():
                if now[device_type] != (enabled, dtype):
                    stack.enter_context(fl.autocast(device_type, dtype, enabled, self.cache_enabled))
            if self.rng is not None:
                stack.enter_context(fl.random.fork_rng(devices=[]))
                fl.random.set_states(self.rng)
            yield


def _precision() -> dict[str, tuple[bool, fl.dtype]]:
    """Whether autocast is on, and its dtype, by device type."""
    return {d: (fl.is_autocast_enabled(d), fl.get_autocast_dtype(d)) for d in ("cpu", "cuda")}


class CheckpointFunction(Function):
    """The reentrant way."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.state = _State(preserve_rng_state)
        ctx.inputs = [None if isinstance(a, Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(a for a in args if isinstance(a, Tensor)))
        with fl.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if not fl._C._in_backward():
            raise RuntimeError("[checkpoint] expected to run inside backward")
        if fl._C._backward_is_partial():
            raise RuntimeError(
                "[checkpoint] expected backward() without inputs, got grad() or inputs=: When use_reentrant=True, torch.utils.checkpoint is "
                "incompatible with .grad() or passing an `inputs` parameter to .backward(). Pass use_reentrant=False."
            )
        inputs = list(ctx.inputs)
        for i, x in zip(ctx.places, ctx.saved_tensors):
            inputs[i] = x
        with ctx.state.again():
            fresh = detach_variable(tuple(inputs))
            with fl.enable_grad():
                outputs = ctx.run_function(*fresh)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        pairs = [(o, g) for o, g in zip(outputs, grads) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError(
                "[checkpoint] expected an output that requires grad: none of output has "
                "requires_grad=True, this checkpoint() is not necessary"
            )
        fl.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(x.grad if isinstance(x, Tensor) else None for x in fresh))


class _Place:
    """Stands for a saved tensor until the part runs again."""

    __slots__ = ("__weakref__",)


_Recomputed: TypeAlias = "weakref.WeakKeyDictionary[_Place, Tensor]"  # nodes let go of places when they have run


class _Frame:
    """One checkpointed call: what the tensors that it saved looked like, and those that were computed again, by the
    backward that needs them."""

    def __init__(self, run: Callable[[], Any], determinism_check: Any, early_stop: bool) -> None:
        self.run, self.early_stop = run, early_stop
        self.describe = _METADATA[determinism_check]
        self.metadata: list[Any] = []
        self.places: list[Any] = []  # weak: a graph that is gone needs nothing
        self.recomputed: dict[int, _Recomputed] = {}
        self.operators: _Operators | None = None
        self.complete = False  # False: the part itself runs a backward, and has saved but a part of it

    def pack(self, tensor: Tensor) -> _Place:
        place = _Place()
        self.metadata.append(self.describe(tensor))
        self.places.append(weakref.ref(place))
        return place

    def unpack(self, place: _Place) -> Tensor:
        run = fl._C._current_graph_task_id()
        tensors = self.recomputed.get(run)
        if tensors is None:
            tensors = weakref.WeakKeyDictionary()
            self.recompute(tensors)
            if run >= 0:
                self.recomputed[run] = tensors
                fl._C._queue_callback(lambda: self.recomputed.pop(run, None))
        return tensors[place]

    def recompute(self, tensors: _Recomputed) -> None:
        count = 0
        now: list[Any] = []

        def collect(tensor: Tensor) -> Tensor:
            nonlocal count
            number, count = count, count + 1
            if number >= len(self.metadata):
                if self.early_stop or not self.complete:
                    return tensor.detach()
                raise CheckpointError(
                    f"[checkpoint] expected {len(self.metadata)} saved tensors, got one more: trying to save more tensors during "
                    "recomputation than during the original forward pass."
                )
            tensor = tensor.detach() if tensor.requires_grad else tensor
            now.append(self.describe(tensor))
            place = self.places[number]()
            if place is not None:
                tensors[place] = tensor
            if self.early_stop and count == len(self.metadata):
                raise _Done
            return tensor.detach()

        def refuse(tensor: Tensor) -> Tensor:
            return tensor

        with contextlib.suppress(_Done), fl.enable_grad(), saved_tensors_hooks(collect, refuse):
            self.run()
        if count < len(self.metadata) and self.complete:
            raise CheckpointError(
                f"[checkpoint] expected {len(self.metadata)} saved tensors, got {count}: A different number of tensors "
                "was saved during the original forward and recomputation."
            )
        self.compare(now)

    def compare(self, now: list[Any]) -> None:
        differing = [i for i, (before, after) in enumerate(zip(self.metadata, now)) if before != after]
        if not differing:
            return
        lines = "".join(f"\n  tensor {i}: saved {self.metadata[i]}, recomputed {now[i]}" for i in differing)
        message = (
            "[checkpoint] expected the part to compute the same again, got other tensors: Recomputed values for the following tensors "
            f"have different metadata than during the forward pass.{lines}"
        )
        if self.operators is None:
            raise CheckpointError(message + "\nset_checkpoint_debug_enabled(True) shows the operators of both runs.")
        first, again = self.operators.runs
        raise CheckpointError(
            f"{message}\nThe operators of the forward pass:\n{first}\nand those of the recomputation:\n{again}\n(You are seeing this "
            "error because you passed `debug=True` to checkpoint or used set_checkpoint_debug_enabled(True).)"
        )


_METADATA: dict[str, Callable[[Tensor], Any]] = {
    "default": lambda tensor: {"shape": tuple(tensor.shape), "dtype": tensor.dtype, "device": tensor.device},
    "none": lambda tensor: None,
}


class _Operators:
    """The operators of the two runs, for messages."""

    def __init__(self) -> None:
        self.runs = ["", ""]

    @contextlib.contextmanager
    def record(self, run: int) -> Iterator[None]:
        from flambeau.utils._python_dispatch import TorchDispatchMode

        lines: list[str] = []

        class Recorder(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                shown = (list(x.shape) if isinstance(x, Tensor) else x for x in tree_leaves((args, kwargs or {})))
                lines.append(f"  {func}({', '.join(map(str, shown))})")
                return func(*args, **kwargs or {})

        try:
            with Recorder():
                yield
        finally:
            self.runs[run] = "\n".join(lines)


def _checkpoint_without_reentrant(
    function: Callable[..., Any],
    preserve_rng_state: bool,
    context_fn: Callable[[], Any],
    determinism_check: str,
    debug: bool,
    early_stop: bool,
    args: Any,
    kwargs: Any,
) -> Any:
    if not fl.is_grad_enabled():
        return function(*args, **kwargs)
    if determinism_check not in _METADATA:
        raise ValueError(
            f"[checkpoint] expected determinism_check to be one of {list(_METADATA)}, got {determinism_check!r}"
        )
    first, second = context_fn()
    state = _State(preserve_rng_state)
    operators = _Operators() if debug else None

    def run() -> None:
        with state.again(), second, operators.record(1) if operators else contextlib.nullcontext():
            function(*args, **kwargs)

    frame = _Frame(run, determinism_check, early_stop)
    frame.operators = operators
    recorded = operators.record(0) if operators else contextlib.nullcontext()
    with saved_tensors_hooks(frame.pack, frame.unpack), first, recorded:
        result = function(*args, **kwargs)
    frame.complete = True
    return result


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Any] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Calls function(*args, **kwargs); what its backward needs is computed again when backward comes to it."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant is None:
        warnings.warn(_ASK_FOR_REENTRANT, stacklevel=2)
        use_reentrant = True
    if use_reentrant:
        if kwargs:
            raise ValueError(
                "[checkpoint] expected no keyword arguments with use_reentrant=True: Unexpected keyword "
                "arguments: " + ",".join(kwargs)
            )
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    stop = early_stop if _EARLY_STOP is None else _EARLY_STOP
    debug = debug if _DEBUG is None else _DEBUG
    return _checkpoint_without_reentrant(function, preserve, context_fn, determinism_check, debug, stop, args, kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Runs a sequence of functions in checkpointed segments, all but the last."""
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(
            "[checkpoint_sequential] expected no other keyword arguments: Unexpected keyword arguments: "
            + ",".join(kwargs)
        )
    if use_reentrant is None:
        warnings.warn(_ASK_FOR_REENTRANT, stacklevel=2)
        use_reentrant = True
    listed = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def part(start: int, end: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for fn in listed[start:end]:
                x = fn(x)
            return x

        return run

    size = len(listed) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(part(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return part(end, len(listed))(input)
