"""A function captured as one graph, without an artifact: what export is built on.

Capture is that of compile(fullgraph=True). What cannot be said by a graph alone (stores into objects, random numbers of
Python, gradients left on tensors) is an error here.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import functions, interpreter
from flambeau._dynamo.breaks import Break, SkipFrame
from flambeau._dynamo.compile import Settings, Unit, _active, _lock
from flambeau._dynamo.graph_builder import GraphBuilder
from flambeau._dynamo.interpreter import Frame
from flambeau._dynamo.kinds import LITERALS, MISSING
from flambeau._dynamo.sizes import SymInt
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import TracedTensor
from flambeau.fx.graph_module import GraphModule
from flambeau.nn.modules.registry import Registry
from flambeau.utils import _pytree as pytree


class FullGraph(NamedTuple):
    """A captured function. The graph takes the tensors of `tracer.builder.inputs` and returns the leaves of the result."""

    tracer: Tracer
    module: GraphModule
    spec: Any  # how the result is made of its leaves


class _Capturing(Unit):
    """A unit that stops when the function is captured."""

    def _finish(self, tracer: Tracer, frame: Frame, cause: Break | None) -> Any:
        return tracer, frame.result


def capture_full_graph(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], preserved: Sequence[str] = ()
) -> FullGraph:
    """The graph of model(*args, **kwargs), with a Tracepoint where a call of a preserved submodule begins and ends."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    grad, inference = _C.is_grad_enabled(), _C.is_inference_mode_enabled()
    paths: dict[int, tuple[list[str], type]] = {}
    for path, m in model.named_modules(remove_duplicate=False) if isinstance(model, fl.nn.Module) else ():
        paths.setdefault(id(m), ([], type(m)))[0].append(path)
    with _lock:
        _active.tracing = True
        GraphBuilder.module_paths = paths
        GraphBuilder.preserved = {id(model.get_submodule(path)): path for path in preserved}
        try:
            functions.prepare()
            interpreter.prepare()
            tracer, result = _Capturing(call, Settings("eager", fullgraph=True))._capture((args, kwargs))
        except SkipFrame as skip:
            reason = skip.reason
        else:
            reason = ""
        finally:
            GraphBuilder.module_paths = None
            GraphBuilder.preserved = {}
            _active.tracing = False
            _C._set_grad_enabled(grad)
            _C._set_inference_mode(inference)
    if reason:
        call(*args, **kwargs)  # a program that raises, raises here
        raise RuntimeError(f"[export] expected a function that is one graph, got one that is not: {reason}")
    _check_effects(tracer)
    leaves, spec = pytree.tree_flatten(result)
    leaves = _write_stored_buffers(tracer, leaves)
    tracer.builder.graph.output(tuple(tracer.builder.returned(leaf) for leaf in leaves))
    return FullGraph(tracer, GraphModule(fl.nn.Module(), tracer.builder.graph), spec)


def _is_plain(value: Any) -> bool:
    """Whether a value holds numbers, text and sizes alone, in whatever containers."""
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_is_plain, value))
    return type(value) in LITERALS or type(value) is SymInt


def _warn_of_store(place: str) -> None:
    warnings.warn(
        f"[export] the store to {place} is not part of the program: calls of it start from the value before, and leave it",
        stacklevel=2,
    )


def _held(owner: Any, name: str) -> Any:
    """What an attribute, or an entry of a module's table, was before."""
    if isinstance(owner, dict):
        return owner.get(name, MISSING)
    return vars(owner).get(name, MISSING) if hasattr(owner, "__dict__") else MISSING


def _buffer_before(tracer: Tracer, table: Any, name: str, value: Any) -> TracedTensor | None:
    """The buffer that a tensor of the same kind was stored in place of."""
    before = _held(table, name)
    if not isinstance(table, Registry) or not isinstance(before, fl.Tensor) or not isinstance(value, TracedTensor):
        return None
    buffer = next((t for t in tracer.builder.inputs if isinstance(t, TracedTensor) and t.real is before), None)
    same = buffer is not None and buffer.fake.dtype == value.fake.dtype and buffer.fake.shape == value.fake.shape
    return buffer if same else None


def _write_stored_buffers(tracer: Tracer, results: list[Any]) -> list[Any]:
    """Buffers that were replaced are written to, which is what the program can do; results that are old values are copied."""
    writes = []
    for overlay in tracer.outside.overlays.values():
        for name, value in overlay.values.items():
            before = _buffer_before(tracer, overlay.target, name, value)
            if before is not None and value is not before:
                writes.append((before, value))
    old = {id(before) for before, _ in writes}
    call = tracer.builder.call_method
    results = [call("clone", (leaf,), {}) if id(leaf) in old else leaf for leaf in results]
    values = [call("clone", (value,), {}) if id(value) in old else value for _, value in writes]
    for (before, _), value in zip(writes, values):
        call("copy_", (before, value), {})
    return results


def _check_effects(tracer: Tracer) -> None:
    for overlay in tracer.outside.overlays.values():
        for name, value in overlay.values.items():
            before = vars(overlay.target).get(name, MISSING) if hasattr(overlay.target, "__dict__") else MISSING
            if isinstance(value, TracedTensor) and value.real is _held(overlay.target, name):
                continue  # written to in place, and stored again
            if _buffer_before(tracer, overlay.target, name, value) is not None:
                continue
            if value is before or (type(value) in LITERALS and type(value) is type(before) and value == before):
                continue  # it is put back as it was
            kind = type(overlay.target).__name__
            if isinstance(overlay.target, fl.nn.Module) and _is_plain(value):
                _warn_of_store(f"'{name}' of {kind}")
                continue
            raise RuntimeError(
                f"[export] expected a function that stores nothing, got a store to '{name}' of {kind}; register what "
                "changes as a buffer and write to it in place"
            )
    for shadow in tracer.outside.shadows.values():
        if shadow.changed() and _is_plain(shadow.value):
            _warn_of_store(str(shadow.source))
        elif shadow.changed():
            raise RuntimeError(
                f"[export] expected a function that stores nothing, got one that changes {shadow.source}"
            )
    if tracer.effects.draws:
        raise RuntimeError("[export] expected a function of its arguments, got one that draws numbers with random")
    if any(gradient.changed for gradient in tracer.effects.grads.values()):
        raise RuntimeError("[export] expected a function without effects, got one that leaves gradients on tensors")
