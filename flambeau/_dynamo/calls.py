"""Calling things: which callables are interpreted, which are recorded, which run natively, and which break the graph.

Python functions are inlined. Operators become nodes. Native functions run as they are when they are known to be free of
effects and to look only at values that stand for themselves; everything else raises `Unsupported`.
"""

from __future__ import annotations

import abc
import builtins
import collections
import enum
import functools
import itertools
import math
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import attributes, breaks, config
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.sizes import SYMBOLIC, SymbolicSize, SymBool, SymFloat, SymInt, plain
from flambeau._dynamo.trace import (
    CONSTANTS,
    LITERALS,
    Function,
    OverridableFunction,
    Tracer,
    fl_module,
    is_namedtuple,
    is_native_class,
    is_result_tuple,
    lookup_type,
)
from flambeau._dynamo.traced import (
    NULL,
    Interpreted,
    TensorMethod,
    TracedGenerator,
    TracedIterator,
    TracedNumber,
    TracedTensor,
)

TENSOR_METHODS = (type(_C.Tensor.sin), type(_C.Tensor.type), type(_C.Tensor.__dict__.get("size")))
Args = tuple[Any, ...]
Kwargs = dict[str, Any]

CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
DICT_VIEWS = (type({}.keys()), type({}.values()), type({}.items()), type(collections.OrderedDict().keys()),
              type(collections.OrderedDict().values()), type(collections.OrderedDict().items()))  # fmt: skip
ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(set())),
    type(iter(range(0))), type(iter("")), type(iter("é")), type(iter(b"")), type(reversed([])), type(reversed({})), enumerate, zip, map, filter,
    reversed, type(iter(collections.deque())), type(reversed(collections.deque())), type(iter(int, 0)),
    type(iter(range(2**70))), type(iter(collections.OrderedDict())), type(reversed({}.values())), type(reversed({}.items())),
    *(v for v in vars(itertools).values() if isinstance(v, type)),
)  # fmt: skip


def real_type(value: Any) -> type:
    """type(value) as the program would see it."""
    cls = type(value)
    if cls is TracedTensor:
        return value.cls  # type: ignore[no-any-return]
    if cls in SYMBOLIC:
        return _SYMBOLIC_TYPES[cls]
    if cls is TracedNumber:
        return float
    if cls is TracedGenerator:
        return types.GeneratorType
    if cls is Interpreted:
        return real_type(value.function)
    if cls is TracedIterator:
        return real_type(value.iterator)
    if cls is TensorMethod:
        return types.BuiltinFunctionType
    return cls


_SYMBOLIC_TYPES: dict[type, type] = {SymInt: int, SymBool: bool, SymFloat: float, SymbolicSize: fl.Size}


