"""Programs without Python: `export` captures a module as a graph of operators with its state and the sizes it is good for.

    program = export(model, (x,), dynamic_shapes={"x": {0: Dim("batch")}})
    program.module()(y)
    save(program, "model.pt2")

`_trace` makes the graph, `dynamic_shapes` decides which sizes may vary, `exported_program` runs it, `_decompose` takes
operators apart and removes writes, `_serialize` writes and reads files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flambeau._compat import absent
from flambeau.export._trace import export
from flambeau.export.dynamic_shapes import AdditionalInputs, Dim, ShapesCollection, dims
from flambeau.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from flambeau.export.graph_signature import ExportBackwardSignature, ExportGraphSignature
from flambeau.export.unflatten import FlatArgsAdapter, UnflattenedModule, unflatten
from flambeau.utils._pytree import register_dataclass

if TYPE_CHECKING:
    from flambeau.export._draft import draft_export
    from flambeau.export._serialize import load, save

__all__ = [
    "AdditionalInputs", "CustomDecompTable", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram",
    "FlatArgsAdapter", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "UnflattenedModule",
    "default_decompositions", "dims", "draft_export", "export", "load", "register_dataclass", "save", "unflatten",
]  # fmt: skip

_LAZY = {"draft_export": "_draft", "load": "_serialize", "save": "_serialize"}  # what most exports do without
_absent = absent.names_of(__name__)


class CustomDecompTable(dict[Any, Any]):
    """Functions for operators, as `run_decompositions` takes them: remove an operator to keep it whole."""

    def materialize(self) -> dict[Any, Any]:
        return dict(self)


def default_decompositions() -> CustomDecompTable:
    """What `run_decompositions()` replaces."""
    from flambeau.ops.as_aten import decompositions

    return CustomDecompTable(decompositions.table())


def __getattr__(name: str) -> Any:
    if name == "passes":
        import flambeau.export.passes as passes

        return passes
    if name in _LAZY:
        value = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
        return value
    return _absent(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
