"""How values of TorchScript are represented at run time, and their exchange with Python.

A value is a Python object: tensors, numbers, strings, lists, dicts and tuples are themselves; a dtype, layout or memory
format is the integer that archives hold; an instance of a scripted class is a `ScriptObject`. What Python passes in is checked against the declared type, and
containers are copied, because a scripted function has its own.
"""

from __future__ import annotations

import enum
import operator
from typing import Any

import flambeau
from flambeau import _C
from flambeau._tensor.quantized_types import QuantizedType, qscheme
from flambeau.jit import _types as T

_SCALARS = (
    ("uint8", "Byte"), ("int8", "Char"), ("int16", "Short"), ("int32", "Int"), ("int64", "Long"), ("float16", "Half"),
    ("float32", "Float"), ("float64", "Double"), ("complex32", "ComplexHalf"), ("complex64", "ComplexFloat"),
    ("complex128", "ComplexDouble"), ("bool", "Bool"), ("qint8", "QInt8"), ("quint8", "QUInt8"), ("qint32", "QInt32"),
    ("bfloat16", "BFloat16"), ("quint4x2", "QUInt4x2"), ("quint2x4", "QUInt2x4"),
)  # fmt: skip
SCALAR_NAMES = [name for _, name in _SCALARS]
_CODES = {name: code for code, (name, _) in enumerate(_SCALARS)}
_CODES |= {"float8_e5m2": 23, "float8_e4m3fn": 24, "uint16": 27, "uint32": 28, "uint64": 29}
_SCHEMES = (
    "per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric",
    "per_channel_affine_float_qparams",
)  # fmt: skip
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc")
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_DTYPES: dict[int, Any] = {}
# Methods of tensors that are conversions: archives have `to` in their place.
CASTS = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "cfloat": "complex64", "cdouble": "complex128",
    "bool": "bool", "byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64",
}  # fmt: skip


def scalar_code(dtype: Any) -> int:
    """The number of a dtype in archives."""
    return _CODES[str(dtype).rpartition(".")[2]]


def dtype_of(code: Any) -> Any:
    if not isinstance(code, int):
        return code
    if not _DTYPES:
        for name, number in _CODES.items():
            if hasattr(flambeau, name):
                _DTYPES[number] = getattr(flambeau, name)
    if code not in _DTYPES:
        raise RuntimeError(f"[jit] expected the number of a dtype, got {code}")
    return _DTYPES[code]


def layout_of(code: Any) -> Any:
    return getattr(flambeau, _LAYOUTS[code]) if isinstance(code, int) else code


def memory_format_of(code: Any) -> Any:
    return getattr(flambeau, _FORMATS[code]) if isinstance(code, int) else code


def layout_code(layout: Any) -> int:
    return _LAYOUTS.index(str(layout).rpartition(".")[2])


def memory_format_code(memory_format: Any) -> int:
    return _FORMATS.index(str(memory_format).rpartition(".")[2])


def enumerated(value: Any) -> Any:
    """The integer for a dtype, layout or memory format; other values as they are."""
    if isinstance(value, flambeau.dtype):
        return scalar_code(value)
    if isinstance(value, flambeau.layout):
        return layout_code(value)
    if isinstance(value, flambeau.memory_format):
        return memory_format_code(value)
    if isinstance(value, QuantizedType):
        return scalar_code(value)
    if isinstance(value, qscheme):
        return _SCHEMES.index(value.name)
    return value


# What Python has objects for and programs have integers for.
ENUMERATED = (flambeau.dtype, flambeau.layout, flambeau.memory_format, qscheme)


