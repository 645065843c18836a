"""Translations that users give: functions over onnxscript's operators, or over the builder.

While a function runs, onnxscript's `op.Add(x, y)` is handed to an evaluator that adds a node; a function made with
`@onnxscript.script` becomes a function of the model and one node that calls it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flambeau.onnx._builder import Builder
from flambeau.onnx._model import Value
from flambeau.onnx.errors import OnnxExporterError


def call_custom(builder: Builder, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The results of a user's translation."""
    try:
        from onnxscript import evaluator
    except ImportError:
        return function(builder, *args, **kwargs)
    recorder = _recorder(builder)
    if hasattr(function, "to_function_proto"):
        return recorder.eval_function(function, args, kwargs)
    parameters = list(inspect.signature(function).parameters)
    if parameters[:1] == ["g"]:
        return function(builder, *args, **kwargs)
    with evaluator.default_as(recorder):
        return function(*args, **kwargs)


def _recorder(builder: Builder) -> Any:
    from onnxscript import evaluator

    class Recorder(evaluator.Evaluator):
        """Adds nodes for the operators that a function calls."""

        def eval(self, schema: Any, inputs: Any, attributes: Any) -> Any:
            count = max(len(schema.outputs), 1)
            values = [None if x is None else x if isinstance(x, Value) else builder.constant(x) for x in inputs]
            named = {key: _plain(value) for key, value in attributes.items()}
            domain = schema.domain or ""
            if domain and domain != "ai.onnx":
                builder.model.domains.setdefault(domain, schema.since_version)
            required = [o for o in schema.outputs if o.option.name != "Optional"] if schema.outputs else []
            return builder.op(
                schema.name, *values, outputs=max(len(required), 1) if count > 1 else 1, domain=domain, **named
            )

        def eval_op(self, op: Any, args: Any, kwargs: Any) -> Any:
            schema = op.op_schema
            names = [i.name for i in schema.inputs]
            inputs = list(args) + [kwargs.pop(name) for name in names[len(args) :] if name in kwargs]
            return self.eval(schema, inputs, kwargs)

        def eval_function(self, function: Any, args: Any, kwargs: Any) -> Any:
            proto = function.to_function_proto()
            builder.model.functions[proto.domain, proto.name] = proto.SerializeToString()
            builder.model.domains.setdefault(proto.domain, function.opset.version)
            for opset in proto.opset_import:
                if opset.domain:
                    builder.model.domains.setdefault(opset.domain, opset.version)
            count = len(proto.input)
            inputs = [x if isinstance(x, Value) or x is None else builder.constant(x) for x in args[:count]]
            attributes = dict(zip(proto.attribute, args[count:])) | kwargs
            return builder.op(proto.name, *inputs, outputs=len(proto.output), domain=proto.domain, **attributes)

    return Recorder()


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str, list, tuple)) or value is None:
        return value
    if hasattr(value, "value"):
        return value.value
    raise OnnxExporterError(f"[onnx] expected plain values as attributes, got {type(value).__name__}")
