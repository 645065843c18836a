"""Exported programs as StableHLO."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.xla.printer import Printed, print_function

__all__ = ["StableHLOGraphModule", "exported_program_to_stablehlo"]


class StableHLOGraphModule:
    """A module of StableHLO with the weights of the program; calling it runs it."""

    def __init__(self, printed: Printed, weights: list[Any]) -> None:
        self._printed, self._weights = printed, weights
        self._program: Any = None

    def get_stablehlo_text(self, method_name: str = "forward") -> str:
        return self._printed.text

    def __call__(self, *args: Any) -> Any:
        from flambeau.xla import engine

        if self._program is None:
            self._program = engine.load(self._printed)
        results = self._program([*self._weights, *args])
        return results[0] if len(results) == 1 else tuple(results)


def exported_program_to_stablehlo(exported: Any, options: Any = None) -> StableHLOGraphModule:
    """The module of an exported program; weights are its first arguments."""
    module = exported.module()
    weights = [t.detach() for t in (*module.parameters(), *module.buffers())]
    names = [*(n for n, _ in module.named_parameters()), *(n for n, _ in module.named_buffers())]
    inputs = list(exported.example_inputs[0])

    def run(*values: Any) -> list[Any]:
        state = dict(zip(names, values[: len(names)]))
        results = fl.func.functional_call(module, state, tuple(values[len(names) :]))
        return list(results) if isinstance(results, (list, tuple)) else [results]

    return StableHLOGraphModule(print_function(run, [*weights, *inputs]), weights)
