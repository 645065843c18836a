"""Schedules: in which order a process runs the forward and backward passes of its stages' microbatches."""

from __future__ import annotations

import csv
import enum
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau
from flambeau.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks
from flambeau.distributed.pipelining.stage import PipelineStage

__all__ = [
    "PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe",
    "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble",
    "get_schedule_class",
]  # fmt: skip

Action = tuple[str, int, int]  # "F" or "B", stage, microbatch


class _ComputationType(enum.Enum):
    """What an action of a schedule does, by the letters of tables of schedules."""

    FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, UNSHARD, RESHARD = "F", "I", "W", "UNSHARD", "RESHARD"
    SEND_F, RECV_F, SEND_B, RECV_B = "SEND_F", "RECV_F", "SEND_B", "RECV_B"
    FULL_BACKWARD, OVERLAP_F_B, REDUCE_GRAD = "B", "OVERLAP_F_B", "REDUCE_GRAD"

    def __str__(self) -> str:
        return self.value


FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = (
    _ComputationType.FORWARD, _ComputationType.BACKWARD_INPUT, _ComputationType.BACKWARD_WEIGHT,
)  # fmt: skip
UNSHARD, RESHARD, REDUCE_GRAD = _ComputationType.UNSHARD, _ComputationType.RESHARD, _ComputationType.REDUCE_GRAD
SEND_F, RECV_F, SEND_B, RECV_B = (
    _ComputationType.SEND_F, _ComputationType.RECV_F, _ComputationType.SEND_B, _ComputationType.RECV_B,
)  # fmt: skip
FULL_BACKWARD, OVERLAP_F_B = _ComputationType.FULL_BACKWARD, _ComputationType.OVERLAP_F_B
_NOTATION = re.compile(
    r"(\d+)(" + "|".join(sorted((kind.value for kind in _ComputationType), key=len, reverse=True)) + r")(\d*)"
)


class _Action(NamedTuple):
    """An action as tables of schedules write it: "1F0" is the forward pass of stage 1 for microbatch 0."""

    stage_index: int
    computation_type: _ComputationType
    microbatch_index: int | None = None
    sub_actions: tuple[_Action, ...] | None = None

    def __repr__(self) -> str:
        number = "" if self.microbatch_index is None else self.microbatch_index
        return f"{self.stage_index}{self.computation_type}{number}"

    @staticmethod
    def from_str(action_string: str) -> _Action | None:
        text = action_string.strip()
        if not text:
            return None
        match = _NOTATION.fullmatch(text)
        if match is None:
            raise RuntimeError(
                f"[pipelining] Invalid action string: {action_string}, should be formatted as 'stage''action type'(microbatch)"
            )
        stage, kind, number = match.groups()
        return _Action(int(stage), _ComputationType(kind), int(number) if number else None)


