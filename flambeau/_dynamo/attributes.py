"""Reading and writing attributes as the interpreter sees them.

Reads follow the language's protocol by hand, so that Python code in properties, descriptors and __getattr__ is
interpreted and every place that took part is guarded. Writes to outside objects stay in the tracer's overlay.
"""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import operator
import sys
import types
from typing import Any

from flambeau import _C
from flambeau._dynamo import arrays, breaks, draws, gradients, mappings, new_modules, overriding, sequences, wrappers
from flambeau._dynamo.arrays import TracedArray
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.kinds import CONSTANTS, MISSING, fl_module, is_mutable_class, is_result_tuple, lookup_type
from flambeau._dynamo.outside import Outside
from flambeau._dynamo.sizes import SYMBOLIC, SymInt
from flambeau._dynamo.source import Source
from flambeau._dynamo.trace import Tracer
from flambeau._dynamo.traced import (
    NULL,
    Interpreted,
    TensorMethod,
    TracedGenerator,
    TracedHandle,
    TracedIterator,
    TracedNumber,
    TracedTensor,
)
from flambeau._subclasses.fake_tensor import RESHAPES
from flambeau.fx.graph_module import PrintedForward

# Attributes of a tensor that are known from its shape and type alone.
_SHAPE_ATTRIBUTES = frozenset("shape device dtype ndim requires_grad layout itemsize nbytes".split())
# Those that depend on how it came to require gradients.
_HISTORY_ATTRIBUTES = frozenset("is_leaf output_nr retains_grad".split())
_DEVICE_ATTRIBUTES = frozenset(
    "is_cuda is_cpu is_meta is_mps is_xpu is_xla is_vulkan is_ipu is_mkldnn is_quantized is_sparse is_sparse_csr is_nested".split()
)
_VIEW_ATTRIBUTES = frozenset("T mT H mH real imag data".split())
_VALUE_METHODS = frozenset(
    "item tolist numpy __array__ __int__ __float__ __bool__ __index__ data_ptr untyped_storage storage".split()
)
# What changes a tensor but not its values: graphs have no tensor that is one thing first and another later.
_STATE_METHODS = frozenset(
    "requires_grad_ register_hook retain_grad register_post_accumulate_grad_hook set_ share_memory_ __setstate__".split()
).union(RESHAPES)


def load(tracer: Tracer, value: Any, name: str) -> Any:
    """The value of `value.name`."""
    cls = type(value)
    if cls is TracedTensor:
        return _load_from_tensor(tracer, value, name)
    if cls is TracedArray:
        return arrays.guarded(arrays.load)(tracer, value, name)
    if cls is types.ModuleType or issubclass(cls, types.ModuleType):
        return _load_from_python_module(tracer, value, name)
    if isinstance(value, type):
        return _load_from_class(tracer, value, name)
    if cls is types.FunctionType:
        return _load_from_function(tracer, value, name)
    if cls is super:
        return _load_from_super(tracer, value, name)
    if cls is types.MethodType:
        if name == "__self__":
            return value.__self__
        if name == "__func__":
            return value.__func__
        if isinstance(value.__self__, (TracedGenerator, TracedIterator)):
            raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, name)
        return load(tracer, value.__func__, name)
    if cls in (TracedGenerator, Interpreted, TracedIterator, TensorMethod, TracedHandle):
        if cls is TracedHandle and name == "remove":
            return value.remove
        if cls is TracedGenerator and name in (
            "send",
            "throw",
            "close",
            "__next__",
            "__iter__",
            "__name__",
            "__qualname__",
        ):
            return getattr(value, name)
        if cls is Interpreted:
            return load(tracer, value.function, name)
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{name} of {cls.__name__}")
    if cls in SYMBOLIC:
        return _native_attribute(tracer, int(value) if cls is SymInt else value, name)
    if cls is TracedNumber:
        return _native_attribute(tracer, value.specialize(), name)
    if _is_native(cls):
        inside = cls in CONSTANTS or cls is types.CodeType or callable(value) or cls in tracer.outside.value_types
        if id(value) in tracer.outside.known and not inside:
            raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{name} of {cls.__name__}")
        return _native_attribute(tracer, value, name)
    return _load_from_instance(tracer, value, name)


