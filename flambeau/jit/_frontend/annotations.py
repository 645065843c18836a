"""Annotations become types: Python objects (`Optional[Tensor]`), and the same names as archives write them."""

from __future__ import annotations

import ast
import enum
import types
import typing
from typing import Any

import flambeau
from flambeau.jit import _types as T
from flambeau.jit import _values
from flambeau.jit._ir import Source
from flambeau.jit.frontend import FrontendError

_ENUMS: dict[type, T.EnumType] = {}
_TUPLES: dict[type, T.TupleType] = {}


def qualified_name(obj: Any, mangle: bool = True) -> str:
    """The name of a function or class in archives: `__torch__` for programs, the dotted module otherwise."""
    name = getattr(obj, "__name__", None) or getattr(obj, "name", None) or type(obj).__name__
    if name == "<lambda>":
        name = "_lambda"
    module = getattr(obj, "__module__", None) or "__main__"
    qualified = getattr(obj, "_jit_override_qualname", None)
    if qualified is not None:
        return str(qualified)
    module = "torch" + module[len("flambeau") :] if module.split(".")[0] == "flambeau" else module
    module = ".".join(
        part if part.isidentifier() else "_" + "".join(c if c.isalnum() else "_" for c in part)
        for part in module.split(".")
    )
    if module == "__main__":
        return f"__torch__.{name}"
    return f"__torch__.{module}.{name}"


def type_of_enum(cls: type) -> T.EnumType:
    if cls not in _ENUMS:
        from flambeau.jit._values import infer_type

        kinds = {infer_type(member.value) for member in cls}
        if len(kinds) != 1:
            raise RuntimeError(
                f"Could not unify type list for enum {cls.__name__}: expected values of one type, got {sorted(map(str, kinds))}"
            )
        kind = kinds.pop()
        if kind not in (T.INT, T.FLOAT, T.STRING):
            raise RuntimeError(f"Cannot create Enum with value type '{kind}', only int, float and string are supported")
        members = {member.name: member for member in cls}
        _ENUMS[cls] = T.EnumType(qualified_name(cls), kind, members, cls)
    return _ENUMS[cls]


def type_of_named_tuple(cls: Any, value: Any = None) -> T.TupleType:
    if cls in _TUPLES:
        return _TUPLES[cls]
    hints = _hints(cls)
    kinds = []
    for _index, field in enumerate(cls._fields):
        if field in hints:
            kinds.append(type_of(hints[field]))
        else:
            kinds.append(T.TensorType(inferred=True))
    tuple_type = T.TupleType(kinds, qualified_name(cls), cls._fields, dict(cls._field_defaults), cls)
    _TUPLES[cls] = tuple_type
    return tuple_type


def _hints(cls: Any) -> dict[str, Any]:
    annotations = dict(getattr(cls, "__annotations__", {}))
    if any(isinstance(a, (str, typing.ForwardRef)) for a in annotations.values()):
        try:
            return typing.get_type_hints(cls)
        except Exception:  # names that are local to a function
            return {k: v for k, v in annotations.items() if not isinstance(v, (str, typing.ForwardRef))}
    return annotations


_PLAIN: dict[Any, T.JitType] = {
    int: T.INT, float: T.FLOAT, bool: T.BOOL, complex: T.COMPLEX, str: T.STRING, None: T.NONE, type(None): T.NONE,
    typing.Any: T.ANY, list: T.AnyListType.get(), tuple: T.AnyTupleType.get(),
}  # fmt: skip


# Annotations that do not say what they contain.
_BARE = {
    id(typing.List): ("List", "List[int]"),  # noqa: UP006
    id(typing.Dict): ("Dict", "Dict[int, int]"),  # noqa: UP006
    id(typing.Tuple): ("Tuple", "Tuple[int]"),  # noqa: UP006
    id(typing.Optional): ("Optional", "Optional[int]"),
}