def native(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Runs native code on the program's values; its exceptions are the program's."""
    try:
        return function(*args, **kwargs)
    except (Unsupported, UserError, breaks.SkipFrame):
        raise
    except RecursionError:
        raise Unsupported(breaks.RECURSION) from None
    except BaseException as error:
        error.__traceback__ = None
        raise UserError(error) from None


# ---------------------------------------------------------------------------------------------- what values are


def python_special(cls: type, *names: str) -> bool:
    """Whether a class implements one of the special methods in Python."""
    if not (cls.__flags__ & (1 << 9)) or cls is TracedTensor or cls is TracedNumber or cls in SYMBOLIC:
        return False
    return any(isinstance(lookup_type(cls, name), (types.FunctionType, property)) for name in names)


_INSPECTED = ("__eq__", "__hash__", "__lt__", "__gt__", "__le__", "__ge__", "__bool__", "__len__", "__iter__", "__index__",
              "__add__", "__radd__", "__int__", "__float__")  # fmt: skip


def is_transparent(value: Any, depth: int = 8) -> bool:
    """Whether native code may look into the value without running Python code that should be interpreted."""
    cls = type(value)
    if cls in LITERALS or cls is TracedTensor or cls in CONSTANTS or cls in SYMBOLIC or cls is TracedNumber:
        return True
    if depth == 0:
        return False
    if cls in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter):
        return all(is_transparent(k, depth - 1) and is_transparent(v, depth - 1) for k, v in value.items())
    if isinstance(value, (tuple, list)) and not python_special(cls, *_INSPECTED):
        return all(is_transparent(v, depth - 1) for v in value)
    if cls in CONTAINERS:
        return all(is_transparent(v, depth - 1) for v in value)
    if isinstance(value, (type, enum.Enum, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, Function)):
        return not python_special(cls, "__eq__", "__hash__")
    if cls in (TracedGenerator, TracedIterator, Interpreted, TensorMethod) or cls in DICT_VIEWS or cls in ITERATORS:
        return True
    if isinstance(value, BaseException):
        return True
    return cls.__eq__ is object.__eq__ and cls.__hash__ is object.__hash__ and not python_special(cls, *_INSPECTED)


def is_opaque_iterator(tracer: Tracer, value: Any) -> bool:
    return (
        id(value) in tracer.known and hasattr(type(value), "__next__") and not python_special(type(value), "__next__")
    )


# ---------------------------------------------------------------------------------------------- iteration


def iterate(tracer: Tracer, value: Any) -> Any:
    """iter(value), as an iterator that native code may use."""
    cls = type(value)
    if cls is TracedTensor or cls is SymbolicSize:
        return native(iter, value)
    if (
        isinstance(value, (TracedGenerator, TracedIterator))
        or cls in CONTAINERS
        or cls in ITERATORS
        or cls in DICT_VIEWS
    ):
        if is_opaque_iterator(tracer, value):
            return value
        return native(iter, value)
    if cls in CONSTANTS or cls in (collections.OrderedDict, collections.defaultdict, collections.Counter):
        return native(iter, value)
    if is_opaque_iterator(tracer, value):
        return value
    if isinstance(value, type) and isinstance(value, enum.EnumMeta):
        return native(iter, list(value))
    module = fl_module()
    hook = lookup_type(cls, "__iter__")
    if isinstance(hook, types.FunctionType):
        tracer.guard_type_attribute(cls, "__iter__")
        made = call(tracer, hook, (value,), {})
        return as_iterator(tracer, made)
    if isinstance(value, (tuple, list, dict, set)) and id(value) not in tracer.known:
        return native(iter, value)
    if hook is NULL and isinstance(lookup_type(cls, "__getitem__"), types.FunctionType):
        return TracedIterator(tracer, _SequenceIterator(tracer, value))
    if hook is NULL and not isinstance(value, module):
        raise UserError(TypeError(f"'{real_type(value).__name__}' object is not iterable"))
    raise Unsupported(breaks.UNKNOWN_OPERATION, f"iteration over {cls.__name__}")


class _SequenceIterator:
    """Iteration by __getitem__ with 0, 1, 2 ..."""

    def __init__(self, tracer: Tracer, value: Any) -> None:
        self.tracer, self.value, self.index = tracer, value, 0

    def step(self) -> Any:
        try:
            item = self.tracer.call_special(self.value, "__getitem__", self.index)
        except UserError as error:
            if isinstance(error.exception, IndexError):
                raise UserError(StopIteration()) from None
            raise
        self.index += 1
        return item


def as_iterator(tracer: Tracer, made: Any) -> Any:
    if isinstance(made, (TracedGenerator, TracedIterator)) or type(made) in ITERATORS:
        return made
    if python_special(type(made), "__next__"):
        return TracedIterator(tracer, made)
    raise Unsupported(breaks.UNKNOWN_OPERATION, f"iteration over {type(made).__name__}")


def advance(tracer: Tracer, iterator: Any) -> Any:
    """next(iterator); StopIteration arrives as a UserError."""
    if is_opaque_iterator(tracer, iterator):
        raise Unsupported(breaks.ITERATOR, type(iterator).__name__)
    if isinstance(iterator, TracedIterator) and isinstance(iterator.iterator, _SequenceIterator):
        return iterator.iterator.step()
    if python_special(type(iterator), "__next__") and not isinstance(iterator, (TracedGenerator, TracedIterator)):
        return tracer.call_special(iterator, "__next__")
    return native(next, iterator)


# ---------------------------------------------------------------------------------------------- truth, comparison


def truth(tracer: Tracer, value: Any) -> bool:
    cls = type(value)
    if cls is bool:
        return value  # type: ignore[no-any-return]
    if cls in CONSTANTS or cls in CONTAINERS or cls is TracedTensor or cls in SYMBOLIC or cls is TracedNumber:
        return bool(native(bool, value))
    for name in ("__bool__", "__len__"):
        hook = lookup_type(cls, name)
        if isinstance(hook, types.FunctionType):
            tracer.guard_type_attribute(cls, name)
            return truth(tracer, call(tracer, hook, (value,), {}))
        if hook is not NULL:
            if id(value) in tracer.known:
                raise Unsupported(breaks.UNKNOWN_OPERATION, f"truth of {cls.__name__}")
            return bool(native(bool, value))
    return True


_REFLECTED = {
    "__lt__": "__gt__",
    "__gt__": "__lt__",
    "__le__": "__ge__",
    "__ge__": "__le__",
    "__eq__": "__eq__",
    "__ne__": "__ne__",
}
_OPERATORS = {
    "+": ("add", operator.add), "-": ("sub", operator.sub), "*": ("mul", operator.mul), "/": ("truediv", operator.truediv),
    "//": ("floordiv", operator.floordiv), "%": ("mod", operator.mod), "**": ("pow", operator.pow),
    "@": ("matmul", operator.matmul), "&": ("and", operator.and_), "|": ("or", operator.or_), "^": ("xor", operator.xor),
    "<<": ("lshift", operator.lshift), ">>": ("rshift", operator.rshift),
}  # fmt: skip
_INPLACE = {symbol: getattr(operator, "i" + name) for symbol, (name, _) in _OPERATORS.items()}
_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISON_NAMES = {"<": "__lt__", "<=": "__le__", "==": "__eq__", "!=": "__ne__", ">": "__gt__", ">=": "__ge__"}
_SYMBOL_OF = {function: symbol for symbol, (_, function) in _OPERATORS.items()}
_SYMBOL_OF_COMPARISON = {function: symbol for symbol, function in _COMPARISONS.items()}


def _check_native(tracer: Tracer, *values: Any) -> None:
    for value in values:
        if id(value) in tracer.known and type(value) not in CONSTANTS and not isinstance(value, (type, enum.Enum)):
            cls = type(value)
            if not (cls.__eq__ is object.__eq__ or (cls.__flags__ & (1 << 9) == 0 and callable(value))):
                raise Unsupported(breaks.UNKNOWN_OPERATION, f"operation on {cls.__name__}")


def binary(tracer: Tracer, symbol: str, left: Any, right: Any) -> Any:
    """A binary operator; `+=` and the like have the symbol with "="."""
    inplace = len(symbol) > 1 and symbol.endswith("=")
    base = symbol[:-1] if inplace else symbol
    name, function = _OPERATORS[base]
    if inplace:
        function = _INPLACE[base]
    left_type, right_type = type(left), type(right)
    if not python_special(left_type, f"__{name}__", f"__r{name}__", f"__i{name}__") and not python_special(
        right_type, f"__{name}__", f"__r{name}__"
    ):
        if left_type is TracedTensor or right_type is TracedTensor:
            return _tensor_binary(tracer, function, left, right)
        _check_native(tracer, left, right)
        if symbol == "%" and left_type in (str, bytes):
            right = plain(right)
            if not _is_text_safe(right):
                raise Unsupported(breaks.PRINT, "formatting")
        if left_type is SymInt or right_type is SymInt:
            return _symbolic_binary(function, plain if symbol in _INEXACT else None, left, right)
        return native(function, left, right)
    if left_type is TracedTensor or right_type is TracedTensor:
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"{symbol} of a tensor and {right_type.__name__}")
    attempts = [(left, f"__{name}__", right)]
    if inplace:
        attempts.insert(0, (left, f"__i{name}__", right))
    reflected = (right, f"__r{name}__", left)
    if left_type is not right_type:
        if issubclass(right_type, left_type) and lookup_type(right_type, reflected[1]) is not lookup_type(
            left_type, reflected[1]
        ):
            attempts.insert(len(attempts) - 1, reflected)
        else:
            attempts.append(reflected)
    return _attempt(tracer, attempts, symbol, left, right)


# Operators whose result is a float, or that have no symbolic form: the sizes become numbers.
_INEXACT = frozenset({"/", "/=", "**", "**=", "<<", ">>", "&", "|", "^", "<<=", ">>=", "&=", "|=", "^="})


_DIVISIONS = frozenset({operator.floordiv, operator.mod, operator.ifloordiv, operator.imod})


def _symbolic_binary(function: Any, specialize: Any, left: Any, right: Any) -> Any:
    if (type(left) is not SymInt and not isinstance(left, (int, SymInt))) or (
        type(right) is not SymInt and type(right) is not int
    ):
        specialize = plain
    if function in _DIVISIONS and not bool(right != 0):
        specialize = plain  # the division raises; that it does not is a guard
    if specialize is not None:
        left, right = specialize(left), specialize(right)
    result = native(function, left, right)
    return (
        result
        if type(result) in (int, SymInt) or type(result) not in SYMBOLIC
        else native(function, plain(left), plain(right))
    )


def _attempt(tracer: Tracer, attempts: list[Any], symbol: str, left: Any, right: Any) -> Any:
    for owner, name, other in attempts:
        method = lookup_type(type(owner), name)
        if method is NULL or method is None:
            continue
        if isinstance(method, types.FunctionType):
            tracer.guard_type_attribute(type(owner), name)
            result = call(tracer, method, (owner, other), {})
        else:
            _check_native(tracer, owner, other)
            result = native(method, owner, other)
        if result is not NotImplemented:
            return result
    if symbol in ("==", "!="):
        return (left is right) == (symbol == "==")
    names = real_type(left).__name__, real_type(right).__name__
    if symbol in _COMPARISONS:
        raise UserError(TypeError(f"'{symbol}' not supported between instances of '{names[0]}' and '{names[1]}'"))
    raise UserError(TypeError(f"unsupported operand type(s) for {symbol}: '{names[0]}' and '{names[1]}'"))


def _tensor_binary(tracer: Tracer, function: Any, left: Any, right: Any) -> Any:
    for value in (left, right):
        if type(value) is not TracedTensor and not isinstance(value, (bool, int, float, complex, SymInt, TracedNumber)):
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"{function.__name__} of a tensor and {type(value).__name__}")
    return tracer.call_function(function, (left, right), {})


def compare(tracer: Tracer, symbol: str, left: Any, right: Any) -> Any:
    left_type, right_type = type(left), type(right)
    name = _COMPARISON_NAMES[symbol]
    names = ("__ne__", "__eq__") if symbol == "!=" else (name,)
    if not python_special(left_type, *names) and not python_special(right_type, _REFLECTED[name], *names):
        if left_type is TracedTensor or right_type is TracedTensor:
            other = right if left_type is TracedTensor else left
            if type(other) is not TracedTensor and not isinstance(
                other, (bool, int, float, complex, SymInt, TracedNumber)
            ):
                if other is None and symbol in ("==", "!="):
                    return symbol == "!="
                raise Unsupported(breaks.UNKNOWN_OPERATION, f"{symbol} of a tensor and {type(other).__name__}")
            return tracer.call_function(_COMPARISONS[symbol], (left, right), {})
        if not (is_transparent(left) and is_transparent(right)):
            if isinstance(left, CONTAINERS) and type(left) is type(right) and symbol in ("==", "!="):
                return _compare_containers(tracer, symbol, left, right)
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"{symbol} of {left_type.__name__} and {right_type.__name__}")
        if left_type in SYMBOLIC or right_type in SYMBOLIC:
            return bool(native(_COMPARISONS[symbol], left, right))
        return native(_COMPARISONS[symbol], left, right)
    attempts = [(left, name, right), (right, _REFLECTED[name], left)]
    if left_type is not right_type and issubclass(right_type, left_type):
        attempts.reverse()
    if symbol == "!=" and not python_special(left_type, "__ne__") and not python_special(right_type, "__ne__"):
        return not truth(tracer, compare(tracer, "==", left, right))  # what object.__ne__ does
    return _attempt(tracer, attempts, symbol, left, right)


def _compare_containers(tracer: Tracer, symbol: str, left: Any, right: Any) -> bool:
    if isinstance(left, (set, frozenset, dict)):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"comparison of {type(left).__name__}s of objects")
    same = len(left) == len(right) and all(
        a is b or truth(tracer, compare(tracer, "==", a, b)) for a, b in zip(left, right)
    )
    return same == (symbol == "==")


def contains(tracer: Tracer, item: Any, container: Any) -> bool:
    cls = type(container)
    item = plain(item)
    if cls is TracedTensor:
        raise Unsupported(breaks.TENSOR_VALUE, "in")
    hook = lookup_type(cls, "__contains__")
    if isinstance(hook, types.FunctionType):
        tracer.guard_type_attribute(cls, "__contains__")
        return truth(tracer, call(tracer, hook, (container, item), {}))
    if cls in (list, tuple, collections.deque) or hook is NULL:
        if (
            is_transparent(item)
            and (cls not in (list, tuple, collections.deque) or is_transparent(container))
            and hook is not NULL
        ):
            return bool(native(operator.contains, container, item))
        iterator = iterate(tracer, container)
        while True:
            try:
                candidate = advance(tracer, iterator)
            except UserError as error:
                if isinstance(error.exception, StopIteration):
                    return False
                raise
            if candidate is item or truth(tracer, compare(tracer, "==", candidate, item)):
                return True
    if id(container) in tracer.known and cls not in CONSTANTS and not isinstance(container, (enum.EnumMeta,)):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"in of {cls.__name__}")
    if not is_transparent(item):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"in of {type(item).__name__}")
    return bool(native(operator.contains, container, item))


def subscript(tracer: Tracer, container: Any, key: Any) -> Any:
    cls = type(container)
    if cls is TracedTensor:
        return native(operator.getitem, container, key)
    hook = lookup_type(cls, "__getitem__")
    if isinstance(hook, types.FunctionType):
        tracer.guard_type_attribute(cls, "__getitem__")
        return call(tracer, hook, (container, key), {})
    if isinstance(container, type):
        if isinstance(container, enum.EnumMeta) or cls.__module__ in ("typing", "builtins", "abc"):
            return native(operator.getitem, container, key)
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"subscript of {container.__name__}")
    if id(container) in tracer.known and cls not in CONSTANTS:
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"subscript of {cls.__name__}")
    if isinstance(container, dict) and python_special(cls, "__missing__") and not dict.__contains__(container, key):
        return tracer.call_special(container, "__missing__", key)
    key = plain(key)
    if not is_transparent(key) and python_special(type(key), "__hash__", "__eq__", "__index__"):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"key of type {type(key).__name__}")
    result = native(operator.getitem, container, key)
    return result


def store_subscript(tracer: Tracer, container: Any, key: Any, value: Any) -> None:
    """container[key] = value, or del container[key] when value is NULL."""
    cls = type(container)
    if cls is TracedTensor:
        if value is NULL:
            raise Unsupported(breaks.STORE, "del of a tensor's item")
        native(operator.setitem, container, key, value)
        return
    hook = lookup_type(cls, "__delitem__" if value is NULL else "__setitem__")
    if isinstance(hook, types.FunctionType):
        tracer.guard_type_attribute(cls, hook.__name__)
        call(tracer, hook, (container, key) if value is NULL else (container, key, value), {})
        return
    if id(container) in tracer.known or not isinstance(container, (list, dict, collections.deque, bytearray)):
        if hook is NULL:
            native(operator.setitem, container, key, value)  # raises the error of the type
        raise Unsupported(breaks.STORE, f"item of {cls.__name__}")
    key = plain(key)
    if python_special(type(key), "__hash__", "__eq__", "__index__"):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"key of type {type(key).__name__}")
    if isinstance(key, slice) and value is not NULL and not isinstance(value, CONTAINERS):
        value = iterate(tracer, value)
    if value is NULL:
        native(operator.delitem, container, key)
    else:
        native(operator.setitem, container, key, value)


# ---------------------------------------------------------------------------------------------- the call


def call(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    cls = type(function)
    if cls is types.FunctionType:
        special = SPECIAL.get(id(function))
        if special is not None:
            return special(tracer, *args, **kwargs)
        return inline(tracer, function, args, kwargs)
    if cls is types.MethodType:
        owner = function.__self__
        if isinstance(owner, (TracedGenerator, TracedIterator)) or type(owner) in SYMBOLIC:
            return native(function, *args, **kwargs)
        return call(tracer, function.__func__, (owner, *args), kwargs)
    if cls is TensorMethod:
        return call_tensor_method(tracer, function.name, (function.tensor, *args), kwargs)
    if cls is Interpreted:
        return call(tracer, function.function, args, kwargs)
    special = SPECIAL.get(id(function))
    if special is not None:
        return special(tracer, *args, **kwargs)
    if cls is Function or cls is OverridableFunction:
        return call_operator(tracer, function, args, kwargs)
    if cls in TENSOR_METHODS:
        if args and type(args[0]) is TracedTensor:
            return call_tensor_method(tracer, function.__name__, args, kwargs)
        raise Unsupported(breaks.UNKNOWN_CALL, function.__name__)
    if cls is types.BuiltinFunctionType or cls is types.MethodWrapperType:
        return call_builtin(tracer, function, args, kwargs)
    if isinstance(function, type):
        return construct(tracer, function, args, kwargs)
    if cls is functools.partial:
        return call(tracer, function.func, (*function.args, *args), {**function.keywords, **kwargs})
    if cls in (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType):
        return call_descriptor(tracer, function, args, kwargs)
    if cls in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
        return _call_getter(tracer, function, args)
    if cls is _C.CompiledFunction:
        return call(tracer, function._dynamo_function, args, kwargs)
    module = fl_module()
    if module != () and isinstance(function, module):
        return call_module(tracer, function, args, kwargs)
    hook = lookup_type(cls, "__call__")
    if isinstance(hook, types.FunctionType):
        tracer.guard_type_attribute(cls, "__call__")
        return call(tracer, hook, (function, *args), kwargs)
    if hook is NULL:
        raise UserError(TypeError(f"'{real_type(function).__name__}' object is not callable"))
    wrapped = getattr(function, "__wrapped__", None)
    if cls.__name__ == "_lru_cache_wrapper" and isinstance(wrapped, types.FunctionType):
        raise Unsupported(breaks.UNKNOWN_CALL, "a cached function")
    raise Unsupported(breaks.UNKNOWN_CALL, f"{getattr(function, '__qualname__', cls.__name__)}")


def _call_getter(tracer: Tracer, function: Any, args: Args) -> Any:
    kind, wanted = function.__reduce__()[:2]
    if kind is operator.itemgetter:
        found = tuple(subscript(tracer, args[0], key) for key in wanted)
        return found[0] if len(wanted) == 1 else found
    if kind is operator.attrgetter:
        values = []
        for path in wanted:
            value = args[0]
            for part in path.split("."):
                value = attributes.load(tracer, value, part)
            values.append(value)
        return values[0] if len(wanted) == 1 else tuple(values)
    raise Unsupported(breaks.UNKNOWN_CALL, "methodcaller")


def inline(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interprets a Python function."""
    from flambeau._dynamo.interpreter import Frame

    state = function.__dict__
    if state:
        if state.get("_dynamo_disable"):
            raise Unsupported(breaks.DISABLED, function.__qualname__)
        if state.get("_dynamo_allow_in_graph"):
            return tracer.call_function(function, args, kwargs)
    if tracer.depth > config.max_depth:
        raise Unsupported(breaks.RECURSION, function.__qualname__)
    code = function.__code__
    if code.co_flags & 0x280:  # coroutines and asynchronous generators
        raise Unsupported(breaks.COROUTINE, function.__qualname__)
    frame = Frame.enter(tracer, function, args, kwargs)
    if code.co_flags & 0x20:
        return TracedGenerator(tracer, frame)
    return frame.call()


def call_tensor_method(tracer: Tracer, name: str, args: Args, kwargs: Kwargs) -> Any:
    if name in ("cpu", "cuda"):
        if name == "cpu" and args[0].fake.fake_device.type == "cpu" and not kwargs and len(args) == 1:
            return args[0]
        raise Unsupported(breaks.UNKNOWN_CALL, f"Tensor.{name}")
    if name in attributes._VALUE_METHODS:
        raise Unsupported(breaks.TENSOR_VALUE, name)
    if name == "backward":
        raise Unsupported(breaks.BACKWARD)
    if name in attributes._STATE_METHODS or name in ("apply_", "map_", "map2_", "to_dense"):
        raise Unsupported(breaks.UNKNOWN_CALL, f"Tensor.{name}")
    if name in attributes._OPERATOR_METHODS:
        return native(getattr(TracedTensor, name), *args)
    if name in ("__len__", "__iter__"):
        return native(getattr(TracedTensor, name), *args)
    return tracer.call_method(name, args, kwargs)


def call_operator(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    if kwargs.get("generator") is not None:
        raise Unsupported(breaks.UNKNOWN_CALL, "an operator with a generator")
    if kwargs.get("requires_grad"):
        raise Unsupported(breaks.UNKNOWN_CALL, "a new tensor that requires grad")
    if function in (fl.as_tensor, fl.asarray, fl.from_numpy, fl.frombuffer):
        if function is fl.as_tensor and len(args) == 1 and type(args[0]) is TracedTensor and not kwargs:
            return args[0]
        if function is not fl.as_tensor:
            raise Unsupported(breaks.UNKNOWN_CALL, function.__name__)
    if function in (fl.tensor, fl.as_tensor) and _holds_tensor(args):
        raise Unsupported(breaks.TENSOR_VALUE, function.__name__)
    return tracer.call_function(function, args, kwargs)


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_holds_tensor(v) for v in value)
    return type(value) is TracedTensor


def call_descriptor(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A method of a built-in type, unbound: list.append(x, 1)."""
    owner = function.__objclass__ if hasattr(function, "__objclass__") else None
    if not args:
        return native(function)
    subject = args[0]
    name = function.__name__
    if owner is object:
        if name == "__setattr__":
            attributes.store_generic(tracer, *args)
            return None
        if name == "__delattr__":
            attributes.store_generic(tracer, args[0], args[1], NULL)
            return None
        if name == "__getattribute__":
            return attributes.load_generic(tracer, *args)
        if name == "__init__":
            return None
        if name in ("__eq__", "__ne__"):
            return native(function, *args)
        if name == "__init_subclass__":
            return None
        if name == "__format__" or name == "__str__" or name == "__repr__":
            if name == "__str__":
                return to_text(tracer, subject, repr)
            raise Unsupported(breaks.IDENTITY, name)
        raise Unsupported(breaks.UNKNOWN_CALL, name)
    if type(subject) is TracedTensor and name in attributes._OPERATOR_METHODS:
        return native(getattr(TracedTensor, name), *args)
    if isinstance(subject, BaseException) and id(subject) not in tracer.known:
        return native(function, *args, **kwargs)
    if id(subject) in tracer.known and type(subject) not in CONSTANTS:
        raise Unsupported(breaks.UNKNOWN_CALL, f"{getattr(owner, '__name__', '')}.{name}")
    if isinstance(subject, CONTAINERS) or type(subject) in CONSTANTS:
        return native_method(tracer, function.__get__(subject, type(subject)), args[1:], kwargs)
    raise Unsupported(breaks.UNKNOWN_CALL, f"{getattr(owner, '__name__', '')}.{name}")


# Methods of containers that take what they are given without looking at it.
_BLIND = frozenset(
    "append appendleft insert pop popleft popitem clear copy extend extendleft update setdefault get keys values items "
    "reverse rotate add __setitem__ __getitem__ __len__ fromkeys move_to_end discard remove __contains__ __iter__ __init__ "
    "elements most_common".split()
)
_HASHING = frozenset(
    "add discard remove get setdefault pop __contains__ __getitem__ __setitem__ count index update".split()
)


def native_method(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A bound method of a container or constant."""
    owner, name = function.__self__, function.__name__
    if name == "join" and isinstance(owner, (str, bytes)) and len(args) == 1:
        args = (iterable_list(tracer, args[0]),)
    if isinstance(owner, (dict, set, frozenset, str, bytes)):
        args = tuple(plain(a) for a in args)
        kwargs = kwargs if isinstance(owner, dict) else {k: plain(v) for k, v in kwargs.items()}
    if isinstance(owner, (list, collections.deque)) and name in ("remove", "index", "count"):
        if not (is_transparent(owner) and is_transparent(args)):
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"{name} of a list of objects")
    elif isinstance(owner, (list, collections.deque)) and name == "sort":
        return _sort(tracer, owner, **kwargs)
    elif isinstance(owner, (dict, set, frozenset)) and name in _HASHING and args:
        if python_special(type(args[0]), "__hash__", "__eq__"):
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"key of type {type(args[0]).__name__}")
    elif isinstance(owner, (str, bytes)) and not all(_is_text_safe(a) for a in (*args, *kwargs.values())):
        raise Unsupported(breaks.PRINT, f"str.{name}")
    if isinstance(owner, CONTAINERS) and name not in _BLIND and not (is_transparent(args) and is_transparent(owner)):
        raise Unsupported(breaks.UNKNOWN_CALL, f"{type(owner).__name__}.{name}")
    if name in (
        "extend",
        "update",
        "extendleft",
        "union",
        "intersection",
        "difference",
        "join",
        "__init__",
        "issubset",
        "issuperset",
    ):
        args = tuple(a if isinstance(a, dict) and name in ("update", "__init__") else iterable(tracer, a) for a in args)
    return native(function, *args, **kwargs)


