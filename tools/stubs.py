"""Write the stubs of the native module: types and docstrings of everything that no Python source declares.

python tools/stubs.py --module flambeau/_C.so --out flambeau/_C

Run by the build after the native module is linked. The folder gets
  __init__.pyi        Tensor, the other native classes, the operators of the package itself, every private function
  linalg.pyi, ...     the operators of a module, which imports them when types are checked
  package.pyi, nn.pyi what `flambeau` and `flambeau.nn` import on first use
Operators get their signatures from their schemas and their docstrings from `flambeau/ops/documentation.py`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.machinery
import importlib.util
import inspect
import keyword
import re
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("linalg", "special", "fft", "nn.functional")

# Names of types that neither a dtype (`flambeau.int`) nor a method (`Tensor.float`) shadows.
HEAD = '''"""Written by tools/stubs.py; do not edit."""

import builtins
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, SupportsIndex, overload

_int = builtins.int
_float = builtins.float
_bool = builtins.bool
_str = builtins.str
_Number = builtins.int | builtins.float | builtins.bool | builtins.complex
'''
IMPORTS = """from flambeau._C import Generator, Size, Tensor, _bool, _device, _dtype, _float, _int, _layout, _memory_format, _Number, _str
"""
TYPES = {
    "Tensor": "Tensor", "Scalar": "_Number", "int": "_int", "float": "_float", "bool": "_bool", "str": "_str",
    "dtype": "_dtype", "device": "_device | _str | _int", "layout": "_layout", "memory_format": "_memory_format",
    "Generator": "Generator", "any": "Any",
}  # fmt: skip
PROPERTIES = {
    "shape": "Size", "dtype": "_dtype", "device": "_device", "layout": "_layout", "ndim": "_int", "grad": "Tensor | Any",
    "requires_grad": "_bool", "is_leaf": "_bool", "T": "Tensor", "mT": "Tensor", "H": "Tensor", "mH": "Tensor",
    "real": "Tensor", "imag": "Tensor", "data": "Tensor", "itemsize": "_int", "nbytes": "_int", "output_nr": "_int",
    "is_cuda": "_bool", "is_cpu": "_bool", "is_meta": "_bool", "is_sparse": "_bool", "is_nested": "_bool",
    "is_quantized": "_bool", "retains_grad": "_bool", "names": "tuple[_str | None, ...]", "type": "_str", "index": "_int | None",
    "is_floating_point": "_bool", "is_complex": "_bool", "is_signed": "_bool",
}  # fmt: skip
METHODS = {
    "_make_subclass": "(cls: Any, data: Tensor, require_grad: _bool = False) -> Any",
    "size": "(self, dim: _int | None = None) -> Any", "stride": "(self, dim: _int | None = None) -> Any",
    "dim": "(self) -> _int", "numel": "(self) -> _int", "item": "(self) -> Any", "tolist": "(self) -> Any",
    "numpy": "(self, *, force: _bool = False) -> Any", "data_ptr": "(self) -> _int", "element_size": "(self) -> _int",
    "is_contiguous": "(self, memory_format: _memory_format = ...) -> _bool", "storage_offset": "(self) -> _int",
    "is_floating_point": "(self) -> _bool", "is_complex": "(self) -> _bool", "is_signed": "(self) -> _bool",
    "requires_grad_": "(self, requires_grad: _bool = True) -> Self", "retain_grad": "(self) -> None",
    "backward": "(self, gradient: Tensor | None = None, retain_graph: _bool | None = None, create_graph: _bool = False, inputs: Any = None) -> None",
    "__len__": "(self) -> _int", "__getitem__": "(self, index: Any) -> Tensor", "__setitem__": "(self, index: Any, value: Any) -> None",
    "__bool__": "(self) -> _bool", "__int__": "(self) -> _int", "__float__": "(self) -> _float", "__index__": "(self) -> _int",
    "__hash__": "(self) -> _int", "__iter__": "(self) -> Any",
}  # fmt: skip
COMPARISONS = {"__hash__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
FACTORY_OPTIONS = ["dtype", "layout", "device", "requires_grad", "pin_memory"]
UNARY = "__neg__ __pos__ __abs__ __invert__".split()
BINARY = (
    "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift radd rsub rmul rtruediv rfloordiv rmod rpow "
    "rmatmul rand ror rxor rlshift rrshift iadd isub imul itruediv ifloordiv imod ipow iand ior ixor lt le gt ge eq ne"
).split()


def load(module: Path) -> types.ModuleType:
    """The package, over a native module that need not lie inside of it."""
    loader = importlib.machinery.ExtensionFileLoader("flambeau._C", str(module))
    spec = importlib.util.spec_from_loader("flambeau._C", loader)
    assert spec is not None
    sys.path.insert(0, str(ROOT))
    sys.modules["flambeau._C"] = importlib.util.module_from_spec(spec)
    loader.exec_module(sys.modules["flambeau._C"])
    return importlib.import_module("flambeau")


def type_of(text: str) -> str:
    """The annotation of a type of a schema."""
    if text.endswith("?"):
        return f"{type_of(text[:-1])} | None"
    if match := re.fullmatch(r"(.+)\[(\d*)\]", text):
        element = type_of(match[1])
        return f"Sequence[{element}] | {element}" if match[2] else f"Sequence[{element}]"
    return " | ".join(TYPES[part.removesuffix("(!)")] for part in text.split("|"))


def default_of(text: str) -> str:
    return text if re.fullmatch(r"-?[\d.]+(e-?\d+)?|None|True|False|[\"'].*[\"']", text) else "..."


class Operators:
    """Declarations of native functions and methods."""

    def __init__(self) -> None:
        from flambeau.ops import documentation, record, schema

        self.records = record.load()
        self.parse = schema.Schema.parse
        self.documentation = documentation
        self.tuples: dict[str, str] = {}  # classes of named results, by name

    def result(self, schema: Any) -> str:
        returns = schema.returns
        if not returns.startswith("("):
            return type_of(returns)
        if returns == "()":
            return "None"
        parts = [part.rpartition(" ") for part in returns[1:-1].split(", ")]
        if not parts[0][0]:
            return f"tuple[{', '.join(type_of(name) for _, _, name in parts)}]"
        fields = "".join(f"    {name}: {type_of(kind)}\n" for kind, _, name in parts)
        name = f"_{schema.name}_{schema.overload}" if schema.overload else f"_{schema.name}"
        self.tuples[name] = f"class {name}(NamedTuple):\n{fields}"
        return name

    def parameters(self, schema: Any, method: bool) -> str:
        written = ["self"] if method else []
        starred = optional = False
        for argument in schema.args[1:] if method else schema.args:
            if argument.keyword_only and not starred:
                written.append("*")
                starred = True
            name = "input" if argument.name == "self" else argument.name
            if keyword.iskeyword(name):
                name += "_"
            default = argument.default
            if default is None and optional and not starred:
                default = "..."
            optional = optional or default is not None
            written.append(
                f"{name}: {type_of(argument.type)}" + ("" if default is None else f" = {default_of(default)}")
            )
        record = None if method else self.records.get(schema.full_name)
        if record is not None:
            factory = record.where.startswith(("flambeau.ops.creation", "flambeau.ops.random"))
            names = ["out"] * record.out + FACTORY_OPTIONS * factory
            names = [name for name in names if f" {name}" not in schema.text]
            written += (["*"] if names and not starred else []) + [f"{name}: Any = None" for name in names]
        return ", ".join(written)

    def variadic(self, schema: Any, method: bool) -> str | None:
        """Parameters with the sizes as arguments of their own, where a call may write them so."""
        args = schema.args[1:] if method else schema.args
        positional = [a for a in args if not a.keyword_only]
        if len(positional) != 1 or positional[0].type not in ("int[]", "Tensor[]"):
            return None
        name, element = positional[0].name, type_of(positional[0].type[:-2])
        listed = rf"\b{name}: Sequence\[{element}\](, \*)?"
        return re.sub(listed, f"*{name}: {element}", self.parameters(schema, method))

    def declaration(self, function: Any, method: bool, indent: str = "") -> str:
        lines = []
        module, name = self.documentation.public_name(function)
        schemas = [self.parse(text) for text in function._schemas]
        for schema in schemas:
            for parameters in dict.fromkeys(
                filter(None, (self.parameters(schema, method), self.variadic(schema, method)))
            ):
                lines.append(f"def {name}({parameters}) -> {self.result(schema)}:")
        lines = list(dict.fromkeys(lines))
        text = (self.documentation.find(module, name) or "").replace("\\", "\\\\").replace('"""', "'''")
        body = "\n" + inspect.cleandoc(f'r"""{text}\n"""') if text else " ..."
        body = body.replace("\n", f"\n{indent}    ") if text else body
        mark = f"{indent}@overload\n" if len(lines) > 1 else ""
        bodies = [body, *[" ..."] * (len(lines) - 1)]
        return "".join(f"{mark}{indent}{line}{text}\n" for line, text in zip(lines, bodies, strict=True))


