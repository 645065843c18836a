"""Shape rules of losses."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Ints, check_bias, equal_sizes
from flambeau.ops.rules import shape


@shape("_nll_loss_backward")
def nll_loss_backward(sizes: Ints) -> Ints:
    return tuple(sizes)


@shape("_cross_entropy_backward")
def cross_entropy_backward(self: Geometry) -> Ints:
    return self.sizes


def _check_classes(self: Geometry, target: Geometry, weight: Geometry | None) -> None:
    classes = 1 if len(self.sizes) > 1 else 0
    rest = [size for i, size in enumerate(self.sizes) if i != classes]
    for own, wanted in zip(target.sizes, rest):
        equal_sizes(own, wanted, "targets")
    check_bias(weight, self.sizes[classes])


@shape("_cross_entropy_forward")
def cross_entropy(self: Geometry, target: Geometry, weight: Geometry | None, reduction: int) -> list[Ints]:
    _check_classes(self, target, weight)
    return [target.sizes if reduction == 0 else (), (), target.sizes]


@shape("_nll_loss_forward")
def nll_loss(self: Geometry, target: Geometry, weight: Geometry | None, reduction: int) -> list[Ints]:
    _check_classes(self, target, weight)
    return [target.sizes if reduction == 0 else (), ()]
