"""Operators by ATen's names, with the arguments that a call there has: the way back from `calls.py`.

`resolve("mean.dim", arguments)` gives something to call and the arguments in our order. Names of arguments decide; one that
is called otherwise here is taken by its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau.ops.as_aten import names
from flambeau.ops.as_aten.calls import _RENAMED


class Argument(NamedTuple):
    """An argument of a call: its name in ATen's schema, and whether it was given by position."""

    name: str
    value: Any
    positional: bool


class UnknownOperator(LookupError):
    """There is no such operator, or it has other arguments."""


_ALIASES = {f"__{name}__": f"bitwise_{name}" for name in ("and", "or", "xor")}
_ALIASES |= {f"__i{name}__": f"bitwise_{name}_" for name in ("and", "or", "xor")}
_ALIASES |= {"__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift"}
_REDUCTIONS = ("none", "mean", "sum")


def resolve(
    space: str, name: str, overload: str, arguments: Sequence[Argument]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The operator, its arguments by position and by name."""
    import flambeau
    from flambeau._ops import OpOverload, OpOverloadPacket

    name = _ALIASES.get(name, name) if space == "aten" else name
    if space == "aten" and (names._core(f"{name}.{overload}") or names._core(name)):
        return _by_aten_schema(names.Packet(name, None), overload, arguments)
    packet = getattr(getattr(flambeau.ops, space), name, None)
    if packet is None or getattr(packet, "__absent__", None):
        raise UnknownOperator(f"{space}.{name}.{overload}")
    if not isinstance(packet, OpOverloadPacket):
        return _by_aten_schema(packet, overload, arguments)
    overload = "self" if name == "where" else overload  # which takes numbers as well
    full = packet._find(overload)
    if full is None:
        return _by_aten_schema(names.Packet(name, packet, "aten"), overload, arguments)
    op = getattr(packet, overload)
    assert isinstance(op, OpOverload)
    bound = _bound(op, arguments)
    if bound is not None and _number_for_tensor(op, bound[0]):
        return _taking_number(packet, arguments) or _by_aten_schema(
            names.Packet(name, packet, "aten"), overload, arguments
        )
    if bound is None:
        return _by_aten_schema(names.Packet(name, packet, "aten"), overload, arguments)
    return op, *bound


def _taking_number(packet: Any, arguments: Sequence[Argument]) -> Any:
    """The overload that has a number as its first argument."""
    from flambeau import _C

    for name in packet._names:
        op = _C._operator_object(name)
        if op._schema.arguments[0].type.text in ("Scalar", "Tensor|Scalar"):
            bound = _bound(op, arguments)
            if bound is not None:
                return op, *bound
    return None


def _by_aten_schema(
    packet: Any, overload: str, arguments: Sequence[Argument]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    args = tuple(a.value for a in arguments if a.positional)
    return getattr(packet, overload), args, {a.name: a.value for a in arguments if not a.positional}


def _number_for_tensor(op: Any, args: tuple[Any, ...]) -> bool:
    """Whether a number is given where the overload has a tensor: another overload takes it."""
    kinds = [a.type.text for a in op._schema.arguments]
    return any(kind == "Tensor" and isinstance(value, (bool, int, float, complex)) for kind, value in zip(kinds, args))


def _bound(op: Any, arguments: Sequence[Argument]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments in the order of our schema; None where it has no place for one."""
    formals = op._schema.arguments
    own = [a.name for a in formals]
    back = {theirs: ours for ours, theirs in _RENAMED.get(op._full_name, {}).items()}
    values: dict[str, Any] = {}
    for i, argument in enumerate(arguments):
        name = back.get(argument.name, argument.name)
        if name not in own:
            if not argument.positional or i >= len(own) or own[i] in {a.name for a in arguments}:
                return None
            name = own[i]
        values[name] = argument.value
    for formal in formals:
        if formal.name == "reduction" and formal.type.text == "str" and type(values.get("reduction")) is int:
            values["reduction"] = _REDUCTIONS[values["reduction"]]
    positional: list[Any] = []
    for formal in formals:
        if formal.kwarg_only or formal.name not in values:
            break
        positional.append(values.pop(formal.name))
    return tuple(positional), values
