"""How modules were called in a program: the entries of `module_call_graph`."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from flambeau._dynamo.graph_builder import Tracepoint
from flambeau.export.exported_program import ModuleCallEntry, ModuleCallSignature
from flambeau.export.graph_signature import ConstantArgument, SymIntArgument, TensorArgument
from flambeau.fx.node import Node
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt
from flambeau.utils import _pytree as pytree

__all__ = ["argument_of", "module_calls", "positional_names", "renamed"]

Noted = tuple[Tracepoint, list[Any]]  # where a call begins or ends, and the nodes or values of the leaves


def argument_of(value: Any) -> Any:
    """A node or a plain value as signatures have it."""
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    symbolic = isinstance(value.meta.get("val"), (SymInt, SymFloat, SymBool))
    return SymIntArgument(value.name) if symbolic else TensorArgument(value.name)


def module_calls(
    mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out_spec: Any, noted: list[Noted]
) -> list[ModuleCallEntry]:
    """An entry for the whole and one for each module inside, with the signatures of those that were noted."""
    in_spec = pytree.tree_structure((args, kwargs))
    whole = ModuleCallSignature([], [], in_spec, out_spec, _argument_names(mod, in_spec))
    signatures = _signatures(mod, noted)
    paths = [path for path, _ in mod.named_modules(remove_duplicate=False) if path]
    again = [path for path in signatures if path not in paths]
    return [ModuleCallEntry("", whole), *(ModuleCallEntry(path, signatures.get(path)) for path in (*paths, *again))]


def renamed(entries: list[ModuleCallEntry], places: dict[str, Node]) -> list[ModuleCallEntry]:
    """The entries of a program whose values are those of another graph's nodes."""

    def moved(argument: Any) -> Any:
        node = places.get(getattr(argument, "name", ""))
        return argument if node is None else argument_of(node)

    def entry_of(entry: ModuleCallEntry) -> ModuleCallEntry:
        signature = entry.signature
        if signature is None or not entry.fqn:
            return entry
        inputs, outputs = ([moved(one) for one in each] for each in (signature.inputs, signature.outputs))
        return ModuleCallEntry(entry.fqn, dataclasses.replace(signature, inputs=inputs, outputs=outputs))

    return [entry_of(entry) for entry in entries]


def _signatures(mod: Any, noted: list[Noted]) -> dict[str, ModuleCallSignature]:
    signatures: dict[str, ModuleCallSignature] = {}
    open_calls: list[Noted] = []
    counts: dict[str, int] = {}
    for point, values in noted:
        if not open_calls or open_calls[-1][0].path != point.path:
            open_calls.append((point, values))
            continue
        begin, inputs = open_calls.pop()
        number = counts.get(point.path, 0)
        counts[point.path] = number + 1
        names = _argument_names(mod.get_submodule(point.path), begin.spec)
        signatures[f"{point.path}@{number}" if number else point.path] = ModuleCallSignature(
            [argument_of(value) for value in inputs], [argument_of(value) for value in values],
            begin.spec, point.spec, names,
        )  # fmt: skip
    return signatures


def _argument_names(mod: Any, in_spec: Any) -> list[str]:
    """The names of the arguments of a call of forward, positional ones first."""
    args, kwargs = in_spec.children_specs
    positional = positional_names(mod, args.num_children)
    return [*positional, *(str(name) for name in kwargs.context or () if name not in positional)]


def positional_names(mod: Any, count: int) -> list[str]:
    """Names of positional arguments; those of `*xs` are xs_0, xs_1 and so on."""
    parameters = list(inspect.signature(mod.forward).parameters.values())
    first = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), len(parameters))
    return [parameters[i].name if i < first else f"{parameters[first].name}_{i - first}" for i in range(count)]
