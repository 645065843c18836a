"""Operators on the interpreter's values: truth, arithmetic, comparison, membership, subscripts, text.

Special methods written in Python are interpreted; where there are none, the native operator runs on the values."""

from __future__ import annotations

import collections
import enum
import operator
import types
from collections.abc import Callable
from typing import Any

from flambeau._dynamo import arrays, breaks, mappings, scalars, sequences, size_floats
from flambeau._dynamo.arrays import TracedArray
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.kinds import CONSTANTS, has_default_equality, lookup_type
from flambeau._dynamo.sizes import SYMBOLIC, SymbolicSize, SymBool, SymInt, plain
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import NULL, TracedNumber, TracedTensor
from flambeau._dynamo.values import (
    CONTAINERS,
    _is_text_safe,
    _plain_text,
    as_key,
    is_numpy_scalar,
    is_transparent,
    iterate,
    iterated,
    native,
    python_special,
    real_type,
    settled,
)
from flambeau.ops.symbolic.shape_env import ShapeEnv


def truth(tracer: Tracer, value: Any) -> bool:
    cls = type(value)
    if cls is bool:
        return value  # type: ignore[no-any-return]
    if cls is TracedTensor and ShapeEnv.example is not None and bool(value.fake.numel() == 1):
        value = scalars.read_truth(tracer, value)
        cls = type(value)
    if (
        cls in CONSTANTS
        or cls in CONTAINERS
        or cls is TracedTensor
        or cls is TracedArray
        or cls in SYMBOLIC
        or cls is TracedNumber
    ):
        return bool(native(bool, value))
    for name in ("__bool__", "__len__"):
        hook = lookup_type(cls, name)
        if isinstance(hook, types.FunctionType):
            tracer.outside.guard_type_attribute(cls, name)
            return truth(tracer, tracer.call(hook, (value,), {}))
        if hook is not NULL:
            if id(value) in tracer.outside.known and not isinstance(value, enum.Enum):
                if sequences.is_sequence(tracer, value):
                    return bool(sequences.contents(tracer, value))
                if not isinstance(value, dict):
                    raise Unsupported(breaks.UNKNOWN_OPERATION, f"truth of {cls.__name__}")
                return bool(mappings.contents(tracer, value))
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


def _check_native(tracer: Tracer, *values: Any) -> None:
    for value in values:
        if (
            id(value) in tracer.outside.known
            and type(value) not in CONSTANTS
            and not isinstance(value, (type, enum.Enum))
        ):
            cls = type(value)
            if not (has_default_equality(cls) or (cls.__flags__ & (1 << 9) == 0 and callable(value))):
                raise Unsupported(breaks.UNKNOWN_OPERATION, f"operation on {cls.__name__}")


def binary(tracer: Tracer, symbol: str, left: Any, right: Any) -> Any:
    """A binary operator; `+=` and the like have the symbol with "="."""
    inplace = len(symbol) > 1 and symbol.endswith("=")
    base = symbol[:-1] if inplace else symbol
    name, function = _OPERATORS[base]
    left, right = settled(left), settled(right)
    if inplace:
        function = _INPLACE[base]
    left_type, right_type = type(left), type(right)
    if left_type is TracedArray or right_type is TracedArray:
        return native(arrays.guarded(arrays.operate), name, left, right, inplace=inplace)
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
        if size_floats.apply_to(_OPERATORS[base][1], left, right):
            return native(tracer.builder.call_number, _OPERATORS[base][1], left, right)
        if left_type is SymInt or right_type is SymInt:
            exact_by_number = base in ("**", "<<", ">>") and type(right) is int and right >= 0
            inexact = symbol in _INEXACT and not exact_by_number
            return _symbolic_binary(function, plain if inexact else None, left, right)
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
            tracer.outside.guard_type_attribute(type(owner), name)
            result = tracer.call(method, (owner, other), {})
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
    left, right = (v.item() if is_numpy_scalar(type(v)) else v for v in (left, right))
    for value in (left, right):
        if type(value) is not TracedTensor and not isinstance(value, (bool, int, float, complex, SymInt, TracedNumber)):
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"{function.__name__} of a tensor and {type(value).__name__}")
    return tracer.builder.call_function(function, (left, right), {})