def described(value: Any, indent: str) -> str:
    """The docstring of a function as the body of its declaration."""
    text = value.__doc__ if isinstance(getattr(value, "__doc__", None), str) else ""
    if not text:
        return " ...\n"
    return (
        f'\n{indent}    r"""' + inspect.cleandoc(text).replace("\n", f"\n{indent}    ").replace('"""', "'''") + '"""\n'
    )


def python_method(name: str, function: Any) -> str:
    """The declaration of a method that is written in Python: names and defaults, types where they are simple."""
    try:
        signature = inspect.signature(inspect.unwrap(function))
    except (TypeError, ValueError):
        return f"    def {name}(self, *args: Any, **kwargs: Any) -> Any:{described(function, '    ')}"
    parameters = []
    for parameter in signature.parameters.values():
        annotation = simple(parameter.annotation)
        default = ... if parameter.default is not inspect.Parameter.empty else inspect.Parameter.empty
        parameters.append(parameter.replace(annotation=inspect.Parameter.empty, default=default, name=parameter.name))
        parameters[-1] = (
            parameters[-1].replace(annotation=Literal(annotation)) if parameter.name != "self" else parameters[-1]
        )
    text = str(signature.replace(parameters=parameters, return_annotation=Literal(simple(signature.return_annotation))))
    return f"    def {name}{text.replace('Ellipsis', '...')}:{described(function, '    ')}"


