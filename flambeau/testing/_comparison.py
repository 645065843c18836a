"""`assert_close`: tensors, numbers and nested containers of them agree within tolerances.

Two inputs are first paired leaf by leaf, which fails where their structures differ; then each pair compares itself. Test
suites of other libraries derive their own pairs from these classes and pass them to `not_close_error_metas`.
"""

from __future__ import annotations

import abc
import cmath
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

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
Message = str | Callable[[str], str] | None


class ErrorMeta(Exception):
    """An error that is not yet raised: its class, its message and the place in the containers it is about."""

    def __init__(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> None:
        super().__init__(f"{type.__name__}: {msg}")
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg: Message = None) -> Exception:
        """The error itself; `msg` replaces the message, or is called with it."""
        if isinstance(msg, str):
            return self.type(msg)
        where = "".join(f"[{key!r}]" for key in self.id)
        full = self.msg + (f"\n\nThe failure occurred for item {where}" if where else "")
        return self.type(msg(full) if callable(msg) else full)


class UnsupportedInputs(Exception):
    """A kind of pair is not for these inputs: the next one is tried."""


# ---------------------------------------------------------------------------------------------- tolerances


def default_tolerances(
    *inputs: Any, dtype_precisions: dict[Any, tuple[float, float]] | None = None
) -> tuple[float, float]:
    """The widest relative and absolute tolerance for the dtypes, given themselves or by tensors."""
    pairs = []
    for value in inputs:
        dtype = value.dtype if isinstance(value, flambeau.Tensor) else value
        if not isinstance(dtype, flambeau.dtype):
            raise TypeError(f"[default_tolerances] expected tensors or dtypes, got {type(value).__name__}")
        table = _TOLERANCES.get(str(dtype).rsplit(".", 1)[-1], (0.0, 0.0))
        pairs.append((dtype_precisions or {}).get(dtype, (0.0, 0.0) if dtype_precisions is not None else table))
    return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)


def get_tolerances(
    *inputs: Any, rtol: float | None, atol: float | None, id: tuple[Any, ...] = ()
) -> tuple[float, float]:
    """The caller's tolerances, or those of the dtypes."""
    if (rtol is None) != (atol is None):
        absent = "rtol" if rtol is None else "atol"
        raise ErrorMeta(ValueError, f"[assert_close] expected rtol and atol or neither, got no {absent}", id=id)
    return default_tolerances(*inputs) if rtol is None or atol is None else (rtol, atol)


# ---------------------------------------------------------------------------------------------- pairs


class Pair(abc.ABC):
    """Two leaves. A kind that is not for them raises `UnsupportedInputs` when it is made."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **unknown_parameters: Any) -> None:
        self.actual, self.expected, self.id = actual, expected, id
        self._unknown_parameters = unknown_parameters

    @staticmethod
    def _inputs_not_supported() -> NoReturn:
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs: Any, cls: type | tuple[type, ...]) -> None:
        if not all(isinstance(value, cls) for value in inputs):
            Pair._inputs_not_supported()

    def _fail(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> NoReturn:
        raise ErrorMeta(type, msg, id=id or getattr(self, "id", ()))

    @abc.abstractmethod
    def compare(self) -> None:
        """Raise `ErrorMeta` where the two differ."""

    def extra_repr(self) -> Sequence[str | tuple[str, Any]]:
        """Names of attributes, or names with values, to print."""
        return ()

    def __repr__(self) -> str:
        extra = [(e, getattr(self, e)) if isinstance(e, str) else e for e in self.extra_repr()]
        entries = [("id", self.id), ("actual", self.actual), ("expected", self.expected), *extra]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in entries)})"


class ObjectPair(Pair):
    """Anything, by `==`."""

    def compare(self) -> None:
        try:
            equal = self.actual == self.expected
        except Exception as error:
            self._fail(ValueError, f"{self.actual} == {self.expected} failed with: {error}")
        if not equal:
            self._fail(AssertionError, f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """At least one None."""

    def __init__(self, actual: Any, expected: Any, **other_parameters: Any) -> None:
        if actual is not None and expected is not None:
            self._inputs_not_supported()
        super().__init__(actual, expected, **other_parameters)

    def compare(self) -> None:
        if not (self.actual is None and self.expected is None):
            self._fail(AssertionError, f"None mismatch: {self.actual} is not {self.expected}")


class BooleanPair(Pair):
    """Two booleans."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...], **other_parameters: Any) -> None:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        super().__init__(bool(actual), bool(expected), id=id, **other_parameters)

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return (bool, *_numpy_types("bool_"))

    def compare(self) -> None:
        if self.actual is not self.expected:
            self._fail(AssertionError, f"Booleans mismatch: {self.actual} is not {self.expected}")