def compare(tracer: Tracer, symbol: str, left: Any, right: Any) -> Any:
    name = _COMPARISON_NAMES[symbol]
    left, right = settled(left, right), settled(right, left)
    if not python_special(type(left), name, "__eq__") and not python_special(type(right), _REFLECTED[name], "__eq__"):
        left, right = sequences.opened(tracer, left), sequences.opened(tracer, right)
    left_type, right_type = type(left), type(right)
    if left_type is TracedArray or right_type is TracedArray:
        if left is None or right is None:
            raise Unsupported(breaks.NUMPY, f"{symbol} of an array and None")
        return native(arrays.guarded(arrays.operate), name.strip("_"), left, right)
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
            return tracer.builder.call_function(_COMPARISONS[symbol], (left, right), {})
        if not (is_transparent(left) and is_transparent(right)):
            if isinstance(left, dict) and isinstance(right, dict) and symbol in ("==", "!="):
                return compare_dicts(tracer, symbol, left, right)
            if isinstance(left, CONTAINERS) and type(left) is type(right) and symbol in ("==", "!="):
                return _compare_containers(tracer, symbol, left, right)
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"{symbol} of {left_type.__name__} and {right_type.__name__}")
        left, right = size_floats.compared(left, right)
        if type(left) in SYMBOLIC or type(right) in SYMBOLIC:
            answer = native(_COMPARISONS[symbol], left, right)
            exported = tracer.builder.module_paths is not None  # what is never asked for its truth fixes nothing
            stays = type(answer) is SymBool and (exported or answer.hint is None)
            return answer if stays else native(bool, answer)
        return native(_COMPARISONS[symbol], left, right)
    attempts = [(left, name, right), (right, _REFLECTED[name], left)]
    if left_type is not right_type and issubclass(right_type, left_type):
        attempts.reverse()
    if symbol == "!=" and not python_special(left_type, "__ne__") and not python_special(right_type, "__ne__"):
        return not truth(tracer, compare(tracer, "==", left, right))  # what object.__ne__ does
    return _attempt(tracer, attempts, symbol, left, right)


def identical(tracer: Tracer, left: Any, right: Any) -> bool:
    """left is right"""
    if left is not right and type(left) is types.FunctionType is type(right):
        # A function is guarded by its code where it is an argument: it could be the other one the next time.
        places = [
            tracer.outside.known[id(value)].source for value in (left, right) if id(value) in tracer.outside.known
        ]
        tracer.outside.distinct.extend(places)
    if left is not right and TracedNumber in (type(left), type(right)):
        left, right = (n.specialize() if type(n) is TracedNumber else n for n in (left, right))
        if type(left) is float is type(right) and (left == right or left != left or right != right):
            raise Unsupported(breaks.UNKNOWN_OPERATION, "whether equal floats are the same object")
    return left is right


def _compare_containers(tracer: Tracer, symbol: str, left: Any, right: Any) -> bool:
    if isinstance(left, (set, frozenset, dict)):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"comparison of {type(left).__name__}s of objects")
    if id(left) in tracer.outside.known or id(right) in tracer.outside.known:
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"comparison of {type(left).__name__}s")
    same = len(left) == len(right) and all(
        a is b or truth(tracer, compare(tracer, "==", a, b)) for a, b in zip(left, right)
    )
    return same == (symbol == "==")


def compare_dicts(tracer: Tracer, symbol: str, left: Any, right: Any) -> bool:
    """Two dicts, or objects of classes that derive from dict, by their items."""
    known = tracer.outside.known
    left, right = (mappings.contents(tracer, d) if id(d) in known else d for d in (left, right))
    if not all(tracer.outside.is_plain_key(key) for d in (left, right) for key in dict.keys(d)):
        raise Unsupported(breaks.UNKNOWN_OPERATION, "comparison of dicts with keys that are objects")
    same = dict.keys(left) == dict.keys(right)
    for key in dict.keys(left) if same else ():
        a, b = dict.__getitem__(left, key), dict.__getitem__(right, key)
        if a is not b and not truth(tracer, compare(tracer, "==", a, b)):
            same = False
            break
    return same == (symbol == "==")


