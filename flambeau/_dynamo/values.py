"""What the interpreter's values are: their types as the program sees them, whether native code may look at them, and
how to iterate over them."""

from __future__ import annotations

import collections
import datetime
import enum
import itertools
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import breaks, mappings, sequences
from flambeau._dynamo.arrays import ArrayMethod, TracedArray, is_numpy
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.kinds import (
    CONSTANTS,
    LITERALS,
    Function,
    fl_module,
    has_default_equality,
    is_namedtuple,
    lookup_type,
)
from flambeau._dynamo.outside import Outside
from flambeau._dynamo.sizes import SYMBOLIC, SymbolicSize, SymBool, SymFloat, SymInt, plain
from flambeau._dynamo.source import Source
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import (
    NULL,
    Interpreted,
    TensorMethod,
    TracedGenerator,
    TracedIterator,
    TracedNumber,
    TracedReference,
    TracedTensor,
)
from flambeau.ops.symbolic.shape_env import DataDependentOutput

TENSOR_METHODS = (type(_C.Tensor.sin), type(_C.Tensor.type), type(_C.Tensor.__dict__.get("size")))


Args = tuple[Any, ...]


Kwargs = dict[str, Any]


CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)


_NATIVE_MAPPINGS = (collections.OrderedDict, collections.defaultdict, collections.Counter, types.MappingProxyType)


DICT_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()), type(collections.OrderedDict().keys()),
              type(collections.OrderedDict().values()), type(collections.OrderedDict().items()))  # fmt: skip


ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(set())),
    type(iter(range(0))), type(iter("")), type(iter("é")), type(iter(b"")), type(reversed([])), type(reversed({})), enumerate, zip, map, filter,
    reversed, type(iter(collections.deque())), type(reversed(collections.deque())), type(iter(int, 0)),
    type(iter(range(2**70))), type(iter(collections.OrderedDict())), type(reversed({}.values())), type(reversed({}.items())),
    *(v for v in vars(itertools).values() if isinstance(v, type)),
)  # fmt: skip


# Objects that never change and that native code may be asked about, such as compiled patterns.
VALUES: frozenset[type] = frozenset(
    [
        types.UnionType,
        types.GenericAlias,
        re.Pattern,
        re.Match,
        datetime.date,
        datetime.datetime,
        datetime.timedelta,
        datetime.time,
        datetime.timezone,
    ]
)


Outside.value_types = VALUES


def is_numpy_scalar(cls: type) -> bool:
    """Whether the class is that of a scalar or of a dtype of NumPy: values that never change."""
    return is_numpy(cls) and any(base.__name__ in ("generic", "dtype") for base in cls.__mro__)


def is_plain(value: Any) -> bool:
    """Whether a value is made of numbers, text and containers of them."""
    cls = type(value)
    if is_numpy_scalar(cls):
        return True
    if cls in LITERALS or cls in VALUES:
        return True
    if cls in (list, tuple, set, frozenset):
        return all(is_plain(v) for v in value)
    return cls is dict and all(is_plain(k) and is_plain(v) for k, v in value.items())


class Identity(int):
    """id() of a value: good for comparing and as a key. Numbers of the program are compared with it by `settled`."""

    real: Any = NULL  # the object outside that has this identity
    source: Any = None

    @classmethod
    def of(cls, tracer: Tracer, value: Any) -> Identity:
        outside = tracer.outside
        source = outside.source_of(value) if id(value) in outside.known else getattr(value, "source", None)
        shadow = outside.shadows.get(id(value))
        if shadow is not None:
            real, source = shadow.real, shadow.source
        else:
            real = value.real if type(value) is TracedTensor and value.real is not None else value
        identity = cls(id(real))
        if isinstance(source, Source):
            identity.real, identity.source = real, source
        return identity


def settled(value: Any, other: Any = None) -> Any:
    """The number itself of an identity that meets another kind of number: the object is the same for all calls then."""
    if type(value) is Identity and type(other) is not Identity and value.source is not None:
        value.source.check("id", value.real)
    return value


def real_type(value: Any) -> type:
    """type(value) as the program would see it."""
    cls = type(value)
    if cls is TracedTensor:
        return value.cls  # type: ignore[no-any-return]
    if cls in SYMBOLIC:
        return _SYMBOLIC_TYPES[cls]
    if cls is TracedNumber:
        return type(value.hint)
    if cls is TracedReference:
        return weakref.ReferenceType
    if cls is TracedGenerator:
        return types.GeneratorType
    if cls is Interpreted:
        return real_type(value.function)
    if cls is TracedIterator:
        return real_type(value.iterator)
    if cls is TensorMethod or cls is ArrayMethod:
        return types.BuiltinFunctionType
    if cls is TracedArray:
        return value.dtype.type if value.scalar else sys.modules["numpy"].ndarray  # type: ignore[no-any-return]
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
    except DataDependentOutput as error:
        raise Unsupported(breaks.TENSOR_VALUE, str(error)) from None
    except BaseException as error:
        error.__traceback__ = None
        raise UserError(error) from None


_STAND_INS = frozenset({TracedTensor, TracedNumber, TracedArray})


def python_special(cls: type, *names: str) -> bool:
    """Whether a class implements one of the special methods in Python."""
    if not (cls.__flags__ & (1 << 9)) or cls in _STAND_INS or cls in SYMBOLIC:
        return False
    return any(isinstance(lookup_type(cls, name), (types.FunctionType, property)) for name in names)


