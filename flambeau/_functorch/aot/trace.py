"""Recording a function: every operator call of one run on meta tensors, below autograd, in order.

Nothing is computed, so a run takes some microseconds a call; it shows exactly what eager mode would execute for inputs of
these sizes, derivatives included, because it is eager mode that runs. A function is therefore recorded anew for each
geometry of its inputs, and what is generated from the records is shared between them.

In:  a callable over a flat list of tensors, example inputs, the operators to replace by their definitions.
Out: `Trace`: `Call`s on `Value`s. A value is a window (dtype, size, stride, offset) on a numbered storage; views are
     windows on the storage of their base, and no calls.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.ops.recording import DependsOnData, refused
from flambeau.ops.recording import state as recording
from flambeau.utils._python_dispatch import OperatorRecorder, is_traceable_wrapper_subclass, transform_subclass

__all__ = ["RecordedCall", "Failed", "Trace", "Unsupported", "RecordedValue", "device_of", "trace_joint"]


class Unsupported(DependsOnData):
    """The function does something that compiled graphs cannot express; it runs in eager mode instead."""


class Failed(Unsupported):
    """The run on tensors without data raised. Eager mode raises it too, or can do what they cannot."""


class RecordedValue:
    """A tensor of the record: a window on a storage."""

    __slots__ = ("dtype", "index", "offset", "requires_grad", "size", "storage", "stride", "tensor")

    def __init__(self, index: int, tensor: Any, storage: int) -> None:
        self.index = index
        self.tensor = tensor  # without data; kept, so that its identity stays its own
        self.storage = storage
        self.size = tuple(tensor.shape)
        self.stride = tuple(tensor.stride())
        self.offset = tensor.storage_offset()
        self.dtype = tensor.dtype

    def __repr__(self) -> str:
        return f"v{self.index}"


class RecordedCall:
    """One operator call. Tensors among the arguments are `Value`s, but for plain numbers (2.0 + x)."""

    __slots__ = ("args", "backward", "kwargs", "line", "op", "reads", "results", "writes")

    def __init__(
        self, op: Any, args: Any, kwargs: Any, results: list[RecordedValue | None], writes: list[RecordedValue]
    ) -> None:
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.results = results  # new tensors; those that are written are in `writes`
        self.writes = writes
        self.reads: list[RecordedValue] = list(values_in((*args, *kwargs.values())))
        self.backward = False
        self.line: str | None = None  # of the program, where somebody wants to know

    def __repr__(self) -> str:
        arguments = ", ".join([*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())])
        results = ", ".join(map(repr, self.results)) or "_"
        return f"{results} = {self.op}({arguments})"


class Trace:
    """A recorded run."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []
        self.values: dict[int, RecordedValue] = {}  # by identity of the meta tensor
        self.storages: dict[int, int] = {}  # by identity of the meta storage
        self.inputs: list[RecordedValue] = []
        self.outputs: list[Any] = []  # Value, or None
        self.constants: dict[int, tuple[RecordedValue, Any]] = {}  # tensors with data that the function refers to
        self.sources: list[int] = []  # places of the outputs that the backward starts from, in a joint trace
        self.families: list[int] = []  # of each source: the input it is a view of, or a number from there on
        self.tangents: list[RecordedValue] = []  # gradients of these
        self.gradients: list[RecordedValue | None] = []
        self.forward_calls = 0
        self.roots: dict[int, RecordedValue] = {}  # by storage: the value it was made as
        self.padded: set[int] = set()  # storages whose rows are further apart than their elements need
        self.kept: list[Any] = []  # meta storages: numbers must not be used twice
        self.device = _CPU  # where everything is, but for
        self.host: set[int] = set()  # storages in the host's memory, when that is another device

    def value(self, tensor: Any) -> RecordedValue:
        """The value of a meta tensor, made when it is new."""
        value = self.values.get(id(tensor))
        if value is None:
            storage = tensor.untyped_storage()
            self.kept.append(storage)
            number = self.storages.setdefault(storage._cdata, len(self.storages))
            value = self.values[id(tensor)] = RecordedValue(len(self.values), tensor, number)
            self.roots.setdefault(number, value)
        return value

    def place(self, value: RecordedValue, device: Any) -> None:
        """Notes where a new value is."""
        if device == _CPU and self.device != _CPU:
            self.host.add(value.storage)


def values_in(items: Any) -> Any:
    """The values among arguments, those in lists too."""
    for item in items:
        if isinstance(item, RecordedValue):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from values_in(item)