class _Schedule:
    """Runs the actions of this process."""

    def __init__(
        self,
        stages: list[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        self._stages = {stage.stage_index: stage for stage in stages}
        for stage in stages:
            stage.neighbours = {i: other for i, other in self._stages.items() if other is not stage}
        self._n_microbatches, self._loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        self._args_spec, self._kwargs_spec, self._merge_spec = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        self._num_stages = stages[0].num_stages
        self._has_backward = loss_fn is not None

    def actions(self) -> list[Action]:
        raise NotImplementedError

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        **kwargs: Any,
    ) -> Any:
        """One batch: inputs on the first stage, targets on the last, whose outputs are returned."""
        chunks, named = split_args_kwargs_into_chunks(
            args, kwargs, self._n_microbatches, self._args_spec, self._kwargs_spec
        )
        if len(chunks) != self._n_microbatches:
            raise ValueError(
                f"[pipelining] expected a batch for {self._n_microbatches} microbatches, got one for {len(chunks)}"
            )
        targets = list(flambeau.tensor_split(target, self._n_microbatches)) if target is not None else None
        outputs, microbatch_losses = self._run(chunks, named, targets, self._has_backward)
        if losses is not None:
            losses.clear()
            losses.extend(microbatch_losses[i] for i in sorted(microbatch_losses))
        if self._has_backward and self.scale_grads:
            for stage in self._stages.values():
                stage.scale_grads(self._n_microbatches)
        last = self._stages.get(self._num_stages - 1)
        return (
            merge_chunks([outputs[i] for i in sorted(outputs)], self._merge_spec) if last and return_outputs else None
        )

    def eval(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """Forward only."""
        before, self._has_backward = self._has_backward, False
        try:
            with flambeau.no_grad():
                return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before

    def _run(
        self, chunks: list[Any], named: list[Any], targets: Any, trains: bool
    ) -> tuple[dict[int, Any], dict[int, Any]]:
        outputs: dict[int, Any] = {}
        losses: dict[int, Any] = {}
        for kind, index, microbatch in self.actions():
            stage = self._stages[index]
            if kind == "F":
                output = stage.forward_one(microbatch, chunks[microbatch], named[microbatch])
                if stage.is_last:
                    outputs[microbatch] = output
                    if self._loss_fn is not None and targets is not None:
                        losses[microbatch] = self._loss_fn(output, targets[microbatch])
            elif trains:
                stage.backward_one(microbatch, losses.get(microbatch))
        for stage in self._stages.values():
            stage.finish()
        return outputs, losses


class PipelineScheduleSingle(_Schedule):
    """Schedules of one stage for each process."""

    def __init__(self, stage: PipelineStage, n_microbatches: int, loss_fn: Any = None, **options: Any) -> None:
        super().__init__([stage], n_microbatches, loss_fn, **options)
        self._stage = stage


class ScheduleGPipe(PipelineScheduleSingle):
    """All forward passes, then all backward passes."""

    def actions(self) -> list[Action]:
        index, count = self._stage.stage_index, self._n_microbatches
        return [("F", index, i) for i in range(count)] + [("B", index, i) for i in range(count)]


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward, after as many forward passes as there are stages from here on."""

    def __init__(self, stage: PipelineStage, n_microbatches: int, loss_fn: Any = None, **options: Any) -> None:
        super().__init__(stage, n_microbatches, loss_fn, **options)
        if n_microbatches < self._num_stages:
            raise ValueError(
                f"[Schedule1F1B] Number of microbatches ({n_microbatches}) must be greater than or equal to the number of "
                f"stages ({self._num_stages})."
            )

    def actions(self) -> list[Action]:
        index, count = self._stage.stage_index, self._n_microbatches
        warm = min(count, self._num_stages - index)
        order: list[Action] = [("F", index, i) for i in range(warm)]
        for i in range(count):
            order.append(("B", index, i))
            if warm + i < count:
                order.append(("F", index, warm + i))
        return order


class PipelineScheduleMulti(_Schedule):
    """Schedules of several stages for each process."""

    def __init__(self, stages: list[PipelineStage], n_microbatches: int, loss_fn: Any = None, **options: Any) -> None:
        options.pop("use_full_backward", None)
        options.pop("backward_requires_autograd", None)
        super().__init__(stages, n_microbatches, loss_fn, **options)
        self.stage_to_rank = self.place(stages[0].num_stages, stages[0].group_size)
        for stage in stages:
            stage.stage_to_rank = self.stage_to_rank
            if self.stage_to_rank[stage.stage_index] != stage.group_rank:
                raise ValueError(
                    f"[pipelining] expected stage {stage.stage_index} on rank {self.stage_to_rank[stage.stage_index]} of the "
                    f"group, got it on rank {stage.group_rank}"
                )

    @staticmethod
    def place(stages: int, ranks: int) -> list[int]:
        """The rank of each stage: in turn."""
        return [stage % ranks for stage in range(stages)]


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """Stage after stage, all microbatches of each."""

    def actions(self) -> list[Action]:
        order, count = sorted(self._stages), self._n_microbatches
        forward: list[Action] = [("F", index, i) for index in order for i in range(count)]
        return forward + [("B", index, i) for index in reversed(order) for i in reversed(range(count))]


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """Every process plays the whole pipeline through, step by step, and takes its own actions from it: backward passes first,
    forward passes as long as no more microbatches are under way than stages need."""

    def actions(self) -> list[Action]:
        first = next(iter(self._stages.values()))
        ranks, stages, count = first.group_size, self._num_stages, self._n_microbatches
        done: set[Action] = set()
        order: dict[int, list[Action]] = {rank: [] for rank in range(ranks)}
        flying = [0] * ranks
        while len(done) < 2 * stages * count:
            chosen = [self._choose(rank, ranks, stages, count, done, flying) for rank in range(ranks)]
            if not any(chosen):
                flying = [0] * ranks  # the limit was too low for this shape of the pipeline
                continue
            for rank, action in enumerate(chosen):
                if action is not None:
                    done.add(action)
                    order[rank].append(action)
                    flying[rank] += 1 if action[0] == "F" else -1
        return order[first.group_rank]

    def _choose(
        self, rank: int, ranks: int, stages: int, count: int, done: set[Action], flying: list[int]
    ) -> Action | None:
        own = [stage for stage, place in enumerate(self.stage_to_rank) if place == rank]
        for stage in reversed(own):
            for i in range(count):
                ready = ("F", stage, i) in done and (stage == stages - 1 or ("B", stage + 1, i) in done)
                if ("B", stage, i) not in done and ready:
                    return ("B", stage, i)
        limit = (len(own) - 1) * ranks + 2 * (ranks - rank)
        if flying[rank] >= limit:
            return None
        for stage in reversed(own):
            for i in range(count):
                ready = stage == 0 or ("F", stage - 1, i) in done
                if ("F", stage, i) not in done and ready:
                    return ("F", stage, i)
        return None


class ScheduleInterleavedZeroBubble(ScheduleInterleaved1F1B):
    """The order of `ScheduleInterleaved1F1B`. Gradients of weights are computed together with those of inputs, not later in
    the bubbles: results are the same, the bubbles remain."""


class ScheduleZBVZeroBubble(ScheduleInterleaved1F1B):
    """Two stages for each rank, down the ranks and up again, so that the last stage lies beside the first. As in
    `ScheduleInterleavedZeroBubble`, gradients of weights are not deferred."""

    @staticmethod
    def place(stages: int, ranks: int) -> list[int]:
        if stages != 2 * ranks:
            raise ValueError(f"[pipelining] expected two stages for each of {ranks} ranks, got {stages}")
        return [*range(ranks), *reversed(range(ranks))]


class ScheduleDualPipeV(ScheduleZBVZeroBubble):
    """Stages placed as in `ScheduleZBVZeroBubble`; forward and backward passes are not overlapped with each other."""


class _PipelineScheduleRuntime(PipelineScheduleMulti):
    """Plays a table of actions, a row for each rank. A backward pass that the table divides runs where the gradients of inputs are due."""

    pipeline_order: dict[int, list[_Action | None]]

    def _load_csv(self, filename: str, format: str = "compute_only") -> None:
        if format not in ("compute_only", "compute_comms"):
            raise AssertionError(f"[pipelining] expected the format 'compute_only' or 'compute_comms', got {format!r}")
        with open(filename, newline="") as file:
            rows = [[_Action.from_str(cell) for cell in row] for row in csv.reader(file)]
        self.pipeline_order = dict(enumerate(rows))

    def _prepare_schedule_with_comms(
        self, actions: dict[int, list[_Action | None]], format: str = "compute_only"
    ) -> None:
        self.pipeline_order = {rank: list(row) for rank, row in actions.items()}

    def actions(self) -> list[Action]:
        kinds = {FORWARD: "F", FULL_BACKWARD: "B", BACKWARD_INPUT: "B"}
        own = self.pipeline_order[next(iter(self._stages.values())).group_rank]
        return [
            (kinds[a.computation_type], a.stage_index, a.microbatch_index or 0)
            for a in own
            if a is not None and a.computation_type in kinds
        ]


_PipelineSchedule = _Schedule
_CLASSES: dict[str, type[_Schedule]] = {
    "gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "loopedbfs": ScheduleLoopedBFS,
    "interleaved1f1b": ScheduleInterleaved1F1B, "interleavedzerobubble": ScheduleInterleavedZeroBubble,
    "zbvzerobubble": ScheduleZBVZeroBubble, "dualpipev": ScheduleDualPipeV,
    "pipelineschedulesingle": PipelineScheduleSingle, "pipelineschedulemulti": PipelineScheduleMulti,
}  # fmt: skip


def get_schedule_class(schedule_name: str) -> type[_Schedule]:
    schedule_class = _CLASSES.get(schedule_name.lower())
    if schedule_class is None:
        raise ValueError(f"[pipelining] expected one of the schedules {sorted(_CLASSES)}, got {schedule_name!r}")
    return schedule_class