def type_of(annotation: Any) -> T.JitType:
    """The type of a Python annotation; raises TypeError if TorchScript has none."""
    try:
        if annotation in _PLAIN:
            return _PLAIN[annotation]
    except TypeError:
        pass
    if isinstance(annotation, T.JitType):
        return annotation
    bare = _BARE.get(id(annotation))
    if bare is not None:
        what = "contained types" if bare[0] == "Dict" else "a contained type"
        raise RuntimeError(f"Attempted to use {bare[0]} without {what}. Please add {what}, e.g. {bare[1]}")
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is not None:
        return _generic(origin, inside, annotation)
    if isinstance(annotation, type):
        return _of_class(annotation)
    if isinstance(annotation, typing.TypeVar):
        raise TypeError(f"Unknown type annotation: '{annotation}'")
    if annotation is list or annotation is dict or annotation is tuple or annotation is typing.Optional:
        raise TypeError(f"Unknown type annotation: '{annotation}': expected the types it contains")
    supported = getattr(annotation, "_jit_type_", None)
    if supported is not None:
        return supported
    if annotation is flambeau.device:
        return T.DEVICE
    raise TypeError(f"Unknown type annotation: '{annotation}'")


def _generic(origin: Any, inside: tuple[Any, ...], annotation: Any) -> T.JitType:
    if origin in (typing.Union, types.UnionType):
        return T.union_of([type_of(a) for a in inside])
    if origin in (list, typing.List):  # noqa: UP006
        return T.ListType(type_of(inside[0]))
    if origin in (dict, typing.Dict) or getattr(origin, "__name__", "") == "OrderedDict":  # noqa: UP006
        key = type_of(inside[0])
        if key not in (T.INT, T.STRING, T.FLOAT, T.BOOL, T.COMPLEX, T.TENSOR) and not isinstance(key, T.EnumType):
            raise TypeError(
                f"Cannot create dict for key type '{key}', only int, float, complex, Tensor, device and string keys are supported"
            )
        return T.DictType(key, type_of(inside[1]))
    if origin in (tuple, typing.Tuple):  # noqa: UP006
        return T.TupleType(() if inside in ((), ((),)) else (type_of(a) for a in inside))
    if origin is typing.Final or origin is typing.Annotated or origin is typing.ClassVar:
        return type_of(inside[0])
    from flambeau.futures import Future

    if origin is Future:
        return T.FutureType(type_of(inside[0]))
    if getattr(origin, "__name__", "") in ("_Await", "Await"):
        return T.AwaitType(type_of(inside[0]))
    if getattr(origin, "__name__", "") == "RRef":
        return T.RRefType(type_of(inside[0]))
    raise TypeError(f"Unknown type annotation: '{annotation}'")