def _is_native(cls: type) -> bool:
    """Types whose attributes are all implemented natively and have no instance dict."""
    if cls is types.SimpleNamespace:
        return False
    if cls in Outside.value_types:
        return True
    if not (cls.__flags__ & (1 << 9)) or cls in CONSTANTS or is_result_tuple(cls) or cls.__module__ == "torch._C":
        return True
    return cls in _HEAP_TYPES


# Native types that later versions of Python allocate like classes.
_HEAP_TYPES: frozenset[type] = frozenset(
    [collections.deque, collections.OrderedDict, collections.defaultdict, functools.partial, operator.itemgetter]
    + [operator.attrgetter, operator.methodcaller, type(iter(collections.deque()))]
    + [value for value in vars(itertools).values() if isinstance(value, type)]
)


def _native_attribute(tracer: Tracer, value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except Exception as error:
        raise UserError(error) from None


# ---------------------------------------------------------------------------------------------- tensors


def _load_from_tensor(tracer: Tracer, tensor: TracedTensor, name: str) -> Any:
    if tensor.cls is not _C.Tensor and overriding.lookup_member(tensor.cls, name) is not NULL:
        return _load_from_subclass(tracer, tensor, name)
    if tensor.cls is not _C.Tensor and wrappers.is_wrapper(tensor.cls):
        member = wrappers.load(tracer, tensor, name)
        if member is not NULL:
            return member
    if (
        name in _HISTORY_ATTRIBUTES
        and tensor.source is not None
        and tensor.real.requires_grad
        and tensor.fake.is_leaf == tensor.real.is_leaf  # and not written to since
    ):
        return tracer.outside.wrap(getattr(tensor.real, name), tensor.source.attribute(name))
    if name in _SHAPE_ATTRIBUTES or name in _DEVICE_ATTRIBUTES or name in _HISTORY_ATTRIBUTES:
        return getattr(tensor.fake, name)
    if name in _VIEW_ATTRIBUTES:
        return tracer.builder.call_function(getattr, (tensor, name), {})
    if name == "__class__":
        return tensor.cls
    if name in _VALUE_METHODS or name in _STATE_METHODS or name == "backward":
        return TensorMethod(tensor, name)
    if name == "grad":
        return gradients.load_grad(tracer, tensor)
    if name == "grad_fn" and (tensor.fake.is_leaf or not tensor.fake.requires_grad):
        if tensor.source is not None and tensor.fake.requires_grad:
            tensor.source.attribute("is_leaf").check("equals", True)
        return None
    raw = lookup_type(_C.Tensor, name)
    tracer.outside.tensor_members[name] = None
    if raw is NULL:
        if tensor.real is not None and tensor.source is not None:
            state = getattr(tensor.real, "__dict__", None) or {}
            if name in state:
                return tracer.outside.wrap(state[name], tensor.source.attribute(name))
            if lookup_type(tensor.cls, name) is NULL:
                tensor.source.attribute(name).check("absent")
                raise UserError(AttributeError(f"'{tensor.cls.__name__}' object has no attribute '{name}'"))
            raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"Tensor.{name}")
        raise UserError(AttributeError(f"'Tensor' object has no attribute '{name}'"))
    if isinstance(raw, types.FunctionType):
        return types.MethodType(raw, tensor)
    if name.startswith("__") and name not in _OPERATOR_METHODS and name not in ("__iter__", "__len__"):
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"Tensor.{name}")
    if callable(raw):
        return TensorMethod(tensor, name)
    raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"Tensor.{name}")


def _load_from_subclass(tracer: Tracer, tensor: TracedTensor, name: str) -> Any:
    """A member that the tensor's own class defines."""
    raw = overriding.lookup_member(tensor.cls, name)
    tracer.outside.guard_type_attribute(tensor.cls, name)
    if tensor.real is not None and tensor.source is not None and not isinstance(raw, property):
        state = getattr(tensor.real, "__dict__", None) or {}
        if name in state:
            return tracer.outside.wrap(state[name], tensor.source.attribute(name))
        tensor.source.instance(name).check("absent")
    if isinstance(raw, property) and raw.fget is not None:
        return tracer.call(_accessor(tracer, raw, "fget"), (tensor,), {})
    if isinstance(raw, types.FunctionType):
        tracer.outside.register(raw, tracer.outside.sources.constant(raw))
        return types.MethodType(raw, tensor)
    return load(tracer, tensor.cls, name)


