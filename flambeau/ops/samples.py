"""Samples: arguments with which an operator can be called, for tests of every record.

`of(record)` gives a function of a `Make`, which makes tensors of one dtype; the function yields calls. Samples of a family
are in `samples.py` of its folder; a record without any gets those that follow from its schema: pointwise and reduction
records in all layouts, others from the names and types of their arguments.

    @samples("mm")
    def mm(make):
        yield call(make(2, 3), make(3, 4))

Nothing here is imported by the package itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ops.record import RECORDS
from flambeau.ops.record import load as load_records
from flambeau.ops.rules import samples


class Call:
    """Arguments of one call. `result` picks from what the op returns, where not all of it is determined."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        self.result: Callable[[Any], Any] = lambda out: out

    def then(self, result: Callable[[Any], Any]) -> Call:
        self.result = result
        return self


class Constant:
    """A tensor for an argument in which the op is not differentiated."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class Through:
    """An argument that a function makes of a tensor, in which the op is differentiated: a matrix that has to be
    symmetric is not disturbed in single entries."""

    def __init__(self, function: Callable[[Any], Any], tensor: Any) -> None:
        self.function, self.tensor = function, tensor


WITHOUT = samples.absent  # name -> why it has no samples


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


def plain(value: Any) -> Any:
    """The arguments of a call, without a word about derivatives."""
    if isinstance(value, Constant):
        return value.tensor
    if isinstance(value, Through):
        return value.function(value.tensor)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return type(value)(map(plain, value)) if isinstance(value, (list, tuple)) else value


class Make:
    """Makes tensors for samples. Numbers are irregular but the same in every run, and keep away from zero, where many
    functions have a kink: their sizes are between `low` and `high`, their signs alternate unless low is given.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self._count = 0

    def _numbers(self, n: int, low: float, high: float) -> list[float]:
        """A low-discrepancy sequence, another for each tensor."""
        self._count += 1
        start = 0.37 * self._count
        return [low + (high - low) * ((start + 0.6180339887498949 * i) % 1.0) for i in range(n)]

    def __call__(self, *shape: int, low: float | None = None, high: float = 0.9) -> Any:
        import flambeau as fl

        n = 1
        for size in shape:
            n *= size
        values = self._numbers(n, 0.15 if low is None else low, high)
        if low is None:
            values = [-x if (i + self._count) % 3 == 0 else x for i, x in enumerate(values)]
        tensor = fl.tensor(values, dtype=fl.float64).reshape(shape)
        if self.dtype.is_complex:
            other = fl.tensor(self._numbers(n, 0.15, 0.9), dtype=fl.float64).reshape(shape)
            tensor = fl.complex(tensor, other)
        return tensor.to(self.dtype)

    def positive(self, *shape: int, low: float = 0.2, high: float = 0.9) -> Any:
        return self(*shape, low=low, high=high)

    def strided(self, *shape: int, low: float | None = None, high: float = 0.9) -> Any:
        """Not contiguous: the dimensions lie in reverse order, with a gap between the innermost elements."""
        wide = self(*(*shape[:0:-1], 2 * shape[0]), low=low, high=high) if shape else self(low=low, high=high)
        if not shape:
            return wide
        return wide[..., ::2].permute(*reversed(range(len(shape))))

    def matrix(self, *batch: int, n: int = 3) -> Any:
        """Far from singular."""
        import flambeau as fl

        return self(*batch, n, n) * 0.3 + 2 * fl.eye(n, dtype=self.dtype)

    def definite(self, *batch: int, n: int = 3) -> Through:
        """Hermitian and positive definite, with distinct eigenvalues."""
        import flambeau as fl

        steps = fl.diag(fl.arange(1, n + 1)).to(self.dtype)
        return Through(lambda x: x @ x.mH * 0.2 + steps, self(*batch, n, n))

    def constant(self, *shape: int, low: float | None = 0.2, high: float = 0.9) -> Constant:
        """Not to be differentiated in."""
        return Constant(self(*shape, low=low, high=high))

    def index(self, values: Any) -> Any:
        import flambeau as fl

        return fl.tensor(values, dtype=fl.int64)

    def mask(self, values: Any) -> Any:
        import flambeau as fl

        return fl.tensor(values, dtype=fl.bool)

    def real(self, *shape: int, low: float | None = None, high: float = 0.9) -> Any:
        """Of the real dtype that belongs to a complex one."""
        tensor = self(*shape, low=low, high=high)
        return tensor.real.clone() if tensor.is_complex() else tensor


def first(results: Any) -> Any:
    """Picks the first result, where the others are saved for backward and have no derivative."""
    return results[0]


# ---------------------------------------------------------------- derived from the schema

# Intervals on which functions are defined and smooth, of those that are not on +-[0.15, 0.9].
DOMAIN: dict[str, tuple[float, float]] = {}