def _sort(tracer: Tracer, items: Any, key: Any = None, reverse: Any = False) -> None:
    if key is None and not is_transparent(items):
        raise Unsupported(breaks.UNKNOWN_OPERATION, "sorting objects")
    copy = list(items)
    native(copy.sort, key=None if key is None else tracer.native_callable(key), reverse=truth(tracer, reverse))
    items[:] = copy


def iterable(tracer: Tracer, value: Any) -> Any:
    """Something that native code may iterate over."""
    if type(value) in CONTAINERS or type(value) in CONSTANTS or type(value) in DICT_VIEWS:
        return value
    iterator = iterate(tracer, value)
    if is_opaque_iterator(tracer, iterator):
        raise Unsupported(breaks.ITERATOR, type(iterator).__name__)
    if isinstance(iterator, TracedIterator) and isinstance(iterator.iterator, _SequenceIterator):
        raise Unsupported(breaks.UNKNOWN_OPERATION, "iteration by __getitem__ in native code")
    return iterator


def _is_text_safe(value: Any) -> bool:
    """Whether str() and repr() of the value are the same for the program's own value."""
    cls = type(value)
    if cls in LITERALS or cls in CONSTANTS:
        return True
    if cls in (list, tuple, set, frozenset, collections.deque):
        return all(_is_text_safe(v) for v in value)
    if cls in (dict, collections.OrderedDict, collections.Counter):
        return all(_is_text_safe(k) and _is_text_safe(v) for k, v in value.items())
    if isinstance(value, (enum.Enum, type)):
        return (
            not python_special(cls, "__str__", "__repr__", "__format__")
            or cls.__module__ == "enum"
            or (isinstance(value, enum.Enum) and lookup_type(cls, "__str__") in (enum.Enum.__str__,))
        )
    if isinstance(value, BaseException) and not python_special(cls, "__str__", "__repr__"):
        return all(_is_text_safe(v) for v in value.args)
    if is_namedtuple(cls) and not cls.__dict__.get("__str__"):
        return all(_is_text_safe(v) for v in value)
    return False


