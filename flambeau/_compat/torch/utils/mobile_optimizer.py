"""Scripted modules for small machines: frozen, without dropout, with normalization folded into convolutions."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import flambeau as fl

__all__ = ["LintCode", "MobileOptimizerType", "generate_mobile_module_lints", "optimize_for_mobile"]


class MobileOptimizerType(enum.Enum):
    """Passes that a blocklist names. Those after `REMOVE_DROPOUT` are of libraries that are not used here: kernels pack
    weights themselves."""

    CONV_BN_FUSION = 0
    INSERT_FOLD_PREPACK_OPS = 1
    REMOVE_DROPOUT = 2
    FUSE_ADD_RELU = 3
    HOIST_CONV_PACKED_PARAMS = 4
    VULKAN_AUTOMATIC_GPU_TRANSFER = 5


class LintCode(enum.Enum):
    BUNDLED_INPUT = 1
    REQUIRES_GRAD = 2
    DROPOUT = 3
    BATCHNORM = 4


def _check(script_module: Any) -> None:
    if not isinstance(script_module, fl.jit.ScriptModule):
        raise TypeError(f"[mobile_optimizer] expected a ScriptModule, got {type(script_module).__name__}")


def optimize_for_mobile(
    script_module: Any,
    optimization_blocklist: set[MobileOptimizerType] | None = None,
    preserved_methods: list[Any] | None = None,
    backend: str = "CPU",
) -> Any:
    """A frozen copy of a scripted module for inference on the CPU; `preserved_methods` are kept beside `forward`."""
    _check(script_module)
    if backend.lower() != "cpu":
        raise TypeError(f"[optimize_for_mobile] expected the backend 'CPU', got {backend!r}")
    methods = [m.decode() if isinstance(m, bytes) else str(m) for m in preserved_methods or ()]
    missing = [m for m in methods if not hasattr(script_module, m)]
    if missing:
        raise AttributeError(f"[optimize_for_mobile] expected methods of the module, got {', '.join(missing)}")
    blocked = optimization_blocklist or set()
    training = script_module.training
    script_module.eval()
    try:
        return fl.jit.freeze(script_module, methods, MobileOptimizerType.CONV_BN_FUSION not in blocked)
    finally:
        script_module.train(training)


def _lints(script_module: Any) -> Iterator[tuple[LintCode, str]]:
    if not hasattr(script_module, "_generate_bundled_inputs_for_forward"):
        yield LintCode.BUNDLED_INPUT, "expected bundled inputs for forward, got none"
    for name, parameter in script_module.named_parameters():
        if parameter.requires_grad:
            yield LintCode.REQUIRES_GRAD, f"parameter {name} requires grad, which inference does not need"
    operators = {node.kind() for node in script_module.inlined_graph.walk()}
    for code, operator in (LintCode.DROPOUT, "aten::dropout"), (LintCode.BATCHNORM, "aten::batch_norm"):
        if operator in operators:
            yield code, f"operator {operator} exists; eval() and optimize_for_mobile() remove it"


def generate_mobile_module_lints(script_module: Any) -> list[dict[str, str]]:
    """What should be mended before a module is saved for a small machine: names of `LintCode` and messages."""
    _check(script_module)
    return [{"name": code.name, "message": message} for code, message in _lints(script_module)]
