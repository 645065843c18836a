"""One training step under a plan: compute and communication as two queues, played event by event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from flambeau.distributed.simulator.cluster import Cluster
from flambeau.distributed.simulator.profile import Layer

__all__ = ["Plan", "Report", "propose", "simulate"]

_OPTIMIZER_STATES = 2  # copies of the parameters that Adam keeps, in float32
_REDUCTIONS_OF_A_BLOCK = 2  # of activations, in forward and again in backward, with tensor parallelism


@dataclass(frozen=True)
class Plan:
    """How ranks are divided: neighbours share tensors, then stages of a pipeline, then data."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    shard: bool = False  # parameters divided over the data-parallel ranks
    microbatches: int = 1
    bucket: float = 25e6

    @property
    def size(self) -> int:
        return self.data * self.tensor * self.pipeline

    def __str__(self) -> str:
        kind = "FSDP" if self.shard else "DDP"
        return f"{kind} {self.data} x TP {self.tensor} x PP {self.pipeline}, {self.microbatches} microbatches"


@dataclass(frozen=True)
class Report:
    """Seconds and bytes of one process."""

    plan: Plan
    step: float
    compute: float
    communication: float
    exposed: float  # seconds of communication that nothing hides
    idle: float  # seconds that a pipeline waits
    memory: float

    @property
    def hidden(self) -> float:
        """The share of communication that runs behind computation."""
        return 1.0 - self.exposed / self.communication if self.communication else 1.0


class _Queues:
    """Two queues: what communicates may start when its data is there and the queue is free."""

    def __init__(self) -> None:
        self.computed = self.communicated = 0.0
        self.compute = self.communication = 0.0

    def work(self, seconds: float, after: float = 0.0) -> float:
        self.computed = max(self.computed, after) + seconds
        self.compute += seconds
        return self.computed

    def send(self, seconds: float, after: float) -> float:
        self.communicated = max(self.communicated, after) + seconds
        self.communication += seconds
        return self.communicated

    def wait(self, seconds: float) -> None:
        """Communication that the next computation needs."""
        self.computed = self.send(seconds, self.computed)


def _play(layers: list[Layer], cluster: Cluster, plan: Plan, reduces: bool) -> _Queues:
    """Forward and backward of a microbatch on one stage; with `reduces`, gradients are reduced as they come."""
    queues, stride = _Queues(), plan.tensor * plan.pipeline
    seconds = [layer.operations / plan.tensor / cluster.operations for layer in layers]
    sizes = [layer.parameters / plan.tensor for layer in layers]

    def gathered(i: int) -> float:
        """When a block's parameters are whole; gathering runs one block ahead."""
        return queues.send(cluster.gather(sizes[i], plan.data, stride), 0.0) if plan.shard else 0.0

    def reduce_activations(layer: Layer) -> None:
        if plan.tensor > 1 and layer.operations:
            queues.wait(_REDUCTIONS_OF_A_BLOCK * cluster.all_reduce(layer.output, plan.tensor))

    ready = gathered(0)
    for i, layer in enumerate(layers):
        following = gathered(i + 1) if i + 1 < len(layers) else 0.0
        queues.work(seconds[i], ready)
        reduce_activations(layer)
        ready = following
    pending = 0.0
    ready = queues.computed
    for i in reversed(range(len(layers))):
        following = gathered(i - 1) if i and plan.shard else 0.0
        queues.work(2 * seconds[i], ready)
        reduce_activations(layers[i])
        ready = following
        if plan.shard and reduces:
            queues.send(cluster.gather(sizes[i], plan.data, stride), queues.computed)
            continue
        pending += sizes[i]
        if reduces and (pending >= plan.bucket or i == 0):
            queues.send(cluster.all_reduce(pending, plan.data, stride), queues.computed)
            pending = 0.0
    return queues


