"""Pipeline parallelism: stages of a model on different processes, and schedules that keep them busy with microbatches."""

from flambeau.distributed.pipelining._IR import Pipe, SplitPoint, build_stage, pipe_split, pipeline
from flambeau.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    get_schedule_class,
)
from flambeau.distributed.pipelining.stage import PipelineStage

__all__ = [
    "Pipe", "PipelineScheduleMulti", "PipelineScheduleSingle", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV",
    "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble", "SplitPoint", "build_stage", "get_schedule_class", "pipe_split", "pipeline",
]  # fmt: skip
