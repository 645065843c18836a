"""Compiled functions and methods: graph, signature, and the callable that runs them.

A `Function` is compiled when it is first needed (`ensure`) and lowered to a Python callable over run-time values when it first runs (`run`). `ScriptFunction`
is what `jit.script` returns for a function: it checks and converts the arguments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import flambeau.jit as jit
from flambeau import _C, Tensor
from flambeau.jit import _types as T
from flambeau.jit._ir import Graph
from flambeau.jit._schemas import NO_DEFAULT, Signature

_lock = threading.RLock()


def execute(function: Function, args: list[Any]) -> Any:
    """Run a function that Python called."""
    from flambeau.jit import _fusion

    globals()["execute"] = _fusion.execute  # what follows does not come by here
    return _fusion.execute(function, args)


class Function:
    """One function or method."""

    def __init__(self, name: str, declare: Callable[[], Any] | None = None, python: Any = None) -> None:
        self.name = name
        self.declare = declare
        self.python = python
        self.graph: Graph | None = None
        self.schema: Signature = None  # type: ignore[assignment]
        self.done = False
        self._compiling = False
        self._callable: Any = None
        self._tensors: int | None = None
        self._calls = 0  # from Python
        self._region: Any = None  # its compiled form; False where there is none
        self.prepare: Callable[[Any], None] | None = None
        self.is_traced = False
        self.owner: T.ClassType | None = None  # the class that a hook is written with

    def ensure(self) -> Function:
        """Compile unless that has been done."""
        if self.done:
            return self
        with _lock:
            if self.done:
                return self
            if self._compiling:
                if self.schema is None:
                    raise RuntimeError(
                        f"function '{self.name.rpartition('.')[2]}' is called recursively. Recursive calls are not supported"
                    )
                return self
            self._compile()
        return self

    def _compile(self) -> None:
        from flambeau.jit._frontend.emitter import Emitter
        from flambeau.jit._passes import clean

        self._compiling = True
        try:
            assert self.declare is not None
            declaration = self.declare()
            emitter = Emitter(self, declaration)
            if self.prepare is not None:
                self.prepare(emitter)
            self.graph, self.schema = emitter.compile()
            clean(self.graph)
            self.done = True
        finally:
            self._compiling = False

    @classmethod
    def of_graph(cls, name: str, graph: Graph, schema: Signature) -> Function:
        function = cls(name)
        function.graph, function.schema, function.done = graph, schema, True
        return function

    def run(self) -> Callable[..., Any]:
        """The callable over run-time values, one for each argument of the graph."""
        if self._callable is None:
            self.ensure()
            from flambeau.jit._lower import lower

            self._callable = lower(self)
        return self._callable

    def tensors(self, skip: int) -> int:
        """How many arguments there are, where all of them are tensors; else -1."""
        if self._tensors is None:
            arguments = self.schema.arguments[skip:]
            plain = all(isinstance(a.type, T.TensorType) and not a.kwarg_only for a in arguments)
            self._tensors = len(arguments) if plain else -1
        return self._tensors

    def forget(self) -> None:
        """Lower again: the graph has changed."""
        if self._region:
            self._region.retire()
        self._callable = self._region = None
        self._calls = 0


def bind(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], skip: int) -> list[Any]:
    """Run-time values for a call from Python; raises RuntimeError when they do not fit the signature."""
    from flambeau.jit._values import Mismatch, convert

    schema = function.schema
    if not kwargs and len(args) == function.tensors(skip) and all(type(x) is Tensor for x in args):
        return list(args)
    arguments = schema.arguments[skip:]
    if len(args) > len(arguments):
        raise RuntimeError(
            f"{schema.name}() expected at most {len(arguments) + skip} argument(s) but received {len(args) + skip} "
            f"argument(s). Declaration: {schema}"
        )
    values = []
    used = 0
    for position, argument in enumerate(arguments):
        if position < len(args):
            if argument.kwarg_only:
                raise RuntimeError(
                    f"{schema.name}() takes {position} positional argument(s) but {len(args)} were given. Declaration: {schema}"
                )
            value = args[position]
        elif argument.name in kwargs:
            value, used = kwargs[argument.name], used + 1
        elif argument.default is not NO_DEFAULT:
            value = argument.default
        else:
            raise RuntimeError(
                f"{schema.name}() is missing value for argument '{argument.name}'. Declaration: {schema}"
            )
        try:
            if argument.N is not None and isinstance(value, (int, float)) and isinstance(argument.type, T.ListType):
                value = [value] * argument.N
            as_it_is = value is argument.default and not isinstance(value, (list, dict))
            undefined = value is None and isinstance(argument.type, T.TensorType)
            values.append(value if as_it_is or undefined else convert(value, argument.type))
        except Mismatch:
            raise _wrong_type(schema, argument, value, position + skip) from None
    if used != len(kwargs):
        unknown = [k for k in kwargs if k not in {a.name for a in arguments[len(args) :]}]
        if any(k in {a.name for a in arguments[: len(args)]} for k in unknown):
            raise RuntimeError(
                f"{schema.name}() got multiple values for argument '{unknown[0]}'. Declaration: {schema}"
            )
        raise RuntimeError(f"Unknown keyword argument '{unknown[0]}' for operator '{schema.name}'. Schema: {schema}")
    return values


def _wrong_type(schema: Signature, argument: Any, value: Any, position: int) -> RuntimeError:
    inferred = " (inferred)" if isinstance(argument.type, T.TensorType) and argument.type.inferred else ""
    note = ""
    if inferred:
        note = (
            f"Inferred '{argument.name}' to be of type 'Tensor' because it was not annotated with an explicit type.\n"
        )
    return RuntimeError(
        f"{schema.name}() Expected a value of type '{argument.type.annotation_str}{inferred}' for argument '{argument.name}' "
        f"but instead found type '{type(value).__name__}'.\n{note}Position: {position}\nValue: {value!r}\nDeclaration: {schema}"
    )


class _Compiled:
    """What a compiled function and a compiled method show of themselves."""

    function: Function

    @property
    def graph(self) -> Graph:
        graph = self.function.ensure().graph
        assert graph is not None
        return graph

    @property
    def inlined_graph(self) -> Graph:
        from flambeau.jit._passes import inlined

        return inlined(self.graph)

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        self(*args, **kwargs)  # type: ignore[operator]
        return self.inlined_graph

    @property
    def schema(self) -> Signature:
        return self.function.ensure().schema

    @property
    def code(self) -> str:
        return self.code_with_constants[0]

    @property
    def code_with_constants(self) -> tuple[str, Any]:
        from flambeau.jit._print_code import function_code

        return function_code(self.function)


class ScriptFunction(_Compiled):
    """What `jit.script` and `jit.trace` return for a function."""

    def __init__(self, function: Function, python: Any = None) -> None:
        self.function = function
        self._python = python
        self.__name__ = function.name.rpartition(".")[2]
        self.__doc__ = getattr(python, "__doc__", None)
        self.__qualname__ = getattr(python, "__qualname__", self.__name__)
        self.__module__ = getattr(python, "__module__", __name__)
        if python is not None:
            self._torchdynamo_inline = self.__original_fn = python
            self.__wrapped__ = python

    __call__ = _C._call_scripted  # by `_script_front` once there is one, else:

    def _call_in_python(self, *args: Any, **kwargs: Any) -> Any:
        function = self.function
        values = bind(function, args, kwargs, 0)
        if jit._tracing:
            from flambeau.jit._trace import record_call

            return record_call(function, values)
        result = execute(function, values)
        front = getattr(function._region, "front", None)
        if front is not None and "_script_front" not in self.__dict__:
            self.__dict__["_script_front"] = front(self)
        return result

    @property
    def name(self) -> str:
        return self.__name__

    @property
    def qualified_name(self) -> str:
        return self.function.name

    def get_debug_state(self) -> Any:
        from flambeau.jit._debug import DebugState

        return DebugState(self.inlined_graph)

    def save(self, f: Any, _extra_files: Any = None) -> None:
        from flambeau.jit._archive import save

        save(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        import io

        stream = io.BytesIO()
        self.save(stream, _extra_files)
        return stream.getvalue()

    def _debug_flush_compilation_cache(self) -> None:
        self.function.forget()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        import types

        return types.MethodType(self, instance)

    def __deepcopy__(self, memo: Any) -> ScriptFunction:
        return self

    def __reduce__(self) -> Any:
        import pickle

        raise pickle.PickleError("ScriptFunction cannot be pickled")

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction object at {id(self):#x}>"


class BoundMethod(_Compiled):
    """A compiled method with the object it belongs to: `ScriptMethod`."""

    def __init__(self, owner: Any, function: Function) -> None:
        self.owner, self.function = owner, function
        self.__name__ = self.name = function.name.rpartition(".")[2]
        self.__doc__ = getattr(function.python, "__doc__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.function
        values = bind(function.ensure(), args, kwargs, 1)
        if jit._tracing:
            from flambeau.jit._trace import record_call

            return record_call(function, [self.owner, *values])
        return execute(function, [self.owner, *values])

    raw_owner = property(lambda self: self.owner)

    @property
    def qualified_name(self) -> str:
        return self.function.name

    def get_debug_state(self) -> Any:
        from flambeau.jit._debug import DebugState

        return DebugState(self.inlined_graph)

    def __repr__(self) -> str:
        return f"<torch.ScriptMethod object at {id(self):#x}>"
