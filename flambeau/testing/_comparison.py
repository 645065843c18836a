"""`assert_close`: tensors, numbers and nested containers of them agree within tolerances.

Two inputs are first paired leaf by leaf, which fails where their structures differ; then the pairs are compared and the
first mismatch is reported with its place.
"""

from __future__ import annotations

import cmath
import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flambeau

# Relative and absolute tolerance by dtype name; everything else must be equal.
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
_NUMBER_DTYPES = {float: "float64", complex: "complex128"}


@dataclasses.dataclass(frozen=True)
class _Options:
    """What the caller asked for."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


class _Mismatch(Exception):
    """A difference, at a place in the containers."""

    def __init__(self, message: str, place: tuple[Any, ...]) -> None:
        super().__init__(_located(message, place))


def _located(message: str, place: tuple[Any, ...]) -> str:
    """A message, followed by the place in the containers it is about."""
    where = "".join(f"[{key!r}]" for key in place)
    return message + (f"\n\nThe failure occurred for item {where}" if place else "")


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    Tensors, arrays, numbers, None, and sequences and mappings of them are compared. Tolerances left out follow from the
    dtypes; give both or neither. `msg` replaces the message, or is called with it.
    """
    if (rtol is None) != (atol is None):
        absent = "rtol" if rtol is None else "atol"
        raise ValueError(f"[assert_close] expected rtol and atol or neither, got no {absent}")
    options = _Options(allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride)
    failure = None
    try:
        for compare, left, right, place in _pairs(actual, expected, (), options):
            compare(left, right, place, options)
    except _Mismatch as mismatch:
        failure = str(mismatch)
    if failure is not None:
        raise AssertionError(failure if msg is None else msg(failure) if callable(msg) else msg)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """Deprecated: `assert_close` without checks of device, dtype and stride."""
    warnings.warn("assert_allclose is deprecated, use assert_close instead", FutureWarning, stacklevel=2)
    if not isinstance(actual, flambeau.Tensor):
        actual = flambeau.tensor(actual)
    if not isinstance(expected, flambeau.Tensor):
        expected = flambeau.tensor(expected, dtype=actual.dtype)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )


# ---------------------------------------------------------------------------------------------- pairing

_Pair = tuple[Callable[[Any, Any, tuple[Any, ...], _Options], None], Any, Any, tuple[Any, ...]]


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _pairs(actual: Any, expected: Any, place: tuple[Any, ...], options: _Options) -> list[_Pair]:
    """The leaves to compare, each with the function that compares them."""
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            raise _Mismatch(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", place)
        return [
            pair
            for index, (left, right) in enumerate(zip(actual, expected))
            for pair in _pairs(left, right, (*place, index), options)
        ]
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        missing, additional = set(expected) - set(actual), set(actual) - set(expected)
        if missing or additional:
            raise _Mismatch(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
                f"Additional keys in the actual mapping: {sorted(additional, key=str)}",
                place,
            )
        try:
            keys = sorted(actual)
        except TypeError:
            keys = list(actual)
        return [pair for key in keys for pair in _pairs(actual[key], expected[key], (*place, key), options)]
    return [(_comparison(actual, expected, place, options), actual, expected, place)]


def _comparison(actual: Any, expected: Any, place: tuple[Any, ...], options: _Options) -> Callable[..., None]:
    """The function that compares two leaves of these kinds."""
    if actual is None or expected is None:
        return _compare_none
    if isinstance(actual, bool) and isinstance(expected, bool):
        return _compare_booleans
    numbers = (int, float, complex)
    if isinstance(actual, numbers) and isinstance(expected, numbers):
        return _compare_numbers
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if related and (options.allow_subclasses or type(actual) is type(expected)):
        if isinstance(actual, flambeau.Tensor):
            return _compare_tensors
        if hasattr(actual, "__array__") or hasattr(actual, "__dlpack__"):
            return _compare_arrays
    message = f"[assert_close] expected tensors, numbers, or containers of these of one kind, got {type(actual).__name__} and {type(expected).__name__}"
    raise TypeError(_located(message, place))


# ---------------------------------------------------------------------------------------------- comparing


def _tolerances(names: list[str | None], options: _Options) -> tuple[float, float]:
    """The caller's relative and absolute tolerance, or the widest for these dtypes."""
    if options.rtol is not None and options.atol is not None:
        return options.rtol, options.atol
    pairs = [_TOLERANCES.get(name or "", (0.0, 0.0)) for name in names]
    return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)


def _compare_none(actual: Any, expected: Any, place: tuple[Any, ...], options: _Options) -> None:
    if not (actual is None and expected is None):
        raise _Mismatch(f"None mismatch: {actual} is not {expected}", place)


def _compare_booleans(actual: bool, expected: bool, place: tuple[Any, ...], options: _Options) -> None:
    if actual is not expected:
        raise _Mismatch(f"Booleans mismatch: {actual} is not {expected}", place)


def _compare_numbers(actual: Any, expected: Any, place: tuple[Any, ...], options: _Options) -> None:
    if options.check_dtype and type(actual) is not type(expected):
        raise _Mismatch(f"The (d)types do not match: {type(actual)} != {type(expected)}.", place)
    names = [_NUMBER_DTYPES.get(type(value)) for value in (actual, expected)]
    _compare_scalars(actual, expected, *_tolerances(names, options), place, options)


