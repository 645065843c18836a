"""Tracing asserts: PyTorch rewrites the source for it, here the tracer knows an assert by its bytecode."""

from __future__ import annotations

from flambeau.fx._symbolic_trace import Tracer

__all__ = ["RewritingTracer"]


class RewritingTracer(Tracer):
    """A tracer that records `assert` on a proxy as a call of `torch._assert`."""

    trace_asserts = True
