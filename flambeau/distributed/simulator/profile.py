"""What a model's blocks do: operations, bytes of parameters, bytes of activations. Run on tensors without data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau.utils import _pytree as pytree
from flambeau.utils.flop_counter import FlopCounterMode

__all__ = ["Layer", "profile"]


@dataclass(frozen=True)
class Layer:
    """A block of a model, for one batch on one process."""

    name: str
    operations: float  # of forward; backward takes twice as many
    parameters: float  # bytes
    activations: float  # bytes that forward keeps for backward
    output: float  # bytes that go to the next block


def _bytes(value: Any) -> int:
    return sum(
        one.numel() * one.element_size() for one in pytree.tree_leaves(value) if isinstance(one, flambeau.Tensor)
    )


def _blocks(module: Any, name: str = "") -> list[tuple[str, Any]]:
    """Modules that compute as a unit: entries of lists and sequences, and what lies beside these."""
    blocks: list[tuple[str, Any]] = []
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}" if name else child_name
        lists = isinstance(child, (flambeau.nn.ModuleList, flambeau.nn.Sequential, flambeau.nn.ModuleDict))
        holds_list = any(isinstance(one, flambeau.nn.ModuleList) for one in child.modules())
        if lists or holds_list:
            blocks += _blocks(child, full)
        else:
            blocks.append((full, child))
    return blocks


def profile(model: Any, inputs: tuple[Any, ...]) -> list[Layer]:
    """The blocks of a model in the order in which forward runs them. Model and inputs may be on meta, which costs nothing."""
    blocks = _blocks(model) or [("", model)]
    saved_bytes: dict[str, int] = {name: 0 for name, _ in blocks}
    outputs: dict[str, int] = {}
    handles = []

    def watch(name: str, leaf: Any, is_block: bool) -> None:
        def after(_: Any, __: Any, output: Any) -> None:
            if not list(leaf.children()):
                saved_bytes[name] += _bytes(output)
            if is_block:
                outputs[name] = _bytes(output)

        handles.append(leaf.register_forward_hook(after))

    for name, block in blocks:
        for leaf in block.modules():
            watch(name, leaf, leaf is block)
    counter = FlopCounterMode(display=False)
    try:
        with flambeau.no_grad(), counter:
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    root = type(model).__name__
    counts = {key: float(sum(by_operator.values())) for key, by_operator in counter.get_flop_counts().items()}
    layers, seen = [], set()  # type: ignore[var-annotated]
    for name, block in blocks:
        if name not in outputs and name:
            continue  # forward does not call it as a module
        own = [p for p in block.parameters() if id(p) not in seen]
        seen.update(id(p) for p in own)
        key = f"{root}.{name}" if name else root
        layers.append(Layer(name, counts.get(key, 0.0), _bytes(own), saved_bytes[name], outputs.get(name, 0)))
    return layers
