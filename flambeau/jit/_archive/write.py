"""Writing archives: the classes and functions that a module needs as source, its state as a pickle, tensors beside it."""

from __future__ import annotations

import os
from typing import Any

from flambeau import _C
from flambeau.jit import _types as T
from flambeau.jit._archive.pickling import PickleWriter
from flambeau.jit._functions import Function, ScriptFunction
from flambeau.jit._ir import quoted
from flambeau.jit._print_code import CodePrinter
from flambeau.serialization.archive import Writer

__all__ = ["CodeWriter", "save"]


_OLDEST = 3
# The version of the format in which the meaning of an operator last changed.
_CHANGED_IN = {
    "aten::div": 4,
    "aten::div_": 4,
    "aten::full": 5,
    "aten::linspace": 8,
    "aten::logspace": 8,
    "aten::gelu": 10,
}


class CodeWriter:
    """The source files of an archive, grown as types and functions are found to be needed."""

    def __init__(self) -> None:
        self.constants: list[Any] = []
        self.files: dict[str, list[str]] = {}
        self.done: set[int] = set()
        self.waiting: list[Any] = []
        self.operators: set[str] = set()

    def need(self, kind: T.JitType) -> None:
        """Queue the definition of a named type or function."""
        if isinstance(kind, T.FunctionType) and kind.function.owner is not None:
            kind = kind.function.owner
        target: Any = kind.function if isinstance(kind, T.FunctionType) else kind
        named = isinstance(kind, (T.ClassType, T.InterfaceType, T.EnumType, T.FunctionType)) or (
            isinstance(kind, T.TupleType) and kind.name
        )
        for part in kind.contained():
            self.need(part)
        key = id(target) if not isinstance(kind, T.TupleType) else hash(kind)
        if named and key not in self.done:
            self.done.add(key)
            self.waiting.append(kind)
            if isinstance(kind, T.FunctionType):
                kind.function.ensure()

    def run(self) -> None:
        while self.waiting:
            kind = self.waiting.pop(0)
            if isinstance(kind, T.FunctionType):
                self._add(kind.function.name, self._function(kind.function))
            elif isinstance(kind, T.TupleType):
                self._add(str(kind.name), self._named_tuple(kind))
            elif isinstance(kind, T.EnumType):
                self._add(kind.name, self._enum(kind))
            elif isinstance(kind, T.InterfaceType):
                self._add(kind.name, self._interface(kind))
            else:
                self._add(kind.name, self._class(kind))

    def _add(self, qualified: str, text: str) -> None:
        module = qualified.rpartition(".")[0]
        self.files.setdefault(module, []).append(text)

    def _function(self, function: Function) -> str:
        printer = CodePrinter(self.constants, self.need)
        assert function.graph is not None
        text = printer.function(function.name.rpartition(".")[2], function.graph, function.schema, "")
        self.operators |= printer.operators
        return text

    def _method(self, name: str, function: Function) -> str:
        function.ensure()
        printer = CodePrinter(self.constants, self.need)
        assert function.graph is not None
        text = printer.function(name, function.graph, function.schema, "  ")
        self.operators |= printer.operators
        return text

    def version(self) -> int:
        """The version of the format: readers give older files the older meaning of some operators."""
        return max([_OLDEST, *(_CHANGED_IN[name] for name in self.operators if name in _CHANGED_IN)])

    def _named_tuple(self, kind: T.TupleType) -> str:
        lines = [f"class {str(kind.name).rpartition('.')[2]}(NamedTuple):"]
        for field, part in zip(kind.fields, kind.items):
            self.need(part)
            lines.append(f"  {field} : {part.annotation_str}")
        return "\n".join(lines) + "\n"

    def _enum(self, kind: T.EnumType) -> str:
        printer = CodePrinter(self.constants)
        lines = [f"class {kind.name.rpartition('.')[2]}(Enum):"]
        lines += [f"  {name} = {printer.literal(member.value, kind.value)}" for name, member in kind.members.items()]
        return "\n".join(lines) + "\n"

    def _interface(self, kind: T.InterfaceType) -> str:
        base = "ModuleInterface" if kind.is_module else "Interface"
        lines = [f"class {kind.name.rpartition('.')[2]}({base}):"]
        for name, schema in kind.methods.items():
            heads = ["self", *(f"{a.name}: {a.type.annotation_str}" for a in schema.arguments[1:])]
            lines.append(f"  def {name}({', '.join(heads)}) -> {schema.result_type().annotation_str}:\n    pass")
            for argument in schema.arguments[1:]:
                self.need(argument.type)
            self.need(schema.result_type())
        return "\n".join(lines) + "\n"

    def _class(self, kind: T.ClassType) -> str:
        name = kind.name.rpartition(".")[2]
        lines = [f"class {name}(Module):" if kind.is_module else f"class {name}:"]
        if kind.is_module:
            for label, names in (("parameters", kind.parameters), ("buffers", kind.buffers)):
                ordered = [n for n in kind.attributes if n in names]
                lines.append(f"  __{label}__ = [{''.join(f'{quoted(n)}, ' for n in ordered)}]")
        for label, hooks in (("pre_hooks", kind.pre_hooks), ("hooks", kind.hooks)):
            if hooks:
                names_text = "".join(f"{quoted(h.name.rpartition('.')[2])}, " for h in hooks)
                lines.append(f"  __forward_{label}__ = [{names_text}]")
        for attribute, part in kind.attributes.items():
            self.need(part)
            if attribute.isidentifier():
                lines.append(f"  {attribute} : {part.annotation_str}")
            else:
                lines.append(f"  __annotations__[{quoted(attribute)}] = {part.annotation_str}")
        lines += self._constants(kind)
        text = "\n".join(lines) + "\n"
        for method_name, method in list(kind.methods.items()):
            if method in kind.hooks or method in kind.pre_hooks:
                continue
            text += self._method(method_name, method)
        for hook in (*kind.pre_hooks, *kind.hooks):
            text += self._method(hook.name.rpartition(".")[2], hook)
        if text.count("\n") == 1 and not kind.is_module:
            text += "  pass\n"
        return text

    def _constants(self, kind: T.ClassType) -> list[str]:
        from flambeau.jit._values import infer_type

        printer = CodePrinter(self.constants, self.need)
        lines = []
        for name, value in kind.constants.items():
            try:
                part = infer_type(value)
            except TypeError:
                continue
            if isinstance(value, (list, dict)) and not value:
                continue
            lines.append(f"  {name} : Final[{part.annotation_str}] = {printer.literal(value, part)}")
        return lines


