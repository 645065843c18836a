"""What names mean while a function is compiled, besides values of the graph: functions, classes, modules, ranges.

A `Sugared` object answers the questions that syntax asks: what a call, an attribute, an index or a loop over it means. The emitter passes
itself, so that the answers can add nodes to the graph.
"""

from __future__ import annotations

import ast
import cmath
import collections
import enum
import math
import types
import warnings
from typing import TYPE_CHECKING, Any

from flambeau.jit import _types as T
from flambeau.jit._ir import Value

if TYPE_CHECKING:
    from flambeau.jit._frontend.emitter import Emitter


class Sugared:
    """Something that is not a value of the graph."""

    what = "object"

    def value(self, e: Emitter, node: Any) -> Value:
        raise e.error(node, f"{self.what} cannot be used as a value")

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        raise e.error(node, f"{self.what} cannot be called")

    def attr(self, e: Emitter, name: str, node: Any) -> Any:
        raise e.error(node, f"attribute lookup is not defined on {self.what}")

    def has_attr(self, e: Emitter, name: str) -> bool:
        return False

    def items(self, e: Emitter, node: Any) -> list[Any] | None:
        """The elements that a loop over it is unrolled for; None if a loop is run."""
        return None

    def length(self, e: Emitter, node: Any) -> Value:
        raise e.error(node, f"{self.what} cannot be iterated over: it has no length")

    def element(self, e: Emitter, index: Value, node: Any) -> Any:
        raise e.error(node, f"{self.what} cannot be iterated over")

    def contains(self, e: Emitter, item: Value, node: Any) -> Value | None:
        """Whether an item is in it; None if that is asked of its value."""
        return None

    def getitem(self, e: Emitter, index: Any, node: Any) -> Any:
        raise e.error(node, f"{self.what} is not subscriptable")


class Builtin(Sugared):
    """An operator, perhaps bound to the value it is a method of."""

    what = "builtin operator"

    def __init__(self, name: str, bound: Value | None = None) -> None:
        self.name, self.bound = name, bound

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        values = [e.as_value(a, node) for a in args]
        named = {k: e.as_value(v, node) for k, v in kwargs.items()}
        if self.bound is not None:
            values.insert(0, self.bound)
        return e.call_operator(self.name, values, named, node)


class Cast(Sugared):
    """`x.float()` and the like, perhaps bound to the tensor."""

    what = "conversion"

    def __init__(self, name: str, bound: Value | None = None) -> None:
        self.name, self.bound = name, bound

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        from flambeau.jit import _values

        operands = [e.as_value(a, node) for a in args] if self.bound is None else [self.bound]
        if len(operands) != 1 or (self.bound is not None and args):
            raise e.error(node, f"{self.name}() takes no arguments besides memory_format")
        code = e.graph.insertConstant(_values.scalar_code(_values.CASTS[self.name]))
        named = {k: e.as_value(v, node) for k, v in kwargs.items()}
        return e.call_operator("aten::to", [operands[0], code], named, node)


class Warn(Builtin):
    """`warnings.warn`; the category is left out."""

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        positional = [a for a in args if not isinstance(a, ExceptionRef)]
        named = {k: v for k, v in kwargs.items() if not isinstance(v, ExceptionRef)}
        return super().call(e, positional, named, node)