_OPERATOR_METHODS = frozenset(
    f"__{prefix}{name}__"
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
    for prefix in ("", "r", "i")
) | frozenset(f"__{n}__" for n in "lt le gt ge eq ne neg pos invert abs getitem setitem".split())


# ---------------------------------------------------------------------------------------------- modules, classes


def _load_from_python_module(tracer: Tracer, module: Any, name: str) -> Any:
    pending = tracer.outside.pending(module.__dict__, name)
    if pending is not MISSING:
        if pending is NULL:
            raise UserError(AttributeError(f"module '{module.__name__}' has no attribute '{name}'"))
        return pending
    value = module.__dict__.get(name, MISSING)
    if value is MISSING:
        try:
            value = getattr(module, name)  # a package that imports its parts on first use
        except Exception as error:
            if "__getattr__" not in module.__dict__:
                tracer.outside.sources.constant(module).attribute(name).check("absent")
            raise UserError(error) from None
        from flambeau._dynamo import functions

        functions.add_imported()
        if module.__dict__.get(name, MISSING) is not value:
            raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{module.__name__}.{name}, which is computed")
    return tracer.outside.wrap(value, tracer.outside.sources.constant(module.__dict__).dict_item(name))


_CACHED = type(functools.lru_cache(None)(lambda: None))


def _accessor(tracer: Tracer, member: property, which: str) -> Any:
    """The getter, setter or deleter of a property; what it refers to is known by where it comes from."""
    place = tracer.outside.sources.constant(member).attribute(which)
    return tracer.outside.wrap(getattr(member, which), place)


def _bind(tracer: Tracer, raw: Any, owner: Any, cls: type, source: Source) -> Any:
    """A class member as an instance (or the class, when owner is None) sees it."""
    if type(raw) is PrintedForward:  # of a graph module: printed when it is looked at
        raw = raw.__get__(None, cls)
    kind = type(raw)
    if kind in (types.FunctionType, _CACHED):
        source.check("id", raw)
        tracer.outside.register(raw, tracer.outside.sources.constant(raw))
        return raw if owner is None else types.MethodType(raw, owner)
    if kind is staticmethod:
        source.check("id", raw)
        return tracer.outside.wrap(raw.__func__, tracer.outside.sources.constant(raw).attribute("__func__"))
    if kind is classmethod:
        source.check("id", raw)
        place = tracer.outside.sources.constant(raw).attribute("__func__")
        if sys.version_info < (3, 13) and not isinstance(raw.__func__, types.FunctionType):  # a property of the class
            return _bind(tracer, raw.__func__, cls, type(cls), place)
        return types.MethodType(tracer.outside.wrap(raw.__func__, place), cls)
    if kind in (
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.BuiltinFunctionType,
    ):
        if owner is None:
            source.check("id", raw)
            return raw if kind is not types.ClassMethodDescriptorType else getattr(cls, raw.__name__)
        if id(owner) in tracer.outside.known and kind is not types.BuiltinFunctionType:
            if raw.__objclass__ is object or isinstance(owner, BaseException):
                return types.MethodType(raw, owner)
            if isinstance(owner, dict) and raw.__name__ in mappings.READS | mappings.WRITES | {"__eq__", "__ne__"}:
                return types.MethodType(raw, owner)
            if sequences.is_sequence(tracer, owner) and raw.__name__ in sequences.METHODS:
                return types.MethodType(raw, owner)
            if draws.is_draw(owner, raw.__name__):
                return types.MethodType(raw, owner)
            raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{raw.__name__} of {cls.__name__}")
        if id(owner) in tracer.outside.fresh and getattr(raw, "__objclass__", None) is object:
            return types.MethodType(raw, owner)
        return raw.__get__(owner, cls)
    get = lookup_type(kind, "__get__")
    tracer.outside.guard_class(kind)
    if get is NULL:
        return tracer.outside.wrap(raw, source)
    if isinstance(get, types.FunctionType):
        source.check("id", raw)
        tracer.outside.register(raw, tracer.outside.sources.constant(raw))
        return tracer.call(types.MethodType(get, raw), (owner, cls), {})
    if kind is property:
        source.check("id", raw)
        if owner is None:
            return raw
        return tracer.call(_accessor(tracer, raw, "fget"), (owner,), {})
    if owner is None and kind in (types.GetSetDescriptorType, types.MemberDescriptorType):
        source.check("id", raw)
        if kind is types.GetSetDescriptorType and raw.__name__ in ("__dict__",):
            raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, "__dict__ of a class")
        return raw
    if owner is not None and type(raw).__module__ == "flambeau":
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, str(raw))
    if type(raw).__name__ in ("partialmethod", "cached_property"):
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, type(raw).__name__)
    if owner is None and callable(raw):
        source.check("id", raw)
        return raw
    raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"descriptor {kind.__name__}")


