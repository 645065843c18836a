"""Definitions of creation, copies and conversions in terms of other operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.backends import widest_float
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


@definition("_lazy_clone")
@definition("clone")
def clone(self: Any, *, memory_format: Any = None) -> Any:
    return fl.empty_like(self, memory_format=memory_format).copy_(self)


@definition("_to_copy")
def _to_copy(self: Any, *, non_blocking: bool = False, memory_format: Any = None, **options: Any) -> Any:
    shape = fl.empty_like(fl.empty_strided(self.shape, self.stride(), device="meta"), memory_format=memory_format)
    out = fl.empty_strided(shape.shape, shape.stride(), **_options(self, options))
    return out.copy_(self, non_blocking)


def _indices(n: int, device: Any) -> Any:
    """0 to n - 1 on a device, as int64: it is doubled in length until it is long enough."""
    from flambeau.backends import registered

    kind = fl.device(device).type if device is not None else "cpu"
    if kind in registered and registered[kind].pointwise is not None:
        return registered[kind].indices(n)
    numbers, done = fl.empty(n, dtype=fl.int64, device=device), 1
    numbers.narrow(0, 0, min(n, 1)).fill_(0)
    while done < n:
        more = min(done, n - done)
        numbers.narrow(0, done, more).copy_(numbers.narrow(0, 0, more) + done)
        done *= 2
    return numbers


def _shape_on_meta(name: str, args: Any, options: dict[str, Any]) -> Any:
    """What the operator's own kernel says about dtype and length, with its checks."""
    return fl._C._operator_object(name)(*args, **{**options, "device": "meta"})


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, fl.Tensor) else value


def _sequence(name: str, first: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """first + i * step, in integers or in double precision as the CPU does."""

    def make(*args: Any, device: Any = None, **options: Any) -> Any:
        meta = _shape_on_meta(name, args, options)
        start, step = first(*args)
        out = fl.empty(meta.shape, dtype=meta.dtype, device=device)
        i = _indices(meta.numel(), out.device)
        if meta.dtype.is_floating_point:
            return out.copy_(i.to(widest_float(i.device)) * float(step) + float(start))
        return out.copy_(i * int(step) + int(start))

    return make


definition("arange")(_sequence("arange", lambda end: (0, 1)))
definition("arange.start")(_sequence("arange.start", lambda start, end: (start, 1)))
definition("arange.start_step")(_sequence("arange.start_step", lambda start, end, step=1: (start, step)))
definition("range")(_sequence("range", lambda start, end, step=1: (start, step)))


def _spaced(name: str) -> Callable[..., Any]:
    """Evenly spaced numbers, computed from the nearer end so that both ends are exact."""

    def make(start: Any, end: Any, steps: int, base: float = 10.0, *, device: Any = None, **options: Any) -> Any:
        a, b = _number(start), _number(end)
        if device is None:
            device = next((t.device for t in (start, end) if isinstance(t, fl.Tensor) and not t.is_cpu), None)
        args = (a, b, steps) if name == "linspace" else (a, b, steps, base)
        meta = _shape_on_meta(name, args, options)
        wide = fl.complex128 if meta.is_complex() else widest_float(device)
        step = (b - a) / (steps - 1) if steps > 1 else 0.0
        i = _indices(steps, device).to(wide)
        values = fl.where(_indices(steps, device) < steps // 2, a + i * step, b - (steps - 1 - i) * step)
        if steps == 1:
            values = values * 0 + a
        if name == "logspace":
            values = fl.pow(float(base), values)
        elif not (meta.is_floating_point() or meta.is_complex()):
            values = fl.trunc(values)
        return fl.empty(meta.shape, dtype=meta.dtype, device=device).copy_(values)

    return make


definition("linspace")(_spaced("linspace"))
definition("logspace")(_spaced("logspace"))


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
