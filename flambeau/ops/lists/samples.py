"""Samples of operators over lists of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ops.record import load
from flambeau.ops.samples import Call, Make, call, samples


def _foreach(record: Any) -> Callable[[Make], Iterator[Call]]:
    """A list of two tensors for each list, two numbers for each list of numbers, and no dimensions for one tensor."""

    def one(make: Make, argument: Any) -> Any:
        kind = argument.type.replace("(!)", "")
        if kind == "Tensor[]":
            return [make.positive(2, 3), make.strided(3, 2, low=0.2)]
        if kind == "Tensor|Scalar[]":
            return [0.3, 0.7]
        return make.positive() if kind == "Tensor" else 0.3

    def generate(make: Make) -> Iterator[Call]:
        yield call(*(one(make, a) for a in record.schema.args if a.default is None))

    return generate


_WITH_TENSOR = (
    "_foreach_addcmul.Tensor",
    "_foreach_addcdiv.Tensor",
    "_foreach_addcmul_.Tensor",
    "_foreach_addcdiv_.Tensor",
)
_WITH_OWN = ("_foreach_mm", *_WITH_TENSOR)


@samples("_foreach_mm")
def foreach_mm(make: Make) -> Iterator[Call]:
    yield call([make(2, 3), make(1, 2)], [make(3, 2), make(2, 2)])


@samples(*_WITH_TENSOR)
def foreach_with_tensor(make: Make) -> Iterator[Call]:
    lists = [[make.positive(2, 3), make.positive(2)] for _ in range(3)]
    yield call(*lists, make.constant(2))


for _name, _record in load().items():
    if _name.startswith("_foreach_") and _name not in _WITH_OWN:
        samples(_name)(_foreach(_record))


samples.without(
    "a step of an optimizer or of a gradient scaler, which writes in place",
    *(
        record.name
        for record in load().values()
        if record.name.startswith(("_update_", "_fused_", "_amp_")) and record.where.startswith(f"{__package__}.")
    ),
)
