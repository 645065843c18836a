"""The objects of a static library that some operators need: those that define symbols, register the operators, or attach
implementations of device functions. Of the others nothing is linked.

The build of a minimal runtime runs this file alone:

    python objects.py libflambeau.a operators.txt folder own.o ...      prints the paths of the objects
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["needed_objects"]

_DEVICE_FUNCTION = "_ZN2fl6device"
_DEFINE_OPERATORS = "_ZN2fl24define_builtin_operatorsEv"  # of the object that looks operators up in the table
_NM = os.environ.get("NM", "nm")


@dataclass
class _Member:
    """An object of the archive."""

    path: Path
    defined: set[str] = field(default_factory=set)
    strong: set[str] = field(default_factory=set)  # of those: what no other object may define
    needed: set[str] = field(default_factory=set)
    registers: bool = False  # has initialisers, which may register kernels


def unpacked(archive: Path, folder: Path, nm: str = _NM) -> list[_Member]:
    """The objects, written into a folder under names of their own: several may have the same in the archive."""
    members = []
    for i, content in enumerate(_contents(archive)):
        members.append(_Member(folder / f"{i}.o"))
        members[-1].path.write_bytes(content)
    listed = subprocess.run([nm, "-p", *(str(m.path) for m in members)], capture_output=True, text=True, check=True)
    by_path = {str(m.path): m for m in members}
    member = members[0]
    for line in listed.stdout.splitlines():
        if line.endswith(":"):
            member = by_path[line[:-1]]
            continue
        kind, _, name = line[17:].partition(" ")
        if kind == "U":
            member.needed.add(name)
        elif kind.isupper():
            member.defined.add(name)
            if kind in "TDBR":
                member.strong.add(name)
        elif name.startswith("_GLOBAL__sub_I_"):
            member.registers = True
    return members


def needed_objects(archive: Path, operators: Iterable[str], own: list[Path], folder: Path, nm: str = _NM) -> list[Path]:
    """The objects that some objects need: they define symbols, register operators, or attach implementations. Those that define what
    the given ones do are replaced by them."""
    needed = {_DEFINE_OPERATORS, *(s for path in own for s in _symbols(path, "-u", nm))}
    defined = {s for path in own for s in _symbols(path, "--defined-only", nm)}
    members = [m for m in unpacked(archive, folder, nm) if not m.strong & defined]
    definers: dict[str, _Member] = {}
    attaching: dict[str, list[_Member]] = {}
    for member in members:
        for symbol in member.defined:
            definers.setdefault(symbol, member)
        # Implementations of device functions are attached by initialisers of objects that refer to them.
        for symbol in member.needed if member.registers else ():
            if symbol.startswith(_DEVICE_FUNCTION):
                attaching.setdefault(symbol, []).append(member)
    literals = [b"\0" + name.encode() + b"\0" for name in operators]
    pending = [m for m in members if m.registers and _holds(m.path, literals)]
    pending += [definers[s] for s in needed - defined if s in definers]
    pending += [m for s in needed | defined for m in attaching.get(s, ())]
    chosen: set[Path] = set()
    while pending:
        member = pending.pop()
        if member.path in chosen:
            continue
        chosen.add(member.path)
        defined |= member.defined
        pending += [definers[s] for s in member.needed if s not in defined and s in definers]
        pending += [m for s in (member.needed | member.defined) for m in attaching.get(s, ())]
    return sorted(chosen)


def _contents(archive: Path) -> Iterator[bytes]:
    """The members of an archive, other than its tables."""
    data = archive.read_bytes()
    at = 8  # after the signature
    while at + 60 <= len(data):
        name, size = data[at : at + 16].rstrip(), int(data[at + 48 : at + 58])
        if name not in (b"/", b"//", b"/SYM64/"):
            yield data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def _holds(path: Path, literals: list[bytes]) -> bool:
    content = path.read_bytes()
    return any(literal in content for literal in literals)


def _symbols(path: Path, which: str, nm: str) -> list[str]:
    done = subprocess.run([nm, which, str(path)], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in done.stdout.splitlines() if line.strip()]


if __name__ == "__main__":
    library, operator_names, scratch, *objects = map(Path, sys.argv[1:])
    scratch.mkdir(parents=True, exist_ok=True)
    print(*needed_objects(library, operator_names.read_text().split(), objects, scratch), sep="\n")
