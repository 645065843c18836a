"""Where programs look for the parts of `jit.trace`."""

from flambeau.jit import TracerWarning, is_tracing, trace, trace_module  # noqa: F401
from flambeau.jit._modules import TopLevelTracedModule, TracedModule  # noqa: F401
