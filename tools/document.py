"""Write docs/operators.md, the table of operators, from the op records.

python tools/document.py [--check]

Needs no native code. `--check` writes nothing and fails when the file is not up to date.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

import generate

ROOT = generate.ROOT
TARGET = ROOT / "docs" / "operators.md"
HEAD = """# Operators

Written by `make docs` from the records in `flambeau/ops/`; do not edit. {count} operators, a section for each file of
records. Private ones (`_name`) are left out; further names of an operator stand under *where*. A signature without an
arrow returns one tensor.

- **kind**: *pointwise* and *reduction* kernels are generated from the record's arithmetic, *native* ones are written by
  hand in `csrc/`, a *composite* is defined by other operators.
- **where**: `t.` is a method of `Tensor`, `fl.` a function of the package; `_ops` is internal, reached through a public
  function of another record. Brackets after a name tell its derived forms: `_` in place, `out=` with a given result.
- **gradient**: *own* derivative, *through* the operators that define it, *zero* everywhere, or none.
"""


def docstring(path: Path) -> str:
    """First paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def native_decompositions() -> set[str]:
    """Operators that C++ defines by others."""
    names = set()
    for path in (ROOT / "csrc").rglob("*.cpp"):
        text = path.read_text()
        names.update(re.findall(r'FL_KERNEL\("([^"]+)", [^;]*kComposite\)', text))
        names.update(re.findall(r'Register \w+\{"([^"]+)", \{Key::Composite\}', text))
    return names


def kind_of(record, decomposed: set[str]) -> str:
    return "composite" if record.kind == "composite" or record.name in decomposed else record.kind


def gradient_of(record, decomposed: set[str]) -> str:
    """`own`, `through`, `zero` or nothing."""
    from flambeau.ops.gradients import gradients

    if "no_grad" in record.tags:
        return ""
    if record.kind == "pointwise":
        kinds = {g.kind for g in gradients(record) or () if g is not None}
        return "own" if kinds - {"zero"} else "zero" if kinds else ""
    if record.vjp is not None:
        return "own"
    through = kind_of(record, decomposed) == "composite"
    differentiable = re.search("Tensor|any", record.schema.text.rpartition("->")[2])
    return "through" if through and differentiable else ""


def places(record) -> list[str]:
    """Where users find the operator."""
    public = record.public or record.schema.name
    spellings = []
    if record.function:
        modules = record.module.split(";")
        spellings += [".".join(filter(None, ("fl", module, public))) for module in modules]
    if record.method:
        spellings.append(f"t.{public}")
    return spellings


def forms(record) -> str:
    suffixes = [text for text, flag in (("_", record.inplace), ("out=", record.out)) if flag]
    return f" ({', '.join(suffixes)})" if suffixes else ""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def title(module: str) -> str:
    """The family of a module, or its own name where the family has several."""
    family, name = module.split(".")[-2:]
    return family if name == "records" else name


def section(module: str, records: list, others: dict[str, list[str]], decomposed: set[str]) -> str:
    """The table of one module of records."""
    path = ROOT / (module.replace(".", "/") + ".py")
    lines = [
        f"## {title(module)}",
        "",
        docstring(path),
        "",
        "| operator | kind | where | gradient |",
        "|---|---|---|---|",
    ]
    for record in records:
        signature = record.schema.text.removesuffix(" -> Tensor")
        where = ", ".join(dict.fromkeys(places(record) + others.get(record.name, []))) + forms(record)
        row = (f"`{signature}`", kind_of(record, decomposed), where, gradient_of(record, decomposed))
        lines.append("| " + " | ".join(map(cell, row)) + " |")
    return "\n".join(lines) + "\n"


def document() -> str:
    records = generate.load_records()
    decomposed = native_decompositions()
    others: dict[str, list[str]] = {}
    shown: dict[str, list] = {}
    for record in records.values():
        original = record.alias_of
        if original in records and record.schema.name != records[original].schema.name:
            others.setdefault(original, []).extend(places(record))
        elif not record.schema.name.startswith("_"):
            shown.setdefault(record.where, []).append(record)
    parts = [HEAD.format(count=sum(map(len, shown.values())))]
    for name in sorted(shown, key=title):
        parts.append(section(name, shown[name], others, decomposed))
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail when the file is not up to date")
    check = parser.parse_args().check
    text = document()
    if check:
        if not TARGET.exists() or TARGET.read_text() != text:
            print("docs/operators.md is not up to date: run `make docs`")
            return 1
        return 0
    generate.write(TARGET, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
