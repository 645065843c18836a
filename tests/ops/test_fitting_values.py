"""Numbers that a dtype cannot hold are refused where a tensor is filled with them."""

import math

import pytest

import flambeau as fl

INDEX = fl.tensor([0])
MASK = fl.tensor([True, False])

FILLS = {
    "full": lambda v, t: fl.full((2,), v, dtype=t),
    "fill_": lambda v, t: fl.zeros(2, dtype=t).fill_(v),
    "full_like": lambda v, t: fl.full_like(fl.zeros(2, dtype=t), v),
    "new_full": lambda v, t: fl.zeros(2, dtype=t).new_full((2,), v),
    "masked_fill": lambda v, t: fl.zeros(2, dtype=t).masked_fill(MASK, v),
    "index_fill": lambda v, t: fl.zeros(2, dtype=t).index_fill(0, INDEX, v),
    "scatter": lambda v, t: fl.zeros(2, dtype=t).scatter(0, INDEX, v),
    "pad": lambda v, t: fl.nn.functional.pad(fl.zeros(1, dtype=t), (1, 0), value=v),
    "scalar_tensor": lambda v, t: fl.scalar_tensor(v, dtype=t),
}


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize(
    "value, dtype",
    [(300, fl.int8), (-129, fl.int8), (256, fl.uint8), (1e10, fl.int32), (math.inf, fl.int64), (math.nan, fl.int16),
     (7e4, fl.float16), (3.4e39, fl.float32), (3.4e39, fl.bfloat16), (1e19, fl.int64)],
)  # fmt: skip
def test_overflow_is_refused(name, value, dtype):
    with pytest.raises(RuntimeError, match="fits in"):
        FILLS[name](value, dtype)


@pytest.mark.parametrize("name", sorted(set(FILLS) - {"scalar_tensor", "pad"}))
@pytest.mark.parametrize(
    "value, dtype, stored",
    [(-1, fl.uint8, 255), (127, fl.int8, 127), (1.9, fl.int8, 1), (math.inf, fl.float16, math.inf), (300, fl.bool, True),
     (2**63 - 1, fl.int64, 2**63 - 1), (65504, fl.float16, 65504.0)],
)  # fmt: skip
def test_values_that_fit(name, value, dtype, stored):
    assert FILLS[name](value, dtype)[0].item() == stored


def test_numbers_given_as_data():
    for value in (300, 300.5, math.inf, math.nan):
        with pytest.raises(RuntimeError):
            fl.tensor([1, value], dtype=fl.int8)
    with pytest.raises(TypeError):
        fl.tensor(1 + 2j, dtype=fl.float32)
    assert fl.tensor(1e10, dtype=fl.float16).item() == math.inf
    assert fl.tensor([2.7, -2.7], dtype=fl.int8).tolist() == [2, -2]


def test_windows_larger_than_the_channels():
    x = fl.arange(12.0).reshape(1, 3, 4)
    wide = fl.nn.functional.local_response_norm(x, 2**40, alpha=1.0)
    mean = (x * x).sum(1, keepdim=True) / 2**40
    assert fl.allclose(wide, x / (1 + mean) ** 0.75)


def test_cross_entropy_without_classes():
    empty = fl.empty(3, 0, 1)
    assert fl.nn.functional.cross_entropy(empty, empty, reduction="none", label_smoothing=0.5).shape == (3, 1)
