"""`flambeau doctor`: what a program uses of torch that flambeau lacks, found by reading it, not by running it.

Each file is parsed; names bound to modules of torch are followed through imports, `as`, attribute chains and plain
assignments; each dotted name that results is looked up in flambeau. A name is fine, lacking, or there but failing when
used (`_compat.absent`). Uses that the program guards itself (`try` with ImportError or AttributeError, `hasattr`) are counted
apart. What a tensor or module object is asked for cannot be told from the text, except methods that no other library
would have.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from flambeau._compat import absent
from flambeau._compat.alias import TARGETS, own_name

# Methods of tensors that flambeau lacks and that hardly anything else has.
_TENSOR_METHODS = frozenset("to_mkldnn int_repr q_scale q_zero_point align_to refine_names rename_".split())
# Namespaces that are filled by programs.
_OPEN = ("torch.ops", "torch.classes", "torch._C._")


class Use:
    """One use of a name."""

    def __init__(self, name: str, path: str, line: int, column: int, guarded: bool) -> None:
        self.name, self.path, self.line, self.column, self.guarded = name, path, line, column, guarded


def look_up(name: str) -> str | None:
    """Why a dotted name of torch is no good in flambeau; None when it is."""
    if name.startswith(_OPEN):
        return None
    parts = name.split(".")
    path = own_name(parts[0])
    value = import_module(path)
    for i, part in enumerate(parts[1:], 2):
        path += f".{part}"
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = import_module(path)
            except ModuleNotFoundError:
                return f"flambeau has no {'.'.join(parts[:i])}"
        except Exception as error:
            return f"{'.'.join(parts[:i])} fails: {error}"
        if (reason := absent.reason(value)) is not None:
            return reason
        if not isinstance(value, (type, type(sys))):
            break  # what an object has may be made when the program runs
    return None


class Reader(ast.NodeVisitor):
    """Collects the uses in one file, and the modules it imports."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.uses: list[Use] = []
        self.imports: list[tuple[str, int]] = []
        self.scopes: list[dict[str, str | None]] = [{}]
        self.guards = 0

    def _bind(self, name: str, target: str | None) -> None:
        self.scopes[-1][name] = target

    def _meaning(self, name: str) -> str | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def _use(self, name: str, node: ast.AST) -> None:
        self.uses.append(Use(name, self.path, node.lineno, node.col_offset + 1, self.guards > 0))

    def _dotted(self, node: ast.AST) -> str | None:
        """The name of torch that an expression spells, if it does."""
        if isinstance(node, ast.Name):
            return self._meaning(node.id)
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    # imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imports.append((alias.name, 0))
            if alias.name.split(".")[0] in TARGETS:
                self._use(alias.name, node)
                self._bind(
                    alias.asname or alias.name.split(".")[0], alias.name if alias.asname else alias.name.split(".")[0]
                )
            else:
                self._bind(alias.asname or alias.name.split(".")[0], None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        self.imports.append((module, node.level))
        for alias in node.names:
            self.imports.append((f"{module}.{alias.name}" if module else alias.name, node.level))
            if node.level == 0 and module.split(".")[0] in TARGETS:
                if alias.name == "*":
                    self._use(module, node)
                    continue
                self._use(f"{module}.{alias.name}", node)
                self._bind(alias.asname or alias.name, f"{module}.{alias.name}")
            elif alias.name != "*":
                self._bind(alias.asname or alias.name, None)

    # expressions

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name is not None:
            if isinstance(node.ctx, ast.Load):
                self._use(name, node)
            return
        if node.attr in _TENSOR_METHODS:
            self._use(f"torch.Tensor.{node.attr}", node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and len(node.args) >= 2:
            base, attribute = self._dotted(node.args[0]), node.args[1]
            if base and isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
                if node.func.id == "getattr" and len(node.args) == 2:
                    self._use(f"{base}.{attribute.value}", node)
                return
        self.generic_visit(node)

    # names that get another meaning

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        meaning = self._dotted(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._bind(target.id, meaning)
            else:
                self.visit(target)

    def _function(self, node: Any) -> None:
        for part in (*getattr(node, "decorator_list", ()), *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        arguments += [a for a in (node.args.vararg, node.args.kwarg) if a is not None]
        for annotation in [a.annotation for a in arguments] + [getattr(node, "returns", None)]:
            if annotation is not None:
                self.visit(annotation)
        self.scopes.append({a.arg: None for a in arguments})
        for part in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(part)
        self.scopes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._bind(node.name, None)
        self._function(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]
    visit_Lambda = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name, None)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self.scopes.append({})
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()

    # guards

    def _guarded(self, nodes: Iterable[ast.AST]) -> None:
        self.guards += 1
        for node in nodes:
            self.visit(node)
        self.guards -= 1

    def visit_Try(self, node: ast.Try) -> None:
        caught = {name for handler in node.handlers for name in _exception_names(handler.type)}
        safe = caught & {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "NotImplementedError", ""}
        if safe:
            self._guarded(node.body)
        else:
            for statement in node.body:
                self.visit(statement)
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(part)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        text = ast.unparse(node.test)
        if "hasattr(" in text or "is_available" in text or "__version__" in text or "TYPE_CHECKING" in text:
            self._guarded([*node.body, *node.orelse])
        else:
            for statement in (*node.body, *node.orelse):
                self.visit(statement)


def _exception_names(node: ast.AST | None) -> Iterator[str]:
    if node is None:
        yield ""
    elif isinstance(node, ast.Tuple):
        for element in node.elts:
            yield from _exception_names(element)
    else:
        yield ast.unparse(node).rpartition(".")[2]


# ---------------------------------------------------------------------------------------------- files


def _files(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    skipped = {".git", "__pycache__", ".venv", "venv", "build", "dist", "node_modules"}
    files = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in skipped)
        files += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")]
    return files


def _local(name: str, level: int, path: str, roots: list[str]) -> str | None:
    """The file of a module that belongs to the program, if it does."""
    bases = roots
    if level:
        folder = os.path.dirname(os.path.abspath(path))
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        bases = [folder]
    for base in bases:
        stem = os.path.join(base, *name.split("."))
        for candidate in (f"{stem}.py", os.path.join(stem, "__init__.py")):
            if os.path.isfile(candidate):
                return candidate
    return None


def read(paths: list[str], follow: bool = True) -> tuple[list[Use], list[str], list[str]]:
    """Uses in the files and the modules beside them that they import; the files read; complaints about files."""
    waiting = [file for path in paths for file in _files(path)]
    roots = [os.path.abspath(p if os.path.isdir(p) else os.path.dirname(p) or ".") for p in paths]
    uses, seen, complaints = [], set(), []
    order: list[str] = []
    while waiting:
        path = waiting.pop(0)
        if (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        order.append(path)
        try:
            with open(path, encoding="utf-8") as file:
                tree = ast.parse(file.read(), path)
        except (OSError, SyntaxError, ValueError) as error:
            complaints.append(f"{path}: cannot be read: {error}")
            continue
        reader = Reader(path)
        reader.visit(tree)
        uses += reader.uses
        if follow:
            local_modules = (_local(name, level, path, roots) for name, level in reader.imports if name)
            waiting += [os.path.relpath(file) for file in local_modules if file is not None]
    return uses, order, complaints


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau doctor",
        description="List what programs use of torch that flambeau lacks, without running them.",
        epilog="examples: flambeau doctor train.py\n          flambeau doctor src/ --guarded\n\n"
        "Exit status: 0 when nothing is lacking, 1 when something is, 2 when a file could not be read.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", help="Python files or folders")
    parser.add_argument("--no-follow", action="store_true", help="leave out the modules beside them that they import")
    parser.add_argument("--guarded", action="store_true", help="list uses that the program guards itself, too")
    options = parser.parse_args(arguments)
    missing = [path for path in options.paths if not os.path.exists(path)]
    if missing:
        print(f"flambeau doctor: there is no {', '.join(missing)}", file=sys.stderr)
        return 2
    uses, files, complaints = read(options.paths, not options.no_follow)
    answers = {name: look_up(name) for name in {use.name for use in uses}}
    bad = {(u.path, u.line, u.column, answers[u.name], u.guarded) for u in uses if answers[u.name]}
    for path, line, column, why, guarded in sorted(bad):
        if not guarded or options.guarded:
            print(f"{path}:{line}:{column}: {why}{' (guarded)' if guarded else ''}")
    for complaint in complaints:
        print(complaint)
    open_names = {u.name for u in uses if answers[u.name] and not u.guarded}
    guarded_names = {u.name for u in uses if answers[u.name] and u.guarded} - open_names
    lacking = sum(answers[name].startswith("flambeau has no") and " yet: " not in answers[name] for name in open_names)  # type: ignore[operator, union-attr]
    print(
        f"{len(files)} file{'s use' if len(files) != 1 else ' uses'} {len(answers)} names of torch: {len(answers) - len(open_names) - len(guarded_names)} are "
        f"there, {lacking} lacking, {len(open_names) - lacking} fail when used, {len(guarded_names)} lacking but guarded"
        f"; {'needs ' + ', '.join(sorted(open_names)) if open_names else 'runs as is'}"
    )
    return 2 if complaints else int(bool(open_names))
