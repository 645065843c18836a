"""What goes wrong when a program is exported to ONNX."""

from __future__ import annotations

from typing import Any

__all__ = ["OnnxExporterError", "OnnxExporterWarning", "SymbolicValueError", "UnsupportedOperatorError"]


class OnnxExporterError(RuntimeError):
    """A program that could not be exported."""


class OnnxExporterWarning(UserWarning):
    """Something about an exported program that one should know."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator without a translation. `operator` names it, `location` is the user's line."""

    def __init__(self, operator: str, version: int, location: str | None = None, why: str = "") -> None:
        self.operator = operator
        self.version = version
        self.location = location
        text = f"[onnx.export] expected operators that have a translation to ONNX opset {version}, got {operator}"
        text += f" ({why})" if why else ""
        text += f"\n  at {location}" if location else ""
        text += (
            "\n  give custom_translation_table={torch.ops."
            + operator
            + ": function}, where the function builds it of ONNX operators, or write this part of the model with other operators"
        )
        super().__init__(text)


class SymbolicValueError(OnnxExporterError):
    """A value that a translation cannot use."""

    def __init__(self, message: str, value: Any = None) -> None:
        super().__init__(message if value is None else f"{message}  [Caused by the value '{value}']")