def domain(interval: tuple[float, float], *names: str) -> None:
    """Derived samples of these records take their elements from an interval."""
    DOMAIN.update(dict.fromkeys(names, interval))


def _pointwise(record: Any) -> Callable[[Make], Iterator[Call]]:
    """In every layout: plain, broadcast, not contiguous, without dimensions, without elements, and with numbers."""
    args = record.schema.args
    low, high = DOMAIN.get(record.schema.name, (None, 0.9))
    tensors = [a for a in args if a.is_tensor]

    def fill(make: Make, layout: Callable[[int], Any], number: bool = False) -> Call:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        place = 0
        for a in args:
            if a.name in record.details["mask"]:
                shape = layout(place).shape
                import flambeau as fl

                value: Any = fl.arange(max(1, _product(shape)))[: _product(shape)].reshape(shape) % 2 == 0
                place += 1
            elif a.is_tensor and not (number and a.type == "Tensor|Scalar"):
                value = layout(place)
                place += 1
            elif a.is_tensor:
                value = 0.7
            elif a.default is None:
                value = {"bool": False, "str": "none", "int": 1}.get(a.type, 0.3)
            else:
                continue
            if a.keyword_only:
                named[a.name] = value
            else:
                positional.append(value)
        return Call(tuple(positional), named)

    def generate(make: Make) -> Iterator[Call]:
        shapes = [(2, 3), (3,), (2, 1)]
        yield fill(make, lambda i: make(2, 3, low=low, high=high))
        yield fill(make, lambda i: make.strided(3, 2, low=low, high=high))
        yield fill(make, lambda i: make(low=low, high=high))
        yield fill(make, lambda i: make(0, 3, low=low, high=high))
        if len(tensors) > 1:
            yield fill(make, lambda i: make(*shapes[i % 3], low=low, high=high))
            yield fill(make, lambda i: make(*shapes[::-1][i % 3], low=low, high=high))
        if any(a.type == "Tensor|Scalar" for a in args[1:]):
            yield fill(make, lambda i: make(2, 3, low=low, high=high), number=True)

    return generate


def _reduction(record: Any) -> Callable[[Make], Iterator[Call]]:
    names = [a.name for a in record.schema.args]
    needs_dim = any(a.name == "dim" and a.default is None for a in record.schema.args)
    single = any(a.name == "dim" and a.type.rstrip("?") == "int" for a in record.schema.args)

    def generate(make: Make) -> Iterator[Call]:
        if not needs_dim:
            yield call(make(2, 3))
            yield call(make())
        if "dim" in names:
            yield call(make(2, 3), 1)
            yield call(make.strided(2, 3), dim=0, keepdim=True)
            if not single:
                yield call(make(2, 2, 3), dim=(0, 2))
            yield call(make(3, 0), dim=0)
        if record.details.get("identity", True) and not needs_dim and record.schema.name != "mean":
            yield call(make(0, 2))

    return generate


_NUMBERS = {"float": 0.3, "Scalar": 0.3, "bool": False, "int[]": [0], "int[1]": [0], "int[2]": [0], "int[3]": [0]}


def _schema(record: Any) -> Callable[[Make], Iterator[Call]]:
    """Tensors of two by three, the last dimension; the rest by default."""

    def fill(make: Make, tensor: Callable[[], Any]) -> Call | None:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for a in record.schema.args:
            kind = a.type.replace("(!)", "")
            if a.default is not None:
                continue
            if kind in ("Tensor", "Tensor|Scalar"):
                value: Any = tensor()
            elif kind == "Tensor[]":
                value = [tensor(), tensor()]
            elif kind == "int":
                value = -1 if a.name.startswith(("dim", "axis")) else 1
            elif kind in _NUMBERS:
                value = _NUMBERS[kind]
            elif kind.endswith("?"):
                value = None
            else:
                return None
            if a.keyword_only:
                named[a.name] = value
            else:
                positional.append(value)
        return Call(tuple(positional), named)

    def generate(make: Make) -> Iterator[Call]:
        for sample in (fill(make, lambda: make.positive(2, 3)), fill(make, lambda: make.strided(2, 3, low=0.2))):
            if sample is None:
                raise LookupError(f"[samples] expected samples of {record.name} to be written, got none")
            yield sample

    return generate


def _product(shape: Any) -> int:
    n = 1
    for size in shape:
        n *= size
    return n


# ---------------------------------------------------------------- all records


def load() -> dict[str, Any]:
    """All records, with `WITHOUT` and `DOMAIN` filled in."""
    samples.all()
    return dict(load_records())


def of(record: Any) -> Callable[[Make], Iterator[Call]]:
    """What makes the samples of a record."""
    own = samples.find(record.name)
    if own is not None:
        return own
    original = record.alias_of
    derived = {"pointwise": _pointwise, "reduction": _reduction}.get(record.kind)
    if original not in ("", record.name) and (samples.find(original) is not None or derived is None):
        return of(RECORDS[original])
    return (derived or _schema)(record)
