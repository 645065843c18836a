"""Recording an exported program at several sizes, and grouping the graphs into plans."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._inductor import config
from flambeau._inductor.compile_fx import GraphCompiler
from flambeau._inductor.package import sampling
from flambeau._inductor.package.sampling import Point
from flambeau._inductor.quantized import compute_with_integers
from flambeau.ops.symbolic.expr import evaluate
from flambeau.utils import _pytree as pytree

__all__ = ["Group", "ProgramFunction", "Recording", "record"]

MOST_RECORDINGS = 600
_STEPS = (2, 4, 8)  # remainders that plans may look at


@dataclass
class UserInput:
    """A leaf of the arguments: a tensor, or a value that calls must give again."""

    name: str
    dtype: Any
    shape: tuple[Any, ...] | None  # integers and expressions; None for other values
    value: Any
    example: Any = None
    device: Any = None  # of a tensor


@dataclass
class Symbol:
    """A size that varies, and where a call shows it."""

    atom: Any
    low: int
    high: int
    input: int  # among the tensors that the user gives
    dim: int
    expr: Any  # of that size


@dataclass
class Group:
    """Points whose graphs are one plan."""

    points: list[Point]
    graphs: list[Any]


class ProgramFunction:
    """An exported program as a function of tensors: those of the model, then those of the user."""

    def __init__(self, program: Any) -> None:
        signature = program.graph_signature
        self.program = program
        self.module = copy.deepcopy(program.graph_module)
        compute_with_integers(self.module, differentiated=False)
        self.members: list[tuple[str, Any]] = []
        self.inputs: list[UserInput] = []
        self.order: list[Any] = []  # of the graph's inputs: ("member", i), ("input", i) or ("value", v)
        examples = _examples(program)
        facts = iter(zip(program._facts, examples))
        for spec in signature.input_specs:
            kind = spec.kind.name
            if kind == "USER_INPUT":
                fact, example = next(facts)
                if fact.shape is None:
                    self.order.append(("value", fact.value))
                else:
                    self.order.append(("input", sum(i.shape is not None for i in self.inputs)))
                device = example.device if isinstance(example, fl.Tensor) else fl.device("cpu")
                self.inputs.append(UserInput(fact.name, fact.dtype, fact.shape, fact.value, example, device))
            elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                name = str(spec.target)
                value = program.state_dict[name] if name in program.state_dict else program.constants[name]
                self.order.append(("member", len(self.members)))
                self.members.append((name, value.detach()))
            else:
                raise NotImplementedError(f"[package] expected tensors as inputs of a program, got {kind}")
        self.tensors = [i for i in self.inputs if i.shape is not None]
        self.member_names = {name: i for i, (name, _) in enumerate(self.members)}
        self.user_names = {i.name: k for k, i in enumerate(self.tensors)}
        tensors = [value for _, value in self.members] + [i for i in self.tensors if i.device is not None]
        self.device = next((t.device for t in tensors if t.device.type != "cpu"), fl.device("cpu"))
        self.outputs = [self._output(spec) for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]

    @staticmethod
    def _output(spec: Any) -> dict[str, Any]:
        """What the signature of the package says of an output."""
        kind = type(spec.arg).__name__
        if kind == "ConstantArgument":
            return {"kind": "value", "value": spec.arg.value}
        return {"kind": "int" if kind == "SymIntArgument" else "tensor", "name": spec.arg.name}

    def __call__(self, *tensors: Any) -> list[Any]:
        members, inputs = tensors[: len(self.members)], tensors[len(self.members) :]
        places = {"member": members, "input": inputs}
        arguments = [value if kind == "value" else places[kind][value] for kind, value in self.order]
        results = []
        for spec, value in zip(self.program.graph_signature.output_specs, self.module(*arguments)):
            kind = spec.kind.name
            if kind == "USER_OUTPUT":
                if isinstance(value, fl.Tensor):
                    results.append(value)
                elif type(spec.arg).__name__ == "SymIntArgument":
                    results.append(fl.empty((int(value), 0)))  # an integer is returned as a size, which plans can vary
            elif kind == "USER_INPUT_MUTATION":
                inputs[self.user_names[str(spec.target)]].copy_(value)
            elif kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
                members[self.member_names[str(spec.target)]].copy_(value)
            else:
                raise NotImplementedError(f"[package] expected outputs of a model, got {kind}")
        return results

    def symbols(self) -> list[Symbol]:
        """The sizes that vary. Each is read from the first size that depends on it alone."""
        symbols = []
        for atom, (low, high) in self.program._ranges.items():
            for k, tensor in enumerate(self.tensors):
                dims = [
                    d for d, e in enumerate(tensor.shape or ()) if getattr(e, "symbols", None) == frozenset((atom,))
                ]
                if dims:
                    top = sampling.LARGEST if math.isinf(high) else min(int(high), sampling.LARGEST)
                    symbols.append(Symbol(atom, max(int(low), 0), top, k, dims[0], tensor.shape[dims[0]]))  # type: ignore[index]
                    break
        return symbols

    def inputs_at(
        self, symbols: Sequence[Symbol], point: Point, fill: Callable[[UserInput, tuple[int, ...]], Any]
    ) -> list[Any]:
        """Tensors for the user's inputs with the sizes of a point."""
        values = {symbol.atom: size for symbol, size in zip(symbols, point)}
        return [fill(tensor, tensor_shape(tensor, values)) for tensor in self.tensors]


