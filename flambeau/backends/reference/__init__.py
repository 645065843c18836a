"""A device in plain Python, named "ref": every kernel is a loop over numbers, written to be read.

It shows what a device has to provide (docs/new-device.md walks through it), and being independent of the other kernels
it is their judge in tests. Importing this module registers it.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.backends import register_device
from flambeau.backends.records import empty_as, shape_of
from flambeau.backends.reference import scalar
from flambeau.backends.reference.memory import converter, read, write

# ---------------------------------------------------------------------------------------------- record expressions


def _reader(dtype: Any) -> Callable[[Any], Any]:
    """Numbers as kernels compute with them: bool as an integer."""
    return int if dtype is fl.bool else converter(dtype)


_functions: dict[Any, Callable[..., Any]] = {}  # by the key of their expression


def pointwise(expr: Any, operands: dict[str, Any], out: Any, dtype: Any) -> None:
    """Evaluate a record's expression for every element of out."""
    convert = _reader(dtype)
    element = _functions.get((expr.key, dtype, *operands))
    if element is None:
        element = _functions[expr.key, dtype, *operands] = scalar.function(expr, list(operands), dtype)
    columns = []
    for value in operands.values():
        if isinstance(value, fl.Tensor):
            columns.append([convert(x) for x in read(value)])
        else:
            columns.append(
                itertools.repeat(value if isinstance(value, (bool, str)) or value is None else convert(value))  # type: ignore[arg-type]
            )
    rows = itertools.islice(zip(*columns), out.numel()) if columns else itertools.repeat((), out.numel())
    write(out, [element(*row) for row in rows])


def reduction(plan: Any, source: Any, out: Any) -> None:
    """Reduce source along plan.dims; out has size 1 there."""
    names = list(plan.parameters)
    convert = _reader(plan.dtype)
    values = [convert(v) for v in plan.parameters.values()]
    load = scalar.function(plan.load, ["x", *names], plan.dtype)
    combined = fl.float64 if plan.accumulate == "real" else plan.dtype
    combine = scalar.function(plan.combine, ["a", "b"], combined)
    finish = scalar.function(plan.finish, ["a", "n", *names], combined)
    results = []
    finals = list(plan.parameters.values()) if plan.accumulate == "real" else values
    plain = plan.accumulate != "same" or isinstance(plan.init, str)
    init = plan.init if plain else convert(plan.init)
    for line in _lines(source, plan.dims):
        loaded = [load(convert(x), *values) for x in line]
        if plan.accumulate == "real":
            loaded = [x.real if isinstance(x, complex) else x for x in loaded]
        # The first element stands for an init that is an end of the dtype's range.
        start = loaded.pop(0) if isinstance(init, str) else init
        count = float(len(line)) if plan.accumulate == "real" else convert(len(line))
        results.append(finish(functools.reduce(combine, loaded, start), count, *finals))
    write(out, results)


def _lines(t: Any, dims: Sequence[int]) -> list[list[Any]]:
    """The elements that share an index in all dimensions but `dims`, one list for each such index."""
    rest = [d for d in range(t.dim()) if d not in dims]
    length = math.prod(t.shape[d] for d in dims)
    count = math.prod(t.shape[d] for d in rest)
    flat = read(t.permute([*rest, *dims]))
    return [flat[i * length : (i + 1) * length] for i in range(count)]


device = register_device(
    "ref",
    pointwise=pointwise,
    reduction=reduction,
    lacks={"poisson|binomial|_standard_gamma|_sample_dirichlet": "draws numbers until they fit, which the host does"},
)


def _write_lines(out: Any, dim: int, lines: Sequence[Sequence[Any]]) -> Any:
    """The inverse of _lines for one dimension."""
    rest = [d for d in range(out.dim()) if d != dim]
    write(out.permute([*rest, dim]) if out.dim() else out, list(itertools.chain.from_iterable(lines)))
    return out


def _result(op: str, *args: Any, **kwargs: Any) -> Any:
    """Memory for the results of an operator."""
    like = next(a for a in args if isinstance(a, fl.Tensor))
    return empty_as(shape_of(fl._C._operator_object(op), args, kwargs), like.device)


# ---------------------------------------------------------------------------------------------- memory