def _load_from_class(tracer: Tracer, cls: type, name: str) -> Any:
    if not is_mutable_class(cls):
        return _native_attribute(tracer, cls, name)
    pending = _pending_in_class(tracer, cls, name)
    if pending is not MISSING:
        return pending
    if name in ("__name__", "__qualname__", "__module__", "__mro__", "__bases__", "__doc__", "__annotations__"):
        value = _native_attribute(tracer, cls, name)
        if name in ("__mro__", "__bases__"):
            tracer.outside.guard_class(cls)
            return value
        return tracer.outside.wrap(value, tracer.outside.sources.constant(cls).attribute(name))
    if name == "__class__":
        return type(cls)
    meta = lookup_type(type(cls), name)
    tracer.outside.guard_type_attribute(type(cls), name)
    if meta is not NULL and lookup_type(type(meta), "__set__") is not NULL:
        if isinstance(meta, property) and isinstance(meta.fget, types.FunctionType):
            return tracer.call(meta.fget, (cls,), {})
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")
    raw = lookup_type(cls, name)
    source = tracer.outside.sources.constant(cls).type_attribute(name)
    if raw is not NULL:
        return _bind(tracer, raw, None, cls, source)
    if meta is not NULL:
        if isinstance(meta, types.FunctionType):
            return types.MethodType(meta, cls)
        return _native_attribute(tracer, cls, name)
    if lookup_type(type(cls), "__getattr__") is not NULL:
        try:
            value = getattr(cls, name)
        except Exception as error:
            raise UserError(error) from None
        if isinstance(cls, enum.EnumMeta) and name in cls.__members__:
            return value
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{cls.__name__}.{name}")
    source.check("absent")
    return _native_attribute(tracer, cls, name)


def _load_from_function(tracer: Tracer, function: Any, name: str) -> Any:
    known = tracer.outside.known.get(id(function))
    if name in ("__name__", "__qualname__", "__module__", "__doc__"):
        value = _native_attribute(tracer, function, name)
        if id(function) in tracer.outside.fresh:
            return value
        source = tracer.outside.sources.constant(function) if known is None else known.source
        return tracer.outside.wrap(value, source.attribute(name))
    if name in (
        "__code__",
        "__globals__",
        "__closure__",
        "__defaults__",
        "__kwdefaults__",
        "__get__",
        "__annotations__",
    ):
        if known is not None and name in ("__defaults__", "__kwdefaults__"):
            return tracer.outside.wrap(getattr(function, name), known.source.attribute(name))
        if name == "__code__":
            if known is not None:
                known.source.attribute(name).check("id", function.__code__)
            return function.__code__
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{name} of a function")
    if known is None:
        return _native_attribute(tracer, function, name)
    pending = tracer.outside.pending(function, name)
    if pending is not MISSING and pending is not NULL:
        return pending
    if name == "__dict__":
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, "__dict__ of a function")
    if name in function.__dict__:
        return tracer.outside.wrap(function.__dict__[name], known.source.attribute(name))
    if name != "__wrapped__" and hasattr(types.FunctionType, name):
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{name} of a function")
    known.source.attribute(name).check("absent")
    raise UserError(AttributeError(f"'function' object has no attribute '{name}'"))


