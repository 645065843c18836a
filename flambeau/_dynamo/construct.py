"""Instances of classes: which constructors run natively, and how the others are interpreted."""

from __future__ import annotations

import abc
import collections
import enum
import functools
import itertools
import math
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._dynamo import arrays, breaks, float_facts, gradients, mappings, size_floats, wrappers
from flambeau._dynamo.arrays import ArrayMethod
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.kinds import (
    fl_module,
    is_native_class,
    is_parameter_class,
    is_plain_tensor,
    is_result_tuple,
    lookup_type,
)
from flambeau._dynamo.operations import compare, to_text, truth
from flambeau._dynamo.sizes import SymInt, plain
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import Interpreted, TracedNumber, TracedReference, TracedTensor
from flambeau._dynamo.values import (
    CONTAINERS,
    VALUES,
    Args,
    Kwargs,
    as_iterator,
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

NATIVE_CLASSES: frozenset[Any] = frozenset(
    [list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict, collections.defaultdict,
     int, float, complex, str, bytes, bytearray, bool, range, slice, enumerate, zip, map, filter, reversed, fl.Size, fl.device,
     functools.partial, type(None), object, property, staticmethod, classmethod, operator.itemgetter, operator.attrgetter,
     operator.methodcaller, types.MappingProxyType]
    + [v for v in vars(itertools).values() if isinstance(v, type)]
)  # fmt: skip


def construct(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if cls is collections.Counter and is_transparent(args) and is_transparent(kwargs):
        return native(cls, *args, **kwargs)
    if cls in NATIVE_CLASSES:
        return _construct_native(tracer, cls, args, kwargs)
    if cls is weakref.ReferenceType and len(args) == 1 and not kwargs:
        return tracer.outside.references.setdefault(id(args[0]), TracedReference(args[0]))
    if cls is types.MethodType and len(args) == 2 and callable(args[0]):
        return types.MethodType(*args)
    if cls is types.SimpleNamespace and not args:
        return tracer.outside.make_fresh(cls(**kwargs))
    if is_numpy_scalar(cls) and arrays.is_scalar(args) and not kwargs:
        return arrays.guarded(ArrayMethod(args[0], "astype"))(cls)
    if (cls in VALUES or is_numpy_scalar(cls)) and is_plain(args) and is_plain(tuple(kwargs.values())):
        return native(cls, *args, **kwargs)
    meta = type(cls)
    if isinstance(cls, enum.EnumMeta):
        if len(args) == 1 and not kwargs and is_transparent(args):
            return native(cls, *args)
        raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
    if isinstance(lookup_type(meta, "__call__"), types.FunctionType):
        tracer.outside.guard_type_attribute(meta, "__call__")
        return tracer.call(lookup_type(meta, "__call__"), (cls, *args), kwargs)
    if lookup_type(meta, "__call__") is dict:  # a TypedDict, whose instances are dicts
        return _construct_native(tracer, dict, args, kwargs)
    if meta not in (type, abc.ABCMeta) and lookup_type(meta, "__call__") is not type.__call__:
        raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
    if issubclass(cls, BaseException) and is_native_class(cls):
        return tracer.outside.make_fresh(native(cls, *args, **kwargs))
    module = fl_module()
    if module != () and issubclass(cls, module):
        return _construct_module(tracer, cls, args, kwargs)
    if wrappers.is_wrapper(cls):
        return wrappers.record(tracer.builder, "call_function", cls, args, kwargs)
    if issubclass(cls, _C.Tensor):
        if is_parameter_class(cls) and cls.__name__ == "Parameter":
            return _construct_parameter(tracer, cls, *args, **kwargs)
        raise Unsupported(breaks.UNKNOWN_CALL, f"construction of a {cls.__name__}")
    if is_result_tuple(cls) and cls.__module__.startswith("torch"):
        return native(cls, *args, **kwargs)
    return _construct_object(tracer, cls, args, kwargs)


def _construct_object(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """What type.__call__ does."""
    tracer.outside.guard_type_attribute(cls, "__new__")
    tracer.outside.guard_type_attribute(cls, "__init__")
    new = lookup_type(cls, "__new__")
    new = new.__func__ if isinstance(new, staticmethod) else new
    init = lookup_type(cls, "__init__")
    if isinstance(new, types.FunctionType):
        tracer.outside.register(new, tracer.outside.sources.constant(new))
        instance = tracer.call(new, (cls, *args), kwargs)
        if not isinstance(instance, cls):
            return instance
    else:
        instance = make(tracer, cls, args, kwargs, new)
    if isinstance(init, types.FunctionType):
        tracer.outside.register(init, tracer.outside.sources.constant(init))
        result = tracer.call(init, (instance, *args), kwargs)
        if result is not None:
            raise UserError(TypeError(f"__init__() should return None, not '{real_type(result).__name__}'"))
    elif init is object.__init__:
        if (args or kwargs) and new is object.__new__:
            raise UserError(TypeError(f"{cls.__name__}() takes no arguments"))
    elif isinstance(instance, BaseException):
        native(init, instance, *args, **kwargs)
    elif isinstance(instance, CONTAINERS):
        if not isinstance(instance, (tuple, frozenset)):
            native(init, instance, *(a if isinstance(a, dict) else iterable(tracer, a) for a in args), **kwargs)
    else:
        raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
    return instance


def _construct_parameter(tracer: Tracer, cls: Any, data: Any = None, requires_grad: Any = True) -> Any:
    """A parameter around a tensor: a leaf that shares its memory."""
    if type(data) is not TracedTensor or type(requires_grad) is not bool or not is_plain_tensor(data.cls):
        raise Unsupported(breaks.UNKNOWN_CALL, f"construction of a {cls.__name__}")
    parameter = tracer.builder.call_method("detach", (data,), {})
    parameter.cls = cls
    return gradients.set_requires_grad(tracer, parameter) if requires_grad else parameter


def _construct_module(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """A module that this package's code initialises and that has no tensors, such as Softmax(dim=-1) or a loss."""
    own = cls.__init__.__module__.startswith("flambeau.nn.modules.") and cls.__new__ is fl_module().__new__
    if not own or not is_plain(args) or not is_plain(kwargs):
        return _construct_object(tracer, cls, args, kwargs)
    tracer.outside.guard_type_attribute(cls, "__init__")
    numbers = fl.get_rng_state()
    module_object = native(cls, *args, **kwargs)
    fl.set_rng_state(numbers)
    members = (*module_object._parameters.values(), *module_object._buffers.values(), *module_object._modules.values())
    if any(member is not None for member in members):
        return _construct_object(tracer, cls, args, kwargs)
    tracer.outside.constructed[id(module_object)] = (cls, args, kwargs)
    return tracer.outside.wrap(module_object, tracer.outside.sources.constant(module_object))


def make(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs, new: Any) -> Any:
    """cls.__new__ where that is native: an empty instance."""
    owner = getattr(new, "__self__", None)
    if new is object.__new__ or owner is object:
        if cls.__abstractmethods__ if "__abstractmethods__" in cls.__dict__ else False:
            raise Unsupported(breaks.EXCEPTION, f"abstract class {cls.__name__}")
        if not (cls.__flags__ & (1 << 9)):
            raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
        return tracer.outside.make_fresh(native(object.__new__, cls))
    if owner is _C.ModuleBase:
        return tracer.outside.make_fresh(native(new, cls))
    if owner in (list, dict, set, collections.OrderedDict, collections.deque, collections.defaultdict):
        return tracer.outside.make_fresh(native(new, cls))
    if owner is tuple:
        instance = native(new, cls, *(iterable(tracer, a) for a in args))
        return instance if cls is tuple else tracer.outside.make_fresh(instance)
    if owner in (int, float, str, frozenset) and is_transparent(args):
        if cls in NATIVE_CLASSES:
            return native(new, cls, *args, **kwargs)
        raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)
    if isinstance(owner, type) and issubclass(owner, BaseException):
        return tracer.outside.make_fresh(native(new, cls, *args))
    raise Unsupported(breaks.UNKNOWN_CALL, f"{cls.__name__}.__new__")


# ---------------------------------------------------------------------------------------------- native classes


def _construct_native(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    make = _MAKERS.get(cls)
    if make is not None:
        return make(tracer, cls, args, kwargs)
    if cls.__module__ != "itertools" and is_transparent(args) and is_transparent(kwargs):
        return native(cls, *args, **kwargs)
    raise Unsupported(breaks.UNKNOWN_CALL, cls.__name__)


def _as_given(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return native(cls, *args, **kwargs)


def _of_iterables(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if cls in (set, frozenset):
        args = tuple([as_key(v) for v in iterable_list(tracer, a)] for a in args)
    else:
        args = tuple(iterable(tracer, a) for a in args)
    if cls in (set, frozenset) and args and isinstance(args[0], CONTAINERS) and not is_transparent(args[0]):
        raise Unsupported(breaks.UNKNOWN_OPERATION, "set of objects")
    return native(cls, *args, **kwargs)


def _of_one_iterable(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """The first argument is iterated over, the others are plain."""
    if args:
        args = (iterable(tracer, args[0]), *args[1:])
    if "iterable" in kwargs:
        kwargs = {**kwargs, "iterable": iterable(tracer, kwargs["iterable"])}
    return native(cls, *args, **kwargs)


def _proxy(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and isinstance(args[0], dict) and type(args[0]).__flags__ & (1 << 9):
        raise Unsupported(breaks.UNKNOWN_CALL, f"mappingproxy of a {type(args[0]).__name__}")
    return native(cls, *args, **kwargs)


def _keyed(pairs: list[Any]) -> list[Any]:
    """Pairs for a dict, with keys that can be hashed."""
    return [(as_key(p[0]), p[1]) if type(p) in (tuple, list) and len(p) == 2 else p for p in pairs]


def _dict(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if args and not isinstance(args[0], dict):
        shown = mappings.from_keys(tracer, args[0])
        pairs = _keyed(iterable_list(tracer, args[0])) if shown is None else shown
        args = (pairs, *args[1:])
    if args and id(args[0]) in tracer.outside.known:
        if not isinstance(args[0], dict) or python_special(type(args[0]), "keys", "__getitem__"):
            raise Unsupported(breaks.UNKNOWN_OPERATION, "dict of an unknown mapping")
        args = (mappings.contents(tracer, args[0]), *args[1:])
    return native(cls, *args, **kwargs)


def _callback(tracer: Tracer, function: Any) -> Any:
    return None if function is None else tracer.native_callable(function)


def _defaultdict(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return native(cls, *(_callback(tracer, a) for a in args[:1]), *args[1:], **kwargs)


def _with_callback_first(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return native(cls, _callback(tracer, args[0]), *(iterable(tracer, a) for a in args[1:]))


def _with_callback_second(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    rest = [*(_callback(tracer, a) for a in args[1:2]), *args[2:]]
    kwargs = {k: _callback(tracer, v) if k in ("func", "key") else v for k, v in kwargs.items()}
    if cls is itertools.accumulate and not rest and "func" not in kwargs:
        rest = [Interpreted(tracer, operator.add)]
    return native(cls, iterable(tracer, args[0]), *rest, **kwargs)


def _reversed(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    hook = lookup_type(type(args[0]), "__reversed__")
    if isinstance(hook, types.FunctionType):
        return as_iterator(tracer, tracer.call(hook, args, {}))
    if id(args[0]) in tracer.outside.known or python_special(type(args[0]), "__getitem__", "__len__"):
        raise Unsupported(breaks.UNKNOWN_OPERATION, "reversed of an object")
    if type(args[0]) is TracedTensor:
        raise Unsupported(breaks.UNKNOWN_OPERATION, "reversed of a tensor")
    return native(reversed, *args)


def _str(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return to_text(tracer, args[0], str) if len(args) == 1 and not kwargs else native(str, *args, **kwargs)


def _bool(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    if args and type(args[0]) is SymInt and args[0].hint is None:
        return compare(tracer, "!=", args[0], 0)  # of a number that depends on data
    return truth(tracer, args[0]) if args else False


def _number(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    for name in ("__int__", "__float__", "__index__", "__complex__", "__trunc__"):
        if args and python_special(type(args[0]), name):
            if name == f"__{cls.__name__}__":
                return tracer.call_special(args[0], name)
            raise Unsupported(breaks.UNKNOWN_OPERATION, f"{cls.__name__} of an object")
    if args and id(args[0]) in tracer.outside.known:
        raise Unsupported(breaks.UNKNOWN_OPERATION, f"{cls.__name__} of an object")
    if cls is int and len(args) == 1 and type(args[0]) is SymInt:
        return args[0]
    if cls is int and len(args) == 1 and size_floats.is_whole(math.trunc, args):
        return native(math.trunc, args[0].of_sizes)
    if cls is int and len(args) == 1 and type(args[0]) is TracedNumber and float_facts.origin(args[0]) is not None:
        return native(int, args[0])
    if cls is float and len(args) == 1 and type(args[0]) is SymInt and size_floats.apply_to(float, args[0]):
        return native(tracer.builder.call_number, float, args[0])
    if cls is float and len(args) == 1 and type(args[0]) is TracedNumber and type(args[0].hint) is float:
        return args[0]
    if cls in (int, float) and len(args) == 1 and type(args[0]) is TracedTensor:
        return tracer.call(tracer.load_attribute(args[0], f"__{cls.__name__}__"), (), {})
    return native(cls, *(plain(a) for a in args), **kwargs)


def _object(tracer: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    return tracer.outside.make_fresh(object())


_MAKERS: dict[Any, Callable[[Tracer, Any, Args, Kwargs], Any]] = {
    cls: make
    for make, classes in {
        _as_given: (functools.partial, itertools.count, itertools.repeat),
        _of_iterables: (list, tuple, set, frozenset, zip, itertools.chain, itertools.product, itertools.zip_longest,
                        itertools.compress),
        _of_one_iterable: (enumerate, collections.deque, itertools.combinations, itertools.permutations, itertools.islice,
                           itertools.cycle, itertools.pairwise, itertools.combinations_with_replacement,
                           getattr(itertools, "batched", None)),
        _dict: (dict, collections.OrderedDict),
        _proxy: (types.MappingProxyType,),
        _defaultdict: (collections.defaultdict,),
        _with_callback_first: (map, filter, itertools.starmap, itertools.takewhile, itertools.dropwhile,
                               itertools.filterfalse),
        _with_callback_second: (itertools.accumulate, itertools.groupby),
        _reversed: (reversed,),
        _str: (str,),
        _bool: (bool,),
        _number: (int, float, complex),
        _object: (object,),
    }.items()
    for cls in classes
}  # fmt: skip