class ScriptObject:
    """An instance of a class that TorchScript compiled: attributes, and the methods of its class."""

    def __init__(self, kind: T.ClassType) -> None:
        object.__setattr__(self, "_type_", kind)

    def _type(self) -> T.ClassType:
        return self._type_

    def _get_method(self, name: str) -> Any:
        return getattr(self, name)

    def _has_method(self, name: str) -> bool:
        return name in self._type_.methods

    def _method_names(self) -> list[str]:
        return list(self._type_.methods)

    def qualified_name(self) -> str:
        return self._type_.name

    def hasattr(self, name: str) -> bool:
        return name in self._type_.attributes

    def setattr(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def getattr(self, name: str) -> Any:
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        kind = object.__getattribute__(self, "_type_")
        if name in kind.properties:
            return kind.properties[name][0].run()(self)
        method = kind.methods.get(name)
        if method is None:
            raise AttributeError(f"'{kind.name}' object has no attribute or method '{name}'")
        from flambeau.jit._functions import BoundMethod

        return BoundMethod(self, method)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self._type_
        if name in kind.properties:
            kind.properties[name][1].run()(self, value)
            return
        if name in kind.attributes:
            value = to_script(value, kind.attributes[name], name)
        object.__setattr__(self, name, value)

    def _operator(self, name: str, *args: Any) -> Any:
        method = self._type_.methods.get(name)
        if method is None:
            raise NotImplementedError(f"[{self._type_.name}] expected the method {name}, got a class without it")
        return method.run()(self, *args)

    def __repr__(self) -> str:
        if "__repr__" in self._type_.methods:
            return self._operator("__repr__")
        return f"<torch.ScriptObject of {self._type_.name}>"

    def __str__(self) -> str:
        return self._operator("__str__") if "__str__" in self._type_.methods else repr(self)

    def __deepcopy__(self, memo: Any) -> ScriptObject:
        import copy

        twin = ScriptObject(self._type_)
        memo[id(self)] = twin
        for name in self._type_.attributes:
            object.__setattr__(twin, name, copy.deepcopy(getattr(self, name), memo))
        return twin


def _forwarded(name: str) -> Any:
    def method(self: ScriptObject, *args: Any) -> Any:
        return self._operator(name, *args)

    return method


for _name in (
    "__len__ __bool__ __add__ __sub__ __mul__ __truediv__ __lt__ __le__ __gt__ __ge__ __getitem__ __setitem__ __contains__ "
    "__call__ __neg__ __pow__ __mod__ __and__ __or__ __xor__ __iadd__ __floordiv__ __delitem__ __enter__ __exit__ __int__ "
    "__float__"
).split():
    setattr(ScriptObject, _name, _forwarded(_name))


def _eq(self: ScriptObject, other: object) -> bool:
    return self is other if "__eq__" not in self._type_.methods else self._operator("__eq__", other)


def _bool(self: ScriptObject) -> bool:
    if "__bool__" in self._type_.methods:
        return self._operator("__bool__")
    return self._operator("__len__") != 0 if "__len__" in self._type_.methods else True


ScriptObject.__eq__ = _eq  # type: ignore[method-assign, assignment]
ScriptObject.__hash__ = object.__hash__  # type: ignore[method-assign]
ScriptObject.__bool__ = _bool


# ---------------------------------------------------------------------------------------------- types of values


def infer_type(value: Any, element_of_empty: bool = True) -> T.JitType:
    """The type that TorchScript gives a Python value; raises TypeError with the reason if there is none."""
    plain = {bool: T.BOOL, int: T.INT, float: T.FLOAT, complex: T.COMPLEX, str: T.STRING, type(None): T.NONE}
    kind = plain.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, _C.Tensor):
        return T.TENSOR
    if isinstance(value, ENUMERATED):
        return T.INT
    if isinstance(value, flambeau.device):
        return T.DEVICE
    if isinstance(value, flambeau.Generator):
        return T.GENERATOR
    if isinstance(value, ScriptObject):
        return value._type()
    if isinstance(value, enum.Enum):
        from flambeau.jit._frontend.annotations import type_of_enum

        return type_of_enum(type(value))
    return _infer_container(value, element_of_empty)


def _infer_container(value: Any, element_of_empty: bool) -> T.JitType:
    if isinstance(value, flambeau.Size):
        return T.ListType(T.INT)
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            from flambeau.jit._frontend.annotations import type_of_named_tuple

            return type_of_named_tuple(type(value), value)
        return T.TupleType(infer_type(v) for v in value)
    if isinstance(value, list):
        if not value:
            if element_of_empty:
                return T.ListType(T.TENSOR)
            raise TypeError("List trace inputs must have elements")
        return T.ListType(_common([infer_type(v) for v in value], "List"))
    if isinstance(value, dict):
        if not value:
            if element_of_empty:
                return T.DictType(T.STRING, T.TENSOR)
            raise TypeError("Dictionary inputs must have entries")
        keys = _common([infer_type(k) for k in value], "Dict key")
        return T.DictType(keys, _common([infer_type(v) for v in value.values()], "Dict value"))
    from flambeau.futures import Future

    if isinstance(value, Future):
        return T.FutureType(T.ANY)
    script_type = getattr(value, "_script_type", None)
    if isinstance(script_type, T.ClassType):
        return script_type
    from flambeau.jit._frontend.classes import compiled_class

    kind = compiled_class(type(value))
    if kind is not None:
        return kind
    native_class = getattr(value, "script_class", None)
    if isinstance(native_class, str):
        return T.NativeClassType(native_class)
    raise TypeError(f"Cannot infer concrete type of torch.nn.Module or object of Python type {type(value).__name__}")