class NumberPair(Pair):
    """Two Python or NumPy numbers."""

    _TYPE_TO_DTYPE: ClassVar[dict[type, Any]] = {
        int: flambeau.int64,
        float: flambeau.float64,
        complex: flambeau.complex128,
    }
    _NUMBER_TYPES = tuple(_TYPE_TO_DTYPE)

    def __init__(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), rtol: float | None = None,
        atol: float | None = None, equal_nan: bool = False, check_dtype: bool = False, **other_parameters: Any,
    ) -> None:  # fmt: skip
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        actual, expected = (v.item() if isinstance(v, _numpy_types("number")) else v for v in (actual, expected))
        super().__init__(actual, expected, id=id, **other_parameters)
        dtypes = [self._TYPE_TO_DTYPE.get(type(value), flambeau.int64) for value in (actual, expected)]
        self.rtol, self.atol = get_tolerances(*dtypes, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_dtype = equal_nan, check_dtype

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return (*self._NUMBER_TYPES, *_numpy_types("number"))

    def compare(self) -> None:
        if self.check_dtype and type(self.actual) is not type(self.expected):
            self._fail(AssertionError, f"The (d)types do not match: {type(self.actual)} != {type(self.expected)}.")
        if not _are_close(self.actual, self.expected, self.rtol, self.atol, self.equal_nan):
            message = make_scalar_mismatch_msg(self.actual, self.expected, rtol=self.rtol, atol=self.atol)
            self._fail(AssertionError, message)

    def extra_repr(self) -> Sequence[str]:
        return ("rtol", "atol", "equal_nan", "check_dtype")


class TensorLikePair(Pair):
    """Two tensors, or two values of one kind that tensors can be made of."""

    def __init__(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), allow_subclasses: bool = True,
        rtol: float | None = None, atol: float | None = None, equal_nan: bool = False, check_device: bool = True,
        check_dtype: bool = True, check_layout: bool = True, check_stride: bool = False, **other_parameters: Any,
    ) -> None:  # fmt: skip
        actual, expected = self._process_inputs(actual, expected, id=id, allow_subclasses=allow_subclasses)
        super().__init__(actual, expected, id=id, **other_parameters)
        self.rtol, self.atol = get_tolerances(actual, expected, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_device, self.check_dtype = equal_nan, check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _process_inputs(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...], allow_subclasses: bool
    ) -> tuple[Any, Any]:
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or not (allow_subclasses or type(actual) is type(expected)):
            self._inputs_not_supported()
        return self._to_tensor(actual), self._to_tensor(expected)

    def _to_tensor(self, value: Any) -> Any:
        if isinstance(value, flambeau.Tensor):
            return value
        if not (hasattr(value, "__array__") or hasattr(value, "__dlpack__")):
            self._inputs_not_supported()
        return flambeau.as_tensor(value)

    def compare(self) -> None:
        self._compare_attributes(self.actual, self.expected)
        if "meta" not in (self.actual.device.type, self.expected.device.type):
            self._compare_values(*self._equalize_attributes(self.actual, self.expected))

    def _compare_attributes(self, actual: Any, expected: Any) -> None:
        """Shape, and whatever else the caller wants to agree."""

        def check(name: str, left: Any, right: Any) -> None:
            if left != right:
                self._fail(AssertionError, f"The values for attribute '{name}' do not match: {left} != {right}.")

        check("shape", actual.shape, expected.shape)
        if self.check_layout:
            check("layout", actual.layout, expected.layout)
        if self.check_stride:
            check("stride()", actual.stride(), expected.stride())
        if self.check_device:
            check("device", actual.device, expected.device)
        if self.check_dtype:
            check("dtype", actual.dtype, expected.dtype)

    def _equalize_attributes(self, actual: Any, expected: Any) -> tuple[Any, Any]:
        """Both on one device, in one dtype and layout."""
        actual, expected = actual.detach(), expected.detach()
        if actual.device != expected.device:
            actual, expected = actual.cpu(), expected.cpu()
        if actual.dtype != expected.dtype:
            common = flambeau.promote_types(actual.dtype, expected.dtype)
            actual, expected = actual.to(common), expected.to(common)
        if actual.layout != expected.layout:
            actual, expected = (t if t.layout is flambeau.strided else t.to_dense() for t in (actual, expected))
        return actual, expected

    def _compare_values(self, actual: Any, expected: Any) -> None:
        if actual.layout is not flambeau.strided:
            self._compare_sparse(actual, expected)
        else:
            self._compare_elements(actual, expected, self.rtol, self.atol)

    def _compare_sparse(self, actual: Any, expected: Any) -> None:
        """The patterns, which have to be equal, and the values."""
        coordinates = actual.layout is flambeau.sparse_coo
        kind = "COO" if coordinates else str(actual.layout).rsplit("_", 1)[-1].upper()
        if actual._nnz() != expected._nnz():
            counts = f"{actual._nnz()} != {expected._nnz()}"
            self._fail(
                AssertionError, f"The number of specified values in sparse {kind} tensors does not match: {counts}"
            )
        if coordinates:
            names = ["indices"]
            actual, expected = actual.coalesce(), expected.coalesce()
        else:
            names = ["crow_indices", "col_indices"] if kind in ("CSR", "BSR") else ["ccol_indices", "row_indices"]
        for name in names:
            self._compare_elements(
                getattr(actual, name)(), getattr(expected, name)(), 0.0, 0.0, f"Sparse {kind} {name}"
            )
        self._compare_elements(actual.values(), expected.values(), self.rtol, self.atol, f"Sparse {kind} values")

    def _compare_elements(
        self, actual: Any, expected: Any, rtol: float, atol: float, identifier: str | None = None
    ) -> None:
        matches = flambeau.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if bool(matches.all()):
            return
        if actual.dim() == 0:
            message = make_scalar_mismatch_msg(
                actual.item(), expected.item(), rtol=rtol, atol=atol, identifier=identifier
            )
        else:
            message = make_tensor_mismatch_msg(actual, expected, matches, rtol=rtol, atol=atol, identifier=identifier)
        self._fail(AssertionError, message)

    def extra_repr(self) -> Sequence[str]:
        return ("rtol", "atol", "equal_nan", "check_device", "check_dtype", "check_layout", "check_stride")


