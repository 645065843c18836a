"""Calling things: which callables are interpreted, which are recorded, which run natively, and which break the graph.

Python functions are inlined. Operators become nodes. Native functions run as they are when they are known to be free of
effects and to look only at values that stand for themselves; everything else raises `Unsupported`.
"""

from __future__ import annotations

import _bisect
import _collections
import _heapq
import builtins
import cmath
import collections
import dataclasses
import functools
import itertools
import logging
import math
import operator
import os
import re
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import (
    arrays,
    attributes,
    breaks,
    config,
    draws,
    float_facts,
    gradients,
    mappings,
    new_modules,
    scalars,
    sequences,
    size_floats,
)
from flambeau._dynamo.arrays import ArrayMethod
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.construct import NATIVE_CLASSES, construct, make
from flambeau._dynamo.kinds import CONSTANTS, Function, OverridableFunction, fl_module, is_native_class, lookup_type
from flambeau._dynamo.operations import _sort, compare_dicts, contains, subscript, to_text
from flambeau._dynamo.sizes import SYMBOLIC, plain
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import (
    NULL,
    Interpreted,
    TensorMethod,
    TracedGenerator,
    TracedHandle,
    TracedIterator,
    TracedReference,
    TracedTensor,
)
from flambeau._dynamo.values import (
    CONTAINERS,
    DICT_VIEWS,
    ITERATORS,
    TENSOR_METHODS,
    VALUES,
    Args,
    Kwargs,
    _is_text_safe,
    _plain_text,
    as_key,
    is_numpy_scalar,
    is_plain,
    is_transparent,
    iterable,
    iterable_list,
    native,
    python_special,
    real_type,
)
from flambeau._ops import OpOverload