def _load_from_super(tracer: Tracer, value: Any, name: str) -> Any:
    this, owner, start = value.__thisclass__, value.__self__, value.__self_class__
    bases = start.__mro__
    for base in bases[bases.index(this) + 1 :]:
        if name in base.__dict__:
            raw = base.__dict__[name]
            bound_to_class = isinstance(owner, type) and owner is start
            source = tracer.outside.sources.constant(base).type_attribute(name)
            if (name == "__setattr__" and raw is object.__setattr__) or name == "__new__":
                return (
                    types.MethodType(raw, owner)
                    if name != "__new__"
                    else raw.__func__
                    if isinstance(raw, staticmethod)
                    else raw
                )
            if name == "__call__" and isinstance(owner, fl_module()) and not isinstance(raw, types.FunctionType):
                return types.MethodType(fl_module()._call_impl, owner)
            if isinstance(raw, property):
                source.check("id", raw)
                return tracer.call(_accessor(tracer, raw, "fget"), (owner,), {})
            if bound_to_class and isinstance(raw, types.FunctionType):
                return _bind(tracer, raw, None, start, source)
            return _bind(tracer, raw, owner, start, source)
    raise UserError(AttributeError(f"'super' object has no attribute '{name}'"))


# ---------------------------------------------------------------------------------------------- instances


def instance_value(tracer: Tracer, value: Any, name: str) -> Any:
    """The instance's own attribute, or MISSING."""
    known = tracer.outside.known.get(id(value))
    if known is None:
        state = getattr(value, "__dict__", None)
        return MISSING if state is None or name not in state else state[name]
    pending = tracer.outside.pending(value, name)
    if pending is not MISSING:
        return MISSING if pending is NULL else pending
    state = getattr(value, "__dict__", None)
    if state is None:
        return MISSING
    copied = _copied_dict(tracer, state)
    if copied is not None:
        return copied.get(name, MISSING)
    return tracer.outside.wrap(state[name], known.source.instance(name)) if name in state else MISSING


def _copied_dict(tracer: Tracer, state: Any) -> Any:
    """The copy that stands for the `__dict__` of an object, once the program has asked for that."""
    known = tracer.outside.memo.get(id(state))
    return None if known is None or known[1] is state else known[1]


def _load_from_instance(tracer: Tracer, value: Any, name: str) -> Any:
    cls = type(value)
    if cls.__module__ == "flambeau._ops" and cls.__name__ in ("_OpNamespace", "_Ops", "OpOverloadPacket"):
        native_value = _native_attribute(tracer, value, name)
        return tracer.outside.wrap(native_value, tracer.outside.sources.constant(native_value))
    if lookup_type(cls, "__getattribute__") is not object.__getattribute__ and not isinstance(
        value, (BaseException, *_module_types())
    ):
        hook = lookup_type(cls, "__getattribute__")
        if isinstance(hook, types.FunctionType):
            tracer.outside.guard_type_attribute(cls, "__getattribute__")
            return tracer.call(hook, (value, name), {})
        if getattr(hook, "__objclass__", None) not in (dict, list, tuple, set, int, str, float, types.SimpleNamespace):
            raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{name} of {cls.__name__}")
    return load_generic(tracer, value, name)


def _module_types() -> tuple[Any, ...]:
    module = fl_module()
    return (module,) if module != () else ()


