"""Random operators in StableHLO: the expressions over Philox words of `flambeau.ops.philox`, with the state as an input.

A program takes a row of numbers for each operator that draws: both halves of the seed and of the offset. So a new seed compiles
nothing, and XLA draws what the CPU draws. What an operator asks for (a distribution and its parameters) is learnt by running it
on a device of its own that notes the request and draws nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue
from flambeau.backends import register_device
from flambeau.ops import philox

__all__ = ["draw", "operators", "state_rows"]

_PROBE = "xla_draws"
_ROW = ("key0", "key1", "counter2", "counter3")
_LOW = 0xFFFFFFFF


@functools.cache
def operators() -> frozenset[str]:
    """Names of the operators that draw and do nothing else."""
    from flambeau.ops import tags

    return frozenset(tags.operators("only_draws"))


def state_rows(draws: int) -> Any:
    """The input of a program: the state of the CPU's generator for each of its draws."""
    generator = fl._C._default_generator(fl.device("cpu"))
    seed, offset = generator.initial_seed(), generator.get_offset()
    rows = [[seed & _LOW, seed >> 32, at & _LOW, at >> 32] for at in range(offset, offset + draws)]
    return fl.tensor(rows, dtype=fl.int64)


# ---------------------------------------------------------------- what an operator asks for


@functools.cache
def _probe() -> Any:
    device = register_device(_PROBE, pointwise=lambda expr, operands, out, dtype: None, accelerator=False)
    device.requests = []
    device._random = lambda out, *request: device.requests.append(request)  # type: ignore[method-assign]
    fl._C._serve_device(_PROBE, device, 8)
    return device


def _request(call: RecordedCall) -> tuple[Any, ...] | None:
    """(kind, wide, seed, offset, a, b, bits, range, low) of an operator, or None where it draws nothing."""
    device = _probe()
    device.requests.clear()

    def there(value: Any) -> Any:
        if isinstance(value, RecordedValue):
            return fl.empty_strided(value.size, value.stride, dtype=value.dtype, device=_PROBE)
        return fl.device(_PROBE) if isinstance(value, fl.device) else value

    keywords = {k: there(v) for k, v in call.kwargs.items()}
    if not any(isinstance(a, RecordedValue) for a in call.args):
        keywords["device"] = fl.device(_PROBE)
    call.op(*map(there, call.args), **keywords)
    return device.requests[-1] if device.requests else None


# ---------------------------------------------------------------- printing


class _Drawer:
    """Prints the expressions of one request; stands for `philox._Drawer`."""

    def __init__(self, printer: Any, n: int, row: dict[str, Any]) -> None:
        self.printer, self.size = printer, (n,)
        self.index = printer.iota(0, (n,))
        self.row = {name: printer.broadcast(value, (n,), []) for name, value in row.items()}
        self.result: Any = None

    def _leaf(self, value: Any, dtype: Any) -> Any:
        if isinstance(value, (int, float)):
            return self.printer.constant(value, self.size, dtype)
        return self.printer.convert(value, dtype)

    def integers(self, name: str, expr: Any, out: Any = None, **more: Any) -> Any:
        leaves = {"i": self.index, **self.row, **{k: self._leaf(v, fl.int64) for k, v in more.items()}}
        value = self.printer.expression(expr, leaves, self.size, fl.int64)
        if out is not None:
            self.result = value
        return value

    def reals(self, name: str, expr: Any, out: Any, wide: bool, **operands: Any) -> None:
        dtype = fl.float64 if wide else fl.float32
        leaves = {k: self._leaf(v, dtype) for k, v in operands.items()}
        self.result = self.printer.expression(expr, leaves, self.size, dtype)


class _Out:
    """The tensor that a request fills, as `philox` sees it."""

    def __init__(self, drawer: _Drawer) -> None:
        self.drawer = drawer

    def fill_(self, value: int) -> None:
        self.drawer.result = self.drawer.printer.constant(value, self.drawer.size, fl.int64)


def draw(printer: Any, call: RecordedCall) -> None:
    """Prints one operator that draws."""
    target = call.writes[0] if call.writes else call.results[0]
    assert target is not None
    row = printer.state_row()
    request = _request(call)
    n = 1
    for size in target.size:
        n *= size
    if request is None or n == 0:
        return printer.result(call, printer.constant(0, target.size, target.dtype))
    kind, wide, _, _, a, b, bits, span, low = request
    drawer = _Drawer(printer, n, dict(zip(_ROW, row)))
    out = _Out(drawer)
    if kind in (philox.RANGE32, philox.RANGE64, philox.BERNOULLI):
        philox._integers(drawer, out, kind, span, low)  # type: ignore[arg-type]
    elif kind in (philox.NORMAL, philox.LOG_NORMAL):
        philox._normals(drawer, out, kind, bool(wide), a, b)  # type: ignore[arg-type]
    else:
        philox._by_inversion(drawer, out, kind, bool(wide) or kind == philox.GEOMETRIC, a, b, bits)  # type: ignore[arg-type]
    printer.result(call, printer.reshape(drawer.result, target.size))