def _stages(layers: list[Layer], count: int) -> list[list[Layer]]:
    """Neighbouring blocks with about the same number of operations."""
    total, stages, done = sum(layer.operations for layer in layers), [[] for _ in range(count)], 0.0  # type: ignore[var-annotated]
    for layer in layers:
        index = min(count - 1, int((done + layer.operations / 2) / total * count)) if total else 0
        stages[index].append(layer)
        done += layer.operations
    return stages


def _memory(layers: list[Layer], plan: Plan) -> float:
    """Parameters, gradients, the optimizer's state, and the activations of the microbatches that are under way."""
    parameters = sum(layer.parameters for layer in layers) / plan.tensor
    divided = plan.data if plan.shard else 1
    whole = max((layer.parameters for layer in layers), default=0.0) / plan.tensor if plan.shard else 0.0
    activations = sum(layer.activations for layer in layers) / plan.tensor / plan.microbatches
    under_way = min(plan.microbatches, plan.pipeline)
    return parameters * (2 + _OPTIMIZER_STATES) / divided + 2 * whole + activations * under_way


def simulate(layers: list[Layer], cluster: Cluster, plan: Plan) -> Report:
    """One step of a batch that the layers were profiled with; each data-parallel rank has a batch of that size."""
    if plan.size > cluster.size:
        raise ValueError(f"[simulate] expected a plan of at most {cluster.size} processes, got {plan.size}")
    if plan.pipeline > 1 and plan.microbatches < plan.pipeline:
        raise ValueError(f"[simulate] expected at least {plan.pipeline} microbatches, got {plan.microbatches}")
    parts = [
        replace(layer, operations=layer.operations / plan.microbatches, output=layer.output / plan.microbatches)
        for layer in layers
    ]
    slowest: tuple[float, _Queues, _Queues, list[Layer]] | None = None
    for stage in _stages(parts, plan.pipeline):
        one, last = _play(stage, cluster, plan, False), _play(stage, cluster, plan, True)
        seconds = one.computed * (plan.microbatches - 1) + max(last.computed, last.communicated)
        if slowest is None or seconds > slowest[0]:
            slowest = (seconds, one, last, stage)
    assert slowest is not None
    seconds, one, last, stage = slowest
    handed_on = stage[-1].output / plan.tensor if stage else 0.0
    messages = 2 * cluster.send(handed_on, plan.tensor) if plan.pipeline > 1 else 0.0
    # One microbatch fills the pipeline stage by stage and empties it again.
    idle = (plan.pipeline - 1) * (one.computed + messages)
    repeated = plan.microbatches - 1
    compute = one.compute * repeated + last.compute
    communication = (
        one.communication * repeated + last.communication + messages * (plan.microbatches + plan.pipeline - 1)
    )
    step = seconds + idle + messages * plan.microbatches
    memory = max(_memory(own, plan) for own in _stages(layers, plan.pipeline))
    return Report(plan, step, compute, communication, max(0.0, step - compute - idle), idle, memory)


def _plans(cluster: Cluster) -> Iterator[Plan]:
    size = cluster.size
    for tensor in (t for t in range(1, cluster.gpus + 1) if cluster.gpus % t == 0):
        for pipeline in (p for p in range(1, size // tensor + 1) if (size // tensor) % p == 0):
            data = size // tensor // pipeline
            for microbatches in (1,) if pipeline == 1 else (pipeline, 4 * pipeline):
                yield Plan(data, tensor, pipeline, False, microbatches)
                if data > 1:
                    yield Plan(data, tensor, pipeline, True, microbatches)


def propose(layers: list[Layer], cluster: Cluster, count: int = 5) -> list[Report]:
    """The fastest plans that fit into memory, per sample; when none fits, those that need least."""
    stages = sum(1 for layer in layers if layer.operations)
    reports = [simulate(layers, cluster, plan) for plan in _plans(cluster) if plan.pipeline <= max(stages, 1)]
    fitting = [report for report in reports if report.memory <= cluster.memory]
    if not fitting:
        return sorted(reports, key=lambda report: report.memory)[:count]
    return sorted(fitting, key=lambda report: report.step / report.plan.data)[:count]
