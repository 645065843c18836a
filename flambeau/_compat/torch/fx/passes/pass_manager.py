"""A list of functions from module to module, with constraints on their order: the older of two pass managers."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from inspect import unwrap
from typing import Any

from flambeau.fx.passes.infra.pass_manager import this_before_that_pass_constraint

__all__ = [
    "PassManager", "inplace_wrapper", "log_hook", "loop_pass", "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]  # fmt: skip
logger = logging.getLogger(__name__)
Function = Callable[..., Any]


def inplace_wrapper(fn: Function) -> Function:
    """A pass that changes its argument, as one that returns it."""

    @functools.wraps(fn)
    def wrapped(gm: Any) -> Any:
        fn(gm)
        return gm

    return wrapped


def log_hook(fn: Function, level: int = logging.INFO) -> Function:
    """A pass that is logged when it runs."""

    @functools.wraps(fn)
    def wrapped(gm: Any) -> Any:
        value = fn(gm)
        logger.log(level, "Ran pass %s: %s", fn, value)
        return value

    return wrapped


def loop_pass(base_pass: Function, n_iter: int | None = None, predicate: Function | None = None) -> Function:
    """A pass run n_iter times, or until predicate of its result is false."""
    if (n_iter is None) == (predicate is None):
        raise AssertionError("[loop_pass] expected one of n_iter and predicate, got both or neither")

    @functools.wraps(base_pass)
    def looped(source: Any) -> Any:
        output = source
        if n_iter is not None:
            for _ in range(n_iter):
                output = base_pass(output)
            return output
        assert predicate is not None
        while predicate(output):
            output = base_pass(output)
        return output

    return looped


def these_before_those_pass_constraint(these: Function, those: Function) -> Callable[[Function, Function], bool]:
    """That passes made from one function come before those made from another."""
    return lambda a, b: not (unwrap(a) is unwrap(those) and unwrap(b) is unwrap(these))


class PassManager:
    """Runs passes one after the other; `constraints` are functions of two passes that say whether the first may come
    before the second."""

    def __init__(self, passes: list[Function] | None = None, constraints: list[Function] | None = None) -> None:
        self.passes = passes or []
        self.constraints = constraints or []
        self._validated = False

    @classmethod
    def build_from_passlist(cls, passes: list[Function]) -> PassManager:
        return cls(passes)

    def add_pass(self, _pass: Function) -> None:
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Function) -> None:
        self.constraints.append(constraint)
        self._validated = False

    def remove_pass(self, _passes: list[str]) -> None:
        self.passes = [p for p in self.passes if p.__name__ not in _passes]
        self._validated = False

    def replace_pass(self, _target: Function, _replacement: Function) -> None:
        self.passes = [_replacement if p.__name__ == _target.__name__ else p for p in self.passes]
        self._validated = False

    def validate(self) -> None:
        """Check that the order of the passes meets all constraints."""
        if self._validated:
            return
        for i, a in enumerate(self.passes):
            for b in self.passes[i + 1 :]:
                if not all(constraint(a, b) for constraint in self.constraints):
                    raise RuntimeError(f"[PassManager] expected passes in an order their constraints allow, got {a} before {b}")  # fmt: skip
        self._validated = True

    def __call__(self, source: Any) -> Any:
        self.validate()
        for _pass in self.passes:
            source = _pass(source)
        return source
