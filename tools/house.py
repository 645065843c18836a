"""Counts that say how well the house is kept: long functions, upward includes and imports, files and lines.

    python tools/house.py            the counts
    python tools/house.py --list     what is counted, too

A count is a function from the repository's root to the things it found; `COUNTS` names them all. The layers of native code
are `NATIVE_LAYERS`, which tests/test_native_layers.py enforces.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 80  # lines of a function
WIDEST = 30  # objects that a change of a header compiles again
VAGUE = ("made", "found", "given", "kept")  # as names of locals
NATIVE_SUFFIXES = (".h", ".cpp", ".cu", ".cuh")

# What the folders of csrc may include, besides themselves.
NATIVE_LAYERS = {
    "core": (),
    "math": ("core",),
    "dispatch": ("core",),
    "autograd": ("core", "dispatch"),
    "ops": ("core", "math", "dispatch", "autograd"),
    "cpu": ("core", "math", "dispatch", "autograd", "ops"),
    "cuda": ("core", "math", "dispatch", "autograd", "ops"),
    "compiled": ("core", "dispatch", "autograd", "ops"),
    "definitions": ("core", "dispatch", "autograd", "ops"),
    "runtime": ("core", "dispatch", "autograd", "ops", "compiled", "definitions"),
    "script": ("core", "dispatch", "autograd", "ops", "definitions", "runtime"),
    "lazy": ("core", "dispatch", "autograd", "ops"),
    "pjrt": ("core",),
    "distributed": ("core", "dispatch", "autograd", "ops"),
    "gloo": ("distributed",),
    "python": (
        "core",
        "math",
        "dispatch",
        "autograd",
        "ops",
        "cpu",
        "compiled",
        "definitions",
        "lazy",
        "pjrt",
        "runtime",
        "distributed",
    ),
}

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# Comments, literals and preprocessor lines, in which braces mean nothing.
_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"\((?:.*?)\)\"|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
_SCOPE = re.compile(r"(?:^|\s)(?:namespace|struct|class|union|enum)\b|extern\s*$")


def tracked(root: Path, *suffixes: str) -> list[Path]:
    """The repository's files with one of these endings."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [root / name for name in listed.splitlines() if name.endswith(suffixes) and (root / name).exists()]


def native_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """The functions defined in C++ or CUDA source: head, first and last line. Lambdas belong to the function around them."""
    plain = _NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    stack: list[tuple[bool, str, int]] = []  # for each open brace: is it a function's, its head, its first line
    statement = 0  # where the statement before a brace begins
    depth = 0  # functions that are open
    for match in re.finditer(r"[{};]", plain):
        at, mark = match.start(), match[0]
        if mark == "{":
            head = plain[statement:at].strip()
            is_function = not depth and "(" in head and not _SCOPE.search(head.split("(")[0])
            first = plain.count("\n", 0, at - len(plain[statement:at].lstrip())) + 1
            stack.append((is_function, head, first))
            depth += is_function
        elif mark == "}" and stack:
            is_function, head, first = stack.pop()
            depth -= is_function
            if is_function:
                yield " ".join(head.split()), first, plain.count("\n", 0, at) + 1
        if not depth or mark == "{":
            statement = at + 1


def long_native_functions(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{first} {last - first + 1} lines: {head[:70]}"
        for path in tracked(root / "csrc", *NATIVE_SUFFIXES)
        for head, first, last in native_functions(path.read_text())
        if last - first + 1 > LONGEST
    ]


