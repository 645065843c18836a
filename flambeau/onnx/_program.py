"""`ONNXProgram`: an exported model that is saved, run with onnxruntime and inspected."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

import flambeau as fl
from flambeau.onnx import _model
from flambeau.onnx._model import Model, Value
from flambeau.onnx.errors import OnnxExporterError
from flambeau.utils import _pytree as pytree

__all__ = ["ONNXProgram"]

LIMIT = 2**31 - 2**20  # bytes: protobuf takes no message of two gigabytes
LARGE = 1024  # bytes from which a tensor goes to the file beside the model


class ONNXProgram:
    """An ONNX model made from an exported program.

    `save` writes it, calling it runs it with onnxruntime on the arguments of the module, `model_proto` is it as an object of
    the `onnx` package.
    """

    def __init__(self, model: Model, exported_program: Any) -> None:
        self._model = model
        self.exported_program = exported_program
        self._session: Any = None
        self._proto: Any = None

    # ------------------------------------------------------------------------------------------ the model

    @property
    def model_proto(self) -> Any:
        """The model as an `onnx.ModelProto`."""
        if self._proto is None:
            self._proto = _package("onnx").load_from_string(_model.model_bytes(self._model))
        return self._proto

    @property
    def model(self) -> Any:
        """The model as an `onnx_ir.Model`."""
        return _package("onnx_ir").from_proto(self.model_proto)

    @property
    def input_names(self) -> list[str]:
        return [value.name for value in self._model.graph.inputs]

    @property
    def output_names(self) -> list[str]:
        return [value.name for value in self._model.graph.outputs]

    def optimize(self) -> None:
        """Runs onnxscript's optimizer over the model, where it is installed; translations write what is needed only."""
        try:
            optimizer = __import__("onnxscript.optimizer", fromlist=["optimize"])
        except ImportError:
            return
        self._proto = optimizer.optimize(self.model_proto)
        self._session = None

    def apply_weights(self, state_dict: Mapping[str, Any]) -> None:
        """Replaces initializers by tensors of the same names."""
        table = self._model.graph.initializers
        for name, tensor in state_dict.items():
            if name not in table:
                continue
            value, _ = table[name]
            table[name] = (value, tensor.detach())
        self.release()

    def rename_axes(self, names: Mapping[str, str]) -> None:
        """Gives dimensions that vary other names."""
        renamed = {str(key): value for key, value in names.items()}
        for value in self._values():
            if value.shape is not None:
                value.shape = tuple(renamed.get(size, size) if isinstance(size, str) else size for size in value.shape)
        self.release()

    def _values(self) -> list[Value]:
        graph = self._model.graph
        return [*graph.inputs, *graph.outputs, *(value for node in graph.nodes for value in node.outputs)]

    # ------------------------------------------------------------------------------------------ files

    def save(
        self,
        destination: Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Writes the model to a path or a file object.

        With `external_data`, or where the tensors would make it larger than protobuf allows, tensors go to a file beside it,
        `NAME.data`.
        """
        model = self._arranged(include_initializers, keep_initializers_as_inputs)
        size = sum(t.numel() * t.element_size() for _, t in model.graph.initializers.values())
        if not isinstance(destination, (str, os.PathLike)):
            destination.write(_model.model_bytes(model))
            return
        if external_data or (external_data is None and size > LIMIT) or size > LIMIT:
            _save_external(model, os.fspath(destination))
            return
        data = self.model_proto.SerializeToString() if self._proto is not None and model is self._model else None
        with open(destination, "wb") as file:
            file.write(_model.model_bytes(model) if data is None else data)

    def _arranged(self, include_initializers: bool, as_inputs: bool) -> Model:
        """The model with initializers left out, or among the inputs."""
        if include_initializers and not as_inputs:
            return self._model
        model = copy.copy(self._model)
        model.graph = copy.copy(self._model.graph)
        if as_inputs:
            model.graph.inputs = [*model.graph.inputs, *(value for value, _ in model.graph.initializers.values())]
        if not include_initializers:
            constants = {name: held for name, held in model.graph.initializers.items() if name.startswith("const_")}
            weights = [held[0] for name, held in model.graph.initializers.items() if name not in constants]
            model.graph.initializers = constants
            known = {value.name for value in model.graph.inputs}
            model.graph.inputs = [*model.graph.inputs, *(value for value in weights if value.name not in known)]
        return model

    # ------------------------------------------------------------------------------------------ running

    def initialize_inference_session(self, initializer: Any = None) -> None:
        """Makes the session that calls run in. `initializer` is called with the path of the model or its bytes."""
        data = self.model_proto.SerializeToString() if self._proto is not None else _model.model_bytes(self._model)
        if initializer is not None:
            self._session = initializer(data)
            return
        runtime = _package("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        self._session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def __call__(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """Runs the model with onnxruntime on the arguments of the module; the results, one after another."""
        if self._session is None:
            self.initialize_inference_session()
        results = self._session.run(None, self._feeds(args, kwargs))
        return tuple(
            fl.from_numpy(result) if hasattr(result, "shape") and result.shape != () else _scalar(result)
            for result in results
        )

    def call_reference(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """Runs the model with the reference evaluator of the `onnx` package."""
        reference = __import__("onnx.reference", fromlist=["ReferenceEvaluator"])
        evaluator = reference.ReferenceEvaluator(self.model_proto)
        return [fl.tensor(result) for result in evaluator.run(None, self._feeds(args, kwargs))]

    def _feeds(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """Tensors by the names of inputs; what is part of the program is left out."""
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if leaf is not None]
        tensors = [leaf for leaf in leaves if isinstance(leaf, fl.Tensor)]
        inputs = self._model.graph.inputs
        if len(tensors) != len(inputs):
            tensors = [leaf if isinstance(leaf, fl.Tensor) else fl.tensor(leaf) for leaf in leaves]
        if len(tensors) != len(inputs):
            raise ValueError(f"[ONNXProgram] expected {len(inputs)} tensors, got {len(tensors)}")
        return {value.name: _array(tensor, value) for value, tensor in zip(inputs, tensors)}

    def release(self) -> None:
        """Lets go of the session."""
        self._session = None
        self._proto = None

    def __repr__(self) -> str:
        graph = self._model.graph
        inputs = ", ".join(f"{v.name}: {_shown(v)}" for v in graph.inputs)
        outputs = ", ".join(f"{v.name}: {_shown(v)}" for v in graph.outputs)
        lines = []
        for node in graph.nodes:
            read = ", ".join("" if v is None else v.name for v in node.inputs)
            named = {
                k: v for k, v in node.attributes.items() if v is not None and isinstance(v, (int, float, str, list))
            }
            text = "".join(f", {k}={v!r}" for k, v in named.items())
            lines.append(f"    {', '.join(v.name for v in node.outputs)} = {node.op_type}({read}{text})")
        body = "\n".join(lines)
        return f"ONNXProgram(opset {self._model.opset}):\n  ({inputs}) -> ({outputs})\n{body}\n"

    __str__ = __repr__


def _shown(value: Value) -> str:
    sizes = "?" if value.shape is None else ", ".join(map(str, value.shape))
    return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"


def _scalar(result: Any) -> Any:
    import numpy

    return fl.from_numpy(numpy.asarray(result).reshape(1))[0] if hasattr(result, "dtype") else result


def _array(tensor: Any, value: Value) -> Any:
    plain = tensor.detach().cpu()
    if plain.dtype == fl.bfloat16:
        import ml_dtypes  # which onnxruntime takes bfloat16 in

        return plain.view(fl.int16).numpy().view(ml_dtypes.bfloat16)
    return plain.contiguous().numpy()


def _package(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        raise OnnxExporterError(
            f"[onnx] expected the package {name}, which is not installed: pip install {name}"
        ) from None


def _save_external(model: Model, path: str) -> None:
    """The model in one file, tensors that are not small in another."""
    beside = f"{os.path.basename(path)}.data"
    with open(os.path.join(os.path.dirname(path), beside), "wb") as data:

        def place(name: str, tensor: Any) -> tuple[str, int, int] | None:
            size = tensor.numel() * tensor.element_size()
            if size < LARGE:
                return None
            data.write(bytes(-data.tell() % 4096))
            offset = data.tell()
            data.write(_model.raw_bytes(tensor))
            return beside, offset, size

        encoded = _model.model_bytes(model, place)
    with open(path, "wb") as file:
        file.write(encoded)