def _plain_text(value: Any) -> Any:
    """A value with symbols turned into numbers, also inside plain containers."""
    cls = type(value)
    if cls is TracedNumber:
        return value.specialize()
    if cls in SYMBOLIC:
        return plain(value)
    if cls is list or cls is tuple:
        return cls([_plain_text(v) for v in value])
    if cls is dict:
        return {_plain_text(k): _plain_text(v) for k, v in value.items()}
    return value


def to_text(tracer: Tracer, value: Any, function: Callable[[Any], str]) -> Any:
    """str(value) or repr(value)."""
    value = _plain_text(value)
    if _is_text_safe(value):
        return native(function, value)
    names = ("__str__", "__repr__") if function is str else ("__repr__",)
    for name in names:
        hook = lookup_type(type(value), name)
        if isinstance(hook, types.FunctionType):
            tracer.guard_type_attribute(type(value), name)
            return call(tracer, hook, (value,), {})
        if hook not in (object.__str__, NULL):
            break
    raise Unsupported(breaks.PRINT, f"text of {real_type(value).__name__}")


def call_builtin(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, types.ModuleType) or owner is None:
        if function in SAFE:
            args = tuple(_plain_text(a) for a in args)
            if all(is_transparent(a) for a in args) and all(is_transparent(a) for a in kwargs.values()):
                return native(function, *args, **kwargs)
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"{function.__name__} of an object")
        module = getattr(owner, "__name__", "") or getattr(function, "__module__", "") or ""
        record = breaks.RANDOM if "random" in module else breaks.UNKNOWN_CALL
        raise Unsupported(record, f"{module}.{function.__name__}")
    if isinstance(owner, type):
        if function.__name__ == "__new__":
            return make(tracer, args[0], args[1:], kwargs, function)
        if (owner in NATIVE_CLASSES or owner.__module__ == "builtins") and is_transparent(args):
            return native(function, *args, **kwargs)
        raise Unsupported(breaks.UNKNOWN_CALL, f"{owner.__name__}.{function.__name__}")
    outside = id(owner) in tracer.memo and tracer.memo[id(owner)][1] is not owner
    if (id(owner) in tracer.known or id(function) in tracer.known or outside) and type(owner) not in CONSTANTS:
        raise Unsupported(breaks.UNKNOWN_CALL, f"{type(owner).__name__}.{function.__name__}")
    if type(owner) is TracedTensor:
        return native(function, *args, **kwargs)
    if isinstance(
        owner, (*CONTAINERS, str, bytes, int, float, complex, slice, range, *DICT_VIEWS, types.MappingProxyType)
    ) or (type(owner) in CONSTANTS):
        return native_method(tracer, function, args, kwargs)
    if isinstance(owner, BaseException) and function.__name__ in ("with_traceback", "__init__", "add_note"):
        return native(function, *args, **kwargs)
    if type(owner) in ITERATORS and function.__name__ in ("__next__", "__iter__", "__length_hint__"):
        return native(function, *args, **kwargs)
    name = getattr(function, "__qualname__", repr(function))
    if "Random" in type(owner).__name__:
        raise Unsupported(breaks.RANDOM, name)
    raise Unsupported(breaks.UNKNOWN_CALL, name)


