"""Blocks: branches, loops, and leaving them early.

Values are assigned once, so a branch that assigns a variable gives it back as an output of the `prim::If`, and a loop carries it. `return`,
`break` and `continue` set flags that the environment holds under names that programs cannot use; a flag is a plain bool as long as it is
known while compiling. What follows a branch that always leaves goes into the other branch, which avoids most flags.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._frontend.conditions import Condition
from flambeau.jit._frontend.sugar import Several, Sugared
from flambeau.jit._ir import Block, Node, Value

EXITED, RETURNED, BROKE, RAISED, RESULT = "$exited", "$returned", "$broke", "$raised", "$result"
FLAGS = (EXITED, RETURNED, BROKE)
MAX_TRIPS = 2**63 - 1


class Undefined:
    """A variable that cannot be used after a branch or loop, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def always_exits(statements: list[ast.stmt]) -> bool:
    """Whether control never reaches the end of the statements."""
    for statement in statements:
        if isinstance(statement, (ast.Return, ast.Break, ast.Continue, ast.Raise)):
            return True
        if isinstance(statement, ast.If) and always_exits(statement.body) and always_exits(statement.orelse):
            return True
        if isinstance(statement, ast.With) and always_exits(statement.body):
            return True
    return False


def has_exit(
    statements: list[ast.stmt], kinds: Any = (ast.Return, ast.Break, ast.Continue), in_loops: bool = True
) -> bool:
    """Whether statements contain an exit that concerns the code around them."""
    for statement in statements:
        if isinstance(statement, kinds):
            return True
        inner = kinds
        if isinstance(statement, (ast.For, ast.While)):
            inner = tuple(k for k in (kinds if isinstance(kinds, tuple) else (kinds,)) if k is ast.Return)
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue
        for part in ("body", "orelse"):
            if inner and has_exit(getattr(statement, part, []), inner):
                return True
    return False


def assigned_names(statements: list[ast.stmt]) -> list[str]:
    """Variables that statements assign, in order."""
    names: dict[str, None] = {}
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
                names[node.id] = None
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                names[node.target.id] = None
    return list(names)