def load_generic(tracer: Tracer, value: Any, name: str) -> Any:
    """What object.__getattribute__ does, then __getattr__."""
    cls = type(value)
    known = tracer.outside.known.get(id(value))
    raw = lookup_type(cls, name)
    pending = _pending_in_class(tracer, cls, name)
    if pending is not MISSING:
        own_value = instance_value(tracer, value, name)
        if own_value is MISSING and known is not None:
            _guard_absent(tracer, value, name, known.source)
        return pending if own_value is MISSING else own_value
    type_source = tracer.outside.sources.constant(cls).type_attribute(name)
    if raw is not NULL:
        kind = type(raw)
        if kind is property:
            type_source.check("id", raw)
            if raw.fget is None:
                raise UserError(AttributeError(f"property '{name}' of '{cls.__name__}' object has no getter"))
            return tracer.call(_accessor(tracer, raw, "fget"), (value,), {})
        if kind.__name__ == "_tuplegetter":
            return _native_attribute(tracer, value, name)
        if kind is types.MemberDescriptorType:
            return _load_slot(tracer, value, name, raw, known)
        if kind is types.GetSetDescriptorType:
            return _load_special(tracer, value, name, known)
        if lookup_type(kind, "__set__") is not NULL and lookup_type(kind, "__get__") is not NULL:
            return _bind(tracer, raw, value, cls, type_source)
    own_value = instance_value(tracer, value, name)
    if own_value is not MISSING:
        if raw is NULL:
            type_source.check("absent")
        return own_value
    if known is not None and raw is not NULL and name not in ("__init__", "__class__"):
        _guard_absent(tracer, value, name, known.source)
    if raw is not NULL:
        if type(raw).__name__ == "cached_property":
            return _load_cached(tracer, value, name, raw, type_source)
        return _bind(tracer, raw, value, cls, type_source)
    if known is not None:
        _guard_absent(tracer, value, name, known.source)
    type_source.check("absent")
    module = fl_module()
    hook = lookup_type(cls, "__getattr__")
    if module != () and isinstance(value, module) and (hook is NULL or hook is lookup_type(module, "__getattr__")):
        return _load_member(tracer, value, name)
    if isinstance(hook, types.FunctionType):
        tracer.outside.guard_type_attribute(cls, "__getattr__")
        return tracer.call(hook, (value, name), {})
    if isinstance(value, dict) and hook in (dict.__getitem__, dict.get):
        tracer.outside.guard_type_attribute(cls, "__getattr__")
        return tracer.call(hook, (value, name), {})
    if hook is not NULL:
        raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{name} of {cls.__name__}")
    raise UserError(_attribute_error(value, name))


def _attribute_error(value: Any, name: str) -> AttributeError:
    return AttributeError(f"'{type(value).__name__}' object has no attribute '{name}'")


def _guard_absent(tracer: Tracer, value: Any, name: str, source: Source) -> None:
    if getattr(value, "__dict__", None) is not None and tracer.outside.pending(value, name) is MISSING:
        source.instance(name).check("absent")


def _load_cached(tracer: Tracer, value: Any, name: str, raw: Any, source: Source) -> Any:
    source.check("id", raw)
    result = tracer.call(raw.func, (value,), {})
    store_plain(tracer, value, name, result)
    return result


def _load_slot(tracer: Tracer, value: Any, name: str, raw: Any, known: Any) -> Any:
    if known is None:
        return _native_attribute(tracer, value, name)
    pending = tracer.outside.pending(value, name)
    if pending is not MISSING:
        if pending is NULL:
            raise UserError(AttributeError(name))
        return pending
    try:
        slot_value = raw.__get__(value, type(value))
    except AttributeError as error:
        known.source.attribute(name).check("absent")
        raise UserError(error) from None
    return tracer.outside.wrap(slot_value, known.source.attribute(name))


def _load_special(tracer: Tracer, value: Any, name: str, known: Any) -> Any:
    if name == "__class__":
        return type(value)
    if name == "__dict__":
        if known is None:
            return value.__dict__
        return (
            tracer.outside.wrap(value.__dict__, known.source.attribute("__dict__"))
            if id(value) not in tracer.outside.overlays
            else _overlaid_dict(tracer, value)
        )
    if isinstance(value, BaseException):
        if name in ("args", "__cause__", "__context__", "__suppress_context__") and known is None:
            return getattr(value, name)
        if name == "__traceback__":
            return None
    raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, f"{name} of {type(value).__name__}")


def _overlaid_dict(tracer: Tracer, value: Any) -> Any:
    raise Unsupported(breaks.UNKNOWN_ATTRIBUTE, "__dict__ of an object that was written to")


_TABLES = ("_parameters", "_buffers", "_modules")


