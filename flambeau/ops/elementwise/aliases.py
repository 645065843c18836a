"""Second names of pointwise ops: PyTorch exposes many of them twice (`acos` and `arccos`, `erf` and `special.erf`).

An alias is a full record, which names the original in `alias_of`, so that the generator can point both names at one kernel.
"""

from __future__ import annotations

from typing import Any

from flambeau.ops.record import Record, pointwise


def alias(names: str, of: Record, **options: Any) -> None:
    """Records `of` again under each of the space-separated names; options override the original's flags."""
    details = dict(of.details)
    table = details.pop("table")
    for name in names.split():
        schema = name + of.schema.text[len(of.schema.name) :]
        flags: dict[str, Any] = {"out": of.out, "inplace": of.inplace, "function": of.function}
        if name.startswith("special_"):
            flags["inplace"] = False
        else:
            flags["method"] = of.method
        flags.update(vjp=of.vjp, tags=of.tags, alias_of=of.alias_of or of.name, **options)
        pointwise(schema, table, **details, **flags).where = of.where


def scalar_first(of: Record, overload: str, **options: Any) -> None:
    """Records the overload of a binary op that takes a number for the first operand: `2 ** x`, `xlogy(2, x)`."""
    first, second = of.schema.args[:2]
    schema = f"{of.schema.name}.{overload}(Tensor|Scalar {first.name}, Tensor {second.name}) -> Tensor"
    details = dict(of.details)
    table = details.pop("table")
    flags = {
        "out": of.out,
        "inplace": False,
        "vjp": of.vjp,
        "tags": of.tags,
        "alias_of": of.alias_of or of.name,
        **options,
    }
    pointwise(schema, table, **{"method": False, **details, **flags}).where = of.where