# ---------------------------------------------------------------------------------------------- classes

NATIVE_CLASSES: frozenset[Any] = frozenset(
    [list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict, collections.defaultdict,
     int, float, complex, str, bytes, bytearray, bool, range, slice, enumerate, zip, map, filter, reversed, fl.Size, fl.device,
     functools.partial, type(None), object, property, staticmethod, classmethod, operator.itemgetter, operator.attrgetter,
     operator.methodcaller]
    + [v for v in vars(itertools).values() if isinstance(v, type)]
)  # fmt: skip


def construct(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    special = SPECIAL.get(id(cls))
    if special is not None:
        return special(tracer, *args, **kwargs)
    if cls is collections.Counter and is_transparent(args) and is_transparent(kwargs):
        return native(cls, *args, **kwargs)
    if cls in NATIVE_CLASSES:
        return _construct_native(tracer, cls, args, kwargs)
    meta = type(cls)
    if isinstance(cls, enum.EnumMeta):
        if len(args) == 1 and not kwargs and is_transparent(args):
            return native(cls, *args)
        raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
    if isinstance(lookup_type(meta, "__call__"), types.FunctionType):
        tracer.guard_type_attribute(meta, "__call__")
        return call(tracer, lookup_type(meta, "__call__"), (cls, *args), kwargs)
    if meta not in (type, abc.ABCMeta) and lookup_type(meta, "__call__") is not type.__call__:
        raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
    if issubclass(cls, BaseException) and is_native_class(cls):
        return tracer.make_fresh(native(cls, *args, **kwargs))
    module = fl_module()
    if module != () and issubclass(cls, module):
        raise Unsupported(breaks.UNKNOWN_CALL, f"construction of the module {cls.__name__}")
    if issubclass(cls, _C.Tensor):
        raise Unsupported(breaks.UNKNOWN_CALL, f"construction of a {cls.__name__}")
    if is_result_tuple(cls) and cls.__module__.startswith("torch"):
        return native(cls, *args, **kwargs)
    tracer.guard_type_attribute(cls, "__new__")
    tracer.guard_type_attribute(cls, "__init__")
    new = lookup_type(cls, "__new__")
    new = new.__func__ if isinstance(new, staticmethod) else new
    init = lookup_type(cls, "__init__")
    if isinstance(new, types.FunctionType):
        tracer._know(new, tracer.sources.constant(new))
        made = call(tracer, new, (cls, *args), kwargs)
        if not isinstance(made, cls):
            return made
    else:
        made = make(tracer, cls, args, kwargs, new)
    if isinstance(init, types.FunctionType):
        tracer._know(init, tracer.sources.constant(init))
        result = call(tracer, init, (made, *args), kwargs)
        if result is not None:
            raise UserError(TypeError(f"__init__() should return None, not '{real_type(result).__name__}'"))
    elif init is object.__init__:
        if (args or kwargs) and new is object.__new__:
            raise UserError(TypeError(f"{cls.__name__}() takes no arguments"))
    elif isinstance(made, BaseException):
        native(init, made, *args, **kwargs)
    elif isinstance(made, CONTAINERS):
        if not isinstance(made, (tuple, frozenset)):
            native(init, made, *(a if isinstance(a, dict) else iterable(tracer, a) for a in args), **kwargs)
    else:
        raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
    return made


def make(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs, new: Any) -> Any:
    """cls.__new__ where that is native: an empty instance."""
    owner = getattr(new, "__self__", None)
    if new is object.__new__ or owner is object:
        if cls.__abstractmethods__ if "__abstractmethods__" in cls.__dict__ else False:
            raise Unsupported(breaks.EXCEPTION, f"abstract class {cls.__name__}")
        if not (cls.__flags__ & (1 << 9)):
            raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
        return tracer.make_fresh(native(object.__new__, cls))
    if owner in (list, dict, set, collections.OrderedDict, collections.deque, collections.defaultdict):
        return tracer.make_fresh(native(new, cls))
    if owner is tuple:
        return native(new, cls, *(iterable(tracer, a) for a in args))
    if owner in (int, float, str, frozenset) and is_transparent(args):
        if cls in NATIVE_CLASSES:
            return native(new, cls, *args, **kwargs)
        raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
    if isinstance(owner, type) and issubclass(owner, BaseException):
        return tracer.make_fresh(native(new, cls, *args))
    raise Unsupported(breaks.UNKNOWN_CALL, f"{cls.__name__}.__new__")


_CALLBACK_FIRST = (map, filter, itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.filterfalse)


def _construct_native(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if cls in (list, tuple, set, frozenset, enumerate, zip, collections.deque, itertools.chain, itertools.product):
        if (cls is zip and len(args) > 0) or cls not in (enumerate, collections.deque):
            args = tuple(iterable(tracer, a) for a in args)
        elif args:
            args = (iterable(tracer, args[0]), *args[1:])
        if "iterable" in kwargs:
            kwargs = {**kwargs, "iterable": iterable(tracer, kwargs["iterable"])}
        if cls in (set, frozenset) and args and isinstance(args[0], CONTAINERS) and not is_transparent(args[0]):
            raise Unsupported(breaks.UNKNOWN_OPERATION, "set of objects")
        return native(cls, *args, **kwargs)
    if cls in (dict, collections.OrderedDict):
        if args and not isinstance(args[0], dict):
            hook = lookup_type(type(args[0]), "keys")
            if isinstance(hook, types.FunctionType):
                raise Unsupported(breaks.UNKNOWN_OPERATION, f"dict of {type(args[0]).__name__}")
            args = (iterable(tracer, args[0]), *args[1:])
        if args and id(args[0]) in tracer.known:
            raise Unsupported(breaks.UNKNOWN_OPERATION, "dict of an unknown mapping")
        return native(cls, *args, **kwargs)
    if cls is collections.defaultdict:
        args = ((tracer.native_callable(args[0]) if args[0] is not None else None), *args[1:]) if args else args
        return native(cls, *args, **kwargs)
    if cls in _CALLBACK_FIRST:
        function = args[0] if args[0] is None else tracer.native_callable(args[0])
        return native(cls, function, *(iterable(tracer, a) for a in args[1:]))
    if cls is itertools.accumulate or cls is itertools.groupby:
        rest = [tracer.native_callable(a) if a is not None else a for a in args[1:2]] + list(args[2:])
        kwargs = {
            k: tracer.native_callable(v) if k in ("func", "key") and v is not None else v for k, v in kwargs.items()
        }
        if cls is itertools.accumulate and not rest and "func" not in kwargs:
            rest = [Interpreted(tracer, operator.add)]
        return native(cls, iterable(tracer, args[0]), *rest, **kwargs)
    if cls is reversed:
        hook = lookup_type(type(args[0]), "__reversed__")
        if isinstance(hook, types.FunctionType):
            return as_iterator(tracer, call(tracer, hook, args, {}))
        if id(args[0]) in tracer.known or python_special(type(args[0]), "__getitem__", "__len__"):
            raise Unsupported(breaks.UNKNOWN_OPERATION, "reversed of an object")
        if type(args[0]) is TracedTensor:
            raise Unsupported(breaks.UNKNOWN_OPERATION, "reversed of a tensor")
        return native(reversed, *args)
    if cls is str:
        if len(args) == 1 and not kwargs:
            return to_text(tracer, args[0], str)
        return native(str, *args, **kwargs)
    if cls is bool:
        return truth(tracer, args[0]) if args else False
    if cls in (int, float, complex):
        for name in ("__int__", "__float__", "__index__", "__complex__", "__trunc__"):
            if args and python_special(type(args[0]), name):
                if name == f"__{cls.__name__}__":
                    return tracer.call_special(args[0], name)
                raise Unsupported(breaks.UNKNOWN_OPERATION, f"{cls.__name__} of an object")
        if args and id(args[0]) in tracer.known:
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"{cls.__name__} of an object")
        if cls is int and len(args) == 1 and type(args[0]) is SymInt:
            return args[0]
        if cls is float and len(args) == 1 and type(args[0]) is TracedNumber:
            return args[0]
        return native(cls, *(plain(a) for a in args), **kwargs)
    if cls is functools.partial:
        return functools.partial(*args, **kwargs)
    if cls is object:
        return tracer.make_fresh(object())
    if issubclass(cls, tuple(v for v in NATIVE_CLASSES if getattr(v, "__module__", "") == "itertools")):
        if cls not in (itertools.count, itertools.repeat, itertools.combinations, itertools.permutations, itertools.islice,
                       itertools.zip_longest, itertools.cycle, itertools.compress, itertools.pairwise,
                       itertools.combinations_with_replacement, getattr(itertools, "batched", None)):  # fmt: skip
            raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
        if cls not in (itertools.count, itertools.repeat):
            converted = []
            for position, value in enumerate(args):
                is_data = position == 0 or cls in (itertools.zip_longest, itertools.compress)
                converted.append(iterable(tracer, value) if is_data else value)
            args = tuple(converted)
        return native(cls, *args, **kwargs)
    if is_transparent(args) and is_transparent(kwargs):
        return native(cls, *args, **kwargs)
    raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)


