"""Exceptions of capture under the names that PyTorch has for them."""

from __future__ import annotations

from flambeau._dynamo.backends import InvalidBackend
from flambeau._dynamo.breaks import GraphBreakError

__all__ = [
    "BackendCompilerFailed", "ConstraintViolationError", "FailOnRecompileLimitHit", "InternalTorchDynamoError", "InvalidBackend", "RecompileLimitExceeded",
    "TorchDynamoException", "TorchRuntimeError", "Unsupported", "UserError",
]  # fmt: skip

# Raised by fullgraph=True where the graph would break.
Unsupported = GraphBreakError
TorchDynamoException = RuntimeError


class InternalTorchDynamoError(RuntimeError):
    """Never raised: a capture that fails is logged, and the function runs in plain Python."""


class TorchRuntimeError(RuntimeError):
    """Never raised: a graph that fails is followed by the program itself, which raises its own exception."""


class BackendCompilerFailed(RuntimeError):
    """A backend of the program raised, and `config.suppress_errors` is off."""


class ConstraintViolationError(RuntimeError):
    """A size that was promised to vary does not: the program works for one value alone."""


class RecompileError(RuntimeError):
    """A function would be captured again, and `config.error_on_recompile` is set."""


class RecompileLimitExceeded(RuntimeError):
    pass


class FailOnRecompileLimitHit(RuntimeError):
    pass


class UserError(RuntimeError):
    """What export() was told contradicts the program."""
