"""Finds hand-kept lists of operator names outside of flambeau/ops.

What a pass has to know of an operator is a tag or a field of its record. A list of names elsewhere goes stale when an
operator is added, so `tests/test_op_lists.py` allows none but those of `ALLOWED`.

A list is a literal collection: in Python a list, tuple, set, string that is split, or the keys or values of a dict; the
names that a function compares one expression with; in C++ an initialiser of literals, or the names that a file
compares an operator's name with. It counts when at least `FEWEST` of its strings are operators, and these are at least
half of them. Below three names a comparison reads better than a tag. Tables whose keys are other words, such as modules
or attributes, contain a few names of operators by chance, but never as many as half.

Not counted: `__all__`, and collections in which every operator is also a name of Python's own (`add`, `lt` and `neg` of
the module `operator`, or a dtype such as `float`).

  tools/op_lists.py          prints the lists
"""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FEWEST = 3

# Files whose words are not operators of this library, though many are spelled the same.
ALLOWED = {
    "flambeau/array_api/fft.py": "functions of the array API standard",
    "flambeau/array_api/linalg.py": "functions of the array API standard",
    "csrc/definitions/operations.cpp": "the operators of Python's syntax",
    "flambeau/_dynamo/numpy_table.py": "functions of NumPy",
    "flambeau/_dynamo/numpy_functions.py": "functions of NumPy",
    "flambeau/_dynamo/numpy_shapes.py": "functions of NumPy",
    "flambeau/_dynamo/arrays.py": "functions of NumPy, by the operators of Python",
    "flambeau/_inductor/cpp.py": "nodes of expressions, as ops/expr.py has them",
    "flambeau/_inductor/triton_math.py": "nodes of expressions, as ops/expr.py has them",
    "flambeau/ao/quantized_operators/elementwise.py": "functions of quantized tensors, which this defines",
    "flambeau/ao/quantized_operators/tables.py": "values of the argument `mode`",
    "flambeau/backends/reference/scalar.py": "nodes of expressions, as ops/expr.py has them",
    "flambeau/backends/c99.py": "nodes of expressions, as ops/expr.py has them",
    "flambeau/backends/c99_special.py": "the same: bodies of special functions",
    "flambeau/backends/primitives.py": "the kernels of a device, which are registered by name",
    "flambeau/xla/expressions.py": "nodes of expressions, as ops/expr.py has them",
    "flambeau/xla/printer.py": "the primitives that StableHLO has operations for",
    "flambeau/_commands/device_check.py": "samples that no two devices need to agree on",
    "flambeau/distributed/tensor/_redistribute.py": "how partial results are reduced",
    "flambeau/jit/_archive/write.py": "operators by the version of the format in which they changed",
    "flambeau/jit/_builtins.py": "the operators of scripts on numbers and containers",
    "flambeau/jit/_fusion.py": "arithmetic on sizes in traces, and how scripts write it on integers",
    "flambeau/jit/_frontend/calls.py": "the operators of scripts that take a number before a tensor",
    "flambeau/jit/_frontend/statements.py": "the operators of Python's syntax",
    "flambeau/jit/_library/functional.py": "values of the argument `mode`",
    "flambeau/nn/init.py": "values of the argument `nonlinearity`",
    "flambeau/xla/core/xla_model.py": "values of the argument `reduce_type`",
}

_DTYPES = frozenset("float double half bfloat16 int long short char byte bool cfloat cdouble complex".split())
_PYTHON_NAMES = _DTYPES | {name for name in dir(operator) if not name.startswith("_")}


@dataclass(frozen=True)
class OpList:
    """A literal collection with several operator names."""

    path: str
    line: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        shown = " ".join(self.names[:8]) + (" ..." if len(self.names) > 8 else "")
        return f"{self.path}:{self.line}: {len(self.names)} operators: {shown}"


def operator_names(records: dict[str, Any]) -> set[str]:
    """What operators are called: with and without overload, in public, and in their in-place forms."""
    names: set[str] = set()
    for record in records.values():
        schema = record.schema
        plain = {record.name, schema.name, record.public or schema.name}
        names |= plain
        if record.inplace:
            names |= {f"{base}_{dot}{overload}" for base, dot, overload in (name.partition(".") for name in plain)}
    return names


