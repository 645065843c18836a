"""run_decompositions: operators replaced by their definitions, and writes in place by results.

The graph is recorded with its operators replaced; where it writes, it is rewritten (`_functionalize`) and recorded again. What
is written to an input is returned, and put there by who runs the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau import _C
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.export._fakes import stand_in
from flambeau.export._functionalize import functionalized, has_writes
from flambeau.export._module_calls import renamed
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
from flambeau.ops.symbolic.expr import Expr, single_symbol
from flambeau.ops.symbolic.shape_env import ShapeEnv
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau.export.exported_program import ExportedProgram


def decomposed(
    program: ExportedProgram, table: dict[Any, Any] | None, record_type: type[Operators] = Operators
) -> ExportedProgram:
    """The program without writes, its operators replaced as the table says, or as `record_type` does."""
    result = _recorded(program, program.graph, [], table, record_type)
    if not has_writes(result.graph):
        return result
    graph, changed = functionalized(result.graph)
    specs = {spec.arg.name: spec for spec in result.graph_signature.input_specs}
    return _recorded(result, graph, [_written(specs[node.name]) for node in changed], table, record_type)


def _written(spec: InputSpec) -> tuple[OutputKind, str]:
    """What kind of output the new value of an input is, and of what."""
    if spec.kind is InputKind.USER_INPUT:
        return OutputKind.USER_INPUT_MUTATION, spec.arg.name
    is_parameter = spec.kind is InputKind.PARAMETER
    return OutputKind.PARAMETER_MUTATION if is_parameter else OutputKind.BUFFER_MUTATION, str(spec.target)


def _recorded(
    program: ExportedProgram,
    graph: Graph,
    written: list[tuple[OutputKind, str]],
    table: dict[Any, Any] | None,
    record_type: type[Operators],
) -> ExportedProgram:
    """The program of another graph over the same inputs, which returns new values of some of them first."""
    from flambeau.export.exported_program import ExportedProgram

    inputs, env = _inputs(program)
    fakes = [one.value if one.fake is None else one.fake for one in inputs]
    mode = next(one.fake.fake_mode for one in inputs if isinstance(one.fake, fl.Tensor))
    assumed = len(env.guards)
    earlier = [spec for spec in program.graph_signature.output_specs if spec.kind is not OutputKind.USER_OUTPUT]
    written = [*written, *((spec.kind, str(spec.target)) for spec in earlier)]
    places: dict[str, Any] = {}
    kinds = [fake.fake_device.type for fake in fakes if isinstance(fake, fl.Tensor)]
    device = _C._set_autocast_recorded_device(kinds[0])  # that mixed precision is switched on for
    try:
        whole, returned = record_graph(
            GraphModule(program.graph_module, graph), mode, inputs, fakes, table or {}, table is not None, record_type,
            places=places, functional=True,
        )  # fmt: skip
    finally:
        _C._set_autocast_recorded_device(device)
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
        substitutions=program._substitutions, module_call_graph=renamed(program.module_call_graph, places), dialect="ATEN",
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
            expr = facts[spec.arg.name].value if spec.kind is InputKind.USER_INPUT else None
            number = _number(env, expr, value, symbols) if isinstance(expr, Expr) else None
            inputs.append(Input(copied, value, number))
            continue
        if isinstance(value, FakeTensor):
            value = stand_in(value)
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


def _number(env: ShapeEnv, expr: Expr, value: int, symbols: dict[Any, Any]) -> Any:
    """The symbol of an integer that varies."""
    atom = single_symbol(expr)
    if atom is None:
        return env.sym_int(expr)
    if atom.name not in symbols:
        symbols[atom.name] = env.create_symbol(int(value), name=atom.name, lower=-(2**62))
    return symbols[atom.name]


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


__all__ = ["decomposed"]
