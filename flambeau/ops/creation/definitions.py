"""Definitions of creation, copies and conversions in terms of other operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.rules import definition

definition.without(
    "a primitive",
    "copy_",
    "fill_",
)


def _options(like: Any, options: dict[str, Any]) -> dict[str, Any]:
    """dtype and device of a result, from keywords or from a tensor."""
    return {
        "dtype": options.get("dtype") or like.dtype,
        "device": options.get("device") or like.device,
    }


def _fill(value: Any) -> Callable[..., Any]:
    return lambda size, dtype=None, device=None, **_: fl.empty(size, dtype=dtype, device=device).fill_(value)


definition("zeros")(_fill(0))
definition("ones")(_fill(1))


@definition("eye", "eye.m")
def eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    out = fl.zeros([n, n if m is None else m], dtype=dtype, device=device)
    out.diagonal().fill_(1)
    return out


@definition("full")
def full(size: Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    if dtype is None:
        kind = type(fill_value)
        dtype = {bool: fl.bool, int: fl.int64, complex: fl.complex64}.get(kind, fl.get_default_dtype())
    return fl.empty(size, dtype=dtype, device=device).fill_(fill_value)


def _like(value: Any) -> Callable[..., Any]:
    return lambda self, **options: fl.empty_like(self, **options).fill_(value)


definition("zeros_like")(_like(0))
definition("ones_like")(_like(1))
definition("full_like")(lambda self, fill_value, **options: fl.empty_like(self, **options).fill_(fill_value))
definition("new_zeros")(lambda self, size, **options: fl.empty(size, **_options(self, options)).fill_(0))
definition("new_ones")(lambda self, size, **options: fl.empty(size, **_options(self, options)).fill_(1))
definition("new_full")(
    lambda self, size, fill_value, **options: fl.empty(size, **_options(self, options)).fill_(fill_value)
)
definition("new_empty")(lambda self, size, **options: fl.empty(size, **_options(self, options)))
definition("scalar_tensor")(lambda s, dtype=None, device=None, **_: fl.empty((), dtype=dtype, device=device).fill_(s))
definition("zero_")(lambda self: self.fill_(0))
definition("fill")(lambda self, value: fl.empty_like(self).fill_(value))


@definition("empty_like")
def empty_like(self: Any, *, memory_format: Any = None, **options: Any) -> Any:
    shape = fl.empty_strided(self.shape, self.stride(), dtype=self.dtype, device="meta")
    shape = fl.empty_like(shape, memory_format=memory_format)
    return fl.empty_strided(shape.shape, shape.stride(), **_options(self, options))


@definition("clone")
def clone(self: Any, *, memory_format: Any = None) -> Any:
    return fl.empty_like(self, memory_format=memory_format).copy_(self)


@definition("_to_copy")
def _to_copy(self: Any, *, non_blocking: bool = False, memory_format: Any = None, **options: Any) -> Any:
    shape = fl.empty_like(fl.empty_strided(self.shape, self.stride(), device="meta"), memory_format=memory_format)
    out = fl.empty_strided(shape.shape, shape.stride(), **_options(self, options))
    return out.copy_(self, non_blocking)


def on_host(name: str) -> Callable[..., Any]:
    """Make the values on the CPU, where sequences and random streams live, and copy them."""

    def make(*args: Any, device: Any = None, **options: Any) -> Any:
        host = [a.cpu() if isinstance(a, fl.Tensor) else a for a in args]
        place = device if device is not None else next(a.device for a in args if isinstance(a, fl.Tensor))
        on_cpu = fl._C._operator_object(name)(*host, **({"device": "cpu"} if device is not None else {}), **options)
        return on_cpu.to(place)

    return make


@definition("contiguous")
def contiguous(self: Any, memory_format: Any = fl.contiguous_format) -> Any:
    return self if self.is_contiguous(memory_format=memory_format) else self.clone(memory_format=memory_format)


@definition("to.dtype")
def to_dtype(self: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    return (
        self if self.dtype == dtype and not copy else fl._ops._to_copy(self, dtype=dtype, memory_format=memory_format)
    )


@definition("to.device")
def to_device(
    self: Any,
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Any:
    from flambeau._tensor.device import canonical

    there = device is None or canonical(device) in (self.device, getattr(self, "fake_device", None))
    if there and not copy and (dtype is None or dtype == self.dtype):
        return self
    return fl._ops._to_copy(self, dtype=dtype, device=device, memory_format=memory_format)


@definition("to.other")
def to_other(self: Any, other: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    return to_device(self, other.device, other.dtype, non_blocking, copy, memory_format)


definition("copy_.number")(lambda self, src, non_blocking=False: self.fill_(src))
definition("type_as")(lambda self, other: self.to(other.dtype))
for _name, _dtype in {
    "float": fl.float32, "double": fl.float64, "half": fl.float16, "bfloat16": fl.bfloat16, "int": fl.int32,
    "long": fl.int64, "short": fl.int16, "char": fl.int8, "byte": fl.uint8, "bool": fl.bool, "cfloat": fl.complex64,
    "cdouble": fl.complex128,
}.items():  # fmt: skip
    definition(_name)(
        lambda self, memory_format=None, _dtype=_dtype: to_dtype(self, _dtype, memory_format=memory_format)
    )
for _name in "arange arange.start arange.start_step range linspace logspace".split():
    definition(_name)(on_host(_name))
