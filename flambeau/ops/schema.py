"""Operator schemas: parsing `name.overload(Type arg=default, *, ...) -> Type` into data.

The same grammar is read by csrc/dispatch/schema.cpp at run time; this reader serves the build-time generator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(r"^(?P<name>\w+)(\.(?P<overload>\w+))?\((?P<args>.*)\)\s*->\s*(?P<returns>.*)$", re.S)
_ARG = re.compile(
    r"^(?P<type>[\w|]+(\(!\))?(\[\d*\])?\??(\[\d*\])?\??)\s+(?P<name>\w+)(\s*=\s*(?P<default>.+))?$", re.S
)


@dataclass(frozen=True)
class Argument:
    """One argument: its type as written, its name, its default as written (None when required)."""

    type: str
    name: str
    default: str | None
    keyword_only: bool

    @property
    def is_tensor(self) -> bool:
        return self.type in ("Tensor", "Tensor?", "Tensor|Scalar")


@dataclass(frozen=True)
class Schema:
    """A parsed schema."""

    name: str
    overload: str
    args: tuple[Argument, ...]
    returns: str
    text: str

    @property
    def full_name(self) -> str:
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @staticmethod
    def parse(text: str) -> Schema:
        head = _HEAD.match(text.strip())
        if head is None:
            raise ValueError(f"[schema] expected name(args) -> type, got {text!r}")
        args: list[Argument] = []
        keyword_only = False
        for part in split(head["args"]):
            if part == "*":
                keyword_only = True
                continue
            m = _ARG.match(part)
            if m is None:
                raise ValueError(f"[schema] expected `Type name[=default]`, got {part!r} in {text!r}")
            args.append(Argument(m["type"], m["name"], m["default"], keyword_only))
        clean = " ".join(text.split())
        return Schema(head["name"], head["overload"] or "", tuple(args), head["returns"].strip(), clean)


def split(text: str) -> list[str]:
    """Parts between commas that are outside brackets and quotes."""
    parts, depth, start, quote = [], 0, 0, ""
    for i, ch in enumerate(text):
        if quote:
            quote = "" if ch == quote else quote
        elif ch in "\"'":
            quote = ch
        elif ch in "([":
            depth += 1
        elif ch in ")]":
            depth -= 1
        elif ch == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts
