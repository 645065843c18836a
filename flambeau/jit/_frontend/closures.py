"""`fork` and `_awaitable`: calls that run beside the rest or later, as blocks of their own with the values they capture."""

from __future__ import annotations

import ast
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.sugar import Sugared
from flambeau.jit._ir import Value


class Closure(Sugared):
    """A function defined inside an archive's function: what `fork` or `awaitable` runs."""

    what = "closure"

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        e.emit_statements(self.node.body[:-1])
        last = self.node.body[-1]
        assert isinstance(last, ast.Return)
        return e.expression(last.value)


KINDS = {"fork": T.FutureType, "awaitable": T.AwaitType}


def emit_closure(what: str, e: Any, callee: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Value:
    """`prim::fork` or `prim::awaitable` with the call in its block; its result is a future or an await."""
    place = e.graph.insert(f"prim::{what}", [])
    block = place.addBlock()
    results: list[Value] = []
    e.in_block(block, lambda: results.append(e.as_value(e.call(callee, args, kwargs, node), node)))
    block.registerOutput(results[0])
    return place.addOutput(KINDS[what](results[0].type()))