def op_lists(names: set[str], root: Path = ROOT) -> list[OpList]:
    """All lists of operator names outside of ops, the allowed ones included."""
    lists: list[OpList] = []
    for path in sorted((root / "flambeau").rglob("*.py")):
        place = path.relative_to(root).as_posix()
        if not place.startswith("flambeau/ops/"):
            lists += [OpList(place, *row) for row in _chosen(_python_literals(ast.parse(path.read_text())), names)]
    for path in sorted((root / "csrc").rglob("*")):
        if path.suffix in (".cpp", ".h", ".cu", ".cuh"):
            place = path.relative_to(root).as_posix()
            lists += [OpList(place, *row) for row in _chosen(_native_literals(path.read_text()), names)]
    return lists


def refused(names: set[str], root: Path = ROOT) -> list[OpList]:
    """The lists that are not allowed."""
    return [listed for listed in op_lists(names, root) if listed.path not in ALLOWED]


def _chosen(literals: Iterator[tuple[int, list[str]]], names: set[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for line, words in literals:
        operators = tuple(dict.fromkeys(w for w in words if w.removeprefix("aten::") in names))
        if (
            len(operators) >= FEWEST
            and 2 * len(operators) >= len(set(words))
            and not _PYTHON_NAMES.issuperset(operators)
        ):
            yield line, operators


# ---------------------------------------------------------------- Python


def _python_literals(tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """(line, strings) of each collection in a module."""
    exported = {
        id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and id(node) not in exported:
            yield node.lineno, _strings(node.elts)
        elif isinstance(node, ast.Dict):
            yield node.lineno, _strings(node.keys)
            yield node.lineno, _strings(node.values)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            yield node.lineno, " ".join(_strings([node.func.value])).split()
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _compared(node)


def _strings(nodes: list[Any]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _compared(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, list[str]]]:
    """The strings that each expression is compared with in a function, one by one or by `match`."""
    by_subject: dict[str, list[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            by_subject.setdefault(ast.unparse(node.left), []).extend(_strings(node.comparators))
        elif isinstance(node, ast.Match):
            patterns = [p.value for case in node.cases for p in ast.walk(case.pattern) if isinstance(p, ast.MatchValue)]
            by_subject.setdefault(ast.unparse(node.subject), []).extend(_strings(patterns))
    for words in by_subject.values():
        yield function.lineno, words


# ---------------------------------------------------------------- C++

_COMMENT = re.compile(r"//[^\n]*")
_STRING = re.compile(r'"([^"\n\\]*)"')
_ARGUMENTS = re.compile(r'\(((?:\s*"[\w.:]+"\s*,)+\s*"[\w.:]+"\s*)\)')  # a call with nothing but literals
_COMPARISON = re.compile(r'name\w*(?:\(\))?\s*(?:[!=]=\s*|,\s*)"([\w.:]+)"')  # name == "add", strcmp(name, "add")


def _native_literals(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line, strings) of each initialiser made of literals, and of all comparisons with a name in a file."""
    text = _COMMENT.sub("", text)
    for start, body in _initialisers(text):
        yield text.count("\n", 0, start) + 1, _STRING.findall(body)
    for match in _ARGUMENTS.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, _STRING.findall(match.group())
    compared = list(_COMPARISON.finditer(text))
    if compared:
        yield text.count("\n", 0, compared[0].start()) + 1, [m.group(1) for m in compared]


def _initialisers(text: str) -> Iterator[tuple[int, str]]:
    """The outermost braces with neither statements nor calls inside."""
    depth: list[int] = []
    inner: list[tuple[int, str]] = []
    for match in re.finditer(r"[{}]", text):
        if match.group() == "{":
            depth.append(match.start())
        elif depth:
            start = depth.pop()
            body = text[start : match.end()]
            if not re.search(r"[;()]", _STRING.sub("", body)):
                inner = [(s, b) for s, b in inner if s < start or s > match.end()] + [(start, body)]
    yield from sorted(inner)


def main() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import generate

    lists = refused(operator_names(generate.load_records()))
    for listed in lists:
        print(listed)
    print(f"{len(lists)} lists with {sum(len(listed.names) for listed in lists)} entries")


if __name__ == "__main__":
    main()
