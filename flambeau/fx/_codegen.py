"""From a graph to Python source that runs.

The printed function names values as the nodes are named and drops each after its last use, so that memory is released
as early as in code written by hand. Everything the source refers to by a global name is collected beside it.
"""

from __future__ import annotations

import builtins
import enum
import keyword
import math
import re
import types
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import flambeau
from flambeau._ops import OpOverload
from flambeau.fx.immutable_collections import immutable_dict, immutable_list
from flambeau.fx.node import Argument, Node, _get_qualified_name, _type_repr
from flambeau.utils import _pytree as pytree

TransformCodeFunc = Callable[[list[str]], list[str]]

_binary = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**", "lshift": "<<",
    "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "matmul": "@",
}  # fmt: skip
reflectable_magic_methods = {name: f"{{}} {sign} {{}}" for name, sign in _binary.items()}
magic_methods = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}",
    "pos": "+{}", "neg": "-{}", "invert": "~{}", "getitem": "{}[{}]", **reflectable_magic_methods,
}  # fmt: skip
inplace_methods = {
    "iadd": "{} += {}", "isub": "{} -= {}", "imul": "{} *= {}", "ifloordiv": "{} //= {}", "itruediv": "{} /= {}",
    "imod": "{} %= {}", "ipow": "{} **= {}", "ilshift": "{} <<= {}", "irshift": "{} >>= {}", "iand": "{} &= {}",
    "ior": "{} |= {}", "ixor": "{} ^= {}", "imatmul": "{} @= {}",
}  # fmt: skip


class _CustomBuiltin(NamedTuple):
    """A name that printed code may use without being told where it comes from."""

    import_str: str
    obj: Any


_custom_builtins: dict[str, _CustomBuiltin] = {
    "inf": _CustomBuiltin("from math import inf", math.inf),
    "nan": _CustomBuiltin("from math import nan", math.nan),
    "NoneType": _CustomBuiltin("NoneType = type(None)", type(None)),
    "torch": _CustomBuiltin("import flambeau as torch", flambeau),
    "device": _CustomBuiltin("from flambeau import device", flambeau.device),
    "pytree": _CustomBuiltin("import flambeau.utils._pytree as pytree", pytree),
}

_RESERVED = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | frozenset(_custom_builtins)
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")


@dataclass
class PythonCode:
    """Source of a function, and the globals it needs."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None = None
    _prologue_start: int = 0


class _PyTreeInfo(NamedTuple):
    """How a function's arguments and result are nested, when the graph has them flat."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


def _format_target(base: str, target: str) -> str:
    """The expression for a dotted path from a base: atoms that are no identifiers go through getattr."""
    for atom in target.split("."):
        base = f"{base}.{atom}" if atom.isidentifier() else f'getattr({base}, "{atom}")'
    return base