def _compare_scalars(
    actual: Any, expected: Any, rtol: float, atol: float, place: tuple[Any, ...], options: _Options
) -> None:
    """Compare two Python numbers."""
    if options.equal_nan and cmath.isnan(actual) and cmath.isnan(expected):
        return
    difference = abs(actual - expected)
    within = cmath.isfinite(difference) and difference <= atol + rtol * abs(expected)
    if actual == expected or within:
        return
    exact = rtol == 0 and atol == 0
    relative = difference / abs(expected) if expected != 0 else float("inf")
    raise _Mismatch(
        f"Scalars are not {'equal' if exact else 'close'}!\n\n"
        f"Expected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{'' if exact else f' (up to {atol} allowed)'}\n"
        f"Relative difference: {relative}{'' if exact else f' (up to {rtol} allowed)'}",
        place,
    )


def _compare_arrays(actual: Any, expected: Any, place: tuple[Any, ...], options: _Options) -> None:
    _compare_tensors(flambeau.as_tensor(actual), flambeau.as_tensor(expected), place, options)


def _check_attributes(actual: Any, expected: Any, place: tuple[Any, ...], options: _Options) -> None:
    """Shape, and whatever else the caller wants to agree."""

    def check(name: str, left: Any, right: Any) -> None:
        if left != right:
            raise _Mismatch(f"The values for attribute '{name}' do not match: {left} != {right}.", place)

    check("shape", actual.shape, expected.shape)
    if options.check_layout:
        check("layout", actual.layout, expected.layout)
    if options.check_stride:
        check("stride()", actual.stride(), expected.stride())
    if options.check_device:
        check("device", actual.device, expected.device)
    if options.check_dtype:
        check("dtype", actual.dtype, expected.dtype)


def _compare_tensors(actual: Any, expected: Any, place: tuple[Any, ...], options: _Options) -> None:
    _check_attributes(actual, expected, place, options)
    if actual.device.type == "meta" or expected.device.type == "meta":
        return
    names = [str(tensor.dtype).rsplit(".", 1)[-1] for tensor in (actual, expected)]
    rtol, atol = _tolerances(names, options)  # type: ignore[arg-type]
    actual, expected = actual.detach(), expected.detach()
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    if actual.dtype != expected.dtype:
        common = flambeau.promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(common), expected.to(common)
    if actual.layout != expected.layout:
        actual, expected = (t if t.layout is flambeau.strided else t.to_dense() for t in (actual, expected))
    if actual.layout is not flambeau.strided:
        _compare_sparse(actual, expected, rtol, atol, place, options)
        return
    _compare_values(actual, expected, rtol, atol, place, options)


def _compare_sparse(actual: Any, expected: Any, rtol: float, atol: float, place: Any, options: _Options) -> None:
    """The patterns, which have to be equal, and the values."""
    coordinates = actual.layout is flambeau.sparse_coo
    kind = "COO" if coordinates else str(actual.layout).rsplit("_", 1)[-1].upper()
    if actual._nnz() != expected._nnz():
        raise _Mismatch(
            f"The number of specified values in sparse {kind} tensors does not match: {actual._nnz()} != {expected._nnz()}",
            place,
        )
    if coordinates:
        names = ["indices"]
        actual, expected = actual.coalesce(), expected.coalesce()
    else:
        names = ["crow_indices", "col_indices"] if kind in ("CSR", "BSR") else ["ccol_indices", "row_indices"]
    for name in names:
        what = f"Sparse {kind} {name}"
        _compare_values(getattr(actual, name)(), getattr(expected, name)(), 0.0, 0.0, place, options, what)
    _compare_values(actual.values(), expected.values(), rtol, atol, place, options, f"Sparse {kind} values")


def _compare_values(
    actual: Any, expected: Any, rtol: float, atol: float, place: Any, options: _Options, what: str = "Tensor-likes"
) -> None:
    matches = flambeau.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=options.equal_nan)
    if bool(matches.all()):
        return
    if actual.dim() == 0:
        _compare_scalars(actual.item(), expected.item(), rtol, atol, place, options)
        return
    raise _Mismatch(_describe(actual, expected, matches, rtol, atol, what), place)


def _describe(actual: Any, expected: Any, matches: Any, rtol: float, atol: float, what: str = "Tensor-likes") -> str:
    """How many elements differ, and where the most."""
    if not (actual.dtype.is_floating_point or actual.dtype.is_complex):
        # Differences of narrow, unsigned and boolean values need room.
        actual, expected = actual.to(flambeau.int64), expected.to(flambeau.int64)
    total, wrong = matches.numel(), int((~matches).sum())
    difference = (actual - expected).abs()
    relative = difference / expected.abs()
    exact = rtol == 0 and atol == 0

    def greatest(kind: str, values: Any, allowed: float) -> str:
        values = flambeau.where(matches, flambeau.zeros_like(values), values).flatten()
        position = int(values.argmax())
        index = []
        for size in reversed(matches.shape):
            position, remainder = divmod(position, size)
            index.append(remainder)
        worst = values.max().item()
        limit = "" if exact else f" (up to {allowed} allowed)"
        return f"Greatest {kind} difference: {worst} at index {tuple(reversed(index))}{limit}"

    return "\n".join(
        [
            f"{what} are not {'equal' if exact else 'close'}!\n",
            f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})",
            greatest("absolute", difference, atol),
            greatest("relative", relative, rtol),
        ]
    )
