"""What a capture found: graphs, operations, breaks, guards and times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau._dynamo.breaks import Break
from flambeau._dynamo.compile import Report, Settings
from flambeau._inductor.failures import remembered


class ExplainOutput:
    """The result of explain(); prints as a summary."""

    def __init__(self, report: Report, result: Any) -> None:
        self.graphs = report.graphs
        self.graph_count = len(report.graphs)
        self.break_reasons: list[Break] = report.breaks
        self.graph_break_count = len(report.breaks)
        self.op_count = report.operations
        self.ops_per_graph = [
            [node.target for node in g.graph.nodes if node.op.startswith("call")] for g in report.graphs
        ]
        self.out_guards = report.guards
        self.compile_times = report.times
        self.artifacts = report.artifacts
        self.skipped = report.skips
        self.backend_failures = remembered()  # of this process, the last ones
        self.result = result

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            f"Guards: {len(self.out_guards)}",
            f"Capture Time: {sum(self.compile_times) * 1e3:.1f} ms",
            "Break Reasons:" if self.break_reasons or self.skipped else "Break Reasons: none",
        ]
        lines += [f"  {i + 1}: " + str(reason).replace("\n", "\n   ") for i, reason in enumerate(self.break_reasons)]
        lines += [f"  in plain Python: {reason}" for reason in self.skipped]
        if self.backend_failures:
            lines += ["Backend Failures:", *(f"  {failure}" for failure in self.backend_failures)]
        return "\n".join(lines)

    __repr__ = __str__


def explain(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExplainOutput:
    from flambeau.compiler import compile_with

    settings = Settings("eager")
    settings.report = Report()
    target = getattr(function, "_dynamo_function", function)
    compiled = compile_with(target, settings)
    result = compiled(*args, **kwargs)
    return ExplainOutput(settings.report, result)


@contextmanager
def explaining() -> Iterator[list[tuple[str, ExplainOutput]]]:
    """Inside, compile() only captures; the list that is handed out is filled at the end, one entry for each call."""
    from flambeau import compiler

    compile_with = compiler.compile_with
    reports: list[tuple[str, Report]] = []
    explained: list[tuple[str, ExplainOutput]] = []

    def capture(model: Any, settings: Any) -> Any:
        if settings.report is not None:  # the program asks for a report itself
            return compile_with(model, settings)
        observed = Settings("eager", settings.fullgraph, settings.dynamic)
        observed.report = Report()
        reports.append((getattr(model, "__qualname__", type(model).__qualname__), observed.report))
        return compile_with(model, observed)

    compiler.compile_with = capture
    try:
        yield explained
    finally:
        compiler.compile_with = compile_with
        explained += [(name, ExplainOutput(report, None)) for name, report in reports]
