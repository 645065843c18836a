"""The state of one capture, in parts that each have one subject.

`GraphBuilder` records operators, `Outside` loads and guards values from outside and holds stores into them, `Modes` are
the switches of the thread, `Effects` are what the artifact does beside running the graph. The `Tracer` itself knows where
the interpreter is, and how to call and read values.
"""

from __future__ import annotations

import functools
import operator
import types
from typing import Any

from flambeau._dynamo.breaks import UserError
from flambeau._dynamo.effects import Effects
from flambeau._dynamo.graph_builder import GraphBuilder
from flambeau._dynamo.kinds import is_native_class, lookup_type
from flambeau._dynamo.modes import Modes
from flambeau._dynamo.outside import Outside
from flambeau._dynamo.traced import NULL, Interpreted

_KEY = type(functools.cmp_to_key(lambda a, b: 0))


class Tracer:
    def __init__(
        self, breaks_at: dict[int, Any], dynamic: bool | None = None, varying: frozenset[str] = frozenset()
    ) -> None:
        self.modes = Modes()
        self.effects = Effects()
        self.outside = Outside(self, dynamic, varying)
        self.builder = GraphBuilder(self)
        # Where the interpreter is.
        self.breaks_at = breaks_at  # steps of the root frame at which the graph is to break
        self.root: Any = None
        self.frame: Any = None
        self.depth = self.steps = 0
        self.generators: list[Any] = []
        self.handled: BaseException | None = None

    def release(self) -> None:
        """Lets go of the program's objects after the capture; a collector need not find the cycles that lead to them."""
        self.root = self.frame = self.handled = None
        self.generators.clear()
        self.outside.sources.forget()
        for part in (self.outside, self.builder, self.builder.sizes, self.effects):
            for value in vars(part).values():
                if isinstance(value, (dict, list, set)):
                    value.clear()

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from flambeau._dynamo import calls

        return calls.call(self, function, args, kwargs)

    def load_attribute(self, value: Any, name: str) -> Any:
        from flambeau._dynamo import attributes

        return attributes.load(self, value, name)

    def call_special(self, value: Any, name: str, *args: Any) -> Any:
        """Calls a special method looked up on the class, as the language does."""
        method = lookup_type(type(value), name)
        if method is NULL:
            raise UserError(TypeError(f"'{type(value).__name__}' object has no {name}"))
        self.outside.guard_type_attribute(type(value), name)
        return self.call(method, (value, *args), {})

    def native_callable(self, function: Any) -> Any:
        """A callable as native code may be given it."""
        if type(function) is _KEY:
            return function
        if isinstance(function, (types.FunctionType, types.MethodType, functools.partial)) or (
            callable(function)
            and type(function) is not types.BuiltinFunctionType  # operators say that they are one, too
            and not isinstance(function, (Interpreted, type, type(operator.itemgetter(0))))
        ):
            return Interpreted(self, function)
        if isinstance(function, type) and not is_native_class(function):
            return Interpreted(self, function)
        return function
