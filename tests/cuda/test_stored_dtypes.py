"""Dtypes that are only stored, 8-bit floats and wide unsigned integers: conversions on the device are the CPU's."""

import pytest

import flambeau as fl

FLOATS = [fl.float8_e4m3fn, fl.float8_e5m2, fl.float8_e4m3fnuz, fl.float8_e5m2fnuz, fl.float8_e8m0fnu]
UNSIGNED = [fl.uint16, fl.uint32, fl.uint64]


def bits(t):
    return t.cpu().view(fl.uint8).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_code_of_an_8_bit_float(dtype):
    codes = fl.arange(256, dtype=fl.uint8).view(dtype)
    there = codes.cuda()
    assert bits(there) == bits(codes)
    for other in (fl.float32, fl.float64, fl.bfloat16):
        fl.testing.assert_close(there.to(other).cpu(), codes.to(other), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("other", [fl.float32, fl.float64, fl.bfloat16, fl.float16, fl.int64])
def test_rounding_to_8_bits(dtype, other):
    fl.manual_seed(0)
    x = fl.cat([fl.randn(1000) * 10 ** fl.linspace(-6, 4, 1000), fl.tensor([0.0, -0.0, 448, 464, 480, 57344, 65536])])
    if other.is_floating_point:
        x = fl.cat([x, fl.tensor([float("inf"), -float("inf"), float("nan")])])
    x = x.to(other)
    assert bits(x.cuda().to(dtype)) == bits(x.to(dtype))
    assert bits(x.cuda().flip(0).to(dtype)) == bits(x.flip(0).to(dtype))


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_wide_unsigned_integers(dtype):
    x = fl.tensor([0, 1, 255, 65535, 65536, 2**31, 2**32 - 1, 2**40, 2**62, -1, -5])
    there = x.cuda().to(dtype)
    assert bits(there) == bits(x.to(dtype))
    for other in (fl.int64, fl.int32, fl.float64, fl.float32, fl.bool):
        assert there.to(other).cpu().tolist() == x.to(dtype).to(other).tolist()
    y = fl.tensor([0.0, 1.5, 300.25, 2.0**31])
    assert bits(y.cuda().to(dtype)) == bits(y.to(dtype))
    strided = x.cuda().to(dtype).reshape(-1, 1).expand(11, 3).t()
    assert bits(strided.contiguous()) == bits(x.to(dtype).reshape(-1, 1).expand(11, 3).t().contiguous())


@pytest.mark.parametrize("dtype", FLOATS[:2])
@pytest.mark.parametrize("count", [1, 7, 8, 100003])
def test_conversions_by_vectors(dtype, count):
    fl.manual_seed(0)
    x = fl.randn(count) * 10 ** (fl.rand(count) * 14 - 8)
    for other in (fl.float32, fl.bfloat16, fl.float16):
        there = x.to(other).cuda().to(dtype)
        assert bits(there) == bits(x.to(other).to(dtype))
        assert bits(there.to(other)) == bits(x.to(other).to(dtype).to(other))