class Literal:
    """An annotation that prints as it is written."""

    __module__ = "builtins"

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def simple(annotation: Any) -> str:
    """An annotation of the sources, where the stub knows its names; Any otherwise."""
    known = {
        "int": "_int",
        "bool": "_bool",
        "float": "_float",
        "str": "_str",
        "None": "None",
        "Tensor": "Tensor",
        "fl.Tensor": "Tensor",
    }
    if not isinstance(annotation, str):
        return "Any"
    parts = [known.get(part) for part in annotation.split(" | ")]
    return " | ".join(part for part in parts if part) if all(parts) else "Any"


def members(cls: type, operators: Operators) -> str:
    """The declarations inside a native class."""
    import flambeau

    lines = []
    inherited = set(dir(object)) | set(dir(tuple) if issubclass(cls, tuple) else ())
    for name in sorted(set(dir(cls)) - inherited | (COMPARISONS if cls is flambeau.Tensor else set())):
        value = inspect.getattr_static(cls, name)
        if keyword.iskeyword(name):
            continue
        if name in METHODS and cls is flambeau.Tensor:
            mark = "    @staticmethod\n" if isinstance(value, staticmethod) else ""
            lines.append(f"{mark}    def {name}{METHODS[name]}:{described(value, '    ')}")
        elif isinstance(value, flambeau._C.Method):
            lines.append(operators.declaration(value, True, "    "))
        elif name in UNARY:
            lines.append(f"    def {name}(self) -> Self: ...\n")
        elif name.strip("_") in BINARY and name.startswith("__"):
            lines.append(f"    def {name}(self, other: Any) -> Tensor: ...  # type: ignore\n")
        elif callable(value) or isinstance(value, (staticmethod, classmethod)):
            lines.append(python_method(name, value))
        elif (
            name in PROPERTIES or isinstance(value, (property, types.GetSetDescriptorType)) or hasattr(value, "__get__")
        ):
            lines.append(f"    {name}: {PROPERTIES.get(name, 'Any')}\n")
    return "".join(lines)


CLASSES = {
    "Tensor": "    def __init__(self, *args: Any, **kwargs: Any) -> None: ...\n",
    "device": "    def __init__(self, type: Any, index: _int | None = None) -> None: ...\n",
    "Size": "    def __new__(cls, sizes: Any = ()) -> Self: ...\n",
    "Generator": "    def __init__(self, device: Any = None) -> None: ...\n",
}