def _map(function: Callable[[Any], Any], item: Any) -> Any:
    if isinstance(item, fl.Tensor):
        return function(item)
    if isinstance(item, (list, tuple)):
        return (
            type(item)(_map(function, x) for x in item)
            if not hasattr(item, "_fields")
            else tuple(_map(function, x) for x in item)
        )
    return item


_META = fl.device("meta")
_CPU = fl.device("cpu")

# Operators that give numbers to Python.
_LOOK_AT_DATA = frozenset(("item", "_local_scalar_dense", "is_nonzero", "equal"))

# Arguments that kernels write without saying so in the schema.
_RUNNING = ("running_mean", "running_var")
_HIDDEN_WRITES = {"native_batch_norm": _RUNNING, "_batch_norm_statistics": _RUNNING}


class Recorder(OperatorRecorder):
    """Enters operator calls in a trace."""

    _sees_parts = False

    def __init__(self, trace: Trace, definitions: dict[str, Callable[..., Any]], lines: bool = False) -> None:
        super().__init__()
        self.lines = lines
        self.trace = trace
        self.definitions = definitions

    def decomposition(self, func: Any) -> Callable[..., Any] | None:
        return self.definitions.get(func._full_name)

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func._opname in _LOOK_AT_DATA:
            raise Unsupported(f"{func} looks at the values of a tensor")
        device = self._placed(func, args, kwargs)
        args = _map(self._without_data, args)
        self._check_window(func, args, kwargs)
        kwargs = {k: self._device(_map(self._without_data, v)) for k, v in kwargs.items()}
        if not any(isinstance(a, fl.Tensor) for a in _flat((*args, *kwargs.values()))) and "device" in _names(func):
            kwargs["device"] = _META
        results = func(*args, **kwargs)
        if not func.is_view:
            self._enter(func, args, kwargs, results, device)
        else:
            for result in _flat((results,)):
                if func._schema.is_mutable:  # a view in place: the tensor has another geometry from now on
                    self.trace.values.pop(id(result), None)
                self.trace.value(result)
        return results

    def _check_window(self, func: Any, args: Any, kwargs: Any) -> None:
        """Where a window begins in memory that was there before is not known: tensors without data begin at zero."""
        if not func._opname.startswith("as_strided") or "storage_offset" not in _names(func):
            return
        at = [a.name for a in func._schema.arguments].index("storage_offset")
        offset = args[at] if len(args) > at else kwargs.get("storage_offset")
        trace = self.trace
        before = {value.storage for value in (*trace.inputs, *(value for value, _ in trace.constants.values()))}
        if offset is not None and trace.value(args[0]).storage in before:
            raise Unsupported("a window at a place in the storage of an input")

    def decomposed(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Results of a definition, with the strides that the operator's own would have, unless it chooses them."""
        if getattr(self.definitions[func._full_name], "chooses_strides", False):
            return result
        args = _map(self._without_data, args)
        expected = func(*args, **{k: _map(self._without_data, v) for k, v in kwargs.items()})

        def laid(mine: Any, own: Any) -> Any:
            if not isinstance(mine, fl.Tensor) or mine.stride() == own.stride():
                return mine
            with self:
                return mine.contiguous()

        if isinstance(result, fl.Tensor):
            return laid(result, expected)
        return tuple(laid(mine, own) for mine, own in zip(result, expected))

    def _without_data(self, tensor: Any) -> Any:
        """A tensor that the function refers to and did not get: it becomes a constant."""
        if tensor.is_meta or tensor._is_wrapped_number():
            return tensor
        if tensor.device not in (_CPU, self.trace.device):
            raise Unsupported(f"a tensor on {tensor.device}")
        held = self.trace.constants.get(id(tensor))
        if held is None:
            twin = fl.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
            held = self.trace.constants[id(tensor)] = (self.trace.value(twin), tensor)
            self.trace.place(held[0], tensor.device)
        return held[0].tensor

    @staticmethod
    def _device(value: Any) -> Any:
        return _META if isinstance(value, fl.device) else value

    def _placed(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Where the results of a call are: at the device it names, or with its arguments."""
        trace = self.trace
        device = kwargs.get("device")
        if trace.device == _CPU:
            if device is None and not any(isinstance(a, fl.Tensor) for a in _flat((*args, *kwargs.values()))):
                device = fl.get_default_device() if "device" in _names(func) else None
            if device is not None and fl.device(device).type not in (_CPU.type, _META.type):
                raise Unsupported(f"a tensor on {device}")
            return _CPU
        if device is not None:
            device = fl.device(device)
            return _CPU if device == _CPU else trace.device
        tensors = [
            a for a in _flat((*args, *kwargs.values())) if isinstance(a, fl.Tensor) and not a._is_wrapped_number()
        ]
        if not tensors:
            return _CPU if "device" in _names(func) and fl.get_default_device() == _CPU else trace.device
        on_host = all(trace.value(t).storage in trace.host if t.is_meta else t.device == _CPU for t in tensors)
        return _CPU if on_host else trace.device

    def derive(self, ctx: Any, derivative: Any, grads: tuple[Any, ...]) -> Any:
        """The derivative of a function of the user's: its calls, or one call where it looks at values."""
        entered = len(self.trace.calls)
        try:
            return derivative(ctx, *grads)
        except Exception:
            from flambeau._functorch.aot import opaque_backward

            del self.trace.calls[entered:]
            return opaque_backward.enter(ctx, derivative, grads)

    def _enter(self, func: Any, args: Any, kwargs: Any, results: Any, device: Any) -> None:
        trace = self.trace
        written = {id(t): t for t in self._written(func, args, kwargs)}
        entered_results: list[RecordedValue | None] = []
        for result in results if isinstance(results, (list, tuple)) else (results,):
            if not isinstance(result, fl.Tensor):
                if result is not None and func._schema.returns:
                    raise Unsupported(f"{func} returns {type(result).__name__}")
                entered_results.append(None)
            elif id(result) in written:
                entered_results.append(None)
            else:
                value = trace.value(result)
                trace.place(value, device)
                entered_results.append(value)
        writes = [trace.value(t) for t in written.values()]
        recorded = {k: device if v is _META or v == _META else v for k, v in kwargs.items()}
        entered = {k: _map(self._entered, v) for k, v in recorded.items()}
        trace.calls.append(RecordedCall(func, _map(self._entered, args), entered, entered_results, writes))
        if self.lines and not trace.tangents:
            trace.calls[-1].line = _line_of_program()

    def _entered(self, tensor: Any) -> Any:
        """An argument in the record: numbers among tensors (2.0 + x) stay numbers."""
        return tensor if tensor._is_wrapped_number() and not tensor.is_meta else self.trace.value(tensor)

    @staticmethod
    def _written(func: Any, args: Any, kwargs: Any) -> list[Any]:
        names = [argument.name for argument in func._schema.arguments]
        hidden = _HIDDEN_WRITES.get(func._full_name, ())
        if "training" in names and not {**dict(zip(names, args)), **kwargs}["training"]:
            hidden = ()  # statistics are read alone
        if not func._schema.is_mutable and not hidden:
            return []
        written = []
        for i, argument in enumerate(func._schema.arguments):
            if argument.name in hidden or argument.is_written:
                value = args[i] if i < len(args) else kwargs.get(argument.name)
                written += [t for t in _flat((value,)) if isinstance(t, fl.Tensor)]
        return written


_PACKAGE = os.path.dirname(os.path.abspath(fl.__file__ or ""))


def _line_of_program() -> str | None:
    """Where the program is that makes the call: the innermost line outside of this package."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE):
            text = linecache.getline(file, frame.f_lineno, frame.f_globals).strip()
            return f"{file}:{frame.f_lineno}: {text}" if text else f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _flat(items: Any) -> Any:
    for item in items:
        if isinstance(item, (list, tuple)):
            yield from _flat(item)
        else:
            yield item


def _names(func: Any) -> set[str]:
    return {a.name for a in func._schema.arguments}


def _twin(tensor: Any) -> Any:
    """A tensor without data that looks like the given one, as a leaf."""
    if is_traceable_wrapper_subclass(tensor):
        return transform_subclass(tensor, lambda _, part: _twin(part))
    twin = fl.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
    if tensor._is_wrapped_number():
        return twin._mark_wrapped_number()
    return twin.requires_grad_() if tensor.requires_grad else twin


@contextlib.contextmanager
def _running(recorder: Recorder, device: str) -> Iterator[None]:
    """Inside, calls are recorded, and tensors without data stand for those of a device."""
    before = _C._set_autocast_recorded_device(device)
    outer, recording.derive = recording.derive, recorder.derive
    stood_for, recording.device = recording.device, device
    deferred = _C._set_defers_in_records(True)
    try:
        with recorder, refused():
            yield
    except DependsOnData:
        raise
    except Exception as reason:
        raise Failed(str(reason)) from reason
    finally:
        _C._set_defers_in_records(deferred)
        recording.derive, recording.device = outer, stood_for
        _C._set_autocast_recorded_device(before)


def _input(tensor: Any) -> Any:
    """The twin of an input; with a history where the input has one, so that it may be written in place."""
    twin = _twin(tensor)
    if tensor.is_leaf:
        return twin
    with fl.enable_grad():
        with_history = twin.clone()
    return with_history if with_history.stride() == twin.stride() else twin


def device_of(inputs: Sequence[Any]) -> Any:
    """Where a function of these tensors computes: beside the first that is not on the host. Without tensors (scalars that are
    read from memory are none) what it makes is on the default device."""
    if all(t._is_wrapped_number() for t in inputs):
        return fl.get_default_device()
    return next((t.device for t in inputs if t.device != _CPU), _CPU)


def _with_elements(trace: Trace, results: Any) -> list[Any]:
    """Results whose memory holds their elements. One that is conjugated or negated when it is read stays a view where
    somebody else has the memory, which only eager mode makes."""
    outputs = list(results) if isinstance(results, (list, tuple)) else [results]
    tensors = [t for t in outputs if isinstance(t, fl.Tensor)]
    before = {value.storage for value in (*trace.inputs, *(value for value, _ in trace.constants.values()))}
    for k, t in enumerate(outputs):
        if type(t) is not fl.Tensor or not (t.is_conj() or t.is_neg()):
            continue
        storage = t.untyped_storage()._cdata
        if trace.value(t).storage in before or sum(o.untyped_storage()._cdata == storage for o in tensors) > 1:
            raise Unsupported("a result that shares memory and is conjugated or negated when it is read")
        outputs[k] = t.resolve_conj().resolve_neg()
    return outputs


def _run(trace: Trace, recorder: Recorder, function: Any, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    twins = [_input(t) for t in inputs]
    histories = [t.grad_fn for t in twins]
    trace.device = device_of(inputs)
    trace.inputs = [trace.value(t) for t in twins]
    for value, tensor in zip(trace.inputs, inputs):
        trace.place(value, tensor.device)
    with _running(recorder, trace.device.type):
        outputs = _with_elements(trace, function(*twins))
    if any(t.grad_fn is not history for t, history in zip(twins, histories)):  # a result's alone can be handed over
        raise Unsupported("an input that is written with values that require a gradient")
    for output in outputs:
        if output is not None and not isinstance(output, fl.Tensor):
            raise Unsupported(f"a result of type {type(output).__name__}")
    outputs = [None if t is None else recorder._without_data(t) for t in outputs]
    trace.outputs = [None if t is None else trace.value(t) for t in outputs]
    trace.forward_calls = len(trace.calls)
    return twins, outputs


def _families(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[int]:
    """For each output the number of the input that it is a view of; views of the same other tensor share a number, too."""
    numbers = {id(t): i for i, t in enumerate(inputs)}
    bases = [t if t._base is None else t._base for t in outputs]
    return [numbers.setdefault(id(base), len(numbers)) for base in bases]


def trace_joint(
    function: Any, inputs: Sequence[Any], definitions: dict[str, Any] | None = None, lines: bool = False
) -> Trace:
    """Records a run in the thread's mode, and the backward from its differentiable results to all inputs that require a
    gradient."""
    trace = Trace()
    recorder = Recorder(trace, definitions or {}, lines)
    with fl.set_grad_enabled(fl.is_grad_enabled()):  # the function may leave another mode behind
        twins, outputs = _run(trace, recorder, function, inputs)
    wanted = [t for t in twins if t.requires_grad]
    inputs_by_identity = {id(t) for t in twins}
    trace.sources = [
        k for k, t in enumerate(outputs) if t is not None and t.grad_fn is not None and id(t) not in inputs_by_identity
    ]
    if not trace.sources:
        return trace
    if not wanted:
        raise Unsupported("results with a history that no input is part of")
    sources = [outputs[k] for k in trace.sources]
    trace.families = _families(sources, twins)
    tangents = [fl.empty_like(t.detach()) for t in sources]
    trace.tangents = [trace.value(t) for t in tangents]
    # Mixed precision around the call is not around the backward that follows.
    with fl.enable_grad(), _running(recorder, "meta"):
        grads = [
            g.resolve_conj().resolve_neg() if type(g) is fl.Tensor else g
            for g in fl.autograd.grad(sources, wanted, tangents, allow_unused=True)
        ]
    by_input = {id(t): g for t, g in zip(wanted, grads)}
    trace.gradients = [None if (g := by_input.get(id(t))) is None else trace.value(g) for t in twins]
    for call in trace.calls[trace.forward_calls :]:
        call.backward = True
    return trace
