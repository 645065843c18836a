"""`draft_export`: a program in spite of problems, and a report of what they are."""

from __future__ import annotations

import dataclasses
from typing import Any

from flambeau._dynamo.exc import UserError
from flambeau.export._trace import export
from flambeau.export.dynamic_shapes import Dim
from flambeau.export.exported_program import ExportedProgram
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
    """Exports; where promises about sizes do not hold, exports again with sizes that vary where the program allows it. The
    program's `_report` tells."""
    failures: list[FailureReport] = []
    options: dict[str, Any] = {"strict": strict}
    try:
        program = export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, **options)
    except UserError as error:
        failures.append(FailureReport("CONSTRAINT_VIOLATION_ERROR", str(error)))
        loose = pytree.tree_map(lambda x: Dim.AUTO if isinstance(x, Dim) else x, dynamic_shapes, is_leaf=_is_leaf)
        loose = pytree.tree_map(lambda x: Dim.AUTO if x is Dim.DYNAMIC else x, loose, is_leaf=_is_leaf)
        program = export(mod, args, kwargs, dynamic_shapes=loose, **options)
    program._report = DraftExportReport(failures)
    return program


def _is_leaf(x: Any) -> bool:
    return x is None
