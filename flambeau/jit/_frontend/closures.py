"""`fork`: a call that runs beside the rest, as a block of its own with the values it captures."""

from __future__ import annotations

import ast
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.sugar import Sugared
from flambeau.jit._ir import Value


class Closure(Sugared):
    """A function defined inside an archive's function: what `fork` runs."""

    what = "closure"

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        e.emit_statements(self.node.body[:-1])
        last = self.node.body[-1]
        assert isinstance(last, ast.Return)
        return e.expression(last.value)


def emit_fork(e: Any, callee: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Value:
    """`prim::fork` with the call in its block; its result is a future."""
    place = e.graph.insert("prim::fork", [])
    block = place.addBlock()
    results: list[Value] = []
    e.in_block(block, lambda: results.append(e.as_value(e.call(callee, args, kwargs, node), node)))
    block.registerOutput(results[0])
    return place.addOutput(T.FutureType(results[0].type()))
