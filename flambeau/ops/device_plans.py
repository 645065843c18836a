"""Op records as registered devices get them: expressions with a stable key and the name of their record.

In:  the name of a record and the dtype in which it computes.
Out: `KeyedExpr` for pointwise records, `ReductionPlan` and `UpdatePlan`. Shapes and dtypes are settled by then
     (csrc/ops/outside.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import flambeau
from flambeau.backends.records import dtype_class, pick
from flambeau.ops.expr import Expr, arg, fingerprint, lift
from flambeau.ops.record import Record, find

__all__ = [
    "KeyedExpr", "ReductionPlan", "UpdatePlan", "keyed", "pointwise_kernel", "reduction_plan", "update_plan",
]  # fmt: skip


class KeyedExpr(Expr):
    """An expression handed to a device. `key` is the same in every process for the same arithmetic, so that what is
    compiled of it can be kept on disk; `name` is the record it comes from."""

    __slots__ = ("key", "name", "names", "select")

    def __init__(self, name: str, expr: Expr, names: tuple[str, ...] = (), select: str | None = None) -> None:
        super().__init__(expr.op, *expr.args)
        self.name, self.names, self.select = name, names, select
        self.key = fingerprint(expr)


def _record(name: str) -> Record:
    record = find(name)
    assert record is not None, name
    return record


def keyed(name: str, expr: Any) -> KeyedExpr:
    return KeyedExpr(name, lift(expr))


def pointwise_kernel(name: str, variant: str | None, dtype: Any) -> KeyedExpr:
    """The expression of a pointwise record for a dtype: its operands in the order of `names`, tensors first."""
    record = _record(name)
    details = record.details
    select = details["select"] or None
    arguments = [a for a in record.schema.args if a.name != select]
    table = details["table"]
    function = table[variant] if select else pick(table, dtype_class(dtype))
    expr = lift(function(*(arg(a.name) for a in arguments)))
    names = [a.name for a in arguments if a.is_tensor] + [a.name for a in arguments if not a.is_tensor]
    return KeyedExpr(name, expr, tuple(names), select)


@dataclass
class ReductionPlan:
    """A reduction: finish(combine(... combine(init, load(x)) ...), n), over `dims` of the source."""

    name: str  # of the record
    key: str  # the same in every process for the same arithmetic
    init: Any  # a number, or "lowest" / "highest" for the ends of the dtype's range
    load: Any  # expression of arg("x")
    combine: Any  # of arg("a") and arg("b")
    finish: Any  # of arg("a") and arg("n")
    dtype: Any  # in which elements are read
    accumulate: str  # what is combined: "same" as read, "int", "bool" or "real"
    dims: list[int] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)  # scalars that load and finish may refer to
    has_dim: bool = True  # the operator takes dimensions,
    takes_dims: bool = True  # as a list
    takes_dtype: bool = False

    @property
    def is_linear(self) -> bool:
        """Whether it is a sum of the elements, perhaps divided by their number."""
        sums = (self.load.op, self.combine.op) == ("arg", "add")
        return sums and (self.finish.op == "arg" or [a.op for a in self.finish.args] == ["arg", "arg"])


def of_loaded(plan: ReductionPlan, dtype: Any) -> ReductionPlan:
    """The reduction of elements that have been read already, in a dtype."""
    load = arg("x")
    parts = [str(plan.init), plan.accumulate, *map(fingerprint, (load, plan.combine, plan.finish))]
    return replace(plan, load=load, key="-".join(parts), dtype=dtype)


def reduction_plan(
    cache: dict[Any, Any], name: str, parameters: tuple[Any, ...], dims: list[int], dtype: Any
) -> ReductionPlan:
    """The plan of a reduction record; all but dimensions and parameters is kept in `cache`."""
    entry = cache.get((name, dtype))
    if entry is None:
        entry = cache[name, dtype] = _reduction(name, dtype)
    common, names = entry
    return ReductionPlan(**{**common, "dims": dims, "parameters": dict(zip(names, parameters))})


def _reduction(name: str, dtype: Any) -> tuple[dict[str, Any], list[str]]:
    record = _record(name)
    details = record.details
    if details["result"] == "sum" and dtype is flambeau.bool:
        dtype = flambeau.int64
    arguments = {a.name: a for a in record.schema.args}
    names = [n for n in arguments if n not in ("self", "dim", "keepdim", "dtype")]
    leaves = [arg(n) for n in names]
    x, a, b, n = map(arg, "xabn")
    load = lift(pick(details["load"], dtype_class(dtype))(x, *leaves))
    combine, finish = lift(details["combine"](a, b)), lift(details["finish"](a, n, *leaves))
    key = "-".join([str(details["init"]), details["accumulate"], *map(fingerprint, (load, combine, finish))])
    common = {
        "name": name, "key": key, "init": details["init"], "load": load, "combine": combine, "finish": finish,
        "dtype": dtype, "accumulate": details["accumulate"], "has_dim": "dim" in arguments,
        "takes_dims": "dim" in arguments and "[" in arguments["dim"].type, "takes_dtype": "dtype" in arguments,
    }  # fmt: skip
    return common, names


@dataclass
class UpdatePlan:
    """An update of lists of tensors in place: a new value for each of `outputs`, all from the values before."""

    name: str
    key: str
    outputs: dict[str, KeyedExpr]  # by the name of the list that is written
    lists: list[str]  # operands that are tensors
    states: list[str]  # numbers of each position
    numbers: list[str]  # numbers of the whole call


def update_plan(cache: dict[Any, Any], name: str) -> UpdatePlan:
    plan = cache.get(("update", name))
    if plan is None:
        record = _record(name)
        scalars = record.details["scalars"]
        arguments = record.schema.args
        outputs = record.details["expr"](*(arg(a.name) for a in arguments))
        lists = [a.name for a in arguments if "[]" in a.type and a.name not in scalars]
        keyed_outputs = {n: KeyedExpr(f"{name}.{n}", lift(x)) for n, x in outputs.items() if n in lists}
        numbers = [a.name for a in arguments if "[]" not in a.type]
        key = "-".join(x.key for x in keyed_outputs.values())
        plan = cache["update", name] = UpdatePlan(name, key, keyed_outputs, lists, list(scalars), numbers)
    return plan