# ---------------------------------------------------------------------------------------------- nn.Module

_HOOKS = ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_pre_hooks")


def has_global_hooks() -> bool:
    """Whether hooks on the calls of all modules are registered."""
    from flambeau.nn.modules import global_hooks

    return any(global_hooks._CALL_HOOKS)


def call_module(tracer: Tracer, module: Any, args: Args, kwargs: Kwargs) -> Any:
    """module(...): forward with the hooks around it."""
    cls = type(module)
    base = fl_module()
    hook = lookup_type(cls, "__call__")
    if "_orig_mod" in cls.__dict__:  # a module that is compiled by itself: its original is captured here
        original = cls.__dict__["_orig_mod"]
        tracer._know(original, tracer.sources.constant(original))
        return call_module(tracer, original, args, kwargs)
    if isinstance(hook, types.FunctionType) and hook is not lookup_type(base, "__call__"):
        tracer.guard_type_attribute(cls, "__call__")
        return call(tracer, hook, (module, *args), kwargs)
    known = tracer.known.get(id(module))
    if known is None:
        raise Unsupported(breaks.UNKNOWN_CALL, f"a new module {cls.__name__}")
    from flambeau.nn.modules import global_hooks

    source = known[1]
    state = module.__dict__
    for name, table in vars(global_hooks).items():
        if name.startswith("_global_") and "registration" not in name and isinstance(table, dict):
            if table:
                raise Unsupported(breaks.UNKNOWN_CALL, "module with global hooks")
            tracer.sources.constant(table).check("length", 0)
    for name in _HOOKS:
        table = state[name]
        source.instance(name).check("dict_keys", list(table))
        if table and name.startswith("_backward"):
            raise Unsupported(breaks.UNKNOWN_CALL, "module with backward hooks")
    pre, post = state["_forward_pre_hooks"], state["_forward_hooks"]
    for key in pre:
        hook = tracer.wrap(pre[key], source.instance("_forward_pre_hooks").dict_item(key))
        if key in state["_forward_pre_hooks_with_kwargs"]:
            result = call(tracer, hook, (module, args, kwargs), {})
            if result is not None:
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise Unsupported(breaks.EXCEPTION, "result of a forward pre-hook")
                args, kwargs = result
        else:
            result = call(tracer, hook, (module, args), {})
            if result is not None:
                args = result if isinstance(result, tuple) else (result,)
    forward = attributes.load(tracer, module, "forward")
    result = call(tracer, forward, args, kwargs)
    for key in post:
        hook = tracer.wrap(post[key], source.instance("_forward_hooks").dict_item(key))
        if key in state["_forward_hooks_with_kwargs"]:
            changed = call(tracer, hook, (module, args, kwargs, result), {})
        else:
            changed = call(tracer, hook, (module, args, result), {})
        if changed is not None:
            result = changed
    return result


