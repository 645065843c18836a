"""Names that programs import from the older exporter's module."""

from __future__ import annotations

from flambeau.onnx._export import export, is_in_onnx_export
from flambeau.onnx._legacy import (
    register_custom_op_symbolic,
    select_model_mode_for_export,
    unregister_custom_op_symbolic,
)

__all__ = ["export", "is_in_onnx_export", "register_custom_op_symbolic", "select_model_mode_for_export",
           "unregister_custom_op_symbolic"]  # fmt: skip