def _placeholder(function: Function) -> Any:
    """A module whose forward is a function, as archives of functions hold it."""
    from flambeau.jit._modules import RecursiveScriptModule
    from flambeau.jit._passes import copy_graph
    from flambeau.jit._schemas import Argument, Signature

    kind = T.ClassType("__torch__.PlaceholderModule", is_module=True)
    kind.attributes["training"] = T.BOOL
    function.ensure()
    assert function.graph is not None
    graph = copy_graph(function.graph)
    owner = graph._param.addOutput(kind, "self")
    graph._param._outputs.remove(owner)
    graph._param._outputs.insert(0, owner)
    schema = Signature("forward", "", [Argument("self", kind), *function.schema.arguments], function.schema.returns)
    kind.methods["forward"] = Function.of_graph(f"{kind.name}.forward", graph, schema)
    return RecursiveScriptModule(kind)


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None, more: Any = None) -> None:
    """Write a scripted or traced module or function."""
    if isinstance(m, ScriptFunction):
        m = _placeholder(m.function)
    kind = getattr(m, "__dict__", {}).get("_script_type")
    if not isinstance(kind, T.ClassType):
        raise RuntimeError(
            f"[jit.save] expected a scripted or traced module or function, got {type(m).__name__}; call torch.jit.script first"
        )
    _check_exportable(kind, set())
    storages: dict[int, tuple[str, Any]] = {}
    pickle = PickleWriter(storages)
    pickle.object(m)
    code = CodeWriter()
    code.need(kind)
    for part in pickle.types:
        code.need(part)
    code.run()
    constants: dict[int, tuple[str, Any]] = {}
    table = PickleWriter(constants)
    table.out += b"("
    from flambeau.jit._values import infer_type

    for value in code.constants:
        table.value(value, infer_type(value))
    table.out += b"t"
    records = [
        (f"extra/{name}", data.encode() if isinstance(data, str) else bytes(data))
        for name, data in (_extra_files or {}).items()
    ]
    records += more(constants) if more is not None else []
    write_records(f, records, storages, pickle.finish(), code.files, constants, table.finish(), code.version())


def _check_exportable(kind: T.ClassType, seen: set[int]) -> None:
    """Code that calls into Python cannot be written."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    for method in kind.methods.values():
        graph = method.ensure().graph
        node = graph.findNode("prim::PythonOp")
        if node is not None:
            place = "" if node.range is None else f":\n{node.range.highlight()}"
            raise RuntimeError(
                f"Could not export Python function call '{node.attribute('name')}'. Remove calls to Python functions before export. "
                f"Did you forget to add @script or @script_method annotation? If this is a nn.ModuleList, add it to __constants__{place}"
            )
    for part in kind.attributes.values():
        if isinstance(part, T.ClassType):
            _check_exportable(part, seen)


def write_records(
    f: Any,
    records: list[Any],
    storages: Any,
    data: bytes,
    files: dict[str, list[str]],
    constants: Any,
    table: bytes,
    version: int,
) -> None:
    from flambeau.serialization import _is_path, replacing

    def write(sink: Any, folder: str) -> None:
        writer = Writer(sink, folder)
        for name, content in records:
            writer.add(name, content)
        _write_tensors(writer, "data", storages)
        writer.add("data.pkl", data)
        for module, texts in files.items():
            writer.add(f"code/{module.replace('.', '/')}.py", "".join(texts).encode())
        _write_tensors(writer, "constants", constants)
        writer.add("constants.pkl", table)
        writer.add("version", f"{version}\n".encode())
        writer.add("byteorder", b"little")
        writer.add(".data/serialization_id", f"{int.from_bytes(os.urandom(16), 'big') % 10**40:040d}".encode())
        writer.finish()

    if _is_path(f):
        name = os.path.basename(os.fspath(f))
        name = name if isinstance(name, str) else os.fsdecode(name)
        with replacing(f) as sink:
            write(sink, os.path.splitext(name)[0] or "archive")
    else:
        write(f, "archive")
        if hasattr(f, "flush"):
            f.flush()


def _write_tensors(writer: Writer, folder: str, storages: dict[int, tuple[str, Any]]) -> None:
    for key, tensor in storages.values():
        held = tensor.untyped_storage()
        held = held.cpu() if tensor.device.type != "cpu" else held
        writer.add(f"{folder}/{key}", _C._storage_memory(held._bytes))