def tensor_shape(tensor: UserInput, values: dict[Any, int]) -> tuple[int, ...]:
    shape = []
    for d, size in enumerate(tensor.shape or ()):
        if size is None:  # nobody looks at it
            size = int(tensor.example.shape[d]) if tensor.example is not None else 1
        shape.append(size if isinstance(size, int) else evaluate(size, values))
    return tuple(shape)


def _examples(program: Any) -> list[Any]:
    if program.example_inputs is None:
        return [None] * len(program._facts)
    return list(pytree.tree_leaves(program.example_inputs))


def blank(tensor: UserInput, shape: tuple[int, ...]) -> Any:
    """Memory in the layout of the example, for its geometry."""
    example = tensor.example
    if example is None or example.is_contiguous() or 0 in shape:
        return fl.empty(shape, dtype=tensor.dtype, device=tensor.device)
    order = sorted(range(len(shape)), key=lambda d: (-example.stride(d), d))
    laid = fl.empty([shape[d] for d in order], dtype=tensor.dtype, device=tensor.device)
    return laid.permute([order.index(d) for d in range(len(shape))])


@dataclass
class Recording:
    """Graphs by point, grouped."""

    function: ProgramFunction
    symbols: list[Symbol]
    settings: dict[str, Any]
    graphs: dict[Point, Any] = field(default_factory=dict)
    failures: dict[Point, Exception] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.compiler = GraphCompiler(
            self.function, True, settings=self.settings, members=range(len(self.function.members))
        )
        self.members = [value for _, value in self.function.members]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [(s.low, s.high) for s in self.symbols]

    def take(self, point: Point) -> None:
        """Records the program at a point."""
        if point in self.graphs or point in self.failures or len(self.graphs) >= MOST_RECORDINGS:
            return
        inputs = self.function.inputs_at(self.symbols, point, blank)
        with fl.no_grad(), config.patch(self.settings):
            try:
                graph = self.compiler._graph_for([*self.members, *inputs])
            except Exception as error:
                if not self.symbols or min(point) >= 2:
                    raise
                self.failures[point] = error  # the program does not take sizes of zero or one
                return
        if graph is None:
            raise RuntimeError(
                "[package] expected a program whose operators do not depend on the values of tensors, got one that does"
            )
        self.graphs[point] = graph

    def groups(self, step: int = 1) -> list[Group]:
        """Plans that are known, of points with the same remainders of a step."""
        parts: dict[Point, list[Point]] = {}
        for point in self.graphs:
            parts.setdefault((*sampling.pattern_of(point), *(n % step for n in point)), []).append(point)
        ready = []
        for points in parts.values():
            # A plan settles on the sizes that vary among its first graphs: all of them should.
            random.Random(0).shuffle(points)
            for known, indices in _C._group_plans([self.graphs[p] for p in points]):
                chosen = [points[i] for i in indices]
                if known or (len(chosen) == 1 and max(sampling.pattern_of(chosen[0]), default=0) < 2):
                    ready.append(Group(chosen, [self.graphs[p] for p in chosen]))
        return ready

    def _group_of(self) -> list[int]:
        """The group that each graph is in, whether that is known or not."""
        number = dict.fromkeys(self.graphs, 0)
        points = list(self.graphs)
        random.Random(0).shuffle(points)
        for k, (_, indices) in enumerate(_C._group_plans([self.graphs[p] for p in points])):
            for i in indices:
                number[points[i]] = k
        return list(number.values())

    def groups_of_all(self) -> list[Group]:
        """Plans of several points where those are known, and else one plan for each point: together for all that is recorded."""
        points = list(self.graphs)
        ready = []
        for known, indices in _C._group_plans([self.graphs[p] for p in points]):
            chosen = [points[i] for i in indices]
            parts = [chosen] if known else [[p] for p in chosen]
            ready += [Group(part, [self.graphs[p] for p in part]) for part in parts]
        return ready

    def missing(self, groups: list[Group], points: Sequence[Point] = ()) -> list[Point]:
        """Promised sizes that no plan is for, among the given points or some all over the ranges."""
        refused = {sampling.pattern_of(p) for p in self.failures}
        points = [p for p in points or sampling.candidates(self.ranges) if sampling.pattern_of(p) not in refused]
        inputs = [self.function.inputs_at(self.symbols, p, blank) for p in points]
        return [points[i] for i in _C._uncovered([g.graphs for g in groups], len(self.members), inputs)]