def _numpy_types(name: str) -> tuple[type, ...]:
    """NumPy's class of that name, where NumPy is loaded."""
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (getattr(numpy, name),)


# ---------------------------------------------------------------------------------------------- messages


def _are_close(actual: Any, expected: Any, rtol: float, atol: float, equal_nan: bool) -> bool:
    """Whether two numbers agree."""
    if equal_nan and cmath.isnan(actual) and cmath.isnan(expected):
        return True
    difference = abs(actual - expected)
    within = cmath.isfinite(difference) and difference <= atol + rtol * abs(expected)
    return bool(actual == expected or within)


def _heading(default: str, identifier: str | Callable[[str], str] | None, exact: bool) -> str:
    name = identifier(default) if callable(identifier) else identifier or default
    return f"{name} are not {'equal' if exact else 'close'}!\n\n"


def make_scalar_mismatch_msg(
    actual: Any, expected: Any, *, rtol: float, atol: float, identifier: str | Callable[[str], str] | None = None
) -> str:
    """What differs between two numbers."""
    difference = abs(actual - expected)
    relative = difference / abs(expected) if expected != 0 else float("inf")
    exact = rtol == 0 and atol == 0
    return (
        _heading("Scalars", identifier, exact) + f"Expected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{'' if exact else f' (up to {atol} allowed)'}\n"
        f"Relative difference: {relative}{'' if exact else f' (up to {rtol} allowed)'}"
    )