def native_module(flambeau: Any, operators: Operators) -> str:
    """The stub of the native module itself."""
    native = flambeau._C
    classes, constants, functions = [], [], []
    for name, value in sorted(vars(native).items()):
        if name.startswith("__") or keyword.iskeyword(name):
            continue
        if isinstance(value, type):
            bases = (
                "(tuple[_int, ...])"
                if issubclass(value, tuple)
                else "(Exception)"
                if issubclass(value, Exception)
                else ""
            )
            body = CLASSES.get(name, "    def __init__(self, *args: Any, **kwargs: Any) -> None: ...\n")
            classes.append(f"class {name}{bases}:\n{body}{members(value, operators)}\n")
        elif isinstance(value, (native.dtype, native.layout, native.memory_format)):
            constants.append(f"{name}: _{type(value).__name__}\n")
        elif callable(value) and not isinstance(value, native.Function):
            functions.append(f"def {name}(*args: Any, **kwargs: Any) -> Any:{described(value, '')}")
        elif not isinstance(value, types.ModuleType):
            constants.append(f"{name}: Any\n")
    functions.append(installed(flambeau, operators))
    aliases = "".join(f"_{name} = {name}\n" for name in ("dtype", "device", "layout", "memory_format"))
    tuples = "\n".join(operators.tuples.values())
    return "\n".join([HEAD, "".join(classes), aliases, tuples, "".join(constants), "".join(functions)])


def installed(module: Any, operators: Operators) -> str:
    """The operators that a module holds."""
    import flambeau

    functions = (
        (n, v)
        for n, v in sorted(vars(module).items())
        if isinstance(v, flambeau._C.Function) and not keyword.iskeyword(n)
    )
    lines = []
    for name, value in functions:
        own = operators.documentation.public_name(value)[1]
        lines.append(operators.declaration(value, False) if own == name else f"{name} = {own}\n")
    return "".join(lines)


def operator_module(name: str, operators: Operators) -> str:
    operators.tuples.clear()
    functions = installed(importlib.import_module(f"flambeau.{name}"), operators)
    return "\n".join([HEAD.split("\n_int")[0], IMPORTS, "\n".join(operators.tuples.values()), functions])


def package(flambeau: Any) -> str:
    """What the package has from its Python modules: at once, or imported on first use."""
    lines = [HEAD.splitlines()[0] + "\n\n"]
    public = sorted(name for name in flambeau._MODULES if not name.startswith("_"))
    lines += [f"from flambeau import {name} as {name}\n" for name in public if exists(f"flambeau.{name}")]
    homes = dict(flambeau._LAZY)
    for name, value in vars(flambeau).items():
        home = getattr(value, "__module__", None) or ""
        if home.startswith("flambeau.") and getattr(sys.modules.get(home), name, None) is value:
            homes.setdefault(name, home.removeprefix("flambeau."))
    lines += [
        f"from flambeau.{home} import {name} as {name}\n"
        for name, home in sorted(homes.items())
        if not name.startswith("_")
    ]
    return "".join(lines)


def layers(flambeau: Any) -> str:
    """What `flambeau.nn` imports on first use."""
    nn = flambeau.nn
    lines = [HEAD.splitlines()[0] + "\n\n"]
    lines += [
        f"from flambeau.nn import {name} as {name}\n"
        for name in sorted(nn._SUBMODULES)
        if exists(f"flambeau.nn.{name}")
    ]
    homes = {name: f"nn.{home}" for name, home in nn._LAZY.items()}
    for name in dir(nn):
        if isinstance(getattr(nn, name), type) and name not in homes:
            homes[name] = getattr(nn, name).__module__.replace("torch.", "flambeau.", 1).removeprefix("flambeau.")
    return "".join(lines + [f"from flambeau.{home} import {name} as {name}\n" for name, home in sorted(homes.items())])


def exists(name: str) -> bool:
    """Whether type checkers find a module: its file lies where its name says."""
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--module", type=Path, required=True, help="the native module")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the stubs")
    options = parser.parse_args(arguments)
    flambeau = load(options.module)
    operators = Operators()
    write(options.out / "__init__.pyi", native_module(flambeau, operators))
    for name in MODULES:
        write(options.out / f"{name.replace('.', '_')}.pyi", operator_module(name, operators))
    write(options.out / "package.pyi", package(flambeau))
    write(options.out / "nn.pyi", layers(flambeau))
    return 0


if __name__ == "__main__":
    sys.exit(main())
