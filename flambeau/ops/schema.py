"""Operator schemas: `name.overload(Type arg=default, *, ...) -> Type` as data, read from text or from a Python function.

The same grammar is read by csrc/dispatch/schema.cpp at run time; this reader serves the build-time generator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_HEAD = re.compile(r"^(?P<name>(\w+::)?\w+)(\.(?P<overload>\w+))?\((?P<args>.*)\)\s*->\s*(?P<returns>.*)$", re.S)
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


# Types of arguments and results as annotations of Python functions say them.
_ANNOTATIONS = {
    "fl.Tensor": "Tensor",
    "fl.Tensor | Scalar": "Tensor|Scalar",
    "list[fl.Tensor]": "Tensor[]",
    "tuple[fl.Tensor, ...]": "Tensor[]",
    "list[int]": "int[]",
    "fl.dtype": "dtype",
    "fl.Generator": "Generator",
    "Any": "any",
    **{name: name for name in ("Scalar", "bool", "int", "float", "str")},
}


def of_function(function: Callable[..., Any], name: str, results: str = "") -> Schema:
    """The schema of a Python function that is an operator, from its annotations and defaults.

    results  names of the results, separated by spaces, where they have any.
    """
    code, annotations = function.__code__, function.__annotations__
    count = code.co_argcount
    defaults = dict(zip(reversed(code.co_varnames[:count]), reversed(function.__defaults__ or ())))
    defaults.update(function.__kwdefaults__ or {})
    args: list[Argument] = []
    for at, arg in enumerate(code.co_varnames[: count + code.co_kwonlyargcount]):
        default = repr(defaults[arg]) if arg in defaults else None
        args.append(Argument(_type_of(annotations[arg]), arg, default, at >= count))
    returns = annotations["return"]
    if returns.startswith("tuple[") and not returns.endswith(", ...]"):
        types = [_type_of(part) for part in split(returns[6:-1])]
        if results:
            types = [f"{kind} {label}" for kind, label in zip(types, results.split(), strict=True)]
        returned = f"({', '.join(types)})"
    else:
        returned = _type_of(returns)
    head, _, overload = name.partition(".")
    written = [f"{a.type} {a.name}" + (f"={a.default}" if a.default is not None else "") for a in args]
    if code.co_kwonlyargcount:
        written.insert(count, "*")
    return Schema(head, overload, tuple(args), returned, f"{name}({', '.join(written)}) -> {returned}")


def _type_of(annotation: str) -> str:
    """The type that an annotation stands for."""
    plain = annotation.removesuffix(" | None")
    if plain not in _ANNOTATIONS:
        raise ValueError(f"[schema] expected an annotation that a schema has a type for, got {annotation!r}")
    return _ANNOTATIONS[plain] + ("?" if plain != annotation else "")


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
