"""Running several passes, in an order that keeps their constraints, as often as wanted."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.passes.infra.pass_base import PassResult

__all__ = ["PassManager", "inplace_wrapper", "pass_result_wrapper", "this_before_that_pass_constraint"]

Pass = Callable[..., Any]


def pass_result_wrapper(fn: Pass) -> Pass:
    """Let a function that changes a module in place, or returns a new one, be used as a pass."""

    @wraps(fn)
    def wrapped(module: GraphModule) -> PassResult:
        result = fn(module)
        if isinstance(result, PassResult):
            return result
        return PassResult(result if isinstance(result, GraphModule) else module, True)

    return wrapped


inplace_wrapper = pass_result_wrapper


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Callable[[Pass, Pass], bool]:
    """A constraint: `this` runs before `that`."""
    return lambda a, b: not (a == that and b == this)


class PassManager:
    """Runs passes over a module.

    steps                       how often the whole sequence runs (it stops when nothing changes)
    run_checks_after_each_pass  verify the graph after each pass
    """

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Callable[[Pass, Pass], bool]] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = True,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes = list(passes or [])
        self.constraints = list(constraints or [])
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def add_pass(self, _pass: Pass) -> None:
        self.passes.append(_pass)

    def add_constraint(self, constraint: Callable[[Pass, Pass], bool]) -> None:
        self.constraints.append(constraint)

    def add_checks(self, check: Callable[[GraphModule], None]) -> None:
        """Run a further check after each pass."""
        before = self.check

        def both(module: GraphModule) -> None:
            before(module)
            check(module)

        self.check = both  # type: ignore[method-assign]

    def solve_constraints(self) -> None:
        """Order the passes so that all constraints hold."""
        left = list(self.passes)
        ordered: list[Pass] = []
        while left:
            for candidate in left:
                if all(c(candidate, other) for c in self.constraints for other in left if other is not candidate):
                    ordered.append(candidate)
                    left.remove(candidate)
                    break
            else:
                raise RuntimeError("[PassManager] expected constraints that some order keeps, got a circle")
        self.passes = ordered

    validate_constraints = solve_constraints

    def check(self, module: GraphModule) -> None:
        """What must hold after each pass."""
        module.graph.lint()

    def __call__(self, module: GraphModule) -> PassResult:
        if self.constraints:
            self.solve_constraints()
        changed_at_all = False
        for _ in range(self.steps):
            changed = False
            for function in self.passes:
                try:
                    result = function(module)
                except Exception as error:
                    name = getattr(function, "__name__", type(function).__name__)
                    raise RuntimeError(
                        f"[PassManager] expected {name} to run, got {type(error).__name__}: {error}"
                    ) from error
                if isinstance(result, PassResult):
                    module, changed = result.graph_module, changed or result.modified
                elif isinstance(result, GraphModule):
                    module, changed = result, True
                module.recompile()
                if self.run_checks_after_each_pass and not self.suppress_check_failures:
                    self.check(module)
            changed_at_all = changed_at_all or changed
            if not changed:
                break
        return PassResult(module, changed_at_all)