def _at_every_size(recording: Recording) -> list[Group]:
    """Plans for an accelerator: grids of its kernels, and which kernel is taken, depend on sizes in steps."""
    points = sampling.every_point(recording.ranges, MOST_RECORDINGS)
    if not points:
        raise NotImplementedError(
            f"[package] expected at most {MOST_RECORDINGS} sizes in a package for an accelerator, got the ranges "
            f"{recording.ranges}"
        )
    for point in points:
        recording.take(point)
    return recording.groups_of_all()


def record(function: ProgramFunction, settings: dict[str, Any]) -> tuple[Recording, list[Group]]:
    """Records a program at the sizes that it promises to take; the plans for them."""
    recording = Recording(function, function.symbols(), settings)
    for point in (
        sampling.first_points(recording.ranges) if function.device.type == "cpu" or not recording.symbols else ()
    ):
        recording.take(point)
    if not recording.symbols:
        return recording, recording.groups()
    if function.device.type != "cpu":
        return recording, _at_every_size(recording)
    for _ in range(3):
        for point in sampling.borders(list(recording.graphs), recording._group_of()):
            recording.take(point)
    groups = recording.groups()
    for step in _STEPS:
        missing = recording.missing(groups)
        for pattern in {sampling.pattern_of(p) for p in missing}:
            for point in sampling.points_by_remainder(pattern, recording.ranges, step):
                recording.take(point)
        if missing:
            groups += recording.groups(step)
    every = sampling.every_point(recording.ranges, MOST_RECORDINGS)
    if recording.missing(groups) and every:
        for point in recording.missing(groups, every):
            recording.take(point)
            groups += [Group([p], [g]) for p, g in recording.graphs.items() if p == point]
    if missing := recording.missing(groups):
        sizes = ", ".join(f"{s.atom} = {n}" for s, n in zip(recording.symbols, missing[0]))
        raise RuntimeError(
            f"[package] expected plans for all promised sizes, got none for {sizes}; a Dim that divides evenly (8 * Dim('n')) or a "
            "smaller range may help"
        )
    return recording, groups
