"""ONNX: models leave as files that other runtimes read.

    program = onnx.export(model, (x,), dynamic_shapes={"x": {0: "batch"}})
    program.save("model.onnx")
    program(x)  # with onnxruntime

`_export` captures the module and calls the rest, `_translate` walks the exported program, `_builder` is what translations of
operators (`onnx.py` in the families of `flambeau/ops`) are written with, `_model` writes bytes.
"""

from __future__ import annotations

from typing import Any

from flambeau import __version__
from flambeau.onnx import errors
from flambeau.onnx._export import export, is_in_onnx_export
from flambeau.onnx._legacy import (
    ExportOptions,
    OperatorExportTypes,
    TrainingMode,
    dynamo_export,
    register_custom_op_symbolic,
    select_model_mode_for_export,
    unregister_custom_op_symbolic,
)
from flambeau.onnx._program import ONNXProgram
from flambeau.onnx.errors import OnnxExporterError

__all__ = ["ExportOptions", "ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TrainingMode", "dynamo_export", "errors",
           "export", "is_in_onnx_export", "register_custom_op_symbolic", "select_model_mode_for_export",
           "unregister_custom_op_symbolic"]  # fmt: skip

producer_name = "pytorch"
producer_version = __version__


def __getattr__(name: str) -> Any:
    if name in ("operators", "ops", "utils", "verification"):
        import importlib

        return importlib.import_module(f"flambeau.onnx.{name}")
    from flambeau._compat import absent

    return absent.names_of(__name__)(name)
