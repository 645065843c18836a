"""Shape rules of creation, copies and conversions."""

from __future__ import annotations

from typing import Any

from flambeau.ops.geometry import Geometry, Int, Ints, fits, of_self, of_size_argument, require
from flambeau.ops.rules import shape
from flambeau.ops.symbolic.numbers import SymInt, hint_of, sym_max
from flambeau.ops.views.shapes import as_strided

shape(
    *(
        "clone _lazy_clone contiguous _to_copy to.dtype to.device to.other type_as cpu _to_cpu float double half "
        "bfloat16 int long short char byte bool cfloat cdouble empty_like zeros_like ones_like full_like "
        "zero_ fill_ fill copy_.number"
    ).split()
)(of_self)
shape("empty", "zeros", "ones", "full", "new_empty", "new_zeros", "new_ones", "new_full")(of_size_argument)
shape("_set_storage_")(as_strided)


@shape("copy_")
def copy_(self: Geometry, src: Geometry) -> Ints:
    fits(src.sizes, self.sizes, "copy_")
    return self.sizes


@shape("eye")
def eye(n: Int) -> Ints:
    return n, n


@shape("eye.m")
def eye_m(n: Int, m: Int) -> Ints:
    return n, m


@shape("arange", "arange.start", "arange.start_step")
def arange(start: Any, end: Any, step: Any) -> Ints:
    start, step = (0 if start is None else start), (1 if step is None else step)
    for value in (start, end, step):
        if not isinstance(value, (int, SymInt)):
            raise NotImplementedError
    if step < 0:
        start, end, step = -start, -end, -step
    count = end - start if hint_of(step) == 1 and type(step) is int else (end - start + step - 1) // step
    require(count >= 0, f"[arange] expected an end beyond the start, got {start} and {end}")
    return (sym_max(count, 0),)


@shape("linspace", "logspace")
def linspace(steps: Int) -> Ints:
    return (steps,)


@shape("empty_strided", "new_empty_strided")
def empty_strided(size: Ints, stride: Ints) -> Geometry:
    return Geometry(tuple(size), tuple(stride), 0)