class Special(Sugared):
    """A name whose call the emitter handles by a method of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.what = f"'{name}'"

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        return getattr(e, f"special_{self.name}")(node)


class FunctionRef(Sugared):
    """A compiled function, or one of several overloads."""

    what = "function"

    def __init__(self, functions: list[Any]) -> None:
        self.functions = functions

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        return e.call_function(self.functions, args, kwargs, node)

    def value(self, e: Emitter, node: Any) -> Value:
        return e.function_constant(self.functions[0])


class MethodRef(Sugared):
    """A method of an object or module of the graph."""

    what = "method"

    def __init__(self, owner: Value, names: list[str]) -> None:
        self.owner, self.names = owner, names

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        return e.call_method(self.owner, self.names, args, kwargs, node)


class PythonCall(Sugared):
    """A Python function that is called as it is: `jit.ignore`."""

    what = "Python function"

    def __init__(self, function: Any, owner: Any = None) -> None:
        self.function, self.owner = function, owner

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        return e.call_python(self.function, self.owner, args, kwargs, node)


class Raises(Sugared):
    """`jit.unused`, or what cannot be compiled but only fails if it is called."""

    def __init__(self, message: str, result: T.JitType | None = None) -> None:
        self.message, self.result = message, result

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        return e.raise_at_run_time(self.message, self.result, node)


class ClassRef(Sugared):
    """A compiled class; calling it makes an instance."""

    what = "class"

    def __init__(self, kind: T.ClassType) -> None:
        self.kind = kind

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        instance = e.graph.insert("prim::CreateObject", [], [self.kind])._outputs[0]
        if "__init__" in self.kind.methods:
            e.call_method(instance, ["__init__"], args, kwargs, node)
        return instance

    def attr(self, e: Emitter, name: str, node: Any) -> Any:
        if name == "__new__":
            return NewRef(self.kind)
        if name in self.kind.static_methods:
            return FunctionRef([self.kind.static_methods[name]])
        method = self.kind.methods.get(name)
        if method is not None:
            return FunctionRef([method])
        raise e.error(node, f"Tried to lookup unknown attribute on class {self.kind.name}: '{name}'")


class NewRef(Sugared):
    """`C.__new__` in archives."""

    def __init__(self, kind: T.ClassType) -> None:
        self.kind = kind

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        return e.graph.insert("prim::CreateObject", [], [self.kind])._outputs[0]


class NamedTupleRef(Sugared):
    """The class of a named tuple."""

    what = "NamedTuple class"

    def __init__(self, kind: T.TupleType) -> None:
        self.kind = kind

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        from flambeau.jit._schemas import NO_DEFAULT, Argument, Match, Signature, match

        arguments = [
            Argument(field, kind, self.kind.defaults.get(field, NO_DEFAULT))
            for field, kind in zip(self.kind.fields, self.kind.items)
        ]
        signature = Signature(str(self.kind.name).rpartition(".")[2], "", arguments, [Argument("", self.kind)])
        values = [e.as_value(a, node) for a in args]
        result = match(signature, values, {k: e.as_value(v, node) for k, v in kwargs.items()}, True)
        if not isinstance(result, Match):
            raise e.error(node, f"{signature}:\n{result}")
        return e.graph.insert("prim::TupleConstruct", result.apply(e.graph), [self.kind])._outputs[0]


class EnumRef(Sugared):
    """An enumeration class."""

    what = "enum class"

    def __init__(self, kind: T.EnumType) -> None:
        self.kind = kind

    def attr(self, e: Emitter, name: str, node: Any) -> Any:
        if name not in self.kind.members:
            raise e.error(node, f"Enum '{self.kind.name}' has no member '{name}'")
        return e.graph.insertConstant(self.kind.members[name], self.kind)

    def items(self, e: Emitter, node: Any) -> list[Any] | None:
        return [e.graph.insertConstant(m, self.kind) for m in self.kind.members.values()]


class Several(Sugared):
    """A Python tuple or list of things that need not be values: unrolled in loops, unpacked in assignments."""

    what = "tuple of Python objects"

    def __init__(self, elements: list[Any], is_list: bool = False) -> None:
        self.elements, self.is_list = elements, is_list

    def value(self, e: Emitter, node: Any) -> Value:
        values = [e.as_value(x, node) for x in self.elements]
        return e.graph.insert("prim::TupleConstruct", values, [T.TupleType(v.type() for v in values)])._outputs[0]

    def items(self, e: Emitter, node: Any) -> list[Any]:
        return self.elements

    def length(self, e: Emitter, node: Any) -> Value:
        return e.graph.insertConstant(len(self.elements))

    def getitem(self, e: Emitter, index: Any, node: Any) -> Any:
        number = e.static_int(index)
        if number is None:
            kinds = {v.type() for v in self.elements if isinstance(v, Value)}
            if len(kinds) == 1 and all(isinstance(v, Value) for v in self.elements):
                return e.index_value(self.value(e, node), index, node)
            raise e.error(
                node,
                "Expected integer literal for index. ModuleList/Sequential indexing is only supported with integer literals",
            )
        if not -len(self.elements) <= number < len(self.elements):
            raise e.error(
                node, f"Tuple index out of range: index {number} is out of range of length {len(self.elements)}"
            )
        return self.elements[number]


class SliceRef(Sugared):
    """`slice(...)`: bounds for a subscript."""

    what = "slice"

    def __init__(self, bounds: list[Value | None]) -> None:
        self.bounds = bounds

    def syntax(self) -> ast.Slice:
        lower, upper, step = self.bounds
        return ast.Slice(lower, upper, step)  # type: ignore[arg-type]


class EllipsisRef(Sugared):
    """A name for `...`."""

    what = "ellipsis"


class RangeRef(Sugared):
    """`range(...)` in a loop."""

    what = "range"

    def __init__(self, start: Value | None, stop: Value, step: Value | None) -> None:
        self.start, self.stop, self.step = start, stop, step

    def length(self, e: Emitter, node: Any) -> Value:
        if self.start is None:
            return self.stop
        inputs = [self.start, self.stop, self.step]
        return e.operator("aten::__range_length", inputs, node)  # type: ignore[arg-type]

    def element(self, e: Emitter, index: Value, node: Any) -> Any:
        return index if self.start is None else e.operator("aten::__derive_index", [index, self.start, self.step], node)  # type: ignore[list-item]

    def value(self, e: Emitter, node: Any) -> Value:
        """A list of the numbers, for `list(range(n))`."""
        return e.comprehension_over(self, lambda item: item, node)

    def getitem(self, e: Emitter, index: Any, node: Any) -> Any:
        start = self.start or e.graph.insertConstant(0)
        return e.operator(
            "aten::__derive_index", [e.as_value(index, node), start, self.step or e.graph.insertConstant(1)], node
        )


class Zipped(Sugared):
    """`zip(...)` and `enumerate(...)`: several iterables side by side."""

    what = "zip"

    def __init__(self, parts: list[Any], start: Value | None = None) -> None:
        self.parts, self.start = parts, start  # with a start: parts[0] is counted

    def items(self, e: Emitter, node: Any) -> list[Any] | None:
        columns = [e.iterable(p, node).items(e, node) for p in self.parts]
        if all(c is None for c in columns):
            return None
        if any(c is None for c in columns):
            return self._mixed(e, columns, node)
        rows: list[Any] = [list(row) for row in zip(*columns)]
        return [self._row(e, number, row) for number, row in enumerate(rows)]

    def _mixed(self, e: Emitter, columns: list[Any], node: Any) -> list[Any]:
        count = min(len(c) for c in columns if c is not None)
        rows = []
        for number in range(count):
            row = []
            for part, column in zip(self.parts, columns):
                if column is not None:
                    row.append(column[number])
                else:
                    row.append(e.iterable(part, node).element(e, e.graph.insertConstant(number), node))
            rows.append(self._row(e, number, row))
        return rows

    def _row(self, e: Emitter, number: int, row: list[Any]) -> Any:
        if self.start is None:
            return Several(row)
        index = e.graph.insertConstant(number)
        if self.start.toIValue() != 0:
            index = e.operator("aten::add", [index, self.start], None)
        return Several([index, *row])

    def length(self, e: Emitter, node: Any) -> Value:
        lengths = [e.iterable(p, node).length(e, node) for p in self.parts]
        if len(lengths) == 1:
            return lengths[0]
        listed = e.graph.insert("prim::ListConstruct", lengths, [T.ListType(T.INT)])._outputs[0]
        return e.operator("prim::min", [listed], node)

    def element(self, e: Emitter, index: Value, node: Any) -> Any:
        row = [e.iterable(p, node).element(e, index, node) for p in self.parts]
        if self.start is None:
            return Several(row)
        if self.start.toIValue() != 0:
            index = e.operator("aten::add", [index, self.start], node)
        return Several([index, *row])

    def value(self, e: Emitter, node: Any) -> Value:
        unrolled = self.items(e, node)
        if unrolled is not None:
            return Several(unrolled).value(e, node)
        return e.comprehension_over(self, lambda item: item, node)


class Sequence(Sugared):
    """A value of the graph in a loop: a list, string, tensor, tuple or dict."""

    def __init__(self, content: Value) -> None:
        self.content = content

    def items(self, e: Emitter, node: Any) -> list[Any] | None:
        kind = self.content.type()
        if isinstance(kind, T.TupleType):
            return list(e.unpack(self.content))
        return None

    def length(self, e: Emitter, node: Any) -> Value:
        return e.operator("aten::len", [self.content], node)

    def element(self, e: Emitter, index: Value, node: Any) -> Any:
        if isinstance(self.content.type(), T.TensorType):
            zero = e.graph.insertConstant(0)
            return e.operator("aten::select", [self.content, zero, index], node)
        return e.operator("aten::__getitem__", [self.content, index], node)

    def value(self, e: Emitter, node: Any) -> Value:
        return self.content


# ---------------------------------------------------------------------------------------------- Python objects

PYTHON_BUILTINS = (
    "print range zip enumerate isinstance hasattr getattr len int float bool str complex list tuple dict min max abs "
    "sum any all sorted reversed super round iter slice"
).split()
_OPERATORS = {
    "ord": "aten::ord", "chr": "aten::chr", "hex": "aten::hex", "oct": "aten::oct", "bin": "aten::bin",
    "divmod": "aten::divmod", "hash": "aten::hash", "pow": "aten::pow", "id": "prim::id",
}  # fmt: skip
_MATH = {math.remainder: "aten::mathremainder", cmath.phase: "aten::angle", cmath.rect: "aten::polar"}
_TENSOR_NAMESPACES = {"special": "special_", "linalg": "linalg_", "fft": "fft_"}


class PythonModule(Sugared):
    """A Python module or package."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.what = f"python module '{getattr(module, '__name__', module)}'"

    def has_attr(self, e: Emitter, name: str) -> bool:
        return hasattr(self.module, name)

    def attr(self, e: Emitter, name: str, node: Any) -> Any:
        own = getattr(self.module, "__name__", "")
        root, _, rest = own.partition(".")
        if root in ("flambeau", "torch"):
            meaning = _of_package(rest, name)
            if meaning is not None:
                return meaning
        function = getattr(self.module, name, None)
        if self.module in (math, cmath) and callable(function):
            return _of_mathematics(e, function, node)
        try:
            member = getattr(self.module, name)
        except AttributeError:
            raise e.error(node, f"module '{own}' has no attribute '{name}'") from None
        return python_value(e, member, node, constant=True, name=name)


