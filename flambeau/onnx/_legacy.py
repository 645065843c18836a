"""Names of the older exporters that programs still use."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

import flambeau as fl
from flambeau.onnx._export import _training_mode, export
from flambeau.onnx._program import ONNXProgram


class TrainingMode(enum.Enum):
    EVAL, PRESERVE, TRAINING = range(3)


class OperatorExportTypes(enum.Enum):
    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = range(4)


class ExportOptions:
    """Options of `dynamo_export`."""

    def __init__(self, *, dynamic_shapes: bool | None = None, **others: Any) -> None:
        self.dynamic_shapes = dynamic_shapes
        self.__dict__.update(others)


def dynamo_export(
    model: Any, /, *args: Any, export_options: ExportOptions | None = None, **kwargs: Any
) -> ONNXProgram | None:
    """The name that `export(model, args, dynamo=True)` had."""
    shapes = None
    if export_options is not None and export_options.dynamic_shapes:
        dims = lambda x: dict.fromkeys(range(x.ndim), fl.export.Dim.AUTO) if isinstance(x, fl.Tensor) else None  # noqa: E731
        shapes = tuple(dims(x) for x in (*args, *kwargs.values()))  # type: ignore[no-untyped-call]
    return export(model, args, kwargs=kwargs, dynamic_shapes=shapes)


_SYMBOLICS: dict[str, Callable[..., Any]] = {}


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """A translation of `namespace::operator`: a function of a graph `g`, whose `g.op("Add", x, y)` adds a node."""
    if "::" not in symbolic_name:
        raise ValueError(f"[onnx] expected namespace::operator, got {symbolic_name!r}")
    _SYMBOLICS[symbolic_name] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    _SYMBOLICS.pop(symbolic_name, None)


class LegacyGraph:
    """The graph that a registered function gets: attributes say their type at the end of their names (`axis_i=0`)."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self.opset = builder.opset

    def op(self, name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        domain, _, op_type = name.rpartition("::")
        if op_type == "Constant" and not inputs:
            (value,) = attributes.values()
            return self._builder.constant(value)
        named = {key[:-2] if key[-2:] in ("_i", "_f", "_s", "_t") else key: value for key, value in attributes.items()}
        if domain not in ("", "onnx"):
            self._builder.model.domains.setdefault(domain, 1)
        return self._builder.op(op_type, *inputs, outputs=outputs, domain="" if domain == "onnx" else domain, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)


def _for_builder(function: Callable[..., Any]) -> Callable[..., Any]:
    def translate(g: Any, *args: Any, **kwargs: Any) -> Any:
        return function(LegacyGraph(g), *args, **kwargs)

    return translate


def registered_symbolics() -> dict[str, Callable[..., Any]]:
    """The registered translations by the full names of operators."""
    from flambeau import _C
    from flambeau._ops import resolve

    symbolics = {}
    for name, function in _SYMBOLICS.items():
        full = resolve(name)
        translate = symbolics[full] = _for_builder(function)
        symbolics.update(
            {n.partition("(")[0]: translate for n in _C._list_operators() if n.startswith((f"{name}(", f"{name}."))}
        )
    return symbolics


@contextlib.contextmanager
def select_model_mode_for_export(model: Any, mode: TrainingMode) -> Iterator[None]:
    """A module in the mode that it is to be exported in."""
    with _training_mode(model, mode, False):
        yield
