"""Compares a model with the program that it was made of, result by result."""

from __future__ import annotations

import dataclasses
from typing import Any

import flambeau as fl
from flambeau.onnx._program import ONNXProgram
from flambeau.utils import _pytree as pytree

__all__ = ["VerificationInfo", "verify_onnx_program"]

_EDGES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e6)  # of the classes of differences


@dataclasses.dataclass
class VerificationInfo:
    """How far a result of the model is from that of the program. Histograms are counts and the edges of their classes."""

    name: str
    max_abs_diff: float
    max_rel_diff: float
    abs_diff_hist: tuple[fl.Tensor, fl.Tensor]
    rel_diff_hist: tuple[fl.Tensor, fl.Tensor]
    expected_dtype: fl.dtype
    actual_dtype: fl.dtype

    @classmethod
    def from_tensors(cls, name: str, expected: Any, actual: Any) -> VerificationInfo:
        expected, actual = (x.detach() if isinstance(x, fl.Tensor) else fl.tensor(x) for x in (expected, actual))
        wide = fl.complex128 if expected.is_complex() else fl.float64
        a, b = expected.to(wide), actual.to(wide)
        distance = (a - b).abs().masked_fill(a == b, 0.0)  # infinities that agree
        relative = distance / a.abs().clamp(min=1e-7)
        histograms = _histogram(distance), _histogram(relative)
        return cls(name, _largest(distance), _largest(relative), *histograms, expected.dtype, actual.dtype)

    def asdict(self) -> dict[str, Any]:
        """The fields by name, histograms as lists."""
        held = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("abs_diff_hist", "rel_diff_hist"):
            held[name] = [part.tolist() for part in held[name]]
        return {**held, "expected_dtype": str(self.expected_dtype), "actual_dtype": str(self.actual_dtype)}


def _largest(values: fl.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _histogram(values: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
    edges = fl.tensor(_EDGES, dtype=fl.float64)
    classes = fl.bucketize(values.flatten().nan_to_num(nan=_EDGES[-1]), edges[1:-1], right=True)
    return fl.bincount(classes, minlength=len(_EDGES) - 1).float(), edges


def verify_onnx_program(
    onnx_program: ONNXProgram,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    compare_intermediates: bool = False,
) -> list[VerificationInfo]:
    """Runs the model with onnxruntime and the program on the same arguments, by default those of the export; one entry for
    each result."""
    program = onnx_program.exported_program
    if program is None:
        raise ValueError("[verify_onnx_program] expected a model with the program that it was made of, got one without")
    if compare_intermediates:
        raise NotImplementedError("[verify_onnx_program] expected compare_intermediates=False: results are compared")
    if args is None and kwargs is None:
        args, kwargs = program.example_inputs
    args, kwargs = args or (), kwargs or {}
    copies = pytree.tree_map_only(fl.Tensor, lambda x: x.detach().clone(), (args, kwargs))
    wanted = [x for x in pytree.tree_leaves(program.module()(*copies[0], **copies[1])) if x is not None]
    results = onnx_program(*args, **kwargs)
    return [
        VerificationInfo.from_tensors(name, expected, actual)
        for name, expected, actual in zip(onnx_program.output_names, wanted, results)
    ]
