"""Layers one after the other become one, by the patterns of a backend."""

from __future__ import annotations

from typing import Any

from flambeau.ao.nn.intrinsic import _FusedModule
from flambeau.ao.quantization.backend_config import BackendConfig
from flambeau.fx import GraphModule, Node

__all__ = ["fuse"]


def fuse(model: GraphModule, is_qat: bool, backend_config: BackendConfig) -> None:
    """Fuses what the backend has a method for, the longest patterns first, in place."""
    patterns = {c.pattern: c for c in backend_config.configs if isinstance(c.pattern, tuple) and c.fuser_method}
    longest = max((len(p) for p in patterns), default=0)
    modules = dict(model.named_modules(remove_duplicate=False))
    for node in list(model.graph.nodes):
        if node.op != "call_module" or isinstance(modules.get(str(node.target)), _FusedModule):
            continue
        chain = _chain(node, modules, longest)
        for count in range(len(chain), 1, -1):
            kinds = tuple(kind for _, kind, _ in chain[:count])
            config = patterns.get(kinds)
            if config is not None and _apply(model, chain[:count], config, is_qat, modules):
                break
    model.graph.lint()
    model.delete_all_unused_submodules()
    model.recompile()


def _chain(node: Node, modules: dict[str, Any], longest: int) -> list[tuple[Node, Any, Any]]:
    """Calls that each alone read the one before: the node, its class or function, its module."""
    chain: list[tuple[Node, Any, Any]] = []
    current: Node | None = node
    while current is not None and len(chain) < longest:
        if current.op == "call_module":
            module = modules.get(str(current.target))
            chain.append((current, type(module), module))
        elif current.op == "call_function":
            chain.append((current, current.target, None))
        else:
            break
        current = next(iter(current.users)) if len(current.users) == 1 else None
    return chain


def _apply(model: GraphModule, chain: list[Any], config: Any, is_qat: bool, modules: dict[str, Any]) -> bool:
    from flambeau import nn

    parts = [nn.ReLU() if module is None else module for _, _, module in chain]
    norms = [part for part in parts if "Norm" in type(part).__name__]
    if norms and is_qat != parts[0].training:
        return False
    try:
        fused = config.fuser_method(is_qat, *parts)
    except NotImplementedError:
        return False
    fused.training = parts[0].training
    for part in parts:  # the configuration is that of the first, which stays in place
        if hasattr(part, "qconfig"):
            fused.qconfig = part.qconfig
            break
    first, last = chain[0][0], chain[-1][0]
    path, _, name = str(first.target).rpartition(".")
    setattr(model.get_submodule(path) if path else model, name, fused)
    modules[str(first.target)] = fused
    last.replace_all_uses_with(first)
    for node, _, _ in reversed(chain[1:]):
        model.graph.erase_node(node)
    return True
