"""Numbers that meet tensors: what is true of booleans, and what does not fit."""

import pytest

import flambeau as fl

MASK = fl.tensor([True, False])


def test_complex_numbers_are_true():
    x = fl.tensor([False, False])
    x[0] = 1j
    assert x.tolist() == [True, False]
    x[MASK] = 0j
    assert x.tolist() == [False, False]
    assert x.masked_fill(MASK, 1j).tolist() == [True, False]
    assert x.masked_fill(MASK, fl.tensor(1j)).tolist() == [True, False]
    assert x.scatter(0, fl.tensor([1]), 2j).tolist() == [False, True]
    for write in (lambda y: y.__setitem__(0, 1j), lambda y: y.masked_fill_(MASK, 1j)):
        with pytest.raises(RuntimeError, match="complex"):
            write(fl.zeros(2, dtype=fl.int64))


@pytest.mark.parametrize("alpha", [-1, 2, 256, True])
def test_any_alpha_that_is_not_zero_is_true(alpha):
    both = fl.tensor([True, False])
    assert fl.add(both, fl.tensor(True), alpha=alpha).tolist() == [True, True]
    assert fl.add(both, both, alpha=alpha).tolist() == [True, False]
    assert fl.add(both, fl.tensor(True), alpha=0).tolist() == [True, False]
    compiled = fl.compile(lambda a, b: fl.add(a, b, alpha=alpha), fullgraph=True)
    assert compiled(both, both).tolist() == [True, False]


@pytest.mark.parametrize("dtype, number", [(fl.int8, 300), (fl.uint8, 300), (fl.int16, 70000)])
def test_bounds_and_factors_that_do_not_fit_are_refused(dtype, number):
    x = fl.ones(2, dtype=dtype)
    calls = [
        lambda: x.clamp(min=number),
        lambda: x.clamp(max=number),
        lambda: x.clamp(0, number),
        lambda: x.add(1, alpha=number),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="fits"):
            call()
    assert x.clamp(-1, 3).tolist() == [1, 1]


def test_similarity_of_nothing_is_zero_in_half_too():
    for dtype in (fl.float16, fl.bfloat16, fl.float32):
        found = fl.nn.functional.cosine_similarity(fl.ones(2, 0, dtype=dtype), fl.ones(0, dtype=dtype), dim=1)
        assert found.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.complex64, fl.complex128])
def test_whatever_to_the_power_of_zero_is_one(dtype):
    x = fl.tensor([0.0, 2.0, float("nan"), float("inf")]).to(dtype)
    assert (x**0).tolist() == [1] * 4 and x.pow_(0.0).tolist() == [1] * 4
    assert fl.compile(lambda t: t**0)(fl.zeros(3, dtype=dtype)).tolist() == [1] * 3


def test_a_tensor_is_divided_by_a_part_of_itself():
    x = fl.tensor([1 + 2j, 4 - 2j])
    assert x.div_(x.real).tolist() == [1 + 2j, 1 - 0.5j]
    assert fl.mul(x, x.imag, out=x).tolist() == [2 + 4j, -0.5 + 0.25j]
    y = fl.arange(4.0)
    with pytest.raises(RuntimeError, match="partly overlap"):
        y[1:].add_(y[:-1])