def _of_mathematics(e: Emitter, function: Any, node: Any) -> Sugared:
    """The operator for a function of `math` or `cmath`."""
    from flambeau.jit._schemas import exists

    name = _MATH.get(function, f"aten::{function.__name__}")
    if not exists(name):
        raise e.error(node, f"Python builtin {function!r} is currently not supported in Torchscript")
    return Builtin(name)


def _of_package(rest: str, name: str) -> Sugared | None:
    """What a name of our own package means."""
    from flambeau.jit._frontend.callables import library_reference
    from flambeau.jit._library import library_function, library_functions
    from flambeau.jit._schemas import exists

    if rest == "nn.functional":
        return _library_or_operator(name)
    if rest in _TENSOR_NAMESPACES and exists(f"aten::{_TENSOR_NAMESPACES[rest]}{name}"):
        return Builtin(f"aten::{_TENSOR_NAMESPACES[rest]}{name}")
    if rest == "_C._nn" and exists(f"aten::{name}"):
        return Builtin(f"aten::{name}")
    if rest == "nn.init":
        function = library_function(f"init.{name}")
        return None if function is None else FunctionRef([function])
    if rest in ("", "functional", "_C", "_C._VariableFunctions", "_VF"):
        if name in _SPECIAL_NAMES:
            return Special(_SPECIAL_NAMES[name])
        functions = library_functions(f"torch.{name}")
        if functions:
            return library_reference(f"torch.{name}", functions)
        import flambeau

        member = getattr(flambeau, name, None)
        if exists(f"aten::{name}") and callable(member) and not isinstance(member, (type, types.ModuleType)):
            return Builtin(f"aten::{name}")
    if rest == "jit" and name == "_unwrap_optional":
        return Builtin("aten::_unwrap_optional")
    if rest == "jit":
        return Special(_JIT_NAMES[name]) if name in _JIT_NAMES else None
    return None


