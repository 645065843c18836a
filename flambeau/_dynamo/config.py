"""Settings of capture. Plain module variables: `flambeau._dynamo.config.recompile_limit = 16`."""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import sys
import warnings
from typing import Any

# Artifacts a function may have before it runs in plain Python.
recompile_limit = 8
cache_size_limit = 8
accumulated_recompile_limit = 256
# Raise when a function would be captured again, or when the limit is met.
error_on_recompile = False
fail_on_recompile_limit_hit = False
# Hooks of modules are guarded, whatever this says.
skip_nnmodule_hook_guards = True
# Elements a container may have to be guarded element by element.
max_container_size = 4096
# Depth of inlined calls.
max_depth = 120
# Interpreted instructions in one capture.
max_steps = 2_000_000
# Keep numbers that are read from tensors in the graph (item, tolist), and operators whose results have sizes that depend on
# data (nonzero, unique, masks); nothing may depend on such numbers in Python. With fullgraph=True both are kept.
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
# Guard numbers by their value, always: otherwise those that changed become inputs of the graph.
specialize_int = False
specialize_float = False
# False: sizes and integers of arguments are symbols from the first call on, as with dynamic=True.
assume_static_by_default = True
# Break the graph at operators of libraries that are not tagged as good for compilation.
only_allow_pt2_compliant_ops = False
# Raise errors inside the capture instead of running in plain Python.
suppress_errors = True
# False: compile() is the identity.
enabled = True
verbose = False
# Offer Python functions that native code calls back to the compiler (PEP 523).
frame_hook = True
# How compiled functions run: see `compiler.set_stance`.
stance = "default"


# Environment variables that the compile stack reads.
_VARIABLES = (
    "FLAMBEAU_ARENA", "FLAMBEAU_CACHE_DIR", "FLAMBEAU_DUMP", "FLAMBEAU_LOGS", "FLAMBEAU_STRICT", "FLAMBEAU_VERIFY",
)  # fmt: skip


@functools.cache
def check_environment() -> None:
    """Answers names of environment variables that look like misspelt ones."""
    for name in os.environ:
        if name.startswith("FLAMBEAU") and name not in _VARIABLES:
            close = difflib.get_close_matches(name, _VARIABLES, 1, 0.85)
            if close:
                warnings.warn(
                    f"[compile] expected {close[0]} in the environment, got {name}, which nothing reads", stacklevel=2
                )


class patch(contextlib.ContextDecorator):
    """Settings for a block or a function: a name and value, a dict, or keywords."""

    def __init__(self, arg1: Any = None, arg2: Any = None, **kwargs: Any) -> None:
        changes = {arg1: arg2} if isinstance(arg1, str) else dict(arg1 or {})
        self._changes = {**changes, **kwargs}
        self._saved: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        names = globals()
        self._saved.append({name: getattr(sys.modules[__name__], name) for name in self._changes})
        names.update(self._changes)

    def __exit__(self, *error: object) -> None:
        globals().update(self._saved.pop())


def __getattr__(name: str) -> object:
    """Settings that programs set and nothing here reads."""
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
