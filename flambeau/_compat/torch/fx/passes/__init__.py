"""The toolkit: passes over graphs and what looks at them. Modules are imported on first use."""

from __future__ import annotations

import importlib

_MODULES = (
    "activations", "annotate_getitem_nodes", "constant_folding", "cse", "dialect", "fake_tensor_prop", "graph_drawer",
    "graph_manipulation", "graph_transform_observer", "inference", "infra", "operator_support", "param_fetch",
    "pass_manager", "reinplace", "shape_prop", "split_module", "split_utils", "tools_common", "utils",
)  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
