"""ExportedProgram: a graph of operators with its state, and what has to hold for its inputs."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import flambeau as fl
from flambeau.export.dynamic_shapes import ValueRanges
from flambeau.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind
from flambeau.fx.graph_module import GraphModule
from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import Atom, Expr, Number, bounds, evaluate, single_symbol
from flambeau.ops.symbolic.printing import python_condition, python_text
from flambeau.utils import _pytree as pytree

__all__ = ["ExportedProgram"]


class CallSpec(NamedTuple):
    """How arguments and results are made of leaves."""

    in_spec: Any
    out_spec: Any


class InputFacts(NamedTuple):
    """What a call has to give for one leaf of the arguments."""

    name: str
    dtype: Any  # None for values that are no tensors
    shape: tuple[Any, ...] | None  # numbers, expressions of symbols, and None where any size will do
    value: Any


class SpecViolationError(Exception):
    """A program whose graph is not what its dialect allows."""


class Verifier:
    """Checks programs of a dialect: TRAINING graphs may write, ATEN graphs return what they would write."""

    dialect = "TRAINING"

    @staticmethod
    def of(dialect: str) -> type[Verifier]:
        return type("Verifier", (Verifier,), {"dialect": dialect})

    def check(self, program: ExportedProgram) -> None:
        names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
        if names != [spec.arg.name for spec in program.graph_signature.input_specs]:
            raise SpecViolationError(f"[export] expected inputs of the signature, got {names}")
        for node in program.graph.nodes:
            if node.op not in ("placeholder", "call_function", "get_attr", "output"):
                raise SpecViolationError(f"[export] expected a graph of operators, got a node {node.op} {node.target}")
        (output,) = (node for node in program.graph.nodes if node.op == "output")
        if len(output.args[0]) != len(program.graph_signature.output_specs):
            raise SpecViolationError(
                f"[export] expected {len(program.graph_signature.output_specs)} outputs, got {len(output.args[0])}"
            )
        for name in program.graph_signature.parameters:
            if name not in program.state_dict:
                raise SpecViolationError(f"[export] expected parameter {name} in the state dict, got none")


@dataclasses.dataclass
class ModuleCallSignature:
    """How a module is called: which values of the graph go in and come out, and how they are arranged."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


@dataclasses.dataclass
class ModuleCallEntry:
    """A module of the original; the signature is known of those that were to be preserved, and of the whole."""

    fqn: str
    signature: ModuleCallSignature | None = None