class Control:
    """The part of the emitter that builds blocks."""

    graph: Any
    env: dict[str, Any]
    entry: dict[str, Any]

    # ------------------------------------------------------------------ blocks

    def in_block(self, block: Block, work: Callable[[], None]) -> dict[str, Any]:
        """Emit into a block with an environment of its own, which is returned."""
        outer_block, outer_env, outer_entry = self.graph.insert_block, self.env, self.entry
        self.graph.insert_block = block
        self.env = dict(outer_env)
        self.entry = dict(outer_env)
        try:
            work()
            return self.env
        finally:
            self.graph.insert_block, self.env, self.entry = outer_block, outer_env, outer_entry

    def flag_value(self, flag: Any) -> Value:
        return flag if isinstance(flag, Value) else self.graph.insertConstant(bool(flag))

    # ------------------------------------------------------------------ branches

    def emit_if(self, condition: Condition, then: Callable[[], None], other: Callable[[], None], node: Any) -> None:
        """A branch on a condition, with what it says about types in force inside."""
        if condition.static is not None:
            self.refine(condition.if_true if condition.static else condition.if_false)
            (then if condition.static else other)()
            return
        self.graph.current_range = self.source.range_of(node)
        place: Node = self.graph.insert("prim::If", [condition.value])
        envs = []
        for refinements, work in ((condition.if_true, then), (condition.if_false, other)):

            def refined(refinements: Any = refinements, work: Any = work) -> None:
                self.refine(refinements)
                work()

            envs.append(self.in_block(place.addBlock(), refined))
        self.merge(place, envs, node)

    def merge(self, place: Node, envs: list[dict[str, Any]], node: Any) -> None:
        """Give back the variables that the branches assigned."""
        raised = [bool(env.get(RAISED)) for env in envs]
        if all(raised):
            self.env[RAISED] = self.env[EXITED] = True
        exits = [env.get(RETURNED) is True for env in envs]
        names = list(dict.fromkeys([*envs[0], *envs[1]]))
        for name in names:
            if name == RAISED:
                continue
            if name in FLAGS:
                self._merge_flag(place, name, [env.get(name, False) for env in envs], raised)
                continue
            self._merge_variable(place, name, [env.get(name) for env in envs], raised, exits, node)

    def _merge_flag(self, place: Node, name: str, flags: list[Any], raised: list[bool]) -> None:
        if raised[0] != raised[1]:
            remaining_flag = flags[1] if raised[0] else flags[0]
            if not isinstance(remaining_flag, Value) or name != EXITED:
                flags = [remaining_flag, remaining_flag] if not isinstance(remaining_flag, Value) else flags
        if not isinstance(flags[0], Value) and not isinstance(flags[1], Value) and bool(flags[0]) == bool(flags[1]):
            self.env[name] = bool(flags[0])
            return
        if flags[0] is flags[1]:
            self.env[name] = flags[0]
            return
        for block, flag in zip(place._blocks, flags):
            block.registerOutput(self._inside(block, partial(self.flag_value, flag)))
        self.env[name] = place.addOutput(T.BOOL)

    def _inside(self, block: Block, work: Callable[[], Any]) -> Any:
        outer = self.graph.insert_block
        self.graph.insert_block = block
        try:
            return work()
        finally:
            self.graph.insert_block = outer

    def _merge_variable(
        self, place: Node, name: str, values: list[Any], raised: list[bool], exits: list[bool], node: Any
    ) -> None:
        before = self.env.get(name)
        if values[0] is values[1]:
            self.env[name] = values[0]
            return
        # A branch that leaves does not say what its variables are afterwards.
        left = [r or (x and name != RESULT) for r, x in zip(raised, exits)]
        if left[0] and left[1]:
            return
        origins = [self.unrefined(v) for v in values]
        if not any(left) and origins[0] is origins[1] and isinstance(origins[0], Value):
            self.env[name] = origins[0]
            return
        if any(left):
            surviving = values[1] if left[0] else values[0]
            if surviving is before or not isinstance(surviving, Value):
                if surviving is not None:
                    self.env[name] = surviving
                return
            values = [None if gone else value for gone, value in zip(left, values)]
        elif name == RESULT:
            pass
        elif any(v is None or isinstance(v, Undefined) for v in values):
            index = 0 if values[0] is None or isinstance(values[0], Undefined) else 1
            if not name.startswith("$"):
                which = ("true", "false")[index]
                reason = f"{name} is not defined in the {which} branch"
                if isinstance(values[index], Undefined):
                    reason = values[index].reason
                self.env[name] = Undefined(f"{reason}:\n{self.source.range_of(node).highlight()}")
            return
        if any(v is not None and not isinstance(v, Value) for v in values):
            values = [self._inside(b, partial(self._as_output, v, node)) for b, v in zip(place._blocks, values)]
            if any(v is None for v in values):
                self.env[name] = Undefined(
                    f"{name} is a different Python object in each branch:\n{self.source.range_of(node).highlight()}"
                )
                return
        self._output(place, name, values, before, node)

    def _as_output(self, value: Any, node: Any) -> Value | None:
        if isinstance(value, Several):
            return value.value(self, node)  # type: ignore[arg-type]
        return value if isinstance(value, Value) else None

    def _output(self, place: Node, name: str, values: list[Any], before: Any, node: Any) -> None:
        present = [v for v in values if v is not None]
        kind: T.JitType | None = present[0].type()
        for value in present[1:]:
            kind = T.unify(kind, value.type()) if kind is not None else None
        declared = self.declared.get(name) if name != RESULT else self.result_type
        if kind is None and declared is not None and all(T.is_subtype(v.type(), declared) for v in present):
            kind = declared
        if kind is None and name == RESULT:
            raise self.error(
                node,
                f"Previous return statement returned a value of type {present[0].type().annotation_str} but this return statement returns a value of type {present[1].type().annotation_str}",
            )
        if kind is None:
            reason = (
                f"Type mismatch: {name} is set to type {values[0].type().annotation_str} in the true branch and type "
                f"{values[1].type().annotation_str} in the false branch"
            )
            self.env[name] = Undefined(f"{reason}:\n{self.source.range_of(node).highlight()}")
            return
        for block, value in zip(place._blocks, values):
            if value is None:
                value = self._inside(block, lambda: self.graph.insert("prim::Uninitialized", [], [kind])._outputs[0])
            block.registerOutput(value)
        output = place.addOutput(kind)
        if not name.startswith("$"):
            output.setDebugName(f"{name}.1")
        self.env[name] = output

    def choose(
        self, condition: Condition, then: Callable[[], Any], other: Callable[[], Any], node: Any, what: str = ""
    ) -> Any:
        """The value of one of two expressions."""
        if condition.static is not None:
            self.refine(condition.if_true if condition.static else condition.if_false)
            return (then if condition.static else other)()
        self.graph.current_range = self.source.range_of(node)
        place: Node = self.graph.insert("prim::If", [condition.value])
        results: list[Value] = []
        for refinements, work in ((condition.if_true, then), (condition.if_false, other)):

            def run(refinements: Any = refinements, work: Any = work) -> None:
                self.refine(refinements)
                results.append(self.as_value(work(), node))

            self.in_block(place.addBlock(), run)
        kind = T.unify(results[0].type(), results[1].type(), or_union=True)
        if kind is None:
            raise self.error(
                node,
                f"{what or 'if-expression'} has true branch of type {results[0].type().annotation_str} and false branch of type {results[1].type().annotation_str}",
            )
        for block, value in zip(place._blocks, results):
            block.registerOutput(value)
        return place.addOutput(kind)

    def unrefined(self, value: Any) -> Any:
        """The value that refinements started from."""
        while id(value) in self.refined:
            value = self.refined[id(value)][1]
        return value

    # ------------------------------------------------------------------ statements in order

    def emit_statements(self, statements: list[ast.stmt]) -> None:
        for index, statement in enumerate(statements):
            if self.env.get(EXITED) is True:
                return
            rest = statements[index + 1 :]
            if isinstance(statement, ast.If) and has_exit([statement]):
                self._emit_leaving_if(statement, rest)
                return
            self.statement(statement)
            exited = self.env.get(EXITED, False)
            if isinstance(exited, Value) and rest:
                self._emit_unless(exited, rest, statement)
                return

    def _emit_unless(self, exited: Value, rest: list[ast.stmt], node: Any) -> None:
        def skip() -> None:
            self.env[EXITED] = True

        def go_on() -> None:
            self.env[EXITED] = False
            self.emit_statements(rest)

        before = {flag: self.env.get(flag, False) for flag in (RETURNED, BROKE)}
        self.emit_if(Condition(exited), skip, go_on, node)
        for flag, value in before.items():
            if isinstance(value, Value) and not isinstance(self.env.get(flag), Value) and not self.env.get(flag):
                self.env[flag] = value

    def _emit_leaving_if(self, statement: ast.If, rest: list[ast.stmt]) -> None:
        """A branch that may leave: what follows goes into the branches where control can reach it."""
        condition = self.condition(statement.test)
        body, other = statement.body, statement.orelse
        if condition.static is not None:
            self.refine(condition.if_true if condition.static else condition.if_false)
            self.emit_statements([*(body if condition.static else other), *rest])
            return
        leaves = always_exits(body), always_exits(other)
        follows: list[ast.stmt] = []
        if leaves[0] and not leaves[1]:
            other = [*other, *rest]
        elif leaves[1] and not leaves[0]:
            body = [*body, *rest]
        elif not any(leaves):
            follows = rest
        self.emit_if(condition, lambda: self.emit_statements(body), lambda: self.emit_statements(other), statement)
        if not follows:
            return
        exited = self.env.get(EXITED, False)
        if isinstance(exited, Value):
            self._emit_unless(exited, follows, statement)
        elif not exited:
            self.emit_statements(follows)

    # ------------------------------------------------------------------ loops

    def emit_loop(
        self,
        statement: Any,
        body: list[ast.stmt],
        trips: Value | None,
        start: Callable[[Value], None] | None,
        test: ast.expr | None,
        targets: list[str],
    ) -> None:
        """`for` with a number of trips, or `while` with a test."""
        returns = has_exit(body, (ast.Return,))
        stops = returns or has_exit(body, (ast.Break,))
        first: Any = self.graph.insertConstant(True)
        if test is not None:
            first = self.as_condition_value(self.condition(test), test)
        count = trips if trips is not None else self.graph.insertConstant(MAX_TRIPS)
        names = [
            n for n in dict.fromkeys([*assigned_names(body), *targets]) if isinstance(self.env.get(n), (Value, Several))
        ]
        names = [n for n in names if not self._is_constant_sugar(n)]
        initial = [self.as_value(self.env[n], statement) for n in names]
        for name, value in zip(names, initial):
            declared = self.declared.get(name)
            if declared is not None and declared != value.type() and T.is_subtype(value.type(), declared):
                initial[names.index(name)] = value
        unset: Value | None = None
        if returns:
            unset = self.graph.insert("prim::Uninitialized", [], [self.result_type or T.NONE])._outputs[0]
            initial = [self.graph.insertConstant(False), unset, *initial]
            names = [RETURNED, RESULT, *names]
        self.graph.current_range = self.source.range_of(statement)
        place: Node = self.graph.insert("prim::Loop", [count, first, *initial])
        block = place.addBlock()
        index = block._param.addOutput(T.INT)
        inner = self._loop_inputs(block, names, initial)

        def run() -> None:
            self.env.update(inner)
            self.env.update({RETURNED: False, EXITED: False, BROKE: False})
            self.entry.update(inner)
            if start is not None:
                start(index)
            self.loop_depth += 1
            self.emit_statements(body)
            self.loop_depth -= 1
            block.registerOutput(self._goes_on(test, stops, statement))

        after = self.in_block(block, run)
        self._loop_outputs(place, block, names, initial, after, unset, statement)

    def _is_constant_sugar(self, name: str) -> bool:
        value = self.env.get(name)
        return isinstance(value, Several) and any(
            isinstance(x, Sugared) and not isinstance(x, Several) for x in value.elements
        )

    def _loop_inputs(self, block: Block, names: list[str], initial: list[Value]) -> dict[str, Any]:
        inner: dict[str, Any] = {}
        for name, value in zip(names, initial):
            kind = value.type()
            declared = self.declared.get(name)
            if declared is not None and T.is_subtype(kind, declared):
                kind = declared
            carried = block._param.addOutput(T.TENSOR if isinstance(kind, T.TensorType) else kind)
            if not name.startswith("$"):
                carried.setDebugName(f"{name}.1")
                inner[name] = carried
        return inner

    def _goes_on(self, test: ast.expr | None, stops: bool, statement: Any) -> Value:
        """Whether another iteration follows."""
        flags = [self.env.get(f, False) for f in (BROKE, RETURNED)] if stops else [False, False]
        if any(f is True for f in flags):
            return self.graph.insertConstant(False)
        dynamic = [f for f in flags if isinstance(f, Value)]
        stop: Value | None = None
        if dynamic:
            stop = dynamic[0]
            if len(dynamic) == 2:
                stop = self.choose(
                    Condition(dynamic[0]), lambda: self.graph.insertConstant(True), lambda: dynamic[1], statement
                )
        if test is None:
            return (
                self.graph.insertConstant(True) if stop is None else self.operator("aten::__not__", [stop], statement)
            )

        def again() -> Value:
            return self.as_condition_value(self.condition(test), test)

        if stop is None:
            return again()
        return self.choose(Condition(stop), lambda: self.graph.insertConstant(False), again, statement)

    def _loop_outputs(
        self,
        place: Node,
        block: Block,
        names: list[str],
        initial: list[Value],
        after: dict[str, Any],
        unset: Value | None,
        node: Any,
    ) -> None:
        inputs = block._param._outputs[1:]
        for name, _value, carried in zip(names, initial, inputs):
            final = after.get(name)
            if name == RETURNED:
                final = self._inside(block, partial(self.flag_value, final))
            elif name == RESULT:
                final = self._carried_result(after, carried, block, unset)
            else:
                if isinstance(final, Undefined) or final is None:
                    reason = final.reason if isinstance(final, Undefined) else f"{name} is not defined"
                    raise self.error(node, reason)
                final = self._inside(block, partial(self.as_value, final, node))
                if not T.is_subtype(final.type(), carried.type()):
                    raise self.error(
                        node,
                        f"Variable '{name}' previously had type {carried.type().annotation_str} but is now being assigned to a value of type {final.type().annotation_str}",
                    )
            block.registerOutput(final)
            output = place.addOutput(carried.type())
            if not name.startswith("$"):
                output.setDebugName(f"{name}.1")
            self.env[name] = output
        if unset is not None:
            self.env[EXITED] = self.env[RETURNED]

    def _carried_result(self, after: dict[str, Any], carried: Value, block: Block, unset: Value | None) -> Value:
        result = after.get(RESULT)
        if not isinstance(result, Value):
            return carried
        kind = self.result_type or result.type()
        carried.setType(kind)
        assert unset is not None
        unset.setType(kind)
        return result
