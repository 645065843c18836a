"""run_decompositions: operators replaced by their definitions, and writes in place by results.

A write becomes the operator that computes the same, and what reads the written tensor later reads its result. What is
written to an input is returned, and put there by who runs the program. Writes through views are refused: nothing else
would see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau._ops import OpOverload
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.export._trace import Input, Operators, record_graph
from flambeau.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.ops.symbolic.expr import Expr
from flambeau.ops.symbolic.shape_env import ShapeEnv
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau.export.exported_program import ExportedProgram


def decomposed(
    program: ExportedProgram, table: dict[Any, Any] | None, record_type: type[Operators] = Operators
) -> ExportedProgram:
    """The program without writes, its operators replaced as the table says, or as `record_type` does."""
    from flambeau.export.exported_program import ExportedProgram

    graph, written = _without_writes(program)
    inputs, env = _inputs(program)
    fakes = [one.value if one.fake is None else one.fake for one in inputs]
    mode = next(one.fake.fake_mode for one in inputs if one.fake is not None)
    assumed = len(env.guards)
    whole, returned = record_graph(
        GraphModule(program.graph_module, graph),
        mode,
        inputs,
        fakes,
        table or {},
        whole=bool(table),
        record_type=record_type,
    )
    _keep_notes(program.graph, whole.graph)
    specs = [one.spec for one in inputs]
    outputs = [OutputSpec(kind, argument, target) for (kind, target), argument in zip(written, returned)]
    outputs += [OutputSpec(OutputKind.USER_OUTPUT, argument, None) for argument in returned[len(written) :]]
    constants = dict(program.constants)
    for one in inputs:
        if one.spec.kind is InputKind.CONSTANT_TENSOR:
            constants[str(one.spec.target)] = one.value
    checks = dict.fromkeys([*program._checks, *(guard.condition for guard in env.guards[assumed:])])
    return ExportedProgram(
        whole, ExportGraphSignature(specs, outputs), program.state_dict, constants,
        program.call_spec, program._facts, program._ranges, list(checks), program.example_inputs,
        substitutions=program._substitutions, module_call_graph=program.module_call_graph, dialect="ATEN",
        size_names=program._size_names,
    )  # fmt: skip


def _keep_notes(before: Graph, after: Graph) -> None:
    """What users noted on inputs and outputs; other nodes got the notes of those that they come from."""
    noted = {n.name if n.op == "placeholder" else n.op: n.meta["custom"] for n in before.nodes if "custom" in n.meta}
    for node in after.nodes if noted else ():
        name = node.name if node.op == "placeholder" else node.op
        if name in noted and "custom" not in node.meta:
            node.meta["custom"] = noted[name]


def _inputs(program: ExportedProgram) -> tuple[list[Input], ShapeEnv]:
    """The inputs of the program again, with fakes whose sizes have the program's symbols."""
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env, keeps_history=False)
    examples = iter(pytree.tree_leaves(program.example_inputs))
    facts = {entry.name: entry for entry in program._facts}
    inputs: list[Input] = []
    symbols: dict[Any, Any] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            value = next(examples)
            shape = facts[spec.arg.name].shape or ()
        else:
            value = program.state_dict.get(str(spec.target), program.constants.get(str(spec.target)))
            shape = ()
        copied = InputSpec(spec.kind, type(spec.arg)(**vars(spec.arg)), spec.target, spec.persistent)
        if not isinstance(value, fl.Tensor):
            inputs.append(Input(copied, value, None))
            continue
        if any(isinstance(size, Expr) for size in shape):
            fake = _symbolic_fake(mode, env, value, shape, symbols)
        else:
            fake = mode.from_tensor(value, static_shapes=True)
        inputs.append(Input(copied, value, fake))
    for atom, (low, high) in program._ranges.items():
        known = symbols.get(atom.name)
        if known is not None:
            env.ranges[next(iter(known.expr.symbols))] = (low, high)
    for check in program._checks:
        env.learn(check)
    return inputs, env


def _symbolic_fake(mode: Any, env: ShapeEnv, value: Any, shape: Any, symbols: dict[Any, Any]) -> Any:
    sizes: list[Any] = []
    for size, hint in zip(shape, value.shape):
        if not isinstance(size, Expr):
            sizes.append(hint)
            continue
        if len(size.symbols) == 1 and repr(size) == next(iter(size.symbols)).name:
            name = repr(size)
            if name not in symbols:
                symbols[name] = env.create_symbol(int(hint), name=name)
            sizes.append(symbols[name])
        else:
            sizes.append(env.sym_int(size))
    return mode.fake_like(sizes, value.dtype, value.device, value.requires_grad)


# ---------------------------------------------------------------------------------------------- writes


def _writes(node: Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    first = node.target._schema.arguments[:1]
    return bool(first and first[0].is_written)


def _functional(op: OpOverload) -> Any:
    name, _, overload = op._full_name.partition(".")
    packet = getattr(getattr(fl.ops, op.namespace), name.removesuffix("_"), None)
    variant = None if packet is None or not name.endswith("_") else getattr(packet, overload or "default", None)
    if variant is None:
        raise RuntimeError(f"[run_decompositions] expected operators that have a form without writing, got {op}")
    return variant


def _without_writes(program: ExportedProgram) -> tuple[Graph, list[tuple[OutputKind, str]]]:
    """The graph with results in place of writes, those to inputs first among the outputs."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    now: dict[Node, Node] = {}  # original node -> original node whose copy has its present value
    bases: dict[Node, Node] = {}
    order = {node: i for i, node in enumerate(program.graph.nodes)}
    targets = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    changed: dict[Node, None] = {}
    for node in program.graph.nodes:
        if node.op == "output":
            written = list(changed)
            results = [copies[now[n]] for n in written] + [_mapped(v, now, copies) for v in node.args[0]]
            graph.output(tuple(results))
            break
        present = graph.node_copy(node, lambda n: copies[now.get(n, n)])
        copies[node] = present
        if not _writes(node):
            if node.op == "call_function" and isinstance(node.target, OpOverload) and _is_view(node):
                bases[node] = bases.get(node.args[0], node.args[0])
            continue
        target = node.args[0]
        base = bases.get(target, target)
        related = [n for n in order if n is not target and bases.get(n, n) is base]
        if any(order[user] > order[node] for n in related for user in n.users if user is not node):
            raise RuntimeError(f"[run_decompositions] expected no writes through views, got {node.format_node()}")
        present.target = _functional(node.target)
        while target.op == "call_function" and _writes(target):
            target = target.args[0]
        for alias in [n for n in order if n is target or (_writes(n) and n.args[0] is target)]:
            now[alias] = node
        now[node] = node
        if target.op == "placeholder":
            changed[target] = None
    outputs = []
    for node in changed:
        spec = targets[node.name]
        user = spec.kind is InputKind.USER_INPUT
        kind = OutputKind.USER_INPUT_MUTATION if user else OutputKind.BUFFER_MUTATION
        kind = OutputKind.PARAMETER_MUTATION if spec.kind is InputKind.PARAMETER else kind
        outputs.append((kind, node.name if user else str(spec.target)))
    return graph, outputs


def _mapped(value: Any, now: dict[Node, Node], copies: dict[Node, Node]) -> Any:
    return copies[now.get(value, value)] if isinstance(value, Node) else value


def _is_view(node: Node) -> bool:
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    return bool(node.args and isinstance(node.args[0], Node) and arguments and arguments[0].alias_info is not None)


__all__ = ["decomposed"]
