"""The toolkit: passes over graphs and what looks at them. Modules are imported on first use."""

from __future__ import annotations

import importlib

_MODULES = (
    "activations", "constant_folding", "cse", "fake_tensor_prop", "graph_drawer", "inference", "infra", "operator_support",
    "shape_prop", "split_module", "tools_common", "utils", "dialect",
)  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