@device.kernel("copy_", any_device=True)
def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Between any two of CPU and ref: both are bytes of this process."""
    for t in (self, src):
        if t.device.type not in ("cpu", "ref"):
            raise NotImplementedError(f"[copy_] expected a tensor on cpu or ref, got one on {t.device}")
    write(self, read(src.expand(self.shape)))
    return self


@device.kernel("fill_", any_device=True)
def fill_(self: Any, value: Any) -> Any:
    number = value.item() if isinstance(value, fl.Tensor) else value
    write(self, [number] * self.numel())
    return self


# ---------------------------------------------------------------------------------------------- products


@device.kernel("mm")
def mm(self: Any, mat2: Any) -> Any:
    out = _result("mm", self, mat2)
    columns = _lines(mat2, [0])
    product = [sum(map(operator.mul, row, column), 0) for row in _lines(self, [1]) for column in columns]
    write(out, product)
    return out


# ---------------------------------------------------------------------------------------------- indexing


def _places(index: Any, dim: int, size: int, op: str) -> list[tuple[int, ...]]:
    """For each element of an index tensor, where it points: its own position with `dim` replaced."""
    positions = itertools.product(*(range(n) for n in index.shape))
    places = []
    for position, target in zip(positions, read(index)):
        if not -size <= target < size:
            raise IndexError(f"[{op}] expected an index in [{-size}, {size - 1}], got {target}")
        places.append((*position[:dim], target % size, *position[dim + 1 :]))
    return places


def _table(t: Any) -> dict[tuple[int, ...], Any]:
    return dict(zip(itertools.product(*(range(n) for n in t.shape)), read(t)))


@device.kernel("gather")
def gather(self: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    out = _result("gather", self, dim, index)
    if self.dim() == 0 or index.dim() == 0:
        write(out, read(self.reshape(-1)[:1]) * out.numel())
        return out
    elements = _table(self)
    dim %= self.dim()
    write(out, [elements[p] for p in _places(index, dim, self.shape[dim], "gather")])
    return out


def _scatter(op: str, self: Any, dim: int, index: Any, src: Any, combine: Callable[[Any, Any], Any]) -> Any:
    _result(op, self, dim, index, src)  # the checks of the meta kernel
    out = fl.empty(self.shape, dtype=self.dtype, device=self.device)
    if self.dim() == 0:
        self, index, src = self.reshape(1), index.reshape(-1), src.reshape(-1)
    elements = _table(self)
    dim %= self.dim()
    window = src[tuple(slice(0, n) for n in index.shape)] if src.dim() else src
    for place, value in zip(_places(index, dim, self.shape[dim], op), read(window)):
        elements[place] = combine(elements[place], value)
    write(out, list(elements.values()))
    return out


@device.kernel("scatter.src")
def scatter(self: Any, dim: int, index: Any, src: Any) -> Any:
    return _scatter("scatter.src", self, dim, index, src, lambda old, new: new)


@device.kernel("scatter_add")
def scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    return _scatter("scatter_add", self, dim, index, src, operator.add)


@device.kernel("nonzero")
def nonzero(self: Any) -> Any:
    positions = [position for position, value in _table(self).items() if value != 0]
    out = fl.empty((len(positions), self.dim()), dtype=fl.int64, device=self.device)
    write(out, [i for position in positions for i in position])
    return out


# ---------------------------------------------------------------------------------------------- scans and sorting


def _scan(op: str, self: Any, dim: int, dtype: Any, combine: Callable[[Any, Any], Any]) -> Any:
    out = _result(op, self, dim, dtype=dtype)
    if self.dim() == 0:
        write(out, read(self))
        return out
    convert = _reader(out.dtype)
    dim %= self.dim()
    return _write_lines(
        out, dim, [list(itertools.accumulate(map(convert, line), combine)) for line in _lines(self, [dim])]
    )


@device.kernel("cumsum")
def cumsum(self: Any, dim: int, *, dtype: Any = None) -> Any:
    return _scan("cumsum", self, dim, dtype, operator.add)


@device.kernel("cumprod")
def cumprod(self: Any, dim: int, *, dtype: Any = None) -> Any:
    return _scan("cumprod", self, dim, dtype, operator.mul)


@device.kernel("sort", "sort.stable")
def sort(self: Any, dim: int = -1, descending: bool = False, *, stable: Any = None) -> Any:
    values = fl.empty(self.shape, dtype=self.dtype, device=self.device)
    indices = fl.empty(self.shape, dtype=fl.int64, device=self.device)
    if self.dim() == 0:
        return values.copy_(self), indices.fill_(0)
    dim %= self.dim()
    sign = -1 if descending else 1
    orders = []
    for line in _lines(self, [dim]):
        # nan is larger than everything; sorting is stable both ways.
        keys = [(sign * (x != x), 0 if x != x else sign * x) for x in line]
        orders.append((line, sorted(range(len(line)), key=keys.__getitem__)))
    _write_lines(values, dim, [[line[i] for i in order] for line, order in orders])
    _write_lines(indices, dim, [order for _, order in orders])
    return values, indices