# ---------------------------------------------------------------------------------------------- special functions


def _isinstance(tracer: Tracer, value: Any, classes: Any) -> bool:
    if type(value) is TracedTensor:
        if value.real is not None:
            return bool(native(isinstance, value.real, classes))
        return bool(native(isinstance, _EMPTY, classes))
    cls = real_type(value)
    if cls is not type(value):
        return bool(native(issubclass, cls, classes))
    for candidate in classes if isinstance(classes, tuple) else (classes,):
        if (
            isinstance(lookup_type(type(candidate), "__instancecheck__"), types.FunctionType)
            and type(candidate) is not abc.ABCMeta
        ) and type(candidate).__module__.partition(".")[0] not in ("flambeau", "typing", "enum"):
            raise Unsupported(breaks.UNKNOWN_CALL, f"isinstance with {type(candidate).__name__}")
    return bool(native(isinstance, value, classes))


_EMPTY = _C.Tensor()


def _type(tracer: Tracer, *args: Any) -> Any:
    if len(args) != 1:
        raise Unsupported(breaks.UNKNOWN_CALL, "type() with three arguments")
    return real_type(args[0])


def _len(tracer: Tracer, value: Any) -> Any:
    hook = lookup_type(type(value), "__len__")
    if isinstance(hook, types.FunctionType) and type(value) is not TracedTensor:
        return tracer.call_special(value, "__len__")
    if type(value) is TracedTensor and value.fake.ndim:
        return value.fake.shape[0]
    if id(value) in tracer.known and type(value) not in CONSTANTS:
        if hook is NULL:
            raise UserError(TypeError(f"object of type '{type(value).__name__}' has no len()"))
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"len of {type(value).__name__}")
    return native(len, value)


def _getattr(tracer: Tracer, value: Any, name: str, *default: Any) -> Any:
    if not isinstance(name, str):
        raise UserError(TypeError("attribute name must be string, not '" + type(name).__name__ + "'"))
    try:
        return attributes.load(tracer, value, name)
    except UserError as error:
        if default and isinstance(error.exception, AttributeError):
            return default[0]
        raise


def _hasattr(tracer: Tracer, value: Any, name: str) -> bool:
    if type(value) is TracedTensor and lookup_type(_C.Tensor, name) is not NULL:
        return True
    try:
        attributes.load(tracer, value, name)
    except UserError as error:
        if isinstance(error.exception, AttributeError):
            return False
        raise
    return True


def _setattr(tracer: Tracer, value: Any, name: str, new: Any) -> None:
    attributes.store(tracer, value, name, new)


def _delattr(tracer: Tracer, value: Any, name: str) -> None:
    attributes.store(tracer, value, name, NULL)


def _iter(tracer: Tracer, value: Any, *sentinel: Any) -> Any:
    if sentinel:
        raise Unsupported(breaks.UNKNOWN_CALL, "iter() with two arguments")
    return iterate(tracer, value)


def _next(tracer: Tracer, iterator: Any, *default: Any) -> Any:
    try:
        return advance(tracer, iterator)
    except UserError as error:
        if default and isinstance(error.exception, StopIteration):
            return default[0]
        raise


def _super(tracer: Tracer, *args: Any) -> Any:
    if not args:
        frame = tracer.frame
        code = frame.code
        names = code.co_freevars
        if "__class__" not in names:
            raise UserError(RuntimeError("super(): __class__ cell not found"))
        cell = frame.locals[len(frame.locals) - len(names) + names.index("__class__")]
        cls = frame.cell_value(cell, "__class__")
        first = frame.locals[0]
        first = (
            frame.cell_value(first, code.co_varnames[0]) if isinstance(first, types.CellType) else frame.load_local(0)
        )
        return native(super, cls, first)
    return native(super, *args)


def _print(tracer: Tracer, *args: Any, **kwargs: Any) -> None:
    args = tuple(_plain_text(a) for a in args)
    if kwargs.get("file") is not None or not _is_text_safe(args):
        raise Unsupported(breaks.PRINT, "print")
    tracer.printed.append((print, tuple(_copy_text(a) for a in args), kwargs))


def _copy_text(value: Any) -> Any:
    """The text now, in case a container changes before it is printed."""
    return value if type(value) in LITERALS else str(value)


def _sum(tracer: Tracer, values: Any, start: Any = 0) -> Any:
    total = start
    if isinstance(start, (str, bytes)):
        return native(sum, values, start)
    iterator = iterate(tracer, values)
    while True:
        try:
            item = advance(tracer, iterator)
        except UserError as error:
            if isinstance(error.exception, StopIteration):
                return total
            raise
        total = binary(tracer, "+", total, item)


def _float_sum(tracer: Tracer, values: Any, start: Any = 0) -> Any:
    # Python 3.12 adds floats with compensation: leave numbers to it.
    if isinstance(values, (list, tuple)) and all(type(v) in (int, float, bool) for v in values):
        return native(sum, values, start)
    return _sum(tracer, values, start)


def _any_all(stop: bool) -> Callable[..., bool]:
    def run(tracer: Tracer, values: Any) -> bool:
        iterator = iterate(tracer, values)
        while True:
            try:
                item = advance(tracer, iterator)
            except UserError as error:
                if isinstance(error.exception, StopIteration):
                    return not stop
                raise
            if truth(tracer, item) is stop:
                return stop

    return run


def _extreme(symbol: str, function: Any) -> Callable[..., Any]:
    def run(tracer: Tracer, *args: Any, key: Any = None, **kwargs: Any) -> Any:
        if len(args) == 1:
            items = list(iterable_list(tracer, args[0]))
            if not items and "default" in kwargs:
                return kwargs["default"]
        else:
            items = list(args)
        if not items:
            return native(function, items)
        best = items[0]
        best_key = best if key is None else call(tracer, key, (best,), {})
        for item in items[1:]:
            item_key = item if key is None else call(tracer, key, (item,), {})
            if truth(tracer, compare(tracer, symbol, item_key, best_key)):
                best, best_key = item, item_key
        return best

    return run


def iterable_list(tracer: Tracer, value: Any) -> list[Any]:
    items = []
    iterator = iterate(tracer, value)
    while True:
        try:
            items.append(advance(tracer, iterator))
        except UserError as error:
            if isinstance(error.exception, StopIteration):
                return items
            raise


def _sorted(tracer: Tracer, values: Any, *, key: Any = None, reverse: Any = False) -> list[Any]:
    items = iterable_list(tracer, values)
    _sort(tracer, items, key, reverse)
    return items


