"""An older name of the profiler."""

from flambeau.autograd.profiler import profile  # noqa: F401