def _load_member(tracer: Tracer, module: Any, name: str) -> Any:
    """A parameter, buffer or submodule of an nn.Module."""
    known = tracer.outside.known.get(id(module))
    for table in _TABLES:
        members = module.__dict__.get(table)
        if members is None:
            continue
        if known is None:
            if name in members:
                return members[name]
            continue
        pending = tracer.outside.pending(members, name)
        if pending is not MISSING:
            return pending
        shadow = tracer.outside.memo.get(id(members))
        if shadow is not None and shadow[1] is not members:
            if name in shadow[1]:
                return shadow[1][name]
            continue
        place = known.source.instance(table)
        if name in members:
            return tracer.outside.wrap(members[name], place.dict_item(name))
        place.dict_item(name).check("absent")
    raise UserError(AttributeError(f"'{type(module).__name__}' object has no attribute '{name}'"))


# ---------------------------------------------------------------------------------------------- stores


def store(tracer: Tracer, value: Any, name: str, new: Any) -> None:
    """`value.name = new`, or `del value.name` when new is NULL."""
    cls = type(value)
    if cls is TracedTensor:
        if name == "requires_grad" and new is not NULL:
            gradients.set_requires_grad(tracer, value, new)
        elif name == "grad":
            gradients.store_grad(tracer, value, None if new is NULL else new)
        else:
            raise Unsupported(breaks.STORE, f"Tensor.{name}")
        return
    if isinstance(value, (type, types.ModuleType)) or cls is types.FunctionType:
        if cls is types.FunctionType and id(value) not in tracer.outside.known and not name.startswith("__"):
            value.__dict__[name] = new
            return
        if (
            cls is types.FunctionType
            and id(value) not in tracer.outside.known
            and name in ("__name__", "__qualname__", "__doc__", "__module__", "__wrapped__")
        ):
            setattr(value, name, new)
            return
        if isinstance(value, type):
            _store_in_class(tracer, value, name, new)
            return
        if cls is types.FunctionType and name.startswith("__"):
            raise Unsupported(breaks.STORE, name)
        if isinstance(value, types.ModuleType):
            value = tracer.outside.namespace(value.__dict__)
        tracer.outside.overlay(value).values[name] = new
        return
    special = "__delattr__" if new is NULL else "__setattr__"
    hook = lookup_type(cls, special)
    module = fl_module()
    if module != () and isinstance(value, module) and hook is lookup_type(module, special):
        _store_member(tracer, value, name, new)
        return
    if isinstance(hook, types.FunctionType):
        tracer.outside.guard_type_attribute(cls, special)
        tracer.call(hook, (value, name) if new is NULL else (value, name, new), {})
        return
    owner = getattr(hook, "__objclass__", None)
    if getattr(hook, "__name__", special) != special:  # as in `__setattr__ = dict.__setitem__`
        if isinstance(value, dict) and owner is dict and id(value) not in tracer.outside.known:
            tracer.outside.guard_type_attribute(cls, special)
            tracer.call(hook, (value, name) if new is NULL else (value, name, new), {})
            return
        raise Unsupported(breaks.STORE, f"{cls.__name__}.{name}")
    if owner not in (object, dict, collections.OrderedDict, list, set, tuple, types.SimpleNamespace) and not isinstance(
        value, BaseException
    ):
        raise Unsupported(breaks.STORE, f"{cls.__name__}.{name}")
    store_generic(tracer, value, name, new)


def _store_in_class(tracer: Tracer, cls: type, name: str, new: Any) -> None:
    """cls.name = new, for plain values: instances and subclasses find it by `_pending_in_class`."""
    plain = not name.startswith("__") and new is not NULL and lookup_type(type(new), "__get__") is NULL
    old = lookup_type(cls, name)
    plain = plain and (old is NULL or lookup_type(type(old), "__get__") is NULL)
    if not plain or type(cls).__setattr__ is not type.__setattr__ or not (cls.__flags__ & (1 << 9)):
        raise Unsupported(breaks.STORE, f"{cls.__name__}.{name}")
    if isinstance(new, (types.FunctionType, TracedTensor)) or issubclass(cls, (_C.Tensor, fl_module())):
        raise Unsupported(breaks.STORE, f"{cls.__name__}.{name}")
    if id(cls) not in tracer.outside.known:
        tracer.outside.register(cls, tracer.outside.sources.constant(cls))
    tracer.outside.overlay(cls).values[name] = new
    tracer.outside.written_classes = True


