"""Programs without Python: `export` captures a module as a graph of operators with its state and the sizes it is good for.

    program = export(model, (x,), dynamic_shapes={"x": {0: Dim("batch")}})
    program.module()(y)
    save(program, "model.pt2")

`_trace` makes the graph, `dynamic_shapes` decides which sizes may vary, `exported_program` runs it, `_decompose` takes
operators apart and removes writes, `_serialize` writes and reads files.
"""

from __future__ import annotations

from flambeau._compat import absent
from flambeau.export._serialize import load, save
from flambeau.export._trace import export
from flambeau.export.dynamic_shapes import Dim, dims
from flambeau.export.exported_program import ExportedProgram
from flambeau.export.graph_signature import ExportGraphSignature
from flambeau.utils._pytree import register_dataclass

__all__ = ["Dim", "ExportGraphSignature", "ExportedProgram", "dims", "export", "load", "register_dataclass", "save"]

__getattr__ = absent.names_of(__name__)
