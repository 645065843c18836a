"""What a call on fake tensors needs to know of an operator, and its arguments by the names of the schema."""

from __future__ import annotations

import re
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._ops import OpOverload

VIEW, OUT, NO_GRAD = 1, 4, 16  # flags of operators


class OperatorInfo:
    """What a call needs to know of an operator, looked up once."""

    __slots__ = ("base", "flags", "pointwise", "composite", "definition", "outs", "writes_first", "positional", "keyword",
                 "devices", "formals", "last_list")  # fmt: skip

    def __init__(self, op: OpOverload) -> None:
        _, flags, functional = _C._operator_info(op)
        self.flags: int = flags
        self.base: str = functional or op._full_name
        self.pointwise, self.composite, self.definition = _C._operator_definition(self.base)
        arguments = op._schema.arguments
        self.positional = tuple(a.name for a in arguments if not a.kwarg_only)
        self.keyword = tuple(a.name for a in arguments if a.kwarg_only)
        self.devices = tuple(a.name for a in arguments if a.type.text.startswith("device"))
        # Name, default, and how many values one stands for.
        repeats = [_REPEATED.search(a.type.text) for a in arguments]
        self.formals = [
            (a.name, a.default_value, int(r[1]) if r is not None else 0) for a, r in zip(arguments, repeats)
        ]
        last = arguments[len(self.positional) - 1].type.text if self.positional else ""
        self.last_list = "" if "[]" not in last else ("tensors" if last.startswith("Tensor") else "numbers")
        first = arguments[0] if arguments else None
        self.writes_first = not flags & OUT and first is not None and first.is_written
        self.outs: list[str] = []
        if flags & OUT:
            self.outs = [a.name for a in arguments if a.is_written]


_INFOS: dict[OpOverload, OperatorInfo] = {}


def info_of(op: OpOverload) -> OperatorInfo:
    info = _INFOS.get(op)
    if info is None:
        info = _INFOS[op] = OperatorInfo(op)
    return info


_REPEATED = re.compile(r"\[(\d+)\]")
_ALIASES = {"input": "self", "x": "self", "a": "self", "x1": "self", "self": "input", "axis": "dim", "keepdims": "keepdim",
            "x2": "other"}  # fmt: skip


def bind(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the schema, with defaults filled in, as the native parser reads them."""
    info = info_of(op)
    positional = info.positional
    by_name = dict(zip(positional, args))
    if info.last_list and len(args) >= len(positional):
        last = args[len(positional) - 1]
        # x.view(2, 3): the rest of the positional arguments is the list.
        if not isinstance(last, (list, tuple, type(None))) and (
            info.last_list == "tensors" or not isinstance(last, fl.Tensor)
        ):
            by_name[positional[-1]] = list(args[len(positional) - 1 :])
    if kwargs:
        names = {name for name, _, _ in info.formals}
        for name, value in kwargs.items():
            by_name[name if name in names else _ALIASES.get(name, name)] = value
    bound: dict[str, Any] = {}
    for name, default, repeat in info.formals:
        value = by_name.get(name, default)
        if repeat and value is not None and not isinstance(value, (list, tuple)):
            value = [value] * repeat  # one value stands for all
        bound[name] = value
    return bound