def long_python_functions(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{node.lineno} {node.end_lineno - node.lineno + 1} lines: {node.name}"
        for folder in ("flambeau", "tools")
        for path in tracked(root / folder, ".py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno + 1 > LONGEST
    ]


def _bound_names(function: ast.AST) -> Iterator[tuple[str, int]]:
    """The parameters and local names of a function or lambda, without those of functions inside it."""
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending += ast.iter_child_nodes(node)


def vague_names(root: Path) -> list[str]:
    """Parameters and local names that say how a value came about, not what it is: one row for each in a function."""
    return [
        f"{path.relative_to(root)}:{line} {name}"
        for folder in ("flambeau", "tools", "benchmarks")
        for path in tracked(root / folder, ".py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for name, line in sorted({name: line for name, line in _bound_names(function) if name in VAGUE}.items())
    ]


def upward_includes(root: Path) -> list[str]:
    """Includes of native code that `NATIVE_LAYERS` does not allow."""
    upward = []
    for path in tracked(root / "csrc", *NATIVE_SUFFIXES):
        name = path.relative_to(root / "csrc")
        own = name.parts[0]
        for included in _INCLUDE.findall(path.read_text()):
            layer = included.split("/")[0]
            if layer in NATIVE_LAYERS and layer != own and layer not in NATIVE_LAYERS[own]:
                upward.append(f"csrc/{name} includes {included}")
    return upward


def upward_imports(root: Path) -> list[str]:
    """Imports, when a module is loaded, of modules in layers above it, as tests/test_layers.py has them."""
    sys.path.insert(0, str(root / "tests"))
    import test_layers as layers

    upward = []
    for path in layers.FILES:
        own = layers.module_name(path)
        for name in layers.imported(path, layers.load_time_nodes(ast.parse(path.read_text()))):
            target = name.removeprefix("flambeau.")
            if target != name and layers.level(target) > layers.level(own):
                upward.append(f"{own or 'flambeau'} imports {target}")
    return upward


def files(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in tracked(root, ".py", *NATIVE_SUFFIXES)]


def header_objects(root: Path) -> dict[str, int]:
    """How many objects of the build in this checkout depend on each header of csrc, by what ninja recorded."""
    builds = sorted(root.glob("build/cpython-*/.ninja_deps"), key=lambda path: path.stat().st_mtime)
    ninja = Path(sys.executable).with_name("ninja")
    if not builds or not ninja.exists():
        return {}
    printed = subprocess.run([ninja, "-C", builds[-1].parent, "-t", "deps"], capture_output=True, text=True).stdout
    read: dict[str, set[str]] = {}
    for entry in re.split(r"\n\n", printed):
        name, _, lines = entry.partition(": #deps")
        read[name.strip()] = set(re.findall(r"^ +\S*/csrc/(\S+\.(?:h|cuh))$", lines, re.MULTILINE))
    precompiled = {name.partition(".dir/")[0]: headers for name, headers in read.items() if "cmake_pch" in name}
    counts: dict[str, int] = {}
    for name, headers in read.items():
        if "cmake_pch" not in name:
            for header in headers | precompiled.get(name.partition(".dir/")[0], set()):
                counts[header] = counts.get(header, 0) + 1
    return counts


def wide_headers(root: Path) -> list[str]:
    """Headers of fronts and kernels that many objects depend on, in the build of this checkout."""
    counts = sorted(header_objects(root).items(), key=lambda row: -row[1])
    if not counts:
        return ["unknown: there is no build in this checkout, or another Python than that of the build"]
    return [
        f"csrc/{name} {count} objects" for name, count in counts if name.startswith(("ops/", "cpu/")) and count > WIDEST
    ]


_REGISTERED = re.compile(r'(?:\bFL_(?:CUDA_)?KERNEL\(|\bRegister \w+\{|^ +\w+\{)"([^"]+)"', re.MULTILINE)


def registered_twice(root: Path) -> list[str]:
    """Operators that csrc/cuda registers beside csrc/ops and csrc/cpu, instead of attaching a function to the front."""
    places: dict[str, dict[str, Path]] = {"cuda": {}, "host": {}}
    for path in tracked(root / "csrc", ".cpp", ".cu"):
        folder = path.relative_to(root / "csrc").parts[0]
        if folder in ("ops", "cpu", "cuda"):
            names = _REGISTERED.findall(path.read_text())
            places["cuda" if folder == "cuda" else "host"].update(dict.fromkeys(names, path))
    return [f"{p.relative_to(root)} {name}" for name, p in sorted(places["cuda"].items()) if name in places["host"]]


def op_name_lists(root: Path) -> list[str]:
    """Lists of operator names outside of flambeau/ops."""
    sys.path.insert(0, str(root / "tools"))
    import generate
    import op_lists

    return list(map(str, op_lists.refused(op_lists.operator_names(generate.load_records()), root)))


COUNTS: dict[str, Callable[[Path], list[str]]] = {
    f"C++ functions over {LONGEST} lines": long_native_functions,
    f"Python functions over {LONGEST} lines": long_python_functions,
    f"locals and parameters called {', '.join(VAGUE)}": vague_names,
    "upward includes": upward_includes,
    "upward imports": upward_imports,
    "lists of operator names outside of ops": op_name_lists,
    "operators registered twice for two devices": registered_twice,
    f"headers of fronts and kernels in more than {WIDEST} objects": wide_headers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print what is counted, too")
    options = parser.parse_args()
    for title, count in COUNTS.items():
        things = count(ROOT)
        print(f"{len(things):7}  {title}")
        if options.list:
            print("".join(f"           {thing}\n" for thing in things), end="")
    for folder in ("flambeau", "csrc", "tools", "tests"):
        names = [name for name in files(ROOT) if name.startswith(folder + "/")]
        lines = sum((ROOT / name).read_text().count("\n") for name in names)
        print(f"{len(names):7}  files in {folder}\n{lines:7}  lines in {folder}")


if __name__ == "__main__":
    main()
