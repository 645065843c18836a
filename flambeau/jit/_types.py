"""The static types of TorchScript: what they print as, which is a subtype of which, and what two of them have in common.

A type prints in two forms. `str(t)` is the form of graphs (`int[]`, `Tensor?`, `Dict(str, int)`); `t.annotation_str` is the
form of source (`List[int]`, `Optional[Tensor]`), in which archives are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class JitType:
    """Base of all types. Types without parameters have one instance each, which `get()` returns."""

    KIND = ""
    GRAPH_NAME = ""
    SOURCE_NAME = ""
    _instance: Any = None

    @classmethod
    def get(cls) -> Any:
        if cls.__dict__.get("_instance") is None:
            cls._instance = cls()
        return cls._instance

    def kind(self) -> str:
        return self.KIND

    @property
    def annotation_str(self) -> str:
        return self.SOURCE_NAME

    def __str__(self) -> str:
        return self.GRAPH_NAME

    def str(self) -> str:
        return str(self)

    def __repr__(self) -> str:  # type: ignore[valid-type]
        return str(self)

    def repr_str(self) -> str:  # type: ignore[valid-type]
        return self.annotation_str

    def contained(self) -> Sequence[JitType]:
        return ()

    containedTypes = contained

    def rebuilt(self, parts: Sequence[JitType]) -> JitType:
        """The same type over other contained types."""
        return self

    def isSubtypeOf(self, other: JitType) -> bool:
        return is_subtype(self, other)

    def _key(self) -> Any:
        return (self.KIND, *self.contained())

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, JitType) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())


def _plain(name: str, graph: str, source: str | None = None) -> type[JitType]:
    return type(name, (JitType,), {"KIND": name, "GRAPH_NAME": graph, "SOURCE_NAME": source or graph})


IntType = _plain("IntType", "int")
FloatType = _plain("FloatType", "float")
BoolType = _plain("BoolType", "bool")
ComplexType = _plain("ComplexType", "complex")
NumberType = _plain("NumberType", "Scalar", "number")
StringType = _plain("StringType", "str")
NoneType = _plain("NoneType", "NoneType")
DeviceObjType = _plain("DeviceObjType", "Device")
StreamObjType = _plain("StreamObjType", "Stream")
StorageType = _plain("StorageType", "Storage")
GeneratorType = _plain("GeneratorType", "Generator", "Generator")
AnyType = _plain("AnyType", "Any")
AnyListType = _plain("AnyListType", "list")
AnyTupleType = _plain("AnyTupleType", "tuple")
AnyClassType = _plain("AnyClassType", "AnyClassType")
AnyEnumType = _plain("AnyEnumType", "AnyEnumType")
PyObjectType = _plain("PyObjectType", "PyObject")
CapsuleType = _plain("CapsuleType", "Capsule")


class TensorType(JitType):
    """A tensor; a traced value also knows its dtype, sizes, strides and device, which only print."""

    KIND, GRAPH_NAME, SOURCE_NAME = "TensorType", "Tensor", "Tensor"

    def __init__(self, example: Any = None, inferred: bool = False) -> None:
        self.inferred = inferred
        self._dtype = self._sizes = self._strides = self._device = None
        self._grad = False
        if example is not None:
            self._dtype, self._sizes = example.dtype, list(example.shape)
            self._strides, self._device = list(example.stride()), example.device
            self._grad = bool(example.requires_grad)

    @classmethod
    def getInferred(cls) -> TensorType:
        return cls(inferred=True)

    @classmethod
    def create_from_tensor(cls, tensor: Any) -> TensorType:
        return cls(tensor)

    def isInferredType(self) -> bool:
        return self.inferred

    def dtype(self) -> Any:
        return self._dtype

    def sizes(self) -> Any:
        return self._sizes

    def strides(self) -> Any:
        return self._strides

    def device(self) -> Any:
        return self._device

    def dim(self) -> Any:
        return None if self._sizes is None else len(self._sizes)

    def scalarType(self) -> str | None:
        from flambeau.jit._values import SCALAR_NAMES, scalar_code

        return None if self._dtype is None else SCALAR_NAMES[scalar_code(self._dtype)]

    def undefined(self) -> bool | None:
        return None

    def with_sizes(self, sizes: Any) -> TensorType:
        """The type with these sizes; None is a size that is not known."""
        twin = TensorType(inferred=self.inferred)
        twin._dtype, twin._device, twin._grad, twin._sizes = self._dtype, self._device, self._grad, list(sizes)
        return twin

    def with_dtype(self, dtype: Any) -> TensorType:
        twin = TensorType(inferred=self.inferred)
        twin._sizes, twin._strides, twin._device, twin._grad = self._sizes, self._strides, self._device, self._grad
        twin._dtype = dtype
        return twin

    def symbolic_sizes(self) -> Any:
        """Sizes; those that are not known are negative."""
        return None if self._sizes is None else [-1 - i if s is None else s for i, s in enumerate(self._sizes)]

    def varyingSizes(self) -> Any:
        return self._sizes

    def requiresGrad(self) -> bool:
        return self._grad

    def requires_grad(self) -> bool:
        return self._grad

    def __str__(self) -> str:
        if self._dtype is None and self._sizes is None:
            return "Tensor"
        parts = [] if self._sizes is None else ["*" if size is None else str(size) for size in self._sizes]
        if self._strides is not None:
            parts.append(f"strides=[{', '.join(map(str, self._strides))}]")
        if self._device is not None:
            parts += [f"requires_grad={int(self._grad)}", f"device={self._device}"]
        return f"{self.scalarType() or 'Tensor'}({', '.join(parts)})"

    def _key(self) -> Any:
        return ("TensorType",)


class _Wrapped(JitType):
    """A type with one element type."""

    def __init__(self, element: JitType) -> None:
        self.element = element

    def contained(self) -> Sequence[JitType]:
        return (self.element,)

    def rebuilt(self, parts: Sequence[JitType]) -> JitType:
        return type(self)(parts[0])

    def getElementType(self) -> JitType:
        return self.element


class ListType(_Wrapped):
    KIND = "ListType"

    @staticmethod
    def ofInts() -> ListType:
        return ListType(INT)

    @staticmethod
    def ofTensors() -> ListType:
        return ListType(TENSOR)

    @staticmethod
    def ofFloats() -> ListType:
        return ListType(FLOAT)

    @staticmethod
    def ofBools() -> ListType:
        return ListType(BOOL)

    @staticmethod
    def ofStrings() -> ListType:
        return ListType(STRING)

    def __str__(self) -> str:
        return f"{self.element}[]"

    @property
    def annotation_str(self) -> str:
        return f"List[{self.element.annotation_str}]"


class OptionalType(_Wrapped):
    KIND = "OptionalType"

    @staticmethod
    def ofTensor() -> OptionalType:
        return OptionalType(TENSOR)

    def __str__(self) -> str:
        return f"{self.element}?"

    @property
    def annotation_str(self) -> str:
        return f"Optional[{self.element.annotation_str}]"


class FutureType(_Wrapped):
    KIND = "FutureType"

    def __str__(self) -> str:
        return f"Future[{self.element}]"

    @property
    def annotation_str(self) -> str:
        return f"Future[{self.element.annotation_str}]"


class AwaitType(FutureType):
    KIND = "AwaitType"

    def __str__(self) -> str:
        return f"Await({self.element})"

    @property
    def annotation_str(self) -> str:
        return f"Await[{self.element.annotation_str}]"


class RRefType(FutureType):
    KIND = "RRefType"

    def __str__(self) -> str:
        return f"RRef({self.element})"

    @property
    def annotation_str(self) -> str:
        return f"RRef[{self.element.annotation_str}]"


class DictType(JitType):
    KIND = "DictType"

    def __init__(self, key: JitType, value: JitType) -> None:
        self.key, self.value = key, value

    def contained(self) -> Sequence[JitType]:
        return (self.key, self.value)

    def rebuilt(self, parts: Sequence[JitType]) -> JitType:
        return DictType(parts[0], parts[1])

    def getKeyType(self) -> JitType:
        return self.key

    def getValueType(self) -> JitType:
        return self.value

    def __str__(self) -> str:
        return f"Dict({self.key}, {self.value})"

    @property
    def annotation_str(self) -> str:
        return f"Dict[{self.key.annotation_str}, {self.value.annotation_str}]"


class TupleType(JitType):
    """A tuple; a named tuple has a qualified name, names of its fields and perhaps defaults. Results of operators have fields, but no name."""

    KIND = "TupleType"

    def __init__(
        self,
        items: Iterable[JitType],
        name: str | None = None,
        fields: Sequence[str] = (),
        defaults: dict[str, Any] | None = None,
        python: Any = None,
    ) -> None:
        self.items = tuple(items)
        self.name, self.fields, self.defaults, self.python = name, tuple(fields), defaults or {}, python

    def contained(self) -> Sequence[JitType]:
        return self.items

    def elements(self) -> list[JitType]:
        return list(self.items)

    def rebuilt(self, parts: Sequence[JitType]) -> JitType:
        return TupleType(parts, self.name, self.fields, self.defaults, self.python)

    def _key(self) -> Any:
        return (self.KIND, self.name, self.fields if self.name is not None else (), *self.items)

    def __str__(self) -> str:
        if self.name is not None:
            inside = ", ".join(f"{n} : {t}" for n, t in zip(self.fields, self.items))
            return f"NamedTuple({inside})"
        return f"({', '.join(map(str, self.items))})" if self.items else "()"

    @property
    def annotation_str(self) -> str:
        if self.name is not None:
            return self.name
        return f"Tuple[{', '.join(t.annotation_str for t in self.items)}]" if self.items else "Tuple[()]"


class UnionType(JitType):
    KIND = "UnionType"

    def __init__(self, items: Iterable[JitType]) -> None:
        self.items = tuple(items)

    def contained(self) -> Sequence[JitType]:
        return self.items

    containedTypes = contained

    def rebuilt(self, parts: Sequence[JitType]) -> JitType:
        return union_of(parts)

    def _key(self) -> Any:
        return (self.KIND, frozenset(self.items))

    def __str__(self) -> str:
        return f"Union({', '.join(map(str, self.items))})"

    @property
    def annotation_str(self) -> str:
        return f"Union[{', '.join(t.annotation_str for t in self.items)}]"


class VarType(JitType):
    """A type variable of a signature: `t` in `t[]`."""

    KIND = "VarType"

    def __init__(self, name: str) -> None:
        self.name = name

    def _key(self) -> Any:
        return (self.KIND, self.name)

    def __str__(self) -> str:
        return self.name

    @property
    def annotation_str(self) -> str:
        return self.name


class FunctionType(JitType):
    KIND, GRAPH_NAME, SOURCE_NAME = "FunctionType", "Function", "Function"

    def __init__(self, function: Any) -> None:
        self.function = function

    def _key(self) -> Any:
        return (self.KIND, id(self.function))


class NamedType(JitType):
    """A type known by a qualified name."""

    name: str

    def qualified_name(self) -> str:
        return self.name

    def _key(self) -> Any:
        return (self.KIND, id(self))

    def __str__(self) -> str:
        return self.name

    @property
    def annotation_str(self) -> str:
        return self.name


class ClassType(NamedType):
    """A class or a module: attributes with types in the order of the file, constants and methods."""

    KIND = "ClassType"

    def __init__(self, name: str, is_module: bool = False) -> None:
        self.name = name
        self.is_module = is_module
        self.attributes: dict[str, JitType] = {}
        self.parameters: set[str] = set()
        self.buffers: set[str] = set()
        self.constants: dict[str, Any] = {}
        self.methods: dict[str, Any] = {}
        self.properties: dict[str, tuple[Any, Any]] = {}
        self.static_methods: dict[str, Any] = {}
        self.pre_hooks: list[Any] = []
        self.hooks: list[Any] = []
        self.hook_names: dict[str, list[str]] = {}  # as an archive lists them
        self.unsupported: dict[str, str] = {}  # attributes that have no type, and why
        self.python: Any = None

    def hasattr(self, name: str) -> bool:
        return name in self.attributes

    def find_method(self, name: str) -> Any:
        return self.methods.get(name)


class InterfaceType(NamedType):
    KIND = "InterfaceType"

    def __init__(self, name: str, is_module: bool = False) -> None:
        self.name, self.is_module = name, is_module
        self.methods: dict[str, Any] = {}  # name -> schema

    def getMethodNames(self) -> list[str]:
        return list(self.methods)


class NativeClassType(NamedType):
    """A class that the library brings with it, such as packed weights of quantized layers; values are Python objects."""

    KIND = "ClassType"
    PREFIX = "__torch__.torch.classes."

    def __init__(self, name: str) -> None:
        self.name = name

    def _key(self) -> Any:
        return (self.KIND, self.name)

    def method(self, name: str) -> Any:
        """The operator that stands for a method: `unpack` of packed weights of a linear layer is `quantized::linear_unpack`."""
        family = self.name.rpartition(".")[2].removesuffix("PackedParamsBase").lower()
        return f"quantized::{family}{'_bag' if family == 'embedding' else ''}_{name}"


class EnumType(NamedType):
    KIND = "EnumType"

    def __init__(self, name: str, value: JitType, members: dict[str, Any], python: Any = None) -> None:
        self.name, self.value, self.members, self.python = name, value, members, python

    def __str__(self) -> str:
        return f"Enum<{self.name}>"


INT, FLOAT, BOOL, COMPLEX = IntType.get(), FloatType.get(), BoolType.get(), ComplexType.get()
NUMBER, STRING, NONE, ANY = NumberType.get(), StringType.get(), NoneType.get(), AnyType.get()
DEVICE, GENERATOR, STREAM = DeviceObjType.get(), GeneratorType.get(), StreamObjType.get()
TENSOR: Any = TensorType.get()
NUMBERS = (INT, FLOAT, COMPLEX)


def optional_of(element: JitType) -> JitType:
    if isinstance(element, OptionalType) or element in (NONE, ANY):
        return element
    if isinstance(element, UnionType):
        return union_of((*element.items, NONE))
    return OptionalType(element)


def union_of(items: Iterable[JitType]) -> JitType:
    """The union without repetitions; with None and one other type it is an Optional."""
    flat: list[JitType] = []
    for item in items:
        parts = item.items if isinstance(item, UnionType) else (item,)
        if isinstance(item, OptionalType):
            inner = item.element
            parts = (*(inner.items if isinstance(inner, UnionType) else (inner,)), NONE)
        for part in parts:
            if any(is_subtype(part, other) for other in flat):
                continue
            flat = [other for other in flat if not is_subtype(other, part)] + [part]
    if len(flat) == 1:
        return flat[0]
    rest = [t for t in flat if t != NONE]
    if len(rest) == 1:
        return OptionalType(rest[0])
    return UnionType(sorted(flat, key=_union_order))


# The order in which unions hold and print their parts.
_UNION_ORDER = (
    "AnyType EnumType AnyEnumType TensorType StorageType TupleType ListType DictType NumberType FloatType ComplexType "
    "FutureType AwaitType RRefType IntType NoneType StringType GeneratorType QuantizerType BoolType OptionalType VarType "
    "DeviceObjType StreamObjType FunctionType ClassType PyObjectType CapsuleType InterfaceType"
).split()


def _union_order(kind: JitType) -> tuple[int, str]:
    place = _UNION_ORDER.index(kind.KIND) if kind.KIND in _UNION_ORDER else len(_UNION_ORDER)
    return place, str(kind)


def members_of(kind: JitType) -> tuple[JitType, ...]:
    """What a value of an Optional or Union may be."""
    if isinstance(kind, OptionalType):
        return (*members_of(kind.element), NONE)
    return kind.items if isinstance(kind, UnionType) else (kind,)


def is_subtype(a: JitType, b: JitType) -> bool:
    """Whether a value of type a can stand where b is expected, without conversion."""
    if a is b or isinstance(b, AnyType) or a == b:
        return True
    if isinstance(b, NumberType):
        return a in NUMBERS or (isinstance(a, UnionType) and all(part in NUMBERS for part in a.items))
    if isinstance(a, (UnionType, OptionalType)):
        return isinstance(b, (UnionType, OptionalType)) and all(is_subtype(part, b) for part in members_of(a))
    if isinstance(b, OptionalType):
        return a == NONE or is_subtype(a, b.element)
    if isinstance(b, UnionType):
        return any(is_subtype(a, part) for part in b.items)
    if isinstance(b, AnyListType):
        return isinstance(a, ListType)
    if isinstance(b, AnyTupleType):
        return isinstance(a, TupleType)
    if isinstance(b, AnyEnumType):
        return isinstance(a, EnumType)
    if isinstance(b, AnyClassType):
        return isinstance(a, ClassType)
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        if b.name is not None and (a.name is None or a.fields != b.fields):
            return False
        return len(a.items) == len(b.items) and all(map(is_subtype, a.items, b.items))
    if isinstance(a, FutureType) and type(a) is type(b):
        return is_subtype(a.element, b.element)
    if isinstance(b, InterfaceType):
        return implements(a, b)
    return False


def implements(a: JitType, interface: InterfaceType) -> bool:
    """Whether a class has the methods of an interface."""
    if not isinstance(a, (ClassType, InterfaceType)) or (interface.is_module and not a.is_module):
        return False
    for name, schema in interface.methods.items():
        own = a.methods.get(name)
        if hasattr(own, "ensure"):
            own = own.ensure().schema  # type: ignore[union-attr]
        if own is None or len(own.arguments) != len(schema.arguments):
            return False
        pairs = zip(own.arguments[1:], schema.arguments[1:])
        if not all(is_subtype(theirs.type, mine.type) for mine, theirs in pairs):
            return False
        if not is_subtype(own.result_type(), schema.result_type()):
            return False
    return True


def unify(a: JitType, b: JitType, or_union: bool = False) -> JitType | None:
    """The type of a value that comes from one of two places; None if there is none."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return TENSOR
    if is_subtype(a, b):
        return b
    if is_subtype(b, a):
        return a
    if a == NONE or b == NONE:
        return optional_of(a if b == NONE else b)
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inside = unify(a.element if isinstance(a, OptionalType) else a, b.element if isinstance(b, OptionalType) else b)
        return None if inside is None else optional_of(inside)
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.items) == len(b.items) and a.name == b.name:
        parts = [unify(x, y) for x, y in zip(a.items, b.items)]
        return None if None in parts else a.rebuilt([p for p in parts if p is not None])
    if isinstance(a, FutureType) and isinstance(b, FutureType):
        inside = unify(a.element, b.element)
        return None if inside is None else FutureType(inside)
    return union_of([a, b]) if or_union else None


def has_variables(kind: JitType) -> bool:
    return isinstance(kind, VarType) or any(has_variables(part) for part in kind.contained())


def bind(formal: JitType, actual: JitType, variables: dict[str, JitType]) -> bool:
    """Match a type with variables against an actual one, entering what the variables stand for."""
    if isinstance(formal, VarType):
        known = variables.get(formal.name)
        joined = actual if known is None else unify(known, actual)
        if joined is None:
            return False
        variables[formal.name] = joined
        return True
    if isinstance(formal, OptionalType):
        if isinstance(actual, OptionalType):
            return bind(formal.element, actual.element, variables)
        return actual == NONE or bind(formal.element, actual, variables)
    if not has_variables(formal):
        return is_subtype(actual, formal)
    if type(formal) is not type(actual) or len(formal.contained()) != len(actual.contained()):
        return False
    return all(bind(f, a, variables) for f, a in zip(formal.contained(), actual.contained()))


def substitute(formal: JitType, variables: dict[str, JitType]) -> JitType:
    if isinstance(formal, VarType):
        return variables.get(formal.name, formal)
    parts = formal.contained()
    return formal.rebuilt([substitute(p, variables) for p in parts]) if parts and has_variables(formal) else formal