def contains(tracer: Tracer, item: Any, container: Any) -> bool:
    cls = type(container)
    item = _as_key(tracer, item, container)
    if cls is TracedTensor or cls is TracedArray:
        raise Unsupported(breaks.TENSOR_VALUE, "in")
    hook = lookup_type(cls, "__contains__")
    if isinstance(hook, types.FunctionType):
        tracer.outside.guard_type_attribute(cls, "__contains__")
        return truth(tracer, tracer.call(hook, (container, item), {}))
    if sequences.is_sequence(tracer, container):
        return contains(tracer, item, sequences.contents(tracer, container))
    if cls in (list, tuple, collections.deque) or hook is NULL:
        if (
            is_transparent(item)
            and (cls not in (list, tuple, collections.deque) or is_transparent(container))
            and hook is not NULL
        ):
            return bool(native(operator.contains, container, item))
        return any(
            candidate is item or truth(tracer, compare(tracer, "==", candidate, item))
            for candidate in iterated(tracer, container)
        )
    if isinstance(container, dict) and id(container) in tracer.outside.known and is_transparent(item):
        return bool(native(operator.contains, mappings.contents(tracer, container), item))
    if id(container) in tracer.outside.known and cls not in CONSTANTS and not isinstance(container, (enum.EnumMeta,)):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"in of {cls.__name__}")
    if not is_transparent(item) and not (isinstance(container, (set, frozenset, dict)) and _is_plain_key(tracer, item)):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"in of {type(item).__name__}")
    return bool(native(operator.contains, container, item))


def _is_plain_key(tracer: Tracer, item: Any) -> bool:
    """Whether looking for an item by its hash runs no Python code that would have to be captured."""
    return has_default_equality(type(item)) or tracer.outside.is_plain_record(item)


def _as_key(tracer: Tracer, key: Any, container: Any) -> Any:
    """A key as it is looked up: in containers from outside there may be numbers that are identities."""
    key = settled(key) if id(container) in tracer.outside.shadows else key
    return as_key(plain(key))


def subscript(tracer: Tracer, container: Any, key: Any) -> Any:
    cls = type(container)
    if cls is TracedTensor:
        if arrays.holds_array(key):
            raise Unsupported(breaks.NUMPY, "an array as an index of a tensor")
        return native(operator.getitem, container, key)
    if cls is TracedArray:
        return arrays.guarded(arrays.subscript)(tracer, container, key)
    if cls is SymbolicSize:  # whose own code must not be interpreted: sizes look like ints there
        return native(operator.getitem, container, plain(key))
    hook = lookup_type(cls, "__getitem__")
    if cls.__module__ == "typing" and isinstance(key, (type, tuple)):
        generic = native(operator.getitem, container, key)
        tracer.outside.register(generic, tracer.outside.sources.constant(generic))
        return generic
    if isinstance(hook, types.FunctionType):
        tracer.outside.guard_type_attribute(cls, "__getitem__")
        return tracer.call(hook, (container, key), {})
    if isinstance(container, type):
        if isinstance(container, enum.EnumMeta) or cls.__module__ in ("typing", "builtins", "abc"):
            return native(operator.getitem, container, key)
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"subscript of {container.__name__}")
    if id(container) in tracer.outside.known and cls not in CONSTANTS:
        if isinstance(container, dict) and hook is dict.__getitem__:
            return mappings.item(tracer, container, key)
        if sequences.is_sequence(tracer, container) and hook in (list.__getitem__, tuple.__getitem__):
            return subscript(tracer, sequences.contents(tracer, container), key)
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"subscript of {cls.__name__}")
    if isinstance(container, dict) and python_special(cls, "__missing__") and not dict.__contains__(container, key):
        return tracer.call_special(container, "__missing__", key)
    key = _as_key(tracer, key, container)
    if isinstance(container, (list, tuple, str, range)) and python_special(type(key), "__index__"):
        key = tracer.call_special(key, "__index__")
    if not is_transparent(key) and tracer.outside.runs_python_as_key(key, "__index__"):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"key of type {type(key).__name__}")
    result = native(operator.getitem, container, key)
    return result


_WRITTEN = (list, dict, collections.OrderedDict)  # whose own ways to store items of an instance are known


