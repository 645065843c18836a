"""Dtypes that are stored and converted but not computed with: wide unsigned integers and 8-bit floats."""

import copy
import io
import math
import operator
import pickle

import numpy as np
import pytest

import flambeau as fl

UNSIGNED = [fl.uint16, fl.uint32, fl.uint64]
FLOAT8 = [fl.float8_e4m3fn, fl.float8_e5m2, fl.float8_e4m3fnuz, fl.float8_e5m2fnuz]
ALL = [*UNSIGNED, *FLOAT8, fl.float8_e8m0fnu]
OTHERS = [
    fl.bool,
    fl.uint8,
    fl.int8,
    fl.int16,
    fl.int32,
    fl.int64,
    fl.float16,
    fl.bfloat16,
    fl.float32,
    fl.float64,
    fl.complex64,
]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_properties(dtype):
    assert getattr(fl, str(dtype)[6:]) is dtype and pickle.loads(pickle.dumps(dtype)) is dtype
    assert dtype.is_floating_point == (dtype not in UNSIGNED) and dtype.is_signed == (dtype not in UNSIGNED)
    assert dtype.itemsize == {"uint16": 2, "uint32": 4, "uint64": 8}.get(str(dtype)[6:], 1)
    limits = fl.iinfo(dtype) if dtype in UNSIGNED else fl.finfo(dtype)
    assert limits.bits == 8 * dtype.itemsize


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_conversion_to_and_from_every_dtype(dtype, other):
    x = fl.tensor([1, 2, 4, 1]).to(other)
    there = x.to(dtype)
    assert there.dtype == dtype and fl.equal(there.to(other), x)
    assert there.to(fl.float64).tolist() == x.to(fl.float64).tolist()


@pytest.mark.parametrize("a", ALL, ids=str)
@pytest.mark.parametrize("b", ALL, ids=str)
def test_conversion_among_themselves(a, b):
    assert fl.tensor([1.0, 2.0, 4.0]).to(a).to(b).float().tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_making_viewing_and_copying(dtype):
    assert fl.ones(2, 3, dtype=dtype).tolist() == [[1] * 3] * 2
    assert fl.full((2,), 2, dtype=dtype)[1].item() == 2 and fl.empty(0, dtype=dtype).dtype == dtype
    x = (fl.arange(600) % 16 + 1).to(dtype).reshape(20, 30)
    wide = x.to(fl.float64)
    assert fl.equal(x.t().contiguous().to(fl.float64), wide.t()) and fl.equal(
        x[3:5, ::2].clone().to(fl.float64), wide[3:5, ::2]
    )
    assert fl.equal(fl.cat([x, x]).to(fl.float64), fl.cat([wide, wide]))
    code = {1: fl.uint8, 2: fl.int16, 4: fl.int32, 8: fl.int64}[dtype.itemsize]
    assert fl.equal(x.view(code).view(dtype).to(fl.float64), wide)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.cpu()):
        assert other.dtype == dtype and fl.equal(other.to(fl.float64), wide.to(other.device))
    buffer = io.BytesIO()
    fl.save(x, buffer)
    buffer.seek(0)
    assert fl.equal(fl.load(buffer).to(fl.float64), wide)
    assert f"dtype={dtype}" in repr(fl.ones(2, dtype=dtype))


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_numpy(dtype):
    array = np.array([0, 1, np.iinfo(str(dtype)[6:]).max], dtype=str(dtype)[6:])
    t = fl.from_numpy(array)
    assert t.dtype == dtype and t.tolist() == array.tolist() and t[2].item() == array[2]
    assert t.numpy().dtype == array.dtype and np.array_equal(t.numpy(), array)
    assert fl.tensor(array.tolist(), dtype=dtype).tolist() == array.tolist()
    assert t.to(fl.float64).tolist() == [0.0, 1.0, float(array[2])]


