"""Reading archives: definitions are compiled from `code/` by the front end when something names them, objects come from `data.pkl`.

Nothing in a file is run as Python. Its source is parsed, and only what the language of scripts has is compiled.
"""

from __future__ import annotations

import ast
import enum
import functools
from typing import Any

from flambeau import serialization
from flambeau.jit import _types as T
from flambeau.jit import _values
from flambeau.jit._archive.pickling import ArchiveUnpickler
from flambeau.jit._frontend.annotations import archive_type, dotted
from flambeau.jit._frontend.callables import declared_signature
from flambeau.jit._frontend.source import Declaration, Parameter
from flambeau.jit._frontend.sugar import (
    Builtin,
    ClassRef,
    EnumRef,
    FunctionRef,
    NamedTupleRef,
    OpNamespace,
    Special,
    Sugared,
)
from flambeau.jit._functions import Function
from flambeau.jit._ir import Source
from flambeau.jit._schemas import Argument, Signature
from flambeau.serialization import unpickler

__all__ = ["CodeReader", "load"]

_MAX_DEPTH = 900  # of nested syntax, far below what would exhaust the stack
_BUILTINS = (
    "annotate",
    "int",
    "float",
    "bool",
    "str",
    "list",
    "getattr",
    "range",
    "isinstance",
    "print",
    "fork",
    "awaitable",
    "sorted",
    "tuple",
    "complex",
    "len",
    "hasattr",
    "dict",
)


@functools.cache
def _changed() -> dict[str, tuple[int, str]]:
    """Operators that changed: the last version with the old meaning, and the function that has it."""
    from flambeau.jit._library import upgraders

    parts = [(function, function.rpartition("_0_")) for function in upgraders.__all__]
    return {name: (int(last), function) for function, (name, _, last) in parts}


def _packed_type(node: ast.ClassDef) -> T.JitType:
    """The type of packed weights, which PyTorch before 1.6 declared as tensors: of the layer that the class packs them for."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr.removesuffix("_fp16").endswith("_prepack"):
            layer = part.attr.removesuffix("_fp16").removesuffix("_prepack").capitalize()
            return T.NativeClassType(f"{T.NativeClassType.PREFIX}quantized.{layer}PackedParamsBase")
    return T.TENSOR


class _Torch(Sugared):
    """`torch` in archives: every name is an operator, in the meaning of the archive's version."""

    what = "torch"

    def __init__(self, version: int) -> None:
        self.version = version

    def attr(self, e: Any, name: str, node: Any) -> Any:
        last, function = _changed().get(name, (0, ""))
        return _Changed(name, function) if self.version <= last else Builtin(f"aten::{name}")


class _Changed(Sugared):
    """An operator that meant something else when the archive was written."""

    what = "builtin operator"

    def __init__(self, name: str, function: str) -> None:
        self.name, self.function = name, function

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        from flambeau.jit._library import library_function

        values = [e.as_value(a, node) for a in args]
        keywords = {k for k, v in kwargs.items() if e.as_value(v, node).type() != T.NONE}
        on_numbers = self.name.startswith("div") and not any(isinstance(v.type(), T.TensorType) for v in values)
        if len(values) != 2 or keywords & {"dtype", "rounding_mode"} or on_numbers:
            return Builtin(f"aten::{self.name}").call(e, args, kwargs, node)
        if self.name.startswith("div") and not isinstance(values[1].type(), T.TensorType):
            values[1] = e.operator("prim::NumToTensor", [values[1]], node)
        elif not self.name.startswith("div"):
            values = [e.operator("aten::Float", [v], node) if v.type() == T.INT else v for v in values]
        upgrader = library_function(f"upgraders.{self.function}")
        return FunctionRef([getattr(upgrader, "function", upgrader)]).call(e, values, {}, node)


class _Constants(Sugared):
    what = "CONSTANTS"

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values

    def attr(self, e: Any, name: str, node: Any) -> Any:
        if not name.startswith("c") or not name[1:].isdigit() or int(name[1:]) >= len(self.values):
            raise e.error(node, f"expected a constant of the archive, got {name}")
        return e.graph.insertConstant(self.values[int(name[1:])])


class _Path(Sugared):
    """A prefix of qualified names: `__torch__.torch.nn`."""

    def __init__(self, reader: CodeReader, name: str) -> None:
        self.reader, self.name = reader, name
        self.what = f"namespace {name}"

    def attr(self, e: Any, name: str, node: Any) -> Any:
        return self.reader.named(e, f"{self.name}.{name}", node)