def call(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    cls = type(function)
    if cls is types.FunctionType:
        special = SPECIAL.get(id(function))
        if special is not None:
            return special(tracer, *args, **kwargs)
        return inline(tracer, function, args, kwargs)
    if cls is types.MethodType:
        owner = function.__self__
        if isinstance(owner, (TracedGenerator, TracedIterator, TracedHandle)) or type(owner) in SYMBOLIC:
            return native(function, *args, **kwargs)
        if draws.is_draw(owner, function.__func__.__name__):
            return draws.draw(tracer, owner, function.__func__.__name__, args, kwargs)
        return call(tracer, function.__func__, (owner, *args), kwargs)
    if cls is TensorMethod:
        return call_tensor_method(tracer, function.name, (function.tensor, *args), kwargs)
    if cls is ArrayMethod:
        return function(*args, **kwargs)
    if cls is TracedReference and not args and not kwargs:
        return function.referent
    if cls is Interpreted:
        return call(tracer, function.function, args, kwargs)
    special = SPECIAL.get(id(function))
    if special is not None:
        return special(tracer, *args, **kwargs)
    if cls is Function or cls is OverridableFunction:
        return call_operator(tracer, function, args, kwargs)
    if cls is OpOverload:
        return call_operator(tracer, function, args, kwargs)
    if cls in TENSOR_METHODS:
        if args and type(args[0]) is TracedTensor:
            return call_tensor_method(tracer, function.__name__, args, kwargs)
        raise Unsupported(breaks.UNKNOWN_CALL, function.__name__)
    if cls in BUILTINS or cls is types.MethodWrapperType:
        return call_builtin(tracer, function, args, kwargs)
    if isinstance(function, type):
        return construct(tracer, function, args, kwargs)
    if cls is functools.partial:
        return call(tracer, function.func, (*function.args, *args), {**function.keywords, **kwargs})
    if cls in (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType):
        return call_descriptor(tracer, function, args, kwargs)
    if cls in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
        return _call_getter(tracer, function, args)
    if cls is _C.GuardedFunction:
        return call(tracer, function._dynamo_function, args, kwargs)
    module = fl_module()
    if module != () and isinstance(function, module):
        return call_module(tracer, function, args, kwargs)
    hook = lookup_type(cls, "__call__")
    if isinstance(hook, types.FunctionType):
        tracer.outside.guard_type_attribute(cls, "__call__")
        return call(tracer, hook, (function, *args), kwargs)
    if hook is NULL:
        raise UserError(TypeError(f"'{real_type(function).__name__}' object is not callable"))
    wrapped = getattr(function, "__wrapped__", None)
    if "_torchdynamo_inline" in getattr(function, "__dict__", ()):  # a scripted function, by what it was scripted from
        return call(tracer, attributes.load(tracer, function, "_torchdynamo_inline"), args, kwargs)
    if cls is weakref.ReferenceType and not args and id(function) in tracer.outside.known:
        return _call_weak_reference(tracer, function)
    if cls is _CACHED and isinstance(wrapped, types.FunctionType):
        return _call_cached(tracer, function, args, kwargs)
    if arrays.is_numpy(cls):
        raise Unsupported(breaks.NUMPY, getattr(function, "__name__", cls.__name__))
    raise Unsupported(breaks.UNKNOWN_CALL, f"{getattr(function, '__qualname__', cls.__name__)}")


def _call_weak_reference(tracer: Tracer, reference: Any) -> Any:
    """What a weak reference refers to is looked up again by each call, and not kept alive by the guards."""
    place = tracer.outside.known[id(reference)].source.apply(weakref.ReferenceType.__call__)
    referent = reference()
    if isinstance(referent, (type, types.FunctionType, types.BuiltinFunctionType)):
        raise Unsupported(breaks.UNKNOWN_CALL, "a weak reference to a function or class")
    return tracer.outside.wrap(referent, place)


def _getter_arguments(getter: Any) -> Any:
    return getter.__reduce__()[1]


def _call_getter(tracer: Tracer, function: Any, args: Args) -> Any:
    kind, wanted = function.__reduce__()[:2]
    known = tracer.outside.known.get(id(function))
    if known is not None and is_plain(wanted) and isinstance(kind, type):
        known.source.apply(_getter_arguments).check("equals", wanted)
    elif known is not None:
        known.source.check("id", function)
    if kind is operator.itemgetter:
        items = tuple(subscript(tracer, args[0], key) for key in wanted)
        return items[0] if len(wanted) == 1 else items
    if kind is operator.attrgetter:
        values = []
        for path in wanted:
            value = args[0]
            for part in path.split("."):
                value = attributes.load(tracer, value, part)
            values.append(value)
        return values[0] if len(wanted) == 1 else tuple(values)
    if kind is operator.methodcaller:
        return call(tracer, attributes.load(tracer, args[0], wanted[0]), tuple(wanted[1:]), {})
    if isinstance(kind, functools.partial):  # a method with keywords
        return call(tracer, attributes.load(tracer, args[0], kind.args[0]), tuple(wanted), dict(kind.keywords))
    raise Unsupported(breaks.UNKNOWN_CALL, "methodcaller")


_CACHED = attributes._CACHED


def _call_cached(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A function behind lru_cache, with plain arguments: what it returned once, it returns again."""
    args, kwargs = _plain_text(args), _plain_text(kwargs)
    rest = args[1:] if args and isinstance(args[0], logging.Logger) else args  # warning_once: what was said, was said
    if not all(type(a) in CONSTANTS for a in (*rest, *kwargs.values())):
        # Keyed by objects, such as tensors: the function is inlined, as if the cache had nothing for them.
        wrapped = tracer.outside.wrap(function.__wrapped__, tracer.outside.sources.constant(function.__wrapped__))
        return inline(tracer, wrapped, args, kwargs)
    known = tracer.outside.known.get(id(function))
    source = tracer.outside.sources.constant(function) if known is None else known.source
    result = native(function, *args, **kwargs)
    return tracer.outside.wrap(result, source.apply(_CachedCall(args, kwargs)))


class _CachedCall:
    """Calls a cached function again, at each check of the guards: its cache may have been cleared."""

    def __init__(self, args: Args, kwargs: Kwargs) -> None:
        self.args, self.kwargs = args, kwargs
        self.key = (args, tuple(map(type, args)), tuple(kwargs.items()), tuple(map(type, kwargs.values())))

    def __call__(self, function: Any) -> Any:
        return function(*self.args, **self.kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CachedCall) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclasses.dataclass(frozen=True)
class _DispatchOf:
    """Asks a function of functools.singledispatch, at each check of the guards, what it has for a class."""

    cls: type

    def __call__(self, function: Any) -> Any:
        return function.dispatch(self.cls)


_SINGLE_DISPATCH = functools.singledispatch(lambda value: None).__code__


def inline(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interprets a Python function."""
    from flambeau._dynamo.interpreter import Frame

    state = function.__dict__
    if state:
        if state.get("_dynamo_disable"):
            raise Unsupported(breaks.DISABLED, function.__qualname__)
        if state.get("_dynamo_allow_in_graph"):
            return _call_in_graph(tracer, function, args, kwargs)
    if tracer.depth > config.max_depth:
        raise Unsupported(breaks.RECURSION, function.__qualname__)
    code = function.__code__
    if code is _SINGLE_DISPATCH and args:
        cls = real_type(args[0])
        chosen = native(function.dispatch, cls)
        known = tracer.outside.known.get(id(function))
        source = tracer.outside.sources.constant(function) if known is None else known.source
        source.apply(_DispatchOf(cls)).check("id", chosen)
        return call(tracer, tracer.outside.wrap(chosen, tracer.outside.sources.constant(chosen)), args, kwargs)
    if code.co_flags & 0x280:  # coroutines and asynchronous generators
        raise Unsupported(breaks.COROUTINE, function.__qualname__)
    frame = Frame.enter(tracer, function, args, kwargs)
    if code.co_flags & 0x20:
        return TracedGenerator(tracer, frame)
    return frame.call()


def _call_in_graph(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A function that is one node of the graph. Of a dataclass among its arguments the graph has the fields."""
    values = [*args, *kwargs.values()]
    fields = [vars(v) if dataclasses.is_dataclass(v) and not isinstance(v, type) else None for v in values]
    if not any(fields):
        return tracer.builder.call_function(function, args, kwargs)
    classes = [type(v) for v in values]

    def with_fields(*values: Any) -> Any:
        rest, whole = list(values), []
        for cls, names in zip(classes, fields):
            if names is None:
                whole.append(rest.pop(0))
                continue
            whole.append(object.__new__(cls))
            for name in names:
                object.__setattr__(whole[-1], name, rest.pop(0))
        return function(*whole[: len(args)], **dict(zip(kwargs, whole[len(args) :])))

    with_fields.__name__ = function.__name__
    flat = [x for v, names in zip(values, fields) for x in ([v] if names is None else names.values())]
    return tracer.builder.call_function(with_fields, tuple(flat), {})


def call_tensor_method(tracer: Tracer, name: str, args: Args, kwargs: Kwargs) -> Any:
    if name in ("cpu", "cuda"):
        if name == "cpu" and args[0].fake.fake_device.type == "cpu" and not kwargs and len(args) == 1:
            return args[0]
        raise Unsupported(breaks.UNKNOWN_CALL, f"Tensor.{name}")
    if name == "is_inference":
        return args[0].inference if args[0].real is None else args[0].real.is_inference()
    if scalars.can_read(args[0], name):
        return scalars.read(tracer, args[0], name)
    if name == "new" and not kwargs and len(args) > 1 and all(_is_size(a) for a in args[1:]):
        name = "new_empty"
    if name == "numpy":
        return native(arrays.from_tensor, tracer, *args, **kwargs)
    if name in attributes._VALUE_METHODS:
        raise Unsupported(breaks.TENSOR_VALUE, name)
    if name == "backward":
        return _backward(tracer, *args, **kwargs)
    if name in ("register_hook", "retain_grad"):
        from flambeau._dynamo import hooks

        return getattr(hooks, name)(tracer, *args, **kwargs)
    if name == "requires_grad_":
        return gradients.set_requires_grad(tracer, *args, **kwargs)
    if (name in attributes._STATE_METHODS and name not in attributes.RESHAPES) or name in (
        "apply_",
        "map_",
        "map2_",
        "to_dense",
    ):
        raise Unsupported(breaks.UNKNOWN_CALL, f"Tensor.{name}")
    if name in attributes._OPERATOR_METHODS:
        return native(getattr(TracedTensor, name), *args)
    if name in ("__len__", "__iter__"):
        return native(getattr(TracedTensor, name), *args)
    return tracer.builder.call_method(name, args, kwargs)


def _is_size(value: Any) -> bool:
    return type(value) in (int, fl.Size) or type(value) in SYMBOLIC


def _backward(
    tracer: Tracer,
    tensor: Any,
    gradient: Any = None,
    retain_graph: Any = None,
    create_graph: Any = False,
    inputs: Any = None,
) -> None:
    gradients.backward(tracer, tensor, gradient, retain_graph, create_graph, inputs=inputs)


def call_operator(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    if kwargs.get("generator") is not None:
        raise Unsupported(breaks.UNKNOWN_CALL, "an operator with a generator")
    if kwargs.get("requires_grad"):
        result = call_operator(tracer, function, args, {k: v for k, v in kwargs.items() if k != "requires_grad"})
        return gradients.set_requires_grad(tracer, result)
    if function in _FROM_ARRAYS and arrays.holds_array(args):
        return arrays.guarded(arrays.to_tensor)(tracer, function, args, kwargs)
    if function in (fl.as_tensor, fl.asarray, fl.from_numpy, fl.frombuffer):
        if function is fl.as_tensor and len(args) == 1 and type(args[0]) is TracedTensor and not kwargs:
            return args[0]
        if function is not fl.as_tensor:
            raise Unsupported(breaks.UNKNOWN_CALL, function.__name__)
    if function.__name__.startswith("_update_"):  # a learning rate may be a tensor
        args = tuple(scalars.read_float(tracer, a) if type(a) is TracedTensor else a for a in args)
        kwargs = {k: scalars.read_float(tracer, v) if type(v) is TracedTensor else v for k, v in kwargs.items()}
    if function is fl.tensor and len(args) == 1 and type(args[0]) is TracedTensor and not kwargs:
        detached = tracer.builder.call_method("detach", args, {})
        return tracer.builder.call_method("clone", (detached,), {})
    if function is fl.tensor and len(args) == 1 and scalars.holds_unknown(args[0]):
        return scalars.to_tensor(tracer, args[0], kwargs)
    if function in (fl.tensor, fl.as_tensor) and _holds_tensor(args):
        raise Unsupported(breaks.TENSOR_VALUE, function.__name__)
    return tracer.builder.call_function(function, args, kwargs)


_FROM_ARRAYS = (fl.from_numpy, fl.as_tensor, fl.asarray, fl.tensor)


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
        if name in ("__reduce_ex__", "__reduce__") and type(subject) is not TracedTensor:
            return mappings.reduce(tracer, subject)
        if name == "__format__" or name == "__str__" or name == "__repr__":
            if name == "__str__":
                return to_text(tracer, subject, repr)
            raise Unsupported(breaks.IDENTITY, name)
        raise Unsupported(breaks.UNKNOWN_CALL, name)
    if type(subject) is TracedTensor and name in attributes._OPERATOR_METHODS:
        return native(getattr(TracedTensor, name), *args)
    if isinstance(subject, BaseException) and id(subject) not in tracer.outside.known:
        return native(function, *args, **kwargs)
    if id(subject) in tracer.outside.known and type(subject) not in CONSTANTS:
        if isinstance(subject, dict) and name in mappings.READS | mappings.WRITES:
            if name == "__getitem__":
                return mappings.item(tracer, *args)
            items = mappings.contents(tracer, subject)
            return native_method(tracer, getattr(items, name), args[1:], kwargs)
        if isinstance(subject, dict) and name in ("__eq__", "__ne__") and len(args) == 2:
            if not isinstance(args[1], dict):
                return NotImplemented
            return compare_dicts(tracer, "==" if name == "__eq__" else "!=", *args)
        if sequences.is_sequence(tracer, subject) and name in sequences.METHODS:
            items = sequences.contents(tracer, subject)
            if name == "__contains__":
                return contains(tracer, args[1], items)
            return native_method(tracer, getattr(items, name), args[1:], kwargs)
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


# Functions and bound methods of native code; those of some classes (re.Pattern) know their class, and have a type of their own.
BUILTINS = (types.BuiltinFunctionType, type(re.compile("").match))
_HASHING = frozenset(
    "add discard remove get setdefault pop __contains__ __getitem__ __setitem__ count index update".split()
)


def _letters(value: Any) -> Any:
    """Text of a class that derives from str, as native code reads it."""
    return str.__str__(value) if isinstance(value, str) and not python_special(type(value), "__iter__") else value


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
        if tracer.outside.runs_python_as_key(args[0]):
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"key of type {type(args[0]).__name__}")
    elif isinstance(owner, (str, bytes)) and not all(_is_text_safe(a) for a in (*args, *kwargs.values())):
        raise Unsupported(breaks.PRINT, f"str.{name}")
    if isinstance(owner, (set, frozenset)) and name not in _HASHING:
        args = tuple(map(_letters, args))
    merges = isinstance(owner, dict) and name in ("__or__", "__ror__", "__ior__")  # which look at keys only
    blind = merges or name in _BLIND
    if isinstance(owner, CONTAINERS) and not blind and not (is_transparent(args) and is_transparent(owner)):
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
        if isinstance(owner, (set, frozenset)):
            args = tuple([as_key(v) for v in a] for a in args)
    return native(function, *args, **kwargs)


def call_builtin(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, types.ModuleType) or owner is None:
        if function in SAFE:
            if not kwargs and size_floats.apply_to(function, *args):
                return native(tracer.builder.call_number, function, *args)
            if not kwargs and float_facts.is_math(function, args):
                return native(tracer.builder.call_number, function, *args)
            if size_floats.is_whole(function, args):
                return native(function, args[0].of_sizes)
            args = tuple(_plain_text(sequences.opened(tracer, a)) for a in args)
            if all(is_transparent(a) for a in args) and all(is_transparent(a) for a in kwargs.values()):
                return native(function, *args, **kwargs)
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"{function.__name__} of an object")
        module = getattr(owner, "__name__", "") or getattr(function, "__module__", "") or ""
        record = breaks.RANDOM if "random" in module else breaks.UNKNOWN_CALL
        raise Unsupported(record, f"{module}.{function.__name__}")
    if function.__name__ == "__get__" and args and type(args[0]) is TracedTensor:  # Tensor.T.__get__(x)
        return attributes.load(tracer, args[0], owner.__name__)
    if arrays.is_numpy(type(owner)) and type(owner).__name__ == "ufunc":
        from flambeau._dynamo import numpy_table

        return numpy_table.call_ufunc_method(tracer, owner, function.__name__, args, kwargs)
    if is_numpy_scalar(type(owner)) and is_plain(args) and is_plain(kwargs):
        return native(function, *args, **kwargs)
    if isinstance(owner, type):
        if function.__name__ == "__new__":
            return make(tracer, args[0], args[1:], kwargs, function)
        if (owner in NATIVE_CLASSES or is_native_class(owner)) and is_transparent(args):
            return native(function, *args, **kwargs)
        if function.__name__ == "__subclasses__":
            subclasses = native(type.__subclasses__, owner)
            tracer.outside.sources.constant(owner).apply(type.__subclasses__).check("equals", subclasses)
            return [tracer.outside.wrap(cls, tracer.outside.sources.constant(cls)) for cls in subclasses]
        raise Unsupported(breaks.UNKNOWN_CALL, f"{owner.__name__}.{function.__name__}")
    if draws.is_draw(owner, function.__name__):
        return draws.draw(tracer, owner, function.__name__, args, kwargs)
    outside = id(owner) in tracer.outside.memo and tracer.outside.memo[id(owner)][1] is not owner
    if (
        type(owner) not in VALUES
        and (id(owner) in tracer.outside.known or id(function) in tracer.outside.known or outside)
        and type(owner) not in CONSTANTS
    ):
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
    if type(owner) in VALUES:
        args = tuple(map(_letters, args))
        if is_plain(args) and is_plain(tuple(kwargs.values())):
            return native(function, *args, **kwargs)
    name = getattr(function, "__qualname__", repr(function))
    if "Random" in type(owner).__name__:
        raise Unsupported(breaks.RANDOM, name)
    raise Unsupported(breaks.UNKNOWN_CALL, name)


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
        tracer.outside.register(original, tracer.outside.sources.constant(original))
        return call_module(tracer, original, args, kwargs)
    if isinstance(hook, types.FunctionType) and hook is not lookup_type(base, "__call__"):
        tracer.outside.guard_type_attribute(cls, "__call__")
        return call(tracer, hook, (module, *args), kwargs)
    return call_with_hooks(tracer, module, args, kwargs)


def call_with_hooks(tracer: Tracer, module: Any, args: Args, kwargs: Kwargs) -> Any:
    """What Module.__call__ itself does."""
    known = tracer.outside.known.get(id(module))
    if known is None:
        return new_modules.call_forward(tracer, module, args, kwargs)
    from flambeau.nn.modules import global_hooks

    source = known.source
    state = module.__dict__
    if "_initialize_hook" in state:
        new_modules.initialize_lazy(tracer, module, args, kwargs)
    for name, table in vars(global_hooks).items():
        if name.startswith("_global_") and "registration" not in name and isinstance(table, dict):
            if table:
                raise Unsupported(breaks.UNKNOWN_CALL, "module with global hooks")
            tracer.outside.sources.constant(table).check("length", 0)
    for name in _HOOKS:
        table = state[name]
        source.instance(name).check("dict_keys", list(table))
    pre, post = state["_forward_pre_hooks"], state["_forward_hooks"]
    for key in pre:
        hook = tracer.outside.wrap(pre[key], source.instance("_forward_pre_hooks").dict_item(key))
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
    border = _border(tracer, module, source) if _C.is_grad_enabled() else None
    args = args if border is None else border.enter(args)
    forward = attributes.load(tracer, module, "forward")
    is_noted = id(module) in tracer.builder.preserved
    if is_noted:
        tracer.builder.note_call(module, (args, kwargs))
    result = call(tracer, forward, args, kwargs)
    if is_noted:
        tracer.builder.note_call(module, result)
    for key in post:
        hook = tracer.outside.wrap(post[key], source.instance("_forward_hooks").dict_item(key))
        if key in state["_forward_hooks_with_kwargs"]:
            changed = call(tracer, hook, (module, args, kwargs, result), {})
        else:
            changed = call(tracer, hook, (module, args, result), {})
        if changed is not None:
            result = changed
    return result if border is None else border.leave(result)


def _border(tracer: Tracer, module: Any, source: Any) -> Any:
    """What attaches the backward hooks of a module, if it has any."""
    hook_lists = []
    for name in ("_backward_hooks", "_backward_pre_hooks"):
        table = module.__dict__[name]
        hook_lists.append([tracer.outside.wrap(table[key], source.instance(name).dict_item(key)) for key in table])
    if not any(hook_lists):
        return None
    source.instance("_is_full_backward_hook").check("equals", module._is_full_backward_hook)
    if module._is_full_backward_hook is False:
        raise Unsupported(breaks.UNKNOWN_CALL, "module with backward hooks of the old kind")
    from flambeau._dynamo import hooks

    return hooks.Border(tracer, module, *hook_lists)


SAFE: frozenset[Any] = frozenset(
    [getattr(builtins, name) for name in "ascii bin chr divmod hex oct ord pow round abs".split()]
    + [v for k, v in vars(math).items() if isinstance(v, types.BuiltinFunctionType)]
    + [v for k, v in vars(operator).items() if isinstance(v, types.BuiltinFunctionType)]
    + [v for k, v in vars(cmath).items() if isinstance(v, types.BuiltinFunctionType)]
    + [v for m in (_heapq, _bisect) for v in vars(m).values() if isinstance(v, types.BuiltinFunctionType)]
    + [sys.intern, itertools.tee, os.fspath, _collections._count_elements]
)


SPECIAL: dict[int, Callable[..., Any]] = {}