class ExportedProgram:
    """A program without Python: `module()` gives something to call."""

    def __init__(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        constants: dict[str, Any],
        call_spec: CallSpec,
        facts: list[InputFacts],
        ranges: dict[Atom, tuple[Number, Number]],
        checks: list[Condition],
        example_inputs: Any = None,
        *,
        substitutions: dict[Atom, Expr] | None = None,
        module_call_graph: list[ModuleCallEntry] | None = None,
        dialect: str = "TRAINING",
        size_names: dict[Atom, str] | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.graph_signature = graph_signature
        self.state_dict = state_dict
        self.constants = constants
        self.call_spec = call_spec
        self.example_inputs = example_inputs
        self._facts = facts
        self._ranges = ranges
        self._checks = checks
        self._substitutions = substitutions or {}  # sizes of the graph in terms of those that have ranges
        self._size_names = size_names or {}  # what the user calls them
        self.module_call_graph = module_call_graph or [self._whole_call()]
        self.dialect = dialect

    @property
    def example_inputs(self) -> Any:
        """Positional and keyword arguments that the program was made with, or that take their place."""
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value: Any) -> None:
        if value is not None:
            fits = isinstance(value, tuple) and len(value) == 2
            if not fits or not isinstance(value[0], tuple) or not isinstance(value[1], dict):
                raise ValueError(
                    f"[example_inputs] expected (args, kwargs), got {type(value).__name__}: Example inputs should be a tuple "
                    "of example arguments, as a tuple, and example keyword arguments, as a dictionary"
                )
            self._check_examples(*value)
        self._example_inputs = value

    def _check_examples(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        wanted = self.call_spec.in_spec
        keywords = wanted.children_specs[1].context
        if sorted(keywords) != sorted(kwargs):
            raise ValueError(
                f"[example_inputs] expected keywords {list(keywords)}, got {list(kwargs)}: Ran into a kwarg keyword mismatch"
            )
        spec = pytree.tree_structure((args, {name: kwargs[name] for name in keywords}))
        if spec != wanted:
            raise ValueError(
                f"[example_inputs] expected inputs of the structure {wanted}, got {spec}: Trying to flatten user inputs "
                "that do not match the exported program's"
            )

    def _whole_call(self) -> ModuleCallEntry:
        return ModuleCallEntry("", ModuleCallSignature([], [], self.call_spec.in_spec, self.call_spec.out_spec))

    @property
    def graph(self) -> Any:
        return self.graph_module.graph

    @property
    def tensor_constants(self) -> dict[str, Any]:
        return self.constants

    @property
    def range_constraints(self) -> dict[Any, ValueRanges]:
        """The range of each symbol that sizes are written with, and of sizes that are computed from these."""
        ranges: dict[Any, ValueRanges] = {atom: ValueRanges.of(*span) for atom, span in self._ranges.items()}
        for size in self._substitutions.values():  # those that follow others, as expressions
            if size not in ranges and single_symbol(size) is None:
                ranges[size] = ValueRanges.of(*bounds(size, self._ranges))
        return ranges

    @property
    def verifiers(self) -> list[type[Verifier]]:
        return [Verifier.of(self.dialect)]

    @property
    def verifier(self) -> type[Verifier]:
        return Verifier.of(self.dialect)

    def validate(self) -> None:
        """Raises where the graph and the signature do not fit."""
        self.verifier().check(self)

    _validate = validate

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        yield from ((name, self.state_dict[name]) for name in self.graph_signature.parameters)

    def parameters(self) -> Iterator[Any]:
        yield from (value for _, value in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        for name in self.graph_signature.buffers:
            yield name, self.state_dict[name] if name in self.state_dict else self.constants[name]

    def buffers(self) -> Iterator[Any]:
        yield from (value for _, value in self.named_buffers())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("[export] expected a call of program.module(), got one of the program itself")

    def __str__(self) -> str:
        text = self.graph_module.print_readable(print_output=False)
        code = "\n".join(f"    {line}" for line in text.rstrip().splitlines())
        return f"ExportedProgram:\n{code}\n\nGraph signature: {self.graph_signature}\nRange constraints: {self.range_constraints}\n"

    __repr__ = __str__

    def module(self, check_guards: bool = True) -> Any:
        """A module that runs the program, with the signature and the state dict of the original one."""
        from flambeau.export._unlift import unlift

        return unlift(self, check_guards)

    def run_decompositions(self, decomp_table: dict[Any, Any] | None = None) -> ExportedProgram:
        """The program with operators replaced by their definitions and without writes: what the graph changed, it
        returns. The table has functions for operators; by default operators that are nothing but their definition are
        taken apart."""
        from flambeau.export._decompose import decomposed

        return decomposed(self, decomp_table)

    def _update(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature,
        *,
        state_dict: dict[str, Any] | None = None,
        constants: dict[str, Any] | None = None,
        verifiers: list[Any] | None = None,
    ) -> ExportedProgram:
        """The program with another graph, in place of this one."""
        program = copy.copy(self)
        program.graph_module, program.graph_signature = graph_module, graph_signature
        program.state_dict = self.state_dict if state_dict is None else state_dict
        program.constants = self.constants if constants is None else constants
        for verifier in verifiers or ():
            program.dialect = verifier.dialect
        _merge_getitems(graph_module)
        program.validate()
        return program

    def _size_places(self) -> dict[Atom, str]:
        """Where calls give the value of each symbol, as Python text: `L['x'].size()[0]`."""
        entry = self.module_call_graph[0]
        names = (entry.signature.forward_arg_names if entry.signature else None) or []
        template = pytree.tree_unflatten([None] * self.call_spec.in_spec.num_leaves, self.call_spec.in_spec)
        paths = [path for path, _ in pytree.tree_leaves_with_path(template, is_leaf=lambda x: x is None)]
        places: dict[Atom, str] = {}
        for facts, path in zip(self._facts, paths):
            if facts.dtype is int and isinstance(facts.value, Expr):
                number = single_symbol(facts.value)
                if number is not None:
                    places.setdefault(number, _path_text(path, names))
            for dim, size in enumerate(facts.shape or ()):
                atom = single_symbol(size) if isinstance(size, Expr) else None
                if atom is not None and atom not in places:
                    places[atom] = f"{_path_text(path, names)}.size()[{dim}]"
        return places

    # ------------------------------------------------------------------------------------------ checks

    def _note_number(
        self, facts: InputFacts, leaf: int, values: dict[Atom, int], names: dict[Atom, str], pending: list[Any]
    ) -> None:
        """An integer of a call: the value of a symbol, or to be compared."""
        atom = single_symbol(facts.value) if isinstance(facts.value, Expr) else None
        if atom is not None and atom not in values:
            values[atom], names[atom] = leaf, facts.name
        elif isinstance(facts.value, Expr):
            pending.append((facts.name, leaf, facts.value))
        elif facts.value is not None:
            _require(leaf == facts.value, f"{facts.name} == {facts.value}", leaf)

    def _note_derived(
        self, place: str, size: int, wanted: Expr, values: dict[Atom, int], names: dict[Atom, str]
    ) -> None:
        """The value of a symbol that calls give a multiple of, and nothing else."""
        rest = wanted - wanted.constant
        if len(rest.terms) != 1 or wanted.symbols <= values.keys():
            return
        ((monomial, factor),) = rest.terms.items()
        if len(monomial) == 1 and monomial[0] in wanted.symbols:
            value, remainder = divmod(size - wanted.constant, factor)
            text = python_text(wanted, lambda atom: atom.name)
            _require(not remainder, f"{place} == {text} for a whole number", size)
            values[monomial[0]], names[monomial[0]] = int(value), f"({place} - {wanted.constant}) // {factor}"

    def _check_inputs(self, leaves: list[Any]) -> None:
        """Raises where a call gives what the program was not made for."""
        values: dict[Atom, int] = {}
        names: dict[Atom, str] = {}
        pending: list[tuple[str, int, Expr]] = []
        for facts, leaf in zip(self._facts, leaves):
            if facts.shape is None:
                same = type(leaf) is type(facts.value) and leaf == facts.value
                _require(same, f"{facts.name} == {facts.value!r}", leaf)
                continue
            if facts.dtype is int:
                _require(type(leaf) is int, f"isinstance({facts.name}, int)", type(leaf).__name__)
                self._note_number(facts, leaf, values, names, pending)
                continue
            _require(isinstance(leaf, fl.Tensor), f"isinstance({facts.name}, Tensor)", type(leaf).__name__)
            _require(leaf.ndim == len(facts.shape), f"{facts.name}.dim() == {len(facts.shape)}", leaf.ndim)
            _require(leaf.dtype == facts.dtype, f"{facts.name}.dtype == {facts.dtype}", leaf.dtype)
            for dim, (wanted, size) in enumerate(zip(facts.shape, leaf.shape)):
                place = f"{facts.name}.size()[{dim}]"
                if isinstance(wanted, int):
                    _require(size == wanted, f"{place} == {wanted}", size)
                elif wanted is not None:
                    atom = single_symbol(wanted)
                    if atom is not None and atom not in values:
                        values[atom], names[atom] = size, place
                    else:
                        pending.append((place, size, wanted))
        for place, size, wanted in pending:
            self._note_derived(place, size, wanted, values, names)
        for atom, (low, high) in self._ranges.items():
            if atom in values:
                _require(values[atom] >= low, f"{names[atom]} >= {low}", values[atom])
                _require(values[atom] <= high, f"{names[atom]} <= {high}", values[atom])
        for place, size, wanted in pending:
            if wanted.symbols <= values.keys():
                expected = evaluate(wanted, values)
                text = python_text(wanted, lambda atom: names.get(atom, atom.name))
                _require(size == expected, f"{place} == {text}", f"{size} and {expected}")
        for condition in self._checks:
            if condition.symbols <= values.keys():
                text = python_condition(condition, lambda atom: names.get(atom, atom.name))
                _require(condition.holds(values), text, [values[atom] for atom in sorted(condition.symbols)])


def _merge_getitems(graph_module: GraphModule) -> None:
    """Leaves one node for each item of a result."""
    first: dict[tuple[Any, Any], Any] = {}
    for node in list(graph_module.graph.nodes):
        if node.op != "call_function" or node.target is not operator.getitem:
            continue
        first_item = first.setdefault((node.args[0], node.args[1]), node)
        if first_item is not node:
            node.replace_all_uses_with(first_item)
            graph_module.graph.erase_node(node)
    graph_module.recompile()


def _path_text(path: Any, names: list[str]) -> str:
    """Where a leaf of the arguments is, by the names of forward's parameters."""
    which, first, *rest = [next(iter(vars(key).values())) for key in path]
    if which == 0:
        first = names[first] if first < len(names) else f"arg{first}"
    return f"L[{first!r}]" + "".join(f"[{key!r}]" for key in rest)


def _require(holds: Any, text: str, actual: Any) -> None:
    if not holds:
        raise AssertionError(f"Guard failed: {text} (the program was exported for this), got {actual}")


def settle(signature: ExportGraphSignature, results: Any, state: dict[str, Any], leaves: list[Any]) -> list[Any]:
    """Writes back what a graph returns in place of writing it; the results for the user."""
    users = {s.arg.name: leaf for s, leaf in zip(signature._inputs(InputKind.USER_INPUT), leaves)}
    outputs = []
    for spec, value in zip(signature.output_specs, results):
        if spec.kind is OutputKind.USER_OUTPUT:
            outputs.append(spec.arg.value if isinstance(spec.arg, ConstantArgument) else value)
        elif spec.target is not None:
            target = users[spec.target] if spec.kind is OutputKind.USER_INPUT_MUTATION else state[spec.target]
            with fl.no_grad():
                target.copy_(value)
    return outputs