def _of_class(cls: type) -> T.JitType:
    from flambeau.nn.parameter import Parameter

    if cls is flambeau.Tensor or issubclass(cls, Parameter):
        return T.TENSOR
    if cls is flambeau.device:
        return T.DEVICE
    if cls in _values.ENUMERATED:
        return T.INT
    if cls.__name__.endswith("Tensor") and cls.__module__.partition(".")[0] in ("flambeau", "torch"):
        return T.TENSOR  # LongTensor and the like
    if issubclass(cls, flambeau._C.Generator):
        return T.GENERATOR
    if cls is flambeau.Size:
        return T.ListType(T.INT)
    if issubclass(cls, enum.Enum):
        return type_of_enum(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return type_of_named_tuple(cls)
    if cls.__name__ == "number" or cls.__name__ == "Number":
        return T.NUMBER
    interface = getattr(cls, "__torch_script_interface__", None)
    if interface is not None:
        return interface
    from flambeau.jit._frontend.classes import script_class
    from flambeau.nn import Module

    if issubclass(cls, Module):
        raise TypeError(
            f"Type '{cls.__module__}.{cls.__name__}' cannot be compiled since it inherits from nn.Module, consider passing an "
            "instance instead"
        )
    return script_class(cls)


def type_of_node(node: ast.expr, resolver: Any, source: Source) -> T.JitType:
    """The type of an annotation's syntax."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.copy_location(ast.parse(node.value, mode="eval").body, node)
    if hasattr(resolver, "type_of"):
        return resolver.type_of(node, source)
    broadcasting = _broadcasting(node, resolver)
    if broadcasting is not None:
        return broadcasting
    try:
        annotation = resolver.evaluate(node)
        if isinstance(annotation, str):
            return type_of_node(ast.parse(annotation, mode="eval").body, resolver, source)
        return type_of(_resolved(annotation, resolver))
    except (TypeError, NameError, KeyError, AttributeError) as error:
        text = ast.unparse(node)
        raise RuntimeError(f"Unknown type name '{text}': {error}:\n{source.range_of(node).highlight()}") from error


def _resolved(annotation: Any, resolver: Any) -> Any:
    """The annotation with forward references inside it looked up."""
    inside = typing.get_args(annotation)
    if not any(isinstance(a, (str, typing.ForwardRef)) or typing.get_args(a) for a in inside):
        return annotation
    parts = []
    for part in inside:
        if isinstance(part, typing.ForwardRef):
            part = resolver.evaluate(ast.parse(part.__forward_arg__, mode="eval").body)
        parts.append(_resolved(part, resolver))
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(parts)]
    if origin in (typing.Annotated, typing.Final):
        return parts[0]
    return (
        annotation.copy_with(tuple(parts))
        if hasattr(annotation, "copy_with")
        else types.GenericAlias(origin, tuple(parts))
    )


def _broadcasting(node: ast.expr, resolver: Any) -> T.JitType | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        inner = _broadcasting(node.left, resolver)
        return None if inner is None else T.OptionalType(inner)
    if not isinstance(node, ast.Subscript):
        return None
    name = (
        node.value.id
        if isinstance(node.value, ast.Name)
        else node.value.attr
        if isinstance(node.value, ast.Attribute)
        else ""
    )
    optional = name == "Optional"
    if optional and isinstance(node.slice, ast.Subscript):
        inner = _broadcasting(node.slice, resolver)
        return None if inner is None else T.OptionalType(inner)
    if name.startswith("BroadcastingList"):
        list_type = T.ListType(type_of(resolver.evaluate(node.slice)))
        return list_type
    return None


def broadcast_length(node: ast.expr | None) -> int | None:
    """n of an annotation `BroadcastingListn[...]`."""
    if isinstance(node, ast.BinOp):
        node = node.left
    while isinstance(node, ast.Subscript):
        name = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
        if name.startswith("BroadcastingList"):
            return int(name[len("BroadcastingList") :])
        node = node.slice
    return None


# ---------------------------------------------------------------------------------------------- archives

_NAMES: dict[str, T.JitType] = {
    "Tensor": T.TENSOR, "int": T.INT, "float": T.FLOAT, "bool": T.BOOL, "complex": T.COMPLEX, "str": T.STRING,
    "number": T.NUMBER, "Scalar": T.NUMBER, "None": T.NONE, "NoneType": T.NONE, "Device": T.DEVICE, "Generator": T.GENERATOR,
    "Any": T.ANY, "Stream": T.STREAM, "Layout": T.INT, "list": T.AnyListType.get(), "tuple": T.AnyTupleType.get(),
    "Storage": T.StorageType.get(), "Capsule": T.CapsuleType.get(), "AnyClassType": T.AnyClassType.get(),
    "AnyEnumType": T.AnyEnumType.get(), "PyObject": T.PyObjectType.get(), "Device_": T.DEVICE, "t": T.VarType("t"),
}  # fmt: skip


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` as text, None for other syntax."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def archive_type(node: ast.AST, named: Any, source: Source) -> T.JitType:
    """The type that an archive's source spells; `named` finds types by qualified name."""
    if isinstance(node, ast.Constant) and node.value is None:
        return T.NONE
    name = dotted(node)
    if name is not None:
        kind = _NAMES.get(name) or named(name)
        if kind is None:
            raise RuntimeError(f"Unknown type name '{name}':\n{source.range_of(node).highlight()}")
        return kind
    if isinstance(node, ast.Subscript):
        head = dotted(node.value)
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        inside = [archive_type(part, named, source) for part in parts]
        if head == "Tuple":
            return T.TupleType(inside)
        makers: dict[Any, Any] = {
            "List": T.ListType, "Optional": T.optional_of, "Future": T.FutureType, "Await": T.AwaitType, "Final": lambda t: t,
            "RRef": T.RRefType, "Dict": T.DictType, "Union": lambda *items: T.union_of(items),
        }  # fmt: skip
        if head in makers:
            return makers[head](*inside)
    raise FrontendError(source.range_of(node), f"Expected a type, got {ast.unparse(node)}")