def test_unsigned_wrap_and_range():
    assert fl.tensor([-1, 70000]).to(fl.uint16).tolist() == [65535, 4464]
    assert fl.tensor([1e19], dtype=fl.float64).to(fl.uint64).item() == 10**19
    assert fl.tensor([2**64 - 1], dtype=fl.uint64).to(fl.int64).item() == -1
    for value in (70000, -70000, 1e6):
        with pytest.raises(RuntimeError):
            fl.full((1,), value, dtype=fl.uint16)
    with pytest.raises(RuntimeError):
        fl.tensor([70000], dtype=fl.uint16)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_code_is_a_number_and_back(dtype):
    codes = fl.arange(256).to(fl.uint8).view(dtype)
    values = codes.float()
    back = values.to(dtype).view(fl.uint8)
    numbers = ~values.isnan()
    assert fl.equal(back[numbers], fl.arange(256).to(fl.uint8)[numbers])
    assert bool(back.view(dtype).float()[~numbers].isnan().all())
    assert values[numbers & values.isfinite()].max().item() == fl.finfo(dtype).max


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_rounding_is_to_nearest_even(dtype):
    """Between two neighbours the nearer one, and of two equally near the one with an even code."""
    values = fl.arange(128).to(fl.uint8).view(dtype).double()
    values = values[values.isfinite()]
    low, high = values[:-1], values[1:]
    middle = ((low + high) / 2).to(dtype).view(fl.uint8)
    assert bool((middle % 2 == 0).all())
    assert fl.equal((low * 0.51 + high * 0.49).to(dtype).double(), low)
    assert fl.equal((low * 0.49 + high * 0.51).to(dtype).double(), high)


def test_overflow():
    big = fl.tensor([1e6, -math.inf])
    assert big.to(fl.float8_e5m2).float().tolist() == [math.inf, -math.inf]
    assert big.to(fl.float8_e4m3fn).float().tolist() == [448.0, -448.0]
    for dtype in (fl.float8_e4m3fnuz, fl.float8_e5m2fnuz):
        assert bool(big.to(dtype).float().isnan().all())


def test_arithmetic_between_kinds_is_refused():
    with pytest.raises(RuntimeError):
        fl.ones(2, dtype=fl.uint16) + fl.ones(2, dtype=fl.int32)
    with pytest.raises(RuntimeError):
        fl.promote_types(fl.float8_e4m3fn, fl.float32)
    assert fl.promote_types(fl.uint32, fl.float16) == fl.float16
    with pytest.raises(NotImplementedError):
        fl.ones(2, 2, dtype=fl.float8_e5m2) @ fl.ones(2, 2, dtype=fl.float8_e5m2)


WRAPPING = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}  # fmt: skip
ORDERED = {
    "floor_divide": operator.floordiv, "remainder": operator.mod, "maximum": max, "minimum": min,
    "bitwise_right_shift": operator.rshift,
}  # fmt: skip


@pytest.mark.host
@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("name", [*WRAPPING, *ORDERED])
def test_unsigned_integers_compute_exactly_or_not_at_all(name, bits):
    """Also in loops longer than a vector, and with a number on either side."""
    most = 2**bits
    left, right = [1, 2, 3, most - 1, most // 2, most // 2 + 5, 0, 7] * 9, [2, 3, 5, 2, 3, 1, 9, 7] * 9
    dtype = getattr(fl, f"uint{bits}")
    a, b = fl.tensor(left, dtype=dtype), fl.tensor(right, dtype=dtype)
    operation = (WRAPPING | ORDERED)[name]
    if bits == 64 and name in ORDERED:
        with pytest.raises(NotImplementedError, match=rf"\[{name}\] .* got uint64"):
            getattr(fl, name)(a, b)
        return
    assert getattr(fl, name)(a, b).tolist() == [operation(x, y) % most for x, y in zip(left, right)]
    if name not in ("maximum", "minimum"):
        assert getattr(fl, name)(a, 3).tolist() == [operation(x, 3) % most for x in left]


@pytest.mark.parametrize("call", ["max()", "min(0)", "argmax()", "amax(0)", "gt(1)", "clamp(1, 2)", "abs()", "sign()"])
def test_what_needs_an_order_refuses_the_widest(call):
    with pytest.raises(NotImplementedError, match="got uint64"):
        eval(f"x.{call}", {"x": fl.tensor([2**63 + 5, 7], dtype=fl.uint64)})


@pytest.mark.parametrize("name, most", [("uint16", 2**16), ("uint32", 2**32), ("uint64", 2**63)])
def test_whole_ranges_are_drawn(name, most):
    x = (
        fl.randint(most - 3, most, (200,), dtype=getattr(fl, name))
        if most < 2**63
        else fl.randint(0, most - 1, (200,), dtype=fl.uint64)
    )
    assert min(x.tolist()) >= (most - 3 if most < 2**63 else 0) and max(x.tolist()) < most
    assert max(fl.empty(200, dtype=getattr(fl, name)).random_().tolist()) > most // 2


def test_integers_of_64_unsigned_bits_are_python_integers_exactly():
    large = 2**63 + 1
    value = fl.tensor(large, dtype=fl.uint64)
    assert (int(value), value.item(), range(2**64)[value]) == (large,) * 3
