"""The namespace of the array API standard: all its names, and where they differ from the package's own functions."""

from __future__ import annotations

import pytest

import flambeau as fl
from flambeau import array_api as xp

NAMES = (
    "abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and "
    "bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bool broadcast_arrays broadcast_to "
    "can_cast ceil clip complex128 complex64 concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum "
    "diff divide e empty empty_like equal exp expand_dims expm1 eye finfo flip float32 float64 floor floor_divide "
    "from_dlpack full full_like greater greater_equal hypot iinfo imag inf int16 int32 int64 int8 isdtype isfinite isinf "
    "isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul "
    "matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply nan negative newaxis nextafter nonzero "
    "not_equal ones ones_like permute_dims pi positive pow prod real reciprocal remainder repeat reshape result_type roll "
    "round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std subtract sum take take_along_axis tan "
    "tanh tensordot tile tril triu trunc uint16 uint32 uint64 uint8 unique_all unique_counts unique_inverse "
    "unique_values unstack var vecdot where zeros zeros_like"
).split()


def test_all_names_are_there():
    assert set(NAMES) == set(xp.__all__)
    assert fl.ones(1).__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ValueError, match="expected a version"):
        fl.ones(1).__array_namespace__(api_version="2999.12")


def test_array_api_compat_finds_the_namespace():
    compat = pytest.importorskip("array_api_compat")
    assert compat.array_namespace(fl.ones(1)) is xp


@pytest.mark.parametrize(
    "result, expected",
    [
        (lambda: xp.sum(fl.tensor([200, 100], dtype=fl.uint8)).item(), 300),
        (lambda: xp.prod(fl.tensor([[1, 2], [3, 4]], dtype=fl.int8), axis=(0, 1)).dtype, fl.int64),
        (lambda: xp.var(fl.tensor([1.0, 3.0])).item(), 1.0),
        (lambda: xp.std(fl.tensor([[1.0, 3.0]]), axis=1, keepdims=True).tolist(), [[1.0]]),
        (lambda: xp.max(fl.tensor(3.0)).item(), 3.0),
        (lambda: xp.unique_all(fl.tensor([3, 1, 3]))[1].tolist(), [1, 0]),
        (lambda: xp.cumulative_sum(fl.tensor([1, 2]), include_initial=True).tolist(), [0, 1, 3]),
        (lambda: xp.eye(2, 3, k=1).tolist(), [[0, 1, 0], [0, 0, 1]]),
        (lambda: xp.meshgrid(fl.arange(2), fl.arange(3))[0].shape, (3, 2)),
        (lambda: xp.ceil(fl.tensor([3])).dtype, fl.int64),
        (lambda: xp.result_type(xp.int8, 3.0), fl.float32),
        (lambda: xp.result_type(xp.uint16, xp.int16, xp.uint8), fl.int32),
        (lambda: xp.can_cast(xp.uint64, xp.int64), False),
        (lambda: xp.add(fl.tensor([1], dtype=fl.uint16), fl.tensor([-1], dtype=fl.int8)).tolist(), [0]),
        (lambda: xp.maximum(fl.tensor([1.0, 3.0]), 2).tolist(), [2.0, 3.0]),
        (lambda: xp.less(2, fl.tensor([1, 3])).tolist(), [False, True]),
        (lambda: xp.roll(fl.tensor([[1, 2], [3, 4]]), 1).tolist(), [[4, 1], [2, 3]]),
        (lambda: xp.repeat(fl.tensor([1, 2]), fl.tensor([2, 1], dtype=fl.int8)).tolist(), [1, 1, 2]),
        (lambda: str(xp.sign(fl.tensor([float("nan"), -2.0])).tolist()), "[nan, -1.0]"),
        (lambda: xp.linalg.cross(fl.ones(0, 3), fl.ones(3)).shape, (0, 3)),
        (lambda: xp.isdtype(xp.uint8, ("bool", "integral")), True),
        (lambda: xp.finfo(fl.ones(1, dtype=fl.complex128)).dtype, fl.float64),
        (lambda: xp.arange(3, 1).shape, (0,)),
        (lambda: xp.arange(1, 6, 2, dtype=xp.uint16).tolist(), [1, 3, 5]),
        (lambda: xp.concat([fl.ones(2, 2), fl.ones(1)], axis=None).shape, (5,)),
        (lambda: xp.linalg.trace(fl.ones(2, 3, 3), offset=1).tolist(), [2.0, 2.0]),
        (lambda: xp.linalg.vecdot(fl.ones(2, 3), fl.ones(3), axis=-1).tolist(), [3.0, 3.0]),
        (lambda: xp.fft.fftn(fl.ones(2, 2), axes=(1,)).real.tolist(), [[2.0, 0.0], [2.0, 0.0]]),
        (lambda: xp.argsort(fl.tensor([2, 2, 1]), descending=True).tolist(), [0, 1, 2]),
        (lambda: sorted(xp.__array_namespace_info__().dtypes(kind="real floating")), ["float32", "float64"]),
    ],
)
def test_functions_of_the_standard(result, expected):
    assert result() == expected


def test_squeeze_refuses_what_is_not_one():
    with pytest.raises(ValueError, match="expected size 1 along axis 0, got 2"):
        xp.squeeze(fl.ones(2, 1), axis=0)
