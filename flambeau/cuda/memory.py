"""Memory of CUDA devices, under the name programs import it by."""

from flambeau.cuda import (  # noqa: F401
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_peak_memory_stats,
)