def make_tensor_mismatch_msg(
    actual: Any, expected: Any, matches: Any, *, rtol: float, atol: float,
    identifier: str | Callable[[str], str] | None = None,
) -> str:  # fmt: skip
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

    return _heading("Tensor-likes", identifier, exact) + "\n".join(
        [
            f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})",
            greatest("absolute", difference, atol),
            greatest("relative", relative, rtol),
        ]
    )


# ---------------------------------------------------------------------------------------------- pairing


def originate_pairs(
    actual: Any, expected: Any, *, pair_types: Sequence[type[Pair]], sequence_types: tuple[type, ...] = (Sequence,),
    mapping_types: tuple[type, ...] = (Mapping,), id: tuple[Any, ...] = (), **options: Any,
) -> list[Pair]:  # fmt: skip
    """The pairs of leaves; `ErrorMeta` where the structures differ."""

    def nested(left: Any, right: Any, key: Any) -> list[Pair]:
        kinds: dict[str, Any] = {
            "pair_types": pair_types,
            "sequence_types": sequence_types,
            "mapping_types": mapping_types,
        }
        return originate_pairs(left, right, id=(*id, key), **kinds, **options)

    def are_both(kinds: tuple[type, ...]) -> bool:
        return all(isinstance(value, kinds) and not isinstance(value, str) for value in (actual, expected))

    if are_both(sequence_types):
        if len(actual) != len(expected):
            message = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            raise ErrorMeta(AssertionError, message, id=id)
        return [pair for key in range(len(actual)) for pair in nested(actual[key], expected[key], key)]
    if are_both(mapping_types):
        missing, additional = set(expected) - set(actual), set(actual) - set(expected)
        if missing or additional:
            message = (
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
                f"Additional keys in the actual mapping: {sorted(additional, key=str)}"
            )
            raise ErrorMeta(AssertionError, message, id=id)
        try:
            keys = sorted(actual)
        except TypeError:
            keys = list(actual)
        return [pair for key in keys for pair in nested(actual[key], expected[key], key)]
    for kind in pair_types:
        try:
            return [kind(actual, expected, id=id, **options)]
        except UnsupportedInputs:
            continue
    names = f"{type(actual).__name__} and {type(expected).__name__}"
    message = f"[assert_close] expected tensors, numbers, or containers of these of one kind, got {names}"
    raise ErrorMeta(TypeError, message, id=id)


def not_close_error_metas(
    actual: Any, expected: Any, *, pair_types: Sequence[type[Pair]] = (ObjectPair,),
    sequence_types: tuple[type, ...] = (Sequence,), mapping_types: tuple[type, ...] = (Mapping,), **options: Any,
) -> list[ErrorMeta]:  # fmt: skip
    """What differs between the two, one error for each pair of leaves."""
    try:
        pairs = originate_pairs(
            actual, expected, pair_types=pair_types, sequence_types=sequence_types, mapping_types=mapping_types,
            **options,
        )  # fmt: skip
    except ErrorMeta as error:
        return [error]
    errors = []
    for pair in pairs:
        try:
            pair.compare()
        except ErrorMeta as error:
            errors.append(error)
    return errors


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
    msg: Message = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    Tensors, arrays, numbers, None, and sequences and mappings of them are compared. Tolerances left out follow from the
    dtypes; give both or neither. `msg` replaces the message, or is called with it.
    """
    errors = not_close_error_metas(
        actual, expected, pair_types=(NonePair, BooleanPair, NumberPair, TensorLikePair),
        allow_subclasses=allow_subclasses, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=check_device,
        check_dtype=check_dtype, check_layout=check_layout, check_stride=check_stride,
    )  # fmt: skip
    if errors:
        raise errors[0].to_error(msg)


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
