"""The results of the profiler under an older name."""

from flambeau.profiler import EventList, FunctionEvent, FunctionEventAvg  # noqa: F401
