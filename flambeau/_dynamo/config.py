"""Settings of capture. Plain module variables: `flambeau._dynamo.config.recompile_limit = 16`."""

from __future__ import annotations

# Artifacts a function may have before it runs in plain Python.
recompile_limit = 8
cache_size_limit = 8
accumulated_recompile_limit = 256
# Elements a container may have to be guarded element by element.
max_container_size = 4096
# Depth of inlined calls.
max_depth = 120
# Interpreted instructions in one capture.
max_steps = 2_000_000
# Raise errors inside the capture instead of running in plain Python.
suppress_errors = True
# False: compile() is the identity.
enabled = True
verbose = False


def __getattr__(name: str) -> object:
    """Settings that programs set and nothing here reads."""
    from flambeau import _absent

    return _absent.attribute(__name__, name)