class CodeReader:
    """The definitions of an archive by qualified name, and the resolver of names in its functions."""

    def __init__(self, read: Any, names: list[str], version: int = 10) -> None:
        self.read, self.version = read, version
        self.available = {n for n in names if n.startswith("code/") and n.endswith(".py")}
        self.definitions: dict[str, tuple[Any, Source]] = {}
        self.loaded: set[str] = set()
        self.types: dict[str, T.JitType] = {}
        self.functions: dict[str, Function] = {}
        self.constants: tuple[Any, ...] = ()
        self.namespaces: set[str] = set()
        for name in self.available:
            parts = name[len("code/") : -len(".py")].split("/")
            for end in range(1, len(parts) + 1):
                self.namespaces.add(".".join(parts[:end]))

    # ------------------------------------------------------------------ definitions

    def _definition(self, qualified: str) -> tuple[Any, Source] | None:
        module = qualified.rpartition(".")[0]
        file = f"code/{module.replace('.', '/')}.py"
        if module not in self.loaded and file in self.available:
            self.loaded.add(module)
            self._parse(module, file)
        return self.definitions.get(qualified)

    def _parse(self, module: str, file: str) -> None:
        try:
            text = self.read(file).decode("utf-8")
        except UnicodeDecodeError as error:
            raise RuntimeError(f"[jit.load] expected source in UTF-8 in {file}, got {error}") from None
        source = Source(text, file)
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise RuntimeError(f"[jit.load] expected source of TorchScript in {file}, got {error}") from None
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.definitions[f"{module}.{node.name}"] = (node, source)

    def named(self, e: Any, qualified: str, node: Any) -> Any:
        """What a qualified name in a function means."""
        definition = self._definition(qualified)
        if definition is None:
            if qualified in self.namespaces:
                return _Path(self, qualified)
            raise e.error(node, f"Unknown name '{qualified}'")
        if isinstance(definition[0], ast.FunctionDef):
            return FunctionRef([self.function(qualified)])
        kind = self.type(qualified)
        if isinstance(kind, T.ClassType):
            return ClassRef(kind)
        if isinstance(kind, T.TupleType):
            return NamedTupleRef(kind)
        if isinstance(kind, T.EnumType):
            return EnumRef(kind)
        raise e.error(node, f"{qualified} cannot be used as a value")

    def function(self, qualified: str) -> Function:
        if qualified not in self.functions:
            node, source = self.definitions[qualified]
            self.functions[qualified] = self._function(qualified, node, source, None)
        return self.functions[qualified]

    def _function(self, name: str, node: ast.FunctionDef, source: Source, self_type: T.JitType | None) -> Function:
        def declare() -> Declaration:
            parameters = []
            arguments = [*node.args.posonlyargs, *node.args.args]
            plain = len(arguments) - len(node.args.defaults)
            for index, argument in enumerate([*arguments, *node.args.kwonlyargs]):
                kind = self_type if index == 0 and self_type is not None else None
                if kind is None and argument.annotation is not None:
                    kind = self.type_of(argument.annotation, source)
                default, has = None, False
                if plain <= index < len(arguments):
                    default, has = self._literal(node.args.defaults[index - plain]), True
                parameters.append(Parameter(argument.arg, kind, default, has, index >= len(arguments)))
            result = None if node.returns is None else self.type_of(node.returns, source)
            declaration = Declaration(node.name, parameters, result, node.body, source, self, node)
            declaration.in_archive = True
            if result is not None:
                function.schema = declared_signature(declaration)
            return declaration

        function = Function(name, declare)
        return function

    def _literal(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and dotted(node.func) == "annotate":
            return self._literal(node.args[1])
        if isinstance(node, ast.Call) and dotted(node.func) == "torch.device":
            import flambeau

            return flambeau.device(self._literal(node.args[0]))
        if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
            return float(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._literal(node.operand)
        if isinstance(node, ast.Attribute):
            name = dotted(node) or ""
            kind = self.type(name.rpartition(".")[0]) if name.startswith("__torch__") else None
            if isinstance(kind, T.EnumType) and node.attr in kind.members:
                return kind.members[node.attr]
        if isinstance(node, (ast.List, ast.Tuple)):
            items = [self._literal(x) for x in node.elts]
            return items if isinstance(node, ast.List) else tuple(items)
        try:
            return _decoded(ast.literal_eval(node))
        except (ValueError, SyntaxError):
            raise RuntimeError(f"[jit.load] expected a constant, got {ast.unparse(node)}") from None

    # ------------------------------------------------------------------ types

    def type_of(self, node: ast.expr, source: Source) -> T.JitType:
        return archive_type(node, self.type, source)

    def type(self, qualified: str) -> T.JitType | None:
        if qualified in self.types:
            return self.types[qualified]
        if qualified.startswith(T.NativeClassType.PREFIX):
            return T.NativeClassType(qualified)
        definition = self._definition(qualified)
        if definition is None or not isinstance(definition[0], ast.ClassDef):
            return None
        node, source = definition
        base = dotted(node.bases[0]) if node.bases else ""
        if base == "NamedTuple":
            return self._named_tuple(qualified, node, source)
        if base == "Enum":
            return self._enum(qualified, node)
        if base in ("Interface", "ModuleInterface"):
            return self._interface(qualified, node, source, base == "ModuleInterface")
        return self._class(qualified, node, source, base == "Module")

    def _named_tuple(self, qualified: str, node: ast.ClassDef, source: Source) -> T.TupleType:
        fields, kinds, defaults = [], [], {}
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                fields.append(part.target.id)
                kinds.append(self.type_of(part.annotation, source))
                if part.value is not None:
                    defaults[part.target.id] = self._literal(part.value)
        tuple_type = T.TupleType(kinds, qualified, fields, defaults)
        self.types[qualified] = tuple_type
        return tuple_type

    def _enum(self, qualified: str, node: ast.ClassDef) -> T.EnumType:
        values = {}
        for part in node.body:
            if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
                values[part.targets[0].id] = self._literal(part.value)
        if not values:
            raise RuntimeError(f"[jit.load] expected members of the enumeration {qualified}, got none")
        python: Any = enum.Enum(qualified.rpartition(".")[2], values)  # type: ignore[misc]
        members = {name: python[name] for name in values}
        enum_type = T.EnumType(qualified, _values.infer_type(next(iter(values.values()))), members, python)
        from flambeau.jit._frontend.annotations import _ENUMS

        _ENUMS[python] = enum_type
        self.types[qualified] = enum_type
        return enum_type

    def _interface(self, qualified: str, node: ast.ClassDef, source: Source, is_module: bool) -> T.InterfaceType:
        interface = T.InterfaceType(qualified, is_module)
        self.types[qualified] = interface
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                arguments = [Argument("self", interface)]
                for argument in part.args.args[1:]:
                    kind = T.TENSOR if argument.annotation is None else self.type_of(argument.annotation, source)
                    arguments.append(Argument(argument.arg, kind))
                result = T.TENSOR if part.returns is None else self.type_of(part.returns, source)
                interface.methods[part.name] = Signature(part.name, "", arguments, [Argument("", result)])
        return interface

    def _class(self, qualified: str, node: ast.ClassDef, source: Source, is_module: bool) -> T.ClassType:
        kind = T.ClassType(qualified, is_module)
        self.types[qualified] = kind
        for part in node.body:
            self._member(kind, part, source)
        if kind.attributes.get("_packed_params") is T.TENSOR:
            kind.attributes["_packed_params"] = _packed_type(node)
        for name in list(kind.methods):
            if name.startswith("__") and name.endswith("_getter"):
                prop = name[2 : -len("_getter")]
                kind.properties[prop] = (kind.methods[name], kind.methods.get(f"__{prop}_setter"))
        return kind

    def _member(self, kind: T.ClassType, part: ast.stmt, source: Source) -> None:
        if isinstance(part, ast.FunctionDef):
            kind.methods[part.name] = self._function(f"{kind.name}.{part.name}", part, source, kind)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            if part.value is not None:
                kind.constants[part.target.id] = self._literal(part.value)
            else:
                kind.attributes[part.target.id] = self.type_of(part.annotation, source)
        elif isinstance(part, ast.Assign):
            target = part.targets[0]
            if isinstance(target, ast.Name) and target.id in ("__parameters__", "__buffers__"):
                names = set(self._literal(part.value))
                if target.id == "__parameters__":
                    kind.parameters = names
                else:
                    kind.buffers = names
            elif isinstance(target, ast.Name) and target.id in ("__forward_hooks__", "__forward_pre_hooks__"):
                kind.hook_names[target.id] = list(self._literal(part.value))
            elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                kind.attributes[str(target.slice.value)] = self.type_of(part.value, source)

    # ------------------------------------------------------------------ names in functions

    def resolve(self, e: Any, name: str, node: Any) -> Any:
        if name == "torch":
            return _Torch(self.version)
        if name == "ops":
            return OpNamespace(None)
        if name == "CONSTANTS":
            return _Constants(self.constants)
        if name == "__torch__":
            return _Path(self, "__torch__")
        if name in ("inf", "nan"):
            return e.graph.insertConstant(float(name))
        if name in ("infj", "nanj"):
            return e.graph.insertConstant(complex(0, float(name[:3])))
        if name in ("uninitialized", "unchecked_cast"):
            return _Typed(name)
        if name in _BUILTINS:
            return Special(name)
        raise e.error(node, f"undefined value {name}")


def _decoded(value: Any) -> Any:
    """Strings of archives hold UTF-8 as octal escapes."""
    if isinstance(value, str) and any(ord(c) > 127 for c in value):
        try:
            return value.encode("latin-1").decode("utf-8")
        except (UnicodeDecodeError, UnicodeEncodeError):
            return value
    if isinstance(value, (list, tuple)):
        return type(value)(_decoded(v) for v in value)
    return value


class _Typed(Special):
    """`uninitialized(T)` and `unchecked_cast(T, x)`."""

    def call(self, e: Any, args: list[Any], kwargs: dict[str, Any], node: Any) -> Any:
        kind = e.type_of(node.args[0])
        if self.name == "uninitialized":
            return e.graph.insert("prim::Uninitialized", [], [kind])._outputs[0]
        return e.graph.insert("prim::unchecked_cast", [e.value_of(node.args[1])], [kind])._outputs[0]


# ---------------------------------------------------------------------------------------------- load


def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None) -> Any:
    """The module of an archive."""
    if isinstance(f, (str, bytes)) or hasattr(f, "__fspath__"):
        import os

        if not os.path.exists(f):
            raise ValueError(f"The provided filename {f} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {f} is a directory")
    with serialization._opened(f) as source:
        reader = serialization.Reader(source)
        try:
            return _read(reader, map_location, _extra_files)
        except (AttributeError, KeyError, IndexError, TypeError, AssertionError, ValueError) as error:
            raise RuntimeError(
                f"[jit.load] expected a well-formed archive, got one that fails: {type(error).__name__}: {error}"
            ) from error


def _read(reader: Any, map_location: Any, extra: dict[str, Any] | None) -> Any:
    if "constants.pkl" not in reader or "data.pkl" not in reader:
        what = "a checkpoint; torch.load reads those" if "data.pkl" in reader else "an archive without data.pkl"
        raise RuntimeError(f"[jit.load] expected an archive of jit.save, got {what}")
    version = _version(reader)
    loader = serialization._Loader(reader, None, map_location)
    code = CodeReader(reader.read, reader.names(), version)
    constants = _Prefixed(reader, map_location)
    try:
        table = unpickle(reader.read("constants.pkl"), constants.storage, code)
        if not isinstance(table, tuple):
            raise unpickler.UnpicklingError(f"[jit.load] expected a tuple of constants, got {type(table).__name__}")
        code.constants = table
        module = unpickle(reader.read("data.pkl"), loader.storage, code)
    except RecursionError:
        raise unpickler.UnpicklingError(
            "[jit.load] expected a program of ordinary depth, got one nested too deeply"
        ) from None
    if not hasattr(module, "_script_type"):
        raise unpickler.UnpicklingError(f"[jit.load] expected a module, got {type(module).__name__}")
    for kind in list(code.types.values()):
        for method in list(getattr(kind, "methods", {}).values()):
            if isinstance(method, Function):
                method.ensure()
    for name in extra or ():
        assert extra is not None
        extra[name] = reader.read(f"extra/{name}") if f"extra/{name}" in reader else b""
    if module.__dict__["_script_type"].name == "__torch__.PlaceholderModule":
        return module
    return module


def _version(reader: Any) -> int:
    name = "version" if "version" in reader else ".data/version"
    text = reader.read(name).strip() if name in reader else b""
    if not text.isdigit() or not 1 <= int(text) <= 10:
        raise RuntimeError(f"[jit.load] expected an archive of version 1 to 10, got {text[:20]!r}")
    return int(text)


class _Prefixed:
    """Storages of the constants, which lie in their own folder."""

    def __init__(self, reader: Any, map_location: Any) -> None:
        self.loader = serialization._Loader(_Renamed(reader), None, map_location)  # type: ignore[arg-type]

    def storage(self, reference: Any) -> Any:
        return self.loader.storage(reference)


class _Renamed:
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def _name(self, name: str) -> str:
        return "constants/" + name[len("data/") :] if name.startswith("data/") else name

    def __contains__(self, name: str) -> bool:
        return self._name(name) in self._reader

    def read(self, name: str) -> bytes:
        return self._reader.read(self._name(name))

    def size(self, name: str) -> int:
        return self._reader.size(self._name(name))

    def start(self, name: str) -> Any:
        return self._reader.start(self._name(name))

    def read_into(self, name: str, target: Any) -> None:
        self._reader.read_into(self._name(name), target)


def unpickle(data: bytes, load_storage: Any, code: CodeReader) -> Any:
    return ArchiveUnpickler(data, load_storage, code.type, _make).load()


def _make(kind: T.ClassType) -> Any:
    from flambeau.jit._modules import RecursiveScriptModule

    if not kind.is_module:
        return _values.ScriptObject(kind)
    module = RecursiveScriptModule(kind)
    if kind.hook_names:
        from flambeau.jit._hooks import restore_hooks

        restore_hooks(module, kind)
    return module