def _library_or_operator(name: str) -> Sugared | None:
    from flambeau.jit._library import library_functions
    from flambeau.jit._schemas import exists

    functions = library_functions(f"functional.{name}")
    if functions:
        from flambeau.jit._frontend.callables import library_reference

        return library_reference(f"functional.{name}", functions)
    return Builtin(f"aten::{name}") if exists(f"aten::{name}") else None


_SPECIAL_NAMES = {"_assert": "torch_assert"}
_JIT_NAMES = {
    "annotate": "annotate", "isinstance": "isinstance", "fork": "fork", "_fork": "fork", "wait": "wait", "_wait": "wait",
    "is_scripting": "is_scripting", "is_tracing": "is_tracing", "_awaitable": "awaitable", "_awaitable_wait": "awaitable_wait",
    "_awaitable_nowait": "awaitable_nowait",
}  # fmt: skip


class OpNamespace(Sugared):
    """`torch.ops.name`."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.what = "operator namespace"

    def attr(self, e: Emitter, name: str, node: Any) -> Any:
        if self.name is None:
            return OpNamespace(name)
        from flambeau.jit._schemas import exists

        if not exists(f"{self.name}::{name}"):
            raise e.error(node, f"Unknown builtin op: {self.name}::{name}")
        return Builtin(f"{self.name}::{name}")


def python_value(e: Emitter, obj: Any, node: Any, constant: bool = False, name: str = "") -> Any:
    """What a Python object that a name is bound to means."""
    import builtins

    import flambeau
    from flambeau import _C, _ops
    from flambeau.jit import _functions, _values
    from flambeau.jit._schemas import exists

    if isinstance(obj, (Value, Sugared)):
        return obj
    if obj is Ellipsis:
        return EllipsisRef()
    if isinstance(obj, types.ModuleType):
        return PythonModule(obj)
    if isinstance(obj, _values.ENUMERATED):
        return e.graph.insertConstant(_values.enumerated(obj), T.INT)
    if isinstance(obj, flambeau.device):
        return e.graph.insertConstant(obj, T.DEVICE)
    if isinstance(obj, enum.Enum):
        from flambeau.jit._frontend.annotations import type_of_enum

        return e.graph.insertConstant(obj, type_of_enum(type(obj)))
    if obj is None or (constant and isinstance(obj, (bool, int, float, complex, str))):
        return e.graph.insertConstant(obj)
    if constant and isinstance(obj, tuple):
        return Several([python_value(e, item, node, True) for item in obj])
    builtin_name = getattr(obj, "__name__", "")
    if getattr(builtins, builtin_name, None) is obj:
        if builtin_name in PYTHON_BUILTINS:
            return Special(builtin_name)
        if builtin_name in _OPERATORS:
            return Builtin(_OPERATORS[builtin_name])
        if not isinstance(obj, type) or not issubclass(obj, BaseException):
            raise e.error(node, f"Python builtin {obj!r} is currently not supported in Torchscript")
    if isinstance(obj, _functions.ScriptFunction):
        return FunctionRef([obj.function])
    if isinstance(obj, _functions.Function):
        return FunctionRef([obj])
    if isinstance(obj, _ops._OpNamespace):
        return OpNamespace(obj.name)
    if isinstance(obj, (_ops.OpOverloadPacket, _ops.OpOverload)):
        return Builtin(
            f"{obj._namespace}::{obj.__name__}"
            if isinstance(obj, _ops.OpOverloadPacket)
            else f"{obj.namespace}::{obj._opname}"
        )
    qualified_op = getattr(obj, "_qualified_op_name", None)
    if isinstance(qualified_op, str) and exists(qualified_op):
        return Builtin(qualified_op)
    special = _special_function(e, obj, node)
    if special is not None:
        return special
    if isinstance(obj, type):
        return _class_value(e, obj, node)
    if isinstance(obj, _C.Tensor):
        raise e.error(
            node,
            f"python value of type 'Tensor' cannot be used as a value. Perhaps it is a closed over global variable? {_HINT}",
        )
    from flambeau.jit._frontend.callables import callable_value

    callee = callable_value(e, obj, node)
    if callee is not None:
        return callee
    if getattr(obj, "__name__", "") == "torch.ops" or type(obj).__name__ == "_Ops":
        return OpNamespace(None)
    raise e.error(
        node,
        f"python value of type '{type(obj).__name__}' cannot be used as a value. Perhaps it is a closed over global variable? {_HINT}",
    )


_HINT = "If so, please consider passing it in as an argument or use a local variable instead."


def _special_function(e: Emitter, obj: Any, node: Any) -> Sugared | None:
    """Functions of `flambeau.jit` and operators, found by identity."""
    from flambeau import _C, autograd, jit
    from flambeau.jit import _values
    from flambeau.jit._schemas import exists

    for name, special in _JIT_NAMES.items():
        if obj is getattr(jit, name, None):
            return Special(special)
    if obj is getattr(__import__("flambeau"), "_assert", ()):
        return Special("torch_assert")
    if callable(obj) and any(getattr(m, getattr(obj, "__name__", ""), None) is obj for m in (math, cmath)):
        return _of_mathematics(e, obj, node)
    if obj is warnings.warn:
        return Warn("aten::warn")
    if obj is autograd.grad or obj is autograd.backward:
        return Builtin(f"aten::{obj.__name__}")
    if isinstance(obj, _C.Function):
        name = obj.__name__
        import flambeau
        from flambeau.nn import functional

        if name in _values.CASTS and getattr(_C.Tensor, name, None) is not None:
            return Cast(name)
        if getattr(flambeau, name, None) is obj and exists(f"aten::{name}"):
            return Builtin(f"aten::{name}")
        if getattr(functional, name, None) is obj:
            return _library_or_operator(name)
        for space, prefix in _TENSOR_NAMESPACES.items():
            if getattr(getattr(flambeau, space), name, None) is obj and exists(f"aten::{prefix}{name}"):
                return Builtin(f"aten::{prefix}{name}")
        return Builtin(f"aten::{name}") if exists(f"aten::{name}") else None
    return None


def _class_value(e: Emitter, cls: type, node: Any) -> Sugared:
    import flambeau
    from flambeau.jit._frontend.annotations import type_of_enum, type_of_named_tuple
    from flambeau.jit._frontend.classes import script_class
    from flambeau.nn import Module

    if cls is flambeau.device:
        return Builtin("aten::device")
    if cls is flambeau.Generator:
        return Builtin("aten::Generator")
    if cls is flambeau.Tensor:
        return TensorClass()
    if issubclass(cls, enum.Enum):
        return EnumRef(type_of_enum(cls))
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return NamedTupleRef(type_of_named_tuple(cls))
    if cls is flambeau.Size:
        return Special("list")
    if cls is collections.OrderedDict:
        return Special("dict")
    if issubclass(cls, BaseException):
        return ExceptionRef(cls)
    if issubclass(cls, Module):
        raise e.error(
            node,
            f"Class {cls.__name__} cannot be instantiated in TorchScript: expected a class without nn.Module as its base",
        )
    if getattr(cls, "__torch_script_interface__", None) is not None:
        raise e.error(node, f"interface {cls.__name__} cannot be used as a value")
    from flambeau.autograd import Function as AutogradFunction

    if issubclass(cls, AutogradFunction):
        raise e.error(
            node, f"autograd.Function {cls.__name__} cannot be compiled; call it in a function marked with jit.ignore"
        )
    try:
        return ClassRef(script_class(cls))
    except TypeError as error:
        raise e.error(node, str(error)) from None


class TensorClass(Sugared):
    """`torch.Tensor`, whose attributes are methods as functions."""

    what = "class Tensor"

    def attr(self, e: Emitter, name: str, node: Any) -> Any:
        from flambeau.jit import _values

        if name in _values.CASTS:
            return Cast(name)
        return Builtin(f"aten::{name}")


class ExceptionRef(Sugared):
    """An exception class; a call keeps the message for `raise`."""

    what = "exception class"

    def __init__(self, cls: type[BaseException]) -> None:
        self.cls = cls

    def call(self, e: Emitter, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        return ExceptionValue(self.cls, [e.as_value(a, node) for a in args])


class ExceptionValue(Sugared):
    """An exception that will be raised."""

    what = "exception"

    def __init__(self, cls: type[BaseException], args: list[Value]) -> None:
        self.cls, self.args = cls, args