_INSPECTED = ("__eq__", "__hash__", "__lt__", "__gt__", "__le__", "__ge__", "__bool__", "__len__", "__iter__", "__index__",
              "__add__", "__radd__", "__int__", "__float__")  # fmt: skip


_FUNCTIONS = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, Function, types.MethodWrapperType,
              types.WrapperDescriptorType, types.MethodDescriptorType, *TENSOR_METHODS)  # fmt: skip
_ENUM_HASHES = (enum.Enum.__hash__, int.__hash__, str.__hash__)


def is_transparent(value: Any, depth: int = 8) -> bool:
    """Whether native code may look into the value without running Python code that should be interpreted."""
    cls = type(value)
    if cls in LITERALS or cls is TracedTensor or cls in CONSTANTS or cls in SYMBOLIC or cls is TracedNumber:
        return True
    if cls is Identity or is_numpy_scalar(cls):
        return True
    if cls is TracedArray:
        return False
    if depth == 0:
        return False
    if cls in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter):
        return all(is_transparent(k, depth - 1) and is_transparent(v, depth - 1) for k, v in value.items())
    if isinstance(value, (tuple, list)) and not python_special(cls, *_INSPECTED):
        return all(is_transparent(v, depth - 1) for v in value)
    if cls in CONTAINERS:
        return all(is_transparent(v, depth - 1) for v in value)
    if isinstance(value, enum.Enum):
        return not python_special(cls, "__eq__") and lookup_type(cls, "__hash__") in _ENUM_HASHES
    if isinstance(value, _FUNCTIONS):
        return not python_special(cls, "__eq__", "__hash__")
    if cls in (TracedGenerator, TracedIterator, Interpreted, TensorMethod) or cls in DICT_VIEWS or cls in ITERATORS:
        return True
    if isinstance(value, BaseException):
        return True
    return has_default_equality(cls) and not python_special(cls, *_INSPECTED)


def is_opaque_iterator(tracer: Tracer, value: Any) -> bool:
    return (
        id(value) in tracer.outside.known
        and hasattr(type(value), "__next__")
        and not python_special(type(value), "__next__")
    )


def iterate(tracer: Tracer, value: Any) -> Any:
    """iter(value), as an iterator that native code may use."""
    cls = type(value)
    if cls is TracedTensor or cls is SymbolicSize or cls is TracedArray:
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
    if cls in CONSTANTS or cls in _NATIVE_MAPPINGS:
        return native(iter, value)
    if is_opaque_iterator(tracer, value):
        return value
    if isinstance(value, type) and isinstance(value, enum.EnumMeta):
        return native(iter, list(value))
    module = fl_module()
    hook = lookup_type(cls, "__iter__")
    if hook in (list.__iter__, tuple.__iter__) and sequences.is_sequence(tracer, value):
        return native(iter, sequences.contents(tracer, value))
    if isinstance(hook, types.FunctionType):
        tracer.outside.guard_type_attribute(cls, "__iter__")
        iterator = tracer.call(hook, (value,), {})
        return as_iterator(tracer, iterator)
    if isinstance(value, (tuple, list, dict, set)) and id(value) not in tracer.outside.known:
        return native(iter, value)
    if isinstance(value, dict):
        return native(iter, mappings.contents(tracer, value))
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


def as_iterator(tracer: Tracer, iterator: Any) -> Any:
    if isinstance(iterator, (TracedGenerator, TracedIterator)) or type(iterator) in ITERATORS:
        return iterator
    if python_special(type(iterator), "__next__"):
        return TracedIterator(tracer, iterator)
    raise Unsupported(breaks.UNKNOWN_OPERATION, f"iteration over {type(iterator).__name__}")


def advance(tracer: Tracer, iterator: Any) -> Any:
    """next(iterator); StopIteration arrives as a UserError."""
    if is_opaque_iterator(tracer, iterator):
        raise Unsupported(breaks.ITERATOR, type(iterator).__name__)
    if isinstance(iterator, TracedIterator) and isinstance(iterator.iterator, _SequenceIterator):
        return iterator.iterator.step()
    if python_special(type(iterator), "__next__") and not isinstance(iterator, (TracedGenerator, TracedIterator)):
        return tracer.call_special(iterator, "__next__")
    return native(next, iterator)


def iterable(tracer: Tracer, value: Any) -> Any:
    """Something that native code may iterate over."""
    value = sequences.opened(tracer, value)
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
    if cls in LITERALS or cls in CONSTANTS or is_numpy_scalar(cls):
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
        converted = cls([_plain_text(v) for v in value])
        return converted if any(a is not b for a, b in zip(converted, value)) else value  # itself: it may be written to
    if cls is dict:
        converted_items = {_plain_text(k): _plain_text(v) for k, v in value.items()}
        return converted_items if any(converted_items.get(k) is not v for k, v in value.items()) else value
    return value


def as_key(value: Any) -> Any:
    """A value as it is hashed: numbers that are symbols are what they are now."""
    return _plain_text(value) if type(value) in _HASHED or type(value) in SYMBOLIC else value


_HASHED = (TracedNumber, tuple)


def iterated(tracer: Tracer, value: Any) -> Iterator[Any]:
    """What an iterable of the program gives, one after the other."""
    iterator = iterate(tracer, value)
    while True:
        try:
            item = advance(tracer, iterator)
        except UserError as error:
            if isinstance(error.exception, StopIteration):
                return
            raise
        yield item


def iterable_list(tracer: Tracer, value: Any) -> list[Any]:
    return list(iterated(tracer, value))