def _reduce(tracer: Tracer, function: Any, values: Any, *initial: Any) -> Any:
    items = iterable_list(tracer, values)
    if not items and not initial:
        return native(functools.reduce, operator.add, items)
    items = [*initial, *items]
    total = items[0]
    for item in items[1:]:
        total = call(tracer, function, (total, item), {})
    return total


def _operator(symbol: str) -> Callable[..., Any]:
    return lambda tracer, left, right: binary(tracer, symbol, left, right)


def _comparison(symbol: str) -> Callable[..., Any]:
    return lambda tracer, left, right: compare(tracer, symbol, left, right)


def unary(tracer: Tracer, function: Any, name: str, value: Any) -> Any:
    if python_special(type(value), name):
        return tracer.call_special(value, name)
    if id(value) in tracer.known and type(value) not in CONSTANTS:
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"{name} of {type(value).__name__}")
    return native(function, value)


def _unary(function: Any, name: str) -> Callable[..., Any]:
    return lambda tracer, value: unary(tracer, function, name, value)


def _hash(tracer: Tracer, value: Any) -> Any:
    value = _plain_text(value)
    if python_special(type(value), "__hash__"):
        return tracer.call_special(value, "__hash__")
    if type(value) in LITERALS or (isinstance(value, (tuple, frozenset)) and _is_text_safe(value)):
        return native(hash, value)
    raise Unsupported(breaks.IDENTITY, "hash")


def _callable(tracer: Tracer, value: Any) -> bool:
    return callable(value) if type(value) is not TracedTensor else False


def _format(tracer: Tracer, value: Any, spec: str = "") -> Any:
    if (
        type(value) is not TracedTensor
        and python_special(type(value), "__format__")
        and not isinstance(value, enum.Enum)
    ):
        return tracer.call_special(value, "__format__", spec)
    value = _plain_text(value)
    if _is_text_safe(value):
        return native(format, value, spec)
    if not spec and lookup_type(type(value), "__format__") is object.__format__:
        return to_text(tracer, value, str)
    raise Unsupported(breaks.PRINT, f"text of {real_type(value).__name__}")


def _mode(function: Any) -> Callable[..., Any]:
    return lambda tracer, *args: tracer.set_mode(function, *args)


def _result_type(tracer: Tracer, *args: Any) -> Any:
    return native(_C._result_type, *(a.fake.meta() if type(a) is TracedTensor else plain(a) for a in args))


def _graph_break(tracer: Tracer, *args: Any, **kwargs: Any) -> None:
    raise Unsupported(breaks.REQUESTED)


def _vars(tracer: Tracer, *args: Any) -> Any:
    if not args:
        raise Unsupported(breaks.UNKNOWN_CALL, "vars()")
    return attributes.load(tracer, args[0], "__dict__")


def _constant(value: Any) -> Callable[..., Any]:
    return lambda tracer, *args, **kwargs: value


def _natively(function: Any) -> Callable[..., Any]:
    return lambda tracer, *args, **kwargs: native(function, *args, **kwargs)


def _chain_from_iterable(tracer: Tracer, values: Any) -> Any:
    return native(itertools.chain.from_iterable, [iterable(tracer, v) for v in iterable_list(tracer, values)])


def _update_wrapper(tracer: Tracer, wrapper: Any, wrapped: Any, *args: Any, **kwargs: Any) -> Any:
    if (
        isinstance(wrapper, types.FunctionType)
        and id(wrapper) not in tracer.known
        and isinstance(wrapped, types.FunctionType)
    ):
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(wrapper, name, getattr(wrapped, name))
        wrapper.__dict__["__wrapped__"] = wrapped
        return wrapper
    raise Unsupported(breaks.UNKNOWN_CALL, "update_wrapper")


def _is_dtype_query(tracer: Tracer, name: str) -> Any:
    raise Unsupported(breaks.UNKNOWN_CALL, name)


def _build_special() -> dict[int, Callable[..., Any]]:
    from flambeau import _dynamo, overrides

    table: dict[Any, Callable[..., Any]] = {}

    def put(function: Any, handler: Callable[..., Any]) -> None:
        table[function] = handler

    module = fl_module()
    if module != ():
        put(module._call_impl, call_module)
    for function, handler in [
        (isinstance, _isinstance), (type, _type), (len, _len), (getattr, _getattr), (hasattr, _hasattr), (setattr, _setattr),
        (delattr, _delattr), (iter, _iter), (next, _next), (super, _super), (print, _print), (sum, _float_sum),
        (any, _any_all(True)), (all, _any_all(False)), (min, _extreme("<", min)), (max, _extreme(">", max)),
        (sorted, _sorted), (functools.reduce, _reduce), (hash, _hash), (callable, _callable), (format, _format),
        (repr, lambda tracer, value: to_text(tracer, value, repr)), (vars, _vars),
        (operator.getitem, subscript), (operator.contains, lambda tracer, a, b: contains(tracer, b, a)),
        (operator.truth, truth), (operator.not_, lambda tracer, value: not truth(tracer, value)),
        (operator.is_, lambda tracer, a, b: a is b), (operator.is_not, lambda tracer, a, b: a is not b),
        (operator.setitem, store_subscript), (abs, _unary(abs, "__abs__")), (operator.neg, _unary(operator.neg, "__neg__")),
        (operator.pos, _unary(operator.pos, "__pos__")), (operator.invert, _unary(operator.invert, "__invert__")),
        (operator.abs, _unary(abs, "__abs__")), (operator.index, _unary(operator.index, "__index__")),
        (math.sqrt, _natively(math.sqrt)), (functools.update_wrapper, _update_wrapper),
        (issubclass, _natively(issubclass)), (itertools.chain.from_iterable, _chain_from_iterable),
        (_C._set_grad_enabled, _mode(_C._set_grad_enabled)), (_C.is_grad_enabled, _natively(_C.is_grad_enabled)),
        (_C.is_inference_mode_enabled, _natively(_C.is_inference_mode_enabled)),
        (_C.get_default_dtype, _natively(_C.get_default_dtype)), (_C.promote_types, _natively(_C.promote_types)),
        (_C.can_cast, _natively(_C.can_cast)),
        (_C._result_type, _result_type),
        (_C._has_torch_function, _constant(False)), (_C._has_torch_function_unary, _constant(False)),
        (_C._has_torch_function_variadic, _constant(False)),
        (overrides.has_torch_function, _constant(False)), (overrides.has_torch_function_unary, _constant(False)),
        (overrides.has_torch_function_variadic, _constant(False)),
        (_dynamo.graph_break, _graph_break), (_dynamo.is_compiling, _constant(True)),
        (fl.is_tensor, lambda tracer, value: type(value) is TracedTensor),
    ]:  # fmt: skip
        put(function, handler)
    for symbol, (_, function) in _OPERATORS.items():
        put(function, _operator(symbol))
        put(_INPLACE[symbol], _operator(symbol + "="))
    for symbol, function in _COMPARISONS.items():
        put(function, _comparison(symbol))
    _KEEP.extend(table)
    return {id(function): handler for function, handler in table.items()}


_KEEP: list[Any] = []

SAFE: frozenset[Any] = frozenset(
    [getattr(builtins, name) for name in "ascii bin chr divmod hex oct ord pow round abs".split()]
    + [v for k, v in vars(math).items() if isinstance(v, types.BuiltinFunctionType)]
    + [v for k, v in vars(operator).items() if isinstance(v, types.BuiltinFunctionType)]
    + [sys.intern, sys.getrecursionlimit, itertools.tee, functools.cmp_to_key]
)
SPECIAL: dict[int, Callable[..., Any]] = {}


def prepare() -> None:
    """Fills the table of special functions, when the package is complete."""
    if not SPECIAL:
        SPECIAL.update(_build_special())