def _pending_in_class(tracer: Tracer, cls: type, name: str) -> Any:
    """What the program stored in a class or one of its bases; MISSING when the class has what it had."""
    if tracer.outside.written_classes:
        for base in cls.__mro__:
            stored = tracer.outside.pending(base, name)
            if stored is not MISSING:
                return stored
            if name in base.__dict__:
                break
    return MISSING


def _store_member(tracer: Tracer, module: Any, name: str, new: Any) -> None:
    """Module.__setattr__: a buffer or a plain attribute."""
    known = tracer.outside.known.get(id(module))
    unfinished = "_parameters" not in module.__dict__  # Module.__init__ has not run yet
    if known is None:
        new_modules.store(tracer, module, name, new)
        return
    if new is NULL or isinstance(new, fl_module()) or unfinished:
        raise Unsupported(breaks.STORE, f"{type(module).__name__}.{name}")
    if type(new) is TracedTensor and new.cls is not _C.Tensor:
        raise Unsupported(breaks.STORE, f"parameter {type(module).__name__}.{name}")
    for table in _TABLES:
        members = module.__dict__[table]
        if name in members:
            if table != "_buffers" or not (new is None or type(new) is TracedTensor):
                raise Unsupported(breaks.STORE, f"{type(module).__name__}.{name}")
            if id(members) in tracer.outside.memo and id(members) not in tracer.outside.known:
                raise Unsupported(breaks.STORE, "buffer of a module whose members are in use")
            tracer.outside.register(members, known.source.instance(table))
            known.source.instance(table).dict_item(name).check("present")
            tracer.outside.overlay(members).values[name] = new
            return
        known.source.instance(table).dict_item(name).check("absent")
    store_generic(tracer, module, name, new)


def store_generic(tracer: Tracer, value: Any, name: str, new: Any) -> None:
    """What object.__setattr__ does."""
    cls = type(value)
    raw = lookup_type(cls, name)
    if raw is not NULL:
        kind = type(raw)
        if kind is property:
            tracer.outside.guard_type_attribute(cls, name)
            function = _accessor(tracer, raw, "fdel" if new is NULL else "fset")
            if function is None:
                raise Unsupported(breaks.EXCEPTION, f"property {name} cannot be set")
            tracer.call(function, (value,) if new is NULL else (value, new), {})
            return
        setter = lookup_type(kind, "__delete__" if new is NULL else "__set__")
        if setter is not NULL and kind is not types.MemberDescriptorType:
            if isinstance(setter, types.FunctionType):
                tracer.outside.guard_type_attribute(cls, name)
                tracer.outside.register(raw, tracer.outside.sources.constant(raw))
                tracer.call(setter, (raw, value) if new is NULL else (raw, value, new), {})
                return
            if id(value) not in tracer.outside.known and isinstance(value, BaseException) and new is not NULL:
                setattr(value, name, new)
                return
            raise Unsupported(breaks.STORE, f"{cls.__name__}.{name}")
    store_plain(tracer, value, name, new)


def store_plain(tracer: Tracer, value: Any, name: str, new: Any) -> None:
    """Into the instance itself."""
    if id(value) not in tracer.outside.known:
        is_new_dict = type(value) is collections.OrderedDict and id(value) not in tracer.outside.shadows
        if id(value) not in tracer.outside.fresh and not is_new_dict:
            raise Unsupported(breaks.STORE, f"{type(value).__name__}.{name}")
        try:
            if new is NULL:
                object.__delattr__(value, name)
            else:
                object.__setattr__(value, name, new)
        except Exception as error:
            raise UserError(error) from None
        return
    module = fl_module()
    if module != () and isinstance(value, module):
        tracer.effects.impure = True
    copied = _copied_dict(tracer, getattr(value, "__dict__", None))
    if copied is not None:
        if module != () and isinstance(value, module):
            raise Unsupported(breaks.STORE, "attribute of a module whose __dict__ is in use")
        if new is NULL and name not in copied:
            raise UserError(AttributeError(name))
        copied.pop(name) if new is NULL else copied.__setitem__(name, new)
        return
    if new is NULL and instance_value(tracer, value, name) is MISSING and lookup_type(type(value), name) is NULL:
        raise UserError(AttributeError(name))
    tracer.outside.overlay(value).values[name] = new
