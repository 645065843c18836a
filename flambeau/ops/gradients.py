"""Derivatives of pointwise records as pointwise records: one fused kernel for the gradient of each operand."""

from __future__ import annotations

from typing import Any


def _mentions(node: Any, name: str) -> bool:
    if node.op == "arg":
        return bool(node.args[0] == name)
    if node.op == "const":
        return False
    return any(_mentions(a, name) for a in node.args)


def _replace_g(node: Any, expr: Any) -> Any:
    """The expression with g conjugated."""
    if node.op == "arg" and node.args[0] == "g":
        return expr.call("conj", node)
    if node.op in ("arg", "const"):
        return node
    return expr.Expr(node.op, *(_replace_g(a, expr) for a in node.args))


def _is_zero(node: Any) -> bool:
    return bool(node.op == "const" and node.args[0] == 0)


class Gradient:
    """The gradient of one operand: `identity` (g itself), `zero`, or a pointwise record over `sources`."""

    def __init__(self, kind: str, record: Any = None, sources: tuple[str, ...] = ()) -> None:
        self.kind, self.record, self.sources = kind, record, sources


def _cases(record: Any, operand: int, sources: list[str]) -> dict[float, Any]:
    """The cheaper cases of a gradient: those of the record whose own gradient takes the same inputs but the last."""
    cases = {}
    for value, case in record.details["cases"].items():
        of = (gradients(case) or [None])[operand : operand + 1]
        if of and of[0] is not None and of[0].record is not None and [*of[0].sources, sources[-1]] == sources:
            cases[value] = of[0].record
    return cases


def gradients(record: Any) -> list[Gradient | None] | None:
    """For each tensor operand of a pointwise record its Gradient, None where it is not differentiable."""
    from flambeau.ops import expr
    from flambeau.ops.record import Record
    from flambeau.ops.schema import Schema

    classes = [c for c in record.details["dtypes"] if c in "fc"]
    if record.vjp is None or not classes or record.details["result"] == "bool":
        return None
    select = record.details["select"]
    leaves = [expr.arg("g"), *(expr.arg(a.name) for a in record.schema.args if a.name != select), expr.arg("out")]
    table = record.vjp if isinstance(record.vjp, dict) else {"": record.vjp}
    variants: dict[str, tuple[Any, ...]] = {}
    for key, fn in table.items():
        variants[key] = tuple(None if x is None else expr.lift(x) for x in fn(*leaves))
    raw = dict(variants)
    if "c" in classes and not select:
        own = variants.get("c", variants.get(""))
        if "nonholomorphic" not in record.tags and own is not None and "c" not in table:
            own = tuple(None if x is None else expr.call("conj", _replace_g(x, expr)) for x in own)
        if own is not None:
            variants["c"] = own
    first = next(iter(variants.values()))
    operands = [a for a in record.schema.args if a.is_tensor]
    by_operand: list[Gradient | None] = []
    for i in range(len(operands)):
        if first[i] is None:
            by_operand.append(None)
            continue
        if all(v[i] is not None and v[i].op == "arg" and v[i].args[0] == "g" for v in raw.values()):
            by_operand.append(Gradient("identity"))
            continue
        if all(v[i] is not None and _is_zero(v[i]) for v in raw.values()):
            by_operand.append(Gradient("zero"))
            continue
        used = [
            a
            for a in record.schema.args
            if a.name != select and any(v[i] is not None and _mentions(v[i], a.name) for v in variants.values())
        ]
        out = any(v[i] is not None and _mentions(v[i], "out") for v in variants.values())
        parts = ["Tensor g", *(f"{'Tensor|Scalar' if a.is_tensor else a.type} {a.name}" for a in used)]
        sources = ["g", *(a.name for a in used)]
        if out:
            parts.append("Tensor out")
            sources.append("out")
        if select:
            parts.append(f"str {select}")
            sources.append(select)
        name = f"_grad_{record.name.replace('.', '_')}_{i}"
        schema = Schema.parse(f"{name}({', '.join(parts)}) -> Tensor")
        bodies = {k: (lambda *_, x=v[i]: x) for k, v in variants.items() if v[i] is not None}
        details = dict(
            record.details,
            table=bodies,
            dtypes="".join(classes),
            promote="default",
            result="same",
            check="",
            cases=_cases(record, i, sources),
            stored={},
            mask=tuple(m for m in record.details["mask"] if m in sources),
        )
        if sum(a.is_tensor for a in schema.args) > 4:
            raise ValueError(f"[gradients] expected at most four operands, got {schema.text}")
        derived = Record(
            schema, "pointwise", function=False, method=False, module="_ops", where=record.where, details=details
        )
        derived.tags = tuple(tag for tag in record.tags if tag == "scales")
        by_operand.append(Gradient("kernel", derived, tuple(sources)))
    return by_operand