def _common(kinds: list[T.JitType], what: str) -> T.JitType:
    joined: T.JitType | None = kinds[0]
    for kind in kinds[1:]:
        joined = T.unify(joined, kind) if joined is not None else None
    if joined is None:
        raise TypeError(
            f"{what} inputs to traced functions must have consistent type: {' and '.join(map(str, kinds[:2]))}"
        )
    return joined


# ---------------------------------------------------------------------------------------------- from Python, checked


class Mismatch(Exception):
    """A value is not of the type that was declared."""


def to_script(value: Any, kind: T.JitType, what: str = "value") -> Any:
    """The value as a scripted function holds it; raises RuntimeError when it is of another type."""
    try:
        return convert(value, kind)
    except Mismatch:
        raise RuntimeError(
            f"Could not cast attribute '{what}' to type {kind.annotation_str}: expected a value of type "
            f"'{kind.annotation_str}' but got '{type(value).__name__}'"
        ) from None


def convert(value: Any, kind: T.JitType) -> Any:
    converter = _CONVERTERS.get(type(kind))
    if converter is None:
        raise Mismatch
    return converter(value, kind)


def _tensor(value: Any, kind: Any) -> Any:
    if isinstance(value, _C.Tensor):
        return value
    raise Mismatch


def _int(value: Any, kind: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, (bool, enum.Enum)):
        return value
    if isinstance(value, ENUMERATED):
        return enumerated(value)
    if isinstance(value, _C.Tensor):
        return int(_only(value))
    if not hasattr(type(value), "__index__"):
        raise Mismatch
    return operator.index(value) if not isinstance(value, bool) else int(value)


def _float(value: Any, kind: Any) -> Any:
    if type(value) is float:
        return value
    if isinstance(value, _C.Tensor):
        return float(_only(value))
    if isinstance(value, (int, float)) or (type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0):
        return float(value)
    raise Mismatch


def _complex(value: Any, kind: Any) -> Any:
    if isinstance(value, _C.Tensor):
        return complex(_only(value))
    if not isinstance(value, (int, float, complex)):
        raise Mismatch
    return complex(value)


def _bool_of(value: Any, kind: Any) -> Any:
    if isinstance(value, _C.Tensor):
        return bool(_only(value))
    if isinstance(value, int) or (type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0):
        return bool(value)
    raise Mismatch


def _only(value: Any) -> Any:
    """The number in a tensor of one element."""
    if value.numel() != 1:
        raise Mismatch
    return value.item()


def _number(value: Any, kind: Any) -> Any:
    if isinstance(value, (int, float, complex)):
        return value
    raise Mismatch


def _instance(*classes: type) -> Any:
    def check(value: Any, kind: Any) -> Any:
        if isinstance(value, classes):
            return value
        raise Mismatch

    return check


def _device(value: Any, kind: Any) -> Any:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return flambeau.device(value)
    if isinstance(value, flambeau.device):
        return value
    raise Mismatch


def _list(value: Any, kind: Any) -> Any:
    if isinstance(value, ScriptList):
        return value
    if not isinstance(value, (list, tuple)) and type(value).__module__ != "numpy":
        raise Mismatch
    if isinstance(value, tuple) and not isinstance(value, flambeau.Size) and kind.element == T.TENSOR and not value:
        return []
    return [convert(item, kind.element) for item in value]


def _dict(value: Any, kind: Any) -> Any:
    if isinstance(value, ScriptDict):
        return value
    if not isinstance(value, dict):
        raise Mismatch
    return {convert(k, kind.key): convert(v, kind.value) for k, v in value.items()}


def _tuple(value: Any, kind: Any) -> Any:
    if not isinstance(value, tuple) or len(value) != len(kind.items):
        raise Mismatch
    items = [convert(item, part) for item, part in zip(value, kind.items)]
    if kind.name is not None:
        return named_tuple_class(kind)(*items)
    return tuple(items)


def _optional(value: Any, kind: Any) -> Any:
    return None if value is None else convert(value, kind.element)


def _union(value: Any, kind: Any) -> Any:
    try:
        actual = infer_type(value)
        if any(actual == part for part in kind.items):
            return convert(value, actual)
    except TypeError:
        pass
    for part in kind.items:
        if isinstance(value, (bool, _C.Tensor)) and (part in T.NUMBERS or part == T.BOOL):
            continue  # what a plain argument is converted to is another type here
        try:
            return convert(value, part)
        except Mismatch:
            continue
    raise Mismatch


