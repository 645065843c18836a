"""`pipeline`: a model divided into stages at named submodules, or where it calls `pipe_split`."""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass
from typing import Any

from flambeau import fx, nn
from flambeau.distributed.pipelining.stage import PipelineStage
from flambeau.utils import _pytree as pytree

__all__ = ["Pipe", "SplitPoint", "build_stage", "pipe_split", "pipeline"]


class SplitPoint(enum.Enum):
    """Whether a stage begins before a submodule or ends after it."""

    BEGINNING = 1
    END = 2


_tracing: Any = None  # the tracer while a model is divided


def pipe_split() -> None:
    """In a model's forward: the next stage begins here. Does nothing when the model just runs."""
    if _tracing is not None:
        _tracing.create_node("call_function", pipe_split, (), {})


class _Tracer(fx.Tracer):
    """Leaves submodules whole unless they contain a place where the model is divided."""

    def __init__(self, names: list[str], splits_inside: bool) -> None:
        super().__init__()
        self.names, self.splits_inside = names, splits_inside

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        if self.splits_inside:
            return super().is_leaf_module(m, module_qualified_name)
        inside = any(name.startswith(f"{module_qualified_name}.") for name in self.names)
        return not inside


@dataclass
class PipeInfo:
    """What `build_stage` has to know of a pipeline."""

    graph: fx.Graph
    num_stages: int
    has_loss_and_backward: bool = False


def _chain(stages: list[Any]) -> Any:
    """A graph module that calls the stages one after the other."""
    root, graph = nn.Module(), fx.Graph()
    values = [graph.placeholder(node.name) for node in stages[0].graph.find_nodes(op="placeholder")]
    for index, stage in enumerate(stages):
        name = f"submod_pp_{index}"
        root.add_module(name, stage)
        result = graph.call_module(name, tuple(values))
        (leaving,) = next(iter(stage.graph.find_nodes(op="output"))).args
        is_tuple = index + 1 < len(stages) and isinstance(leaving, tuple)
        places = range(len(leaving)) if is_tuple else ()
        values = [graph.call_function(operator.getitem, (result, place)) for place in places] or [result]
    graph.output(tuple(values))
    return fx.GraphModule(root, graph)


class Pipe(nn.Module):
    """The stages of a model, in order; called, it runs all of them, and returns a tuple of results."""

    def __init__(self, stages: list[Any]) -> None:
        super().__init__()
        self.split_gm = _chain(stages)
        self.num_stages = len(stages)
        self.has_loss_and_backward = False

    def info(self) -> PipeInfo:
        """What `build_stage` takes."""
        return PipeInfo(self.split_gm.graph, self.num_stages, self.has_loss_and_backward)

    def __repr__(self) -> str:
        return repr(self.split_gm)

    def print_readable(self) -> None:
        self.split_gm.print_readable()

    def get_stage_module(self, stage_idx: int) -> Any:
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"[Pipe] Invalid stage index {stage_idx}!")
        return self.split_gm.get_submodule(f"submod_pp_{stage_idx}")

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        return PipelineStage(self.get_stage_module(stage_index), stage_index, self.num_stages, device, group=group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        values: Any = self.get_stage_module(0)(*args, **kwargs)
        for index in range(1, self.num_stages):
            stage = self.get_stage_module(index)
            values = stage(*values) if isinstance(values, tuple) else stage(values)
        return tuple(pytree.tree_leaves(values))


def build_stage(
    stage_module: Any, stage_index: int, pipe_info: PipeInfo, device: Any, group: Any = None
) -> PipelineStage:
    """A stage of a divided model whose module was changed or wrapped after the division."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)


def _stage_of_nodes(graph: Any, spec: dict[str, SplitPoint]) -> dict[Any, int]:
    """The stage of each node: counted up where the model is divided."""
    stage, numbers = 0, {}
    for node in graph.nodes:
        is_split = node.op == "call_function" and node.target is pipe_split
        where = spec.get(str(node.target)) if node.op == "call_module" else None
        if is_split or where is SplitPoint.BEGINNING:
            stage += 1
        numbers[node] = stage
        if where is SplitPoint.END:
            stage += 1
    last = max((number for node, number in numbers.items() if node.op != "output"), default=0)
    return {node: min(number, last) for node, number in numbers.items()}


def _build(module: Any, graph: Any, numbers: dict[Any, int]) -> list[Any]:
    count = max(numbers.values()) + 1
    nodes = [n for n in graph.nodes if n.target is not pipe_split]
    output = next(n for n in nodes if n.op == "output")
    # A value lives until the last stage that reads it, and is handed on through those between.
    last_use = {n: max((numbers[user] for user in n.users), default=numbers[n]) for n in nodes}
    stages = []
    for stage in range(count):
        part, copies = fx.Graph(), {}
        if stage > 0:
            for n in nodes:
                if n.op not in ("output", "get_attr") and numbers[n] < stage <= last_use[n]:
                    copies[n] = part.placeholder(n.name)
        for n in nodes:
            if n.op == "output" or (numbers[n] != stage and not (n.op == "get_attr" and stage <= last_use[n])):
                continue
            copies[n] = part.node_copy(n, lambda old: copies[old])  # noqa: B023
        if stage == count - 1:
            part.output(fx.map_arg(output.args[0], lambda old: copies[old]))  # noqa: B023
        else:
            leaving = [n for n in nodes if n in copies and n.op not in ("get_attr", "output") and last_use[n] > stage]
            part.output(tuple(copies[n] for n in leaving) if len(leaving) != 1 else copies[leaving[0]])
        stages.append(fx.GraphModule(module, part))
    return stages


def pipeline(
    module: Any,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Any = None,
) -> Pipe:
    """Divides a model: at the submodules that `split_spec` names, or at its calls of `pipe_split`."""
    spec = split_spec or {}
    global _tracing
    tracer = _Tracer(list(spec), not spec)
    _tracing = tracer
    try:
        graph = tracer.trace(module)
    finally:
        _tracing = None
    known = {str(node.target) for node in graph.nodes if node.op == "call_module"}
    for name in spec:
        if name not in known:
            raise ValueError(f"[pipeline] expected the name of a submodule that is called, got {name!r}")
    return Pipe(_build(module, graph, _stage_of_nodes(graph, spec)))
