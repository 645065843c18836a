"""Definitions of operators over lists of tensors in terms of other operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.ops.lists import foreach, update_evaluation  # noqa: F401 - the records
from flambeau.ops.record import RECORDS
from flambeau.ops.rules import aten_parts, definition
from flambeau.ops.symbolic.shape_env import DataDependentOutput


@definition("_amp_foreach_non_finite_check_and_unscale_")
def _amp_foreach_non_finite_check_and_unscale_(self: Sequence[Any], found_inf: Any, inv_scale: Any) -> None:
    """No value is read by the host, so that nothing waits for the device."""
    for grad in self:
        finite = fl.all(fl.isfinite(grad))
        found_inf.copy_(fl.where(finite, found_inf, 1.0))
        grad.mul_(inv_scale)


def _for_each(record: Any) -> Callable[..., Any]:
    """The operator on one tensor, called at each position of the lists."""
    formals = record.schema.args

    def by_position(*args: Any, **kwargs: Any) -> Any:
        target = _C._operator_object(record.details["target"])
        places = [a.name for a in target._schema.arguments]
        names = [a.name if a.name in places else places[i] for i, a in enumerate(formals)]
        values = [*args, *(kwargs[a.name] for a in formals[len(args) :])]
        lists = [isinstance(value, (list, tuple)) for value in values]
        if any(a.name == "scalars" and isinstance(v, fl.Tensor) for a, v in zip(formals, values)):
            raise DataDependentOutput(f"[{record.name}] expected numbers that are known, got a tensor of them")
        results = []
        for at in range(max(len(v) for v, is_list in zip(values, lists) if is_list)):
            picked = {n: v[at] if is_list else v for n, v, is_list in zip(names, values, lists)}
            results.append(target(**picked))
        return results if record.schema.returns != "()" else None

    return by_position


for _record in RECORDS.values():
    if _record.kind == "each":
        definition(_record.name)(_for_each(_record))


# ---------------------------------------------------------------- as ATen has them


def _update_as_aten(name: str) -> Callable[..., None]:
    """A step of an optimizer, operator by operator. What is no tensor of a handler, such as the count of steps, is written
    once."""

    def update(*args: Any, **kwargs: Any) -> None:
        update_evaluation.run(name, *args, **kwargs)

    return update


for _record in RECORDS.values():
    if _record.kind == "update":
        aten_parts(_record.name)(_update_as_aten(_record.name))