@dataclass
class _Scope:
    """The global names of one printed function."""

    taken: set[str]
    globals: dict[str, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def name_of(self, hint: str, obj: Any) -> str:
        """The name under which the source finds an object."""
        known = self.names.get(id(obj))
        if known is not None:
            return known
        if hint == "torch" or hint.startswith("torch."):
            # Reached by attributes from the package, as people write it.
            self.globals["torch"] = flambeau
            owner, _, last = hint.rpartition(".")
            if keyword.iskeyword(last):  # torch.ops.aten.random_.from
                hint = f"getattr({owner}, {last!r})"
            self.names[id(obj)] = hint
            return hint
        if getattr(builtins, hint, None) is obj:
            return hint
        name = candidate = _ILLEGAL.sub("_", hint)
        count = 0
        while name in self.taken or (name in self.globals and self.globals[name] is not obj) or name in _RESERVED:
            count += 1
            name = f"{candidate}_{count}"
        self.globals[name] = obj
        self.names[id(obj)] = name
        return name


class CodeGen:
    """Prints the function of a graph. Derive to change the signature, the return or the arguments' treatment."""

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name = "forward"

    # ------------------------------------------------------------------------------------------ for derived classes

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line that starts the function; free_vars are its parameters as written."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Argument, *, descs: object = None) -> str:
        """The statement that ends the function."""
        return f"return {output_args!r}"

    def process_inputs(self, *args: Any) -> Any:
        """From arguments as the function takes them to those of the graph's placeholders."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """From what the graph's output holds to what the function returns."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Further (name, object) pairs that the source needs."""
        return []

    # ------------------------------------------------------------------------------------------ the printer

    def _gen_python_code(
        self,
        nodes: Iterable[Node],
        root_module: str,
        namespace: Any = None,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        nodes = list(nodes)
        scope = _Scope({n.name for n in nodes})
        for name, value in self.additional_globals():
            scope.globals[name] = value
        printer = _ArgumentPrinter(scope)
        dropped = _last_uses(nodes)
        free_vars: list[str] = []
        body: list[str] = []
        lines: dict[int, int | None] = {}
        return_annotation = ""
        last_note = ""

        for index, node in enumerate(nodes):
            if verbose:
                note = _note(node) or ("" if node.op in ("placeholder", "output") else _NO_TRACE)
                if note and note != last_note:
                    last_note = note
                    body.append(f"\n{note}\n")
            op = node.op
            annotation = ""
            if verbose:
                annotation = _value_annotation(node, include_stride, include_device)
            if not annotation and node.type is not None:
                annotation = f" : {printer.annotation(node.type)}"
            if op == "placeholder":
                default = f" = {printer(node._args[0])}" if node._args else ""
                target = str(node.target)
                free_vars.append(f"{target}{annotation}{default}")
                raw = target.lstrip("*")
                if raw != node.name:
                    body.append(f"{node.name} = {raw}\n")
                continue
            if op == "output":
                if node.type is not None:
                    return_annotation = f" -> {printer.annotation(node.type)}"
                if type(self).generate_output is CodeGen.generate_output:
                    body.append(f"return {printer(node._args[0] if node._args else None)}\n")
                else:
                    body.append(self.generate_output(printer.named(node._args[0])) + "\n")
                continue
            lines[len(body)] = index
            drop = dropped.get(node)
            text = _statement(node, printer, root_module, annotation, drop or ())
            body.append(f"{text};  {' = '.join(drop)} = None\n" if drop else f"{text}\n")

        if not body:
            body.append("pass\n")
        prologue = self.gen_fn_def(free_vars, return_annotation)
        if expanded_def:
            prologue = _expanded(prologue)
        for name, custom in _custom_builtins.items():
            if name in prologue and re.search(rf"\b{name}\b", prologue):
                scope.globals.setdefault(name, custom.obj)
        if self._body_transformer is not None:
            body = self._body_transformer(body)
        code = "".join(body).lstrip("\n")
        code = "\n".join(f"    {line}" if line else "" for line in code.split("\n"))
        first_line = prologue.count("\n") + 4
        lineno_map = {first_line + at: index for at, index in lines.items()}
        source = f"\n\n\n{prologue}\n{code}    "  # the blanks around it as PyTorch has them: programs compare the text
        return PythonCode(source, scope.globals, lineno_map, 3)


class _PyTreeCodeGen(CodeGen):
    """A function with nested arguments and results over a graph that has them flat."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        return pytree.arg_tree_leaves(*inputs)

    def process_outputs(self, out: Any) -> Any:
        if self.pytree_info.out_spec is None:
            return out
        if not isinstance(out, (list, tuple)):
            out = [out]
        return pytree.tree_unflatten(out, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        if self.pytree_info is None:
            return super().gen_fn_def(free_vars, maybe_return_annotation)
        names = list(self.pytree_info.orig_args)
        definition = super().gen_fn_def(names, maybe_return_annotation)
        flat = [var.split(":")[0].split("=")[0].strip() for var in free_vars]
        if flat and flat[0] == "self":
            flat = flat[1:]
        if not flat:
            return definition
        arguments = ", ".join(name for name in names if name != "self")
        left = f"{', '.join(flat)}, " if len(flat) == 1 else ", ".join(flat)
        return f"{definition}\n    {left} = pytree.arg_tree_leaves({arguments})"

    def generate_output(self, output_args: Argument, *, descs: object = None) -> str:
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args)
        return f"return pytree.tree_unflatten({output_args!r}, self._out_spec)"

    def additional_globals(self) -> list[tuple[str, Any]]:
        return [("pytree", pytree)]


# ---------------------------------------------------------------------------------------------- statements


class _Name:
    """An object whose repr is a given text, for code that formats arguments with repr."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class _ArgumentPrinter:
    """Prints arguments as Python expressions, registering what they refer to."""

    __slots__ = ("scope",)

    def __init__(self, scope: _Scope) -> None:
        self.scope = scope

    def __call__(self, a: Argument) -> str:
        cls = type(a)
        if cls is Node:
            return a.name  # type: ignore[no-any-return]
        if cls is int or cls is str or cls is bool or a is None:
            return repr(a)
        if cls is float:
            if a != a or a in (math.inf, -math.inf):
                self.scope.globals.setdefault("nan" if a != a else "inf", math.nan if a != a else math.inf)
            return repr(a)
        if cls is tuple:
            inside = ", ".join([self(x) for x in a])
            return f"({inside},)" if len(a) == 1 else f"({inside})"
        if cls is immutable_list or cls is list:
            return f"[{', '.join([self(x) for x in a])}]"
        if cls is immutable_dict or cls is dict:
            return "{" + ", ".join([f"{self(k)}: {self(v)}" for k, v in a.items()]) + "}"
        return self._rare(a)

    def _rare(self, a: Any) -> str:
        if isinstance(a, Node):
            return a.name
        if isinstance(a, slice):
            return f"slice({self(a.start)}, {self(a.stop)}, {self(a.step)})"
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            cls = self.scope.name_of(_type_repr(type(a)), type(a))
            return f"{cls}({', '.join([self(x) for x in a])})"
        if isinstance(a, flambeau.Size):
            self.scope.globals["torch"] = flambeau
            return f"torch.Size([{', '.join([self(x) for x in a])}])"
        if isinstance(a, (tuple, list)):
            inside = ", ".join([self(x) for x in a])
            return f"[{inside}]" if isinstance(a, list) else (f"({inside},)" if len(a) == 1 else f"({inside})")
        if isinstance(a, dict):
            return "{" + ", ".join([f"{self(k)}: {self(v)}" for k, v in a.items()]) + "}"
        if isinstance(a, (flambeau.dtype, flambeau.layout, flambeau.memory_format)):
            self.scope.globals["torch"] = flambeau
            return repr(a)
        if isinstance(a, flambeau.device):
            self.scope.globals["device"] = flambeau.device
            return repr(a)
        if isinstance(a, enum.Enum):
            cls = self.scope.name_of(_type_repr(type(a)), type(a))
            return f"{cls}.{a.name}"
        if isinstance(a, complex):
            return f"complex({self(a.real)}, {self(a.imag)})"  # its repr loses signs of zeros
        if isinstance(a, (OpOverload, types.FunctionType, types.BuiltinFunctionType)):
            return self.scope.name_of(_get_qualified_name(a), a)
        if isinstance(a, type):
            return self.scope.name_of(_type_repr(a), a)
        if callable(a) and hasattr(a, "__name__"):
            return self.scope.name_of(_get_qualified_name(a), a)
        text = repr(a)
        if text.startswith("torch."):
            self.scope.globals["torch"] = flambeau
        return text

    def named(self, a: Argument) -> Argument:
        """The argument with objects in it whose repr is the printed form of what they stand for."""
        return tuple(_Name(self(item)) for item in a) if type(a) is tuple else _Name(self(a))

    def annotation(self, kind: Any) -> str:
        """A type annotation."""
        if isinstance(kind, str):
            return repr(kind)
        origin = getattr(kind, "__origin__", None)
        if origin is not None or isinstance(kind, types.UnionType):
            return (
                self.scope.name_of(_ILLEGAL.sub("_", _type_repr(kind)), kind) if origin is None else self._generic(kind)
            )
        if isinstance(kind, type):
            if kind.__module__ == "builtins":
                return kind.__qualname__
            if kind is flambeau.Tensor:
                self.scope.globals["torch"] = flambeau
                return "torch.Tensor"
            return self.scope.name_of(_type_repr(kind), kind)
        return self.scope.name_of(_ILLEGAL.sub("_", _type_repr(kind)), kind)

    def _generic(self, kind: Any) -> str:
        origin, args = kind.__origin__, getattr(kind, "__args__", ())
        text = repr(kind)
        head = text.partition("[")[0]
        if head.startswith("typing."):
            name = self.scope.name_of(head.replace(".", "_"), getattr(__import__("typing"), head[7:], origin))
        else:
            name = self.annotation(origin)
        inside = ", ".join("..." if x is ... else self.annotation(x) for x in args if not (head == "typing.Optional" and x is type(None)))  # fmt: skip
        return f"{name}[{inside}]" if inside else name


def _operand(text: str, sign: str, first: bool) -> str:
    """A number with a sign binds weaker than a power."""
    return f"({text})" if first and "**" in sign and text.startswith("-") else text


def _call_arguments(printer: _ArgumentPrinter, args: tuple[Argument, ...], kwargs: Any) -> str:
    parts = [printer(a) for a in args]
    if kwargs:
        parts += [
            f"{k} = {printer(v)}" if not keyword.iskeyword(k) else f"**{{{k!r}: {printer(v)}}}"
            for k, v in kwargs.items()
        ]
    return ", ".join(parts)


def _statement(
    node: Node, printer: _ArgumentPrinter, root_module: str, annotation: str, dropped: Collection[str]
) -> str:
    op = node.op
    name = node.name
    target: Any = node.target
    args, kwargs = node._args, node._kwargs
    if op == "call_module":
        return f"{name}{annotation} = {_format_target(root_module, target)}({_call_arguments(printer, args, kwargs)})"
    if op == "call_method":
        called = _format_target(printer(args[0]), target)
        return f"{name}{annotation} = {called}({_call_arguments(printer, args[1:], kwargs)})"
    if op == "call_function":
        module = getattr(target, "__module__", None)
        if module == "_operator" and not kwargs:
            kind = target.__name__
            form = magic_methods.get(kind)
            if form is not None and len(args) == form.count("{}"):
                texts = [_operand(printer(a), form, i == 0) for i, a in enumerate(args)]
                return f"{name}{annotation} = {form.format(*texts)}"
            form = inplace_methods.get(kind)
            # `x += 1` gives another meaning to `x` when it is a number: fine only if nobody asks again.
            if form is not None and isinstance(args[0], Node) and args[0].name in dropped:
                return f"{form.format(printer(args[0]), printer(args[1]))};  {name}{annotation} = {printer(args[0])}"
        if (
            module == "builtins"
            and target is getattr
            and len(args) == 2
            and isinstance(args[1], str)
            and args[1].isidentifier()
        ):
            return f"{name}{annotation} = {printer(args[0])}.{args[1]}"
        known = printer.scope.names.get(id(target))
        if known is None:
            known = printer.scope.name_of(_get_qualified_name(target), target)
        return f"{name}{annotation} = {known}({_call_arguments(printer, args, kwargs)})"
    if op == "get_attr":
        return f"{name}{annotation} = {_format_target(root_module, target)}"
    raise NotImplementedError(f"[fx] expected one of the six kinds of node, got {op!r} of {name}")


def _last_uses(nodes: list[Node]) -> dict[Node, list[str]]:
    """The names that can be dropped after each node: inputs used for the last time, and results nobody uses."""
    seen: set[Node] = set()
    last: dict[Node, list[str]] = {}
    for node in reversed(nodes):
        names = []
        for used in node._input_nodes:
            if used not in seen:
                seen.add(used)
                names.append(used.name)
        if not node.users:
            names.append(node.name)
        if names:
            last[node] = names
    return last


# ---------------------------------------------------------------------------------------------- the verbose form

_DTYPES = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def dtype_abbreviation(dtype: Any) -> str:
    """`f32` for float32 and the like."""
    name = str(dtype).partition(".")[2]
    match = re.fullmatch(r"([a-z]+)(\d+)", name)
    if match is None:
        return "b8" if name == "bool" else name
    return _DTYPES.get(match[1], match[1]) + match[2]


def _shape_text(value: Any, stride: bool, device: bool) -> str:
    text = f"{dtype_abbreviation(value.dtype)}[{', '.join(str(s) for s in value.shape)}]"
    if stride:
        text += f"[{', '.join(str(s) for s in (value.stride() if callable(value.stride) else value.stride))}]"
    return text + (f"{value.device}" if device and hasattr(value, "device") else "")


def _value_annotation(node: Node, stride: bool, device: bool) -> str:
    value = node.meta.get("val", node.meta.get("tensor_meta"))
    if value is None or not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return f': "Sym({value})"' if type(value).__name__ in ("SymInt", "SymFloat", "SymBool") else ""
    return f': "{_shape_text(value, stride, device)}"'


_NO_TRACE = "# No stacktrace found for following nodes"


def _note(node: Node) -> str:
    """A comment that says which line of the user's program a node comes from."""
    trace = node.meta.get("stack_trace")
    if not trace or node.op in ("placeholder", "output"):
        return ""
    frames = [line.strip() for line in str(trace).strip().split("\n")]
    for at in range(len(frames) - 1, -1, -1):
        match = re.match(r'File "(.+)", line (\d+), in (.+)', frames[at])
        if match is not None:
            code = frames[at + 1] if at + 1 < len(frames) else ""
            return f"# File: {match[1]}:{match[2]} in {match[3]}, code: {code}"
    return f"# {frames[-1]}"


def _expanded(prologue: str) -> str:
    """A signature with one parameter a line."""
    head, _, rest = prologue.partition("(")
    inside, _, tail = rest.rpartition(")")
    return f"{head}(\n    " + ",\n    ".join(part.strip() for part in inside.split(", ")) + f",\n){tail}"