def _class(value: Any, kind: Any) -> Any:
    if isinstance(value, ScriptObject):
        if value._type() is kind:
            return value
        raise Mismatch
    script_type = getattr(value, "_script_type", None)
    if script_type is kind:
        return value
    if kind.python is not None and isinstance(value, kind.python):
        twin = ScriptObject(kind)
        for name, part in kind.attributes.items():
            object.__setattr__(twin, name, convert(getattr(value, name), part))
        return twin
    raise Mismatch


def _interface(value: Any, kind: Any) -> Any:
    own = value._type() if isinstance(value, ScriptObject) else getattr(value, "_script_type", None)
    if own is None:
        from flambeau.jit._frontend.classes import compiled_class

        own = compiled_class(type(value))
        if own is not None and T.implements(own, kind):
            return _class(value, own)
    if own is not None and T.implements(own, kind):
        return value
    raise Mismatch


def _enum(value: Any, kind: Any) -> Any:
    if isinstance(value, enum.Enum) and (kind.python is None or type(value) is kind.python):
        return value
    raise Mismatch


def _any(value: Any, kind: Any) -> Any:
    try:
        return convert(value, infer_type(value))
    except TypeError:
        raise Mismatch from None


def _future(value: Any, kind: Any) -> Any:
    return value


def _native_object(value: Any, kind: Any) -> Any:
    if getattr(value, "script_class", None) != kind.name:
        raise Mismatch
    return value


_CONVERTERS: dict[type, Any] = {
    T.TensorType: _tensor, T.IntType: _int, T.FloatType: _float, T.BoolType: _bool_of, T.ComplexType: _complex,
    T.NumberType: _number, T.StringType: _instance(str), T.NoneType: _instance(type(None)), T.DeviceObjType: _device,
    T.ListType: _list, T.DictType: _dict, T.TupleType: _tuple, T.OptionalType: _optional, T.UnionType: _union,
    T.ClassType: _class, T.InterfaceType: _interface, T.EnumType: _enum, T.AnyType: _any, T.FutureType: _future,
    T.GeneratorType: _instance(_C.Generator), T.AwaitType: _future, T.PyObjectType: _future, T.StreamObjType: _future,
    T.RRefType: _future, T.FunctionType: _future, T.StorageType: _future, T.AnyListType: _instance(list),
    T.AnyTupleType: _instance(tuple), T.NativeClassType: _native_object,
}  # fmt: skip


class ScriptList(list):
    """A list that scripted functions share with Python instead of copying it; its elements have one type."""

    def __init__(self, items: Any = (), kind: T.JitType | None = None) -> None:
        super().__init__(items)
        self.element_type = kind.element if isinstance(kind, T.ListType) else None

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            value = [_element(item, self.element_type) for item in value]
            super().__setitem__(index, value)
        else:
            super().__setitem__(index, _element(value, self.element_type))

    def append(self, value: Any) -> None:
        super().append(_element(value, self.element_type))

    def insert(self, index: Any, value: Any) -> None:
        super().insert(index, _element(value, self.element_type))

    def extend(self, values: Any) -> None:
        super().extend([_element(value, self.element_type) for value in values])


class ScriptDict(dict):
    """A dict that scripted functions share with Python instead of copying it; its keys and values have one type."""

    def __init__(self, items: Any = (), kind: T.JitType | None = None) -> None:
        super().__init__(items)
        self.types = (kind.key, kind.value) if isinstance(kind, T.DictType) else (None, None)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_element(key, self.types[0]), _element(value, self.types[1]))

    def __str__(self) -> str:
        from flambeau.jit._arithmetic import to_text

        return to_text(self)


def _element(value: Any, kind: T.JitType | None) -> Any:
    try:
        return value if kind is None else convert(value, kind)
    except Mismatch:
        raise TypeError(
            f"[jit] expected an element of type {kind.annotation_str}, got {type(value).__name__}"  # type: ignore[union-attr]
        ) from None


_NAMED: dict[T.TupleType, Any] = {}


def named_tuple_class(kind: T.TupleType) -> Any:
    """The Python class for values of a named tuple."""
    if kind.python is not None:
        return kind.python
    if kind not in _NAMED:
        from collections import namedtuple

        _NAMED[kind] = namedtuple(str(kind.name).rpartition(".")[2], kind.fields)
    return _NAMED[kind]