def store_subscript(tracer: Tracer, container: Any, key: Any, value: Any) -> None:
    """container[key] = value, or del container[key] when value is NULL."""
    cls = type(container)
    if cls is TracedTensor:
        if value is NULL:
            raise Unsupported(breaks.STORE, "del of a tensor's item")
        native(operator.setitem, container, key, value)
        return
    if cls is TracedArray:
        if value is NULL:
            raise Unsupported(breaks.STORE, "del of an array's item")
        arrays.guarded(arrays.store)(tracer, container, key, value)
        return
    hook = lookup_type(cls, "__delitem__" if value is NULL else "__setitem__")
    if isinstance(hook, types.FunctionType):
        tracer.outside.guard_type_attribute(cls, hook.__name__)
        tracer.call(hook, (container, key) if value is NULL else (container, key, value), {})
        return
    if id(container) in tracer.outside.known and getattr(hook, "__objclass__", None) in _WRITTEN:
        contents = mappings.contents if isinstance(container, dict) else sequences.contents
        store_subscript(tracer, contents(tracer, container), key, value)
        return
    if id(container) in tracer.outside.known or not isinstance(container, (list, dict, collections.deque, bytearray)):
        if hook is NULL:
            native(operator.setitem, container, key, value)  # raises the error of the type
        raise Unsupported(breaks.STORE, f"item of {cls.__name__}")
    key = plain(key)
    if tracer.outside.runs_python_as_key(key, "__index__"):
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"key of type {type(key).__name__}")
    if isinstance(key, slice) and value is not NULL and not isinstance(value, CONTAINERS):
        value = iterate(tracer, value)
    if value is NULL:
        native(operator.delitem, container, key)
    else:
        native(operator.setitem, container, key, value)


class _Ordered:
    """An item as sort() sees it: which one is less is found by the interpreter."""

    __slots__ = ("tracer", "item")

    def __init__(self, tracer: Tracer, item: Any) -> None:
        self.tracer, self.item = tracer, item

    def __lt__(self, other: _Ordered) -> bool:
        try:
            return truth(self.tracer, compare(self.tracer, "<", self.item, other.item))
        except UserError as error:
            raise error.exception from None


def _sort(tracer: Tracer, items: Any, key: Any = None, reverse: Any = False) -> None:
    chosen = None if key is None else tracer.native_callable(key)
    copy = list(items)
    if key is None and not is_transparent(items):
        chosen = lambda item: _Ordered(tracer, item)  # noqa: E731
    native(copy.sort, key=chosen, reverse=truth(tracer, reverse))
    items[:] = copy


def to_text(tracer: Tracer, value: Any, function: Callable[[Any], str]) -> Any:
    """str(value) or repr(value)."""
    value = _plain_text(value)
    if _is_text_safe(value):
        return native(function, value)
    own_dict = isinstance(value, dict) and id(value) not in tracer.outside.known
    if own_dict and lookup_type(type(value), "__repr__") is dict.__repr__ and _is_text_safe(dict(dict.items(value))):
        return native(function, value)
    if type(value) is TracedArray:
        raise Unsupported(breaks.PRINT, "text of an array")
    known = tracer.outside.known.get(id(value))
    if type(value) is types.FunctionType and known is not None and known.source.kind == "constant":
        known.source.attribute("__qualname__").check("equals", value.__qualname__)
        return native(function, value)
    names = ("__str__", "__repr__") if function is str else ("__repr__",)
    for name in names:
        hook = lookup_type(type(value), name)
        if isinstance(hook, types.FunctionType):
            tracer.outside.guard_type_attribute(type(value), name)
            return tracer.call(hook, (value,), {})
        if hook not in (object.__str__, NULL):
            break
    raise Unsupported(breaks.PRINT, f"text of {real_type(value).__name__}")


def function_of(name: str) -> Any:
    """The operator that a special method implements."""
    return getattr(operator, name + "_" if name in ("and", "or") else name)


def unary(tracer: Tracer, function: Any, name: str, value: Any) -> Any:
    if type(value) is TracedArray:
        return arrays.guarded(function)(value)
    if python_special(type(value), name):
        return tracer.call_special(value, name)
    if id(value) in tracer.outside.known and type(value) not in CONSTANTS:
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"{name} of {type(value).__name__}")
    return native(function, value)
