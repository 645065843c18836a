"""Op records and composite code; for users, also the namespaces of operators: `ops.aten.add.Tensor`, `ops.mylib.op`.

The build reads the records with nothing native at hand, so namespaces are looked up only when asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any


def __getattr__(name: str) -> Any:
    """A submodule of that name, else the namespace of operators of that name."""
    if name.startswith("__"):
        raise AttributeError(name)
    if importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    if f"{__name__.rpartition('.')[0]}._C" not in sys.modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flambeau import _ops

    namespace = _ops.special_or_namespace(name)
    globals()[name] = namespace  # so that the next look-up is an ordinary one
    return namespace
