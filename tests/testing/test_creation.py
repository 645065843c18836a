"""make_tensor: values, bounds and memory layout."""

import pytest

import flambeau as torch
from flambeau.testing import make_tensor

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
INTEGER = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGER, torch.bool], ids=str)
def test_values_lie_within_the_default_bounds(dtype):
    values = make_tensor(100, dtype=dtype, device="cpu")
    assert values.dtype == dtype and values.shape == (100,)
    low = 0 if dtype in (torch.uint8, torch.bool) else -9
    assert all(low <= value <= 10 for value in values.tolist())
    assert len(set(values.tolist())) > 1


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGER], ids=str)
def test_bounds(dtype):
    assert all(
        2 <= value <= 4 for value in make_tensor((5, 5), dtype=dtype, device="cpu", low=2, high=4).flatten().tolist()
    )


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_bounds_hold_for_both_parts(dtype):
    for value in make_tensor(20, dtype=dtype, device="cpu", low=1, high=2).tolist():
        assert 1 <= value.real <= 2 and 1 <= value.imag <= 2


@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX, *INTEGER, torch.bool], ids=str)
def test_zero_can_be_excluded(dtype):
    values = make_tensor(50, dtype=dtype, device="cpu", low=0, high=2, exclude_zero=True)
    assert all(value != 0 for value in values.tolist())


def test_shapes():
    assert make_tensor(dtype=torch.float32, device="cpu").shape == ()
    assert make_tensor(2, 3, dtype=torch.float32, device="cpu").shape == (2, 3)
    assert make_tensor([2, 0], dtype=torch.float32, device="cpu").shape == (2, 0)


def test_layout_and_gradient():
    spread = make_tensor(3, 4, dtype=torch.float32, device="cpu", noncontiguous=True, requires_grad=True)
    assert spread.shape == (3, 4) and not spread.is_contiguous()
    assert spread.requires_grad and spread.is_leaf
    image = make_tensor(2, 3, 4, 5, dtype=torch.float32, device="cpu", memory_format=torch.channels_last)
    assert image.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"low": 5, "high": 3}, "expected low < high"),
        ({"low": float("nan")}, "cannot be NaN"),
        ({"noncontiguous": True, "memory_format": torch.contiguous_format}, "mutually exclusive"),
        ({"dtype": torch.uint8, "low": 300, "high": 400}, "only supports"),
        ({"dtype": torch.int64, "requires_grad": True}, "not supported for boolean and integral"),
    ],
    ids=lambda value: None,
)
def test_bad_arguments(options, text):
    with pytest.raises(ValueError, match=text):
        make_tensor(3, **{"dtype": torch.float32, "device": "cpu", **options})
