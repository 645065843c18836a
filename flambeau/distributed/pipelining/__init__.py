"""Pipeline parallelism: stages of a model on different processes, and schedules that keep them busy with microbatches."""

from flambeau._compat import absent
from flambeau.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
    get_schedule_class,
)
from flambeau.distributed.pipelining.stage import PipelineStage

__all__ = [
    "PipelineScheduleMulti", "PipelineScheduleSingle", "PipelineStage", "Schedule1F1B", "ScheduleGPipe",
    "ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "get_schedule_class",
]  # fmt: skip

__getattr__ = absent.names_of(__name__)
