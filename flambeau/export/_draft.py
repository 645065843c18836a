"""`draft_export`: a program in spite of problems, and a report of what they are."""

from __future__ import annotations

import copy
import dataclasses
import enum
from typing import Any

import flambeau as fl
from flambeau._dynamo.breaks import GraphBreakError
from flambeau._dynamo.exc import UserError
from flambeau._ops import OpOverload
from flambeau.export._trace import export
from flambeau.export.dynamic_shapes import Dim
from flambeau.export.exported_program import ExportedProgram
from flambeau.library import OPDEFS
from flambeau.ops.rules import unbacked
from flambeau.ops.symbolic.shape_env import DataDependentOutput, ExampleRun, ShapeEnv
from flambeau.overrides import DisableTorchFunction, TorchFunctionMode
from flambeau.utils import _pytree as pytree

__all__ = ["DraftExportReport", "FailureReport", "FailureType", "draft_export"]


class FailureType(enum.IntEnum):
    """What kind of problem a draft export went past."""

    MISSING_FAKE_KERNEL = 1
    DATA_DEPENDENT_ERROR = 2
    GUARD_ADDED = 3
    MISMATCHED_FAKE_KERNEL = 4

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass
class FailureReport:
    """One problem, and what was done about it."""

    failure_type: FailureType
    message: str

    def __str__(self) -> str:
        return f"{self.failure_type}: {self.message}"


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
    example: ExampleRun | None = None
    fakes: dict[str, Any] = {}
    try:
        while True:
            try:
                program = export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, **options)
                break
            except DataDependentOutput:
                if example is not None:
                    raise
                example = ShapeEnv.example = ExampleRun(_run(mod, args, kwargs or {}).numbers)
            except GraphBreakError:
                if example is not None:
                    raise
                readings = _run(mod, args, kwargs or {})
                example = ShapeEnv.example = ExampleRun(readings.numbers)  # sizes are those of the example as well
                fakes = _take_as_fakes(readings.results)
                failures += [FailureReport(FailureType.MISSING_FAKE_KERNEL, _missing(name)) for name in fakes]
            except UserError as error:
                if any(failure.failure_type == FailureType.GUARD_ADDED for failure in failures):
                    raise
                failures.append(FailureReport(FailureType.GUARD_ADDED, str(error)))
                dynamic_shapes = _loosened(dynamic_shapes)
    finally:
        ShapeEnv.example = None
        for name in fakes:
            OPDEFS[name]._fake = None
    assumed = dict.fromkeys(map(str, example.assumed)) if example is not None else {}
    failures += [
        FailureReport(FailureType.DATA_DEPENDENT_ERROR, f"assumed as in the example: {text}") for text in assumed
    ]
    program._report = DraftExportReport(failures)
    return program


def _missing(name: str) -> str:
    return f"{name} is missing a fake kernel: results are taken to be as large as in the example; add one with register_fake"


def _loosened(dynamic_shapes: Any) -> Any:
    """The same sizes, free to be fixed or to depend on others."""
    return pytree.tree_map(
        lambda x: Dim.AUTO if isinstance(x, Dim) or x is Dim.DYNAMIC else x, dynamic_shapes, is_leaf=_is_leaf
    )


def _take_as_fakes(results: dict[str, Any]) -> dict[str, Any]:
    """Let operators without a fake kernel return what they did in a run, without data."""
    for name, result in results.items():

        def fake(*args: Any, _result: Any = result, **kwargs: Any) -> Any:
            return pytree.tree_map_only(fl.Tensor, fl.empty_like, _result)

        OPDEFS[name]._fake = fake
    return results


class _Readings(TorchFunctionMode):
    """Notes numbers that are read from tensors of integers, sizes that data decides, and results of operators without fakes."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self.results: dict[str, Any] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in ("item", "__int__", "__index__", "__bool__") and isinstance(result, int):
            self.numbers.append(int(result))
        elif unbacked.find(name) is not None and isinstance(result, fl.Tensor) and result.ndim:
            self.numbers.append(result.shape[0])
        definition = OPDEFS.get(_operator_name(func))
        if definition is not None and definition._fake is None:
            with DisableTorchFunction():
                self.results[definition._qualname] = pytree.tree_map_only(
                    fl.Tensor, lambda x: x.detach().to("meta"), result
                )
        return result


def _operator_name(func: Any) -> str:
    """`space::name` of an operator of a namespace of users; of others anything."""
    if isinstance(func, OpOverload):
        return f"{func.namespace}::{func._opname}"
    space = str(getattr(func, "__self__", None) or getattr(func, "__module__", ""))
    return f"{space.rpartition('.')[2]}::{getattr(func, '__name__', '')}"


def _run(mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Readings:
    """What is noted in a run of the module with copies of the examples."""
    copies = pytree.tree_map_only(fl.Tensor, lambda x: x.detach().clone(), (args, kwargs))
    readings = _Readings()
    with readings, fl.no_grad():
        copy.deepcopy(mod)(*copies[0], **copies[1])
    return readings


def _is_leaf(x: Any) -> bool:
    return x is None
