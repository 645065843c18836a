"""`draft_export`: a program in spite of problems, and a report of what they are."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import flambeau as fl
from flambeau._dynamo.exc import UserError
from flambeau.export._trace import export
from flambeau.export.dynamic_shapes import Dim
from flambeau.export.exported_program import ExportedProgram
from flambeau.ops.rules import unbacked
from flambeau.ops.symbolic.shape_env import DataDependentOutput, ExampleRun, ShapeEnv
from flambeau.overrides import TorchFunctionMode
from flambeau.utils import _pytree as pytree

__all__ = ["DraftExportReport", "FailureReport", "draft_export"]


@dataclasses.dataclass
class FailureReport:
    """One problem, and what was done about it."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class DraftExportReport:
    """What a draft export had to assume."""

    def __init__(self, failures: list[FailureReport]) -> None:
        self.failures = failures

    def successful(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        if not self.failures:
            return "Congratulations: No issues are found during export, and it was able to soundly produce a graph."
        lines = "\n".join(f"  {i + 1}. {failure}" for i, failure in enumerate(self.failures))
        return f"{len(self.failures)} issue(s) found during export, and it was not able to soundly produce a graph:\n{lines}"

    __repr__ = __str__


def draft_export(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    preserve_module_call_signature: tuple[str, ...] = (),
    strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Exports; where promises about sizes do not hold, exports again with sizes that vary where the program allows it; where it
    branches on numbers that data decides, it is exported as the example goes. The program's `_report` tells."""
    failures: list[FailureReport] = []
    options: dict[str, Any] = {"strict": strict, "preserve_module_call_signature": preserve_module_call_signature}
    try:
        program = export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, **options)
    except DataDependentOutput:
        ShapeEnv.example = ExampleRun(_numbers_read(mod, args, kwargs or {}))
        try:
            program = export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, **options)
            assumed = dict.fromkeys(map(str, ShapeEnv.example.assumed))
            failures += [
                FailureReport("DATA_DEPENDENT_ERROR", f"assumed as in the example: {text}") for text in assumed
            ]
        finally:
            ShapeEnv.example = None
    except UserError as error:
        failures.append(FailureReport("CONSTRAINT_VIOLATION_ERROR", str(error)))
        loose = pytree.tree_map(lambda x: Dim.AUTO if isinstance(x, Dim) else x, dynamic_shapes, is_leaf=_is_leaf)
        loose = pytree.tree_map(lambda x: Dim.AUTO if x is Dim.DYNAMIC else x, loose, is_leaf=_is_leaf)
        program = export(mod, args, kwargs, dynamic_shapes=loose, **options)
    program._report = DraftExportReport(failures)
    return program


class _Readings(TorchFunctionMode):
    """Notes numbers that are read from tensors of integers, and sizes that data decides."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in ("item", "__int__", "__index__") and isinstance(result, int):
            self.numbers.append(int(result))
        elif unbacked.find(name) is not None and isinstance(result, fl.Tensor) and result.ndim:
            self.numbers.append(result.shape[0])
        return result


def _numbers_read(mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """The numbers that the module reads in a run with copies of the examples."""
    copies = pytree.tree_map_only(fl.Tensor, lambda x: x.detach().clone(), (args, kwargs))
    readings = _Readings()
    with readings, fl.no_grad():
        copy.deepcopy(mod)(*copies[0], **copies[1])
    return readings.numbers


def _is_leaf(x: Any) -> bool:
    return x is None
