"""finfo and iinfo: limits of the dtypes."""

import pickle

import pytest

import flambeau as torch


@pytest.mark.parametrize(
    "dtype, bits, eps, largest, tiny",
    [
        (torch.float64, 64, 2**-52, 1.7976931348623157e308, 2.2250738585072014e-308),
        (torch.float32, 32, 2**-23, 3.4028234663852886e38, 1.1754943508222875e-38),
        (torch.float16, 16, 2**-10, 65504.0, 6.103515625e-05),
        (torch.bfloat16, 16, 2**-7, 3.3895313892515355e38, 1.1754943508222875e-38),
        (torch.complex64, 32, 2**-23, 3.4028234663852886e38, 1.1754943508222875e-38),
    ],
)
def test_floating_limits(dtype, bits, eps, largest, tiny):
    info = torch.finfo(dtype)
    assert (info.bits, info.eps, info.max, info.min) == (bits, eps, largest, -largest)
    assert info.tiny == info.smallest_normal == tiny


@pytest.mark.parametrize(
    "name, low, high",
    [("int8", -128, 127), ("uint8", 0, 255), ("int64", -(2**63), 2**63 - 1), ("int32", -(2**31), 2**31 - 1)],
)
def test_integer_limits(name, low, high):
    info = torch.iinfo(getattr(torch, name))
    assert (info.min, info.max, info.bits, info.dtype) == (low, high, (high - low + 1).bit_length() - 1, name)


def test_texts():
    assert repr(torch.finfo(torch.float32)) == (
        "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, smallest_normal=1.17549e-38, "
        "tiny=1.17549e-38, dtype=float32)"
    )
    assert repr(torch.iinfo(torch.int8)) == "iinfo(min=-128, max=127, dtype=int8)"


def test_without_argument_the_default_dtype_is_described():
    assert torch.finfo().dtype == "float32"
    assert torch.finfo() == torch.finfo(torch.float32) != torch.finfo(torch.float64)


def test_values_are_read_only_and_picklable():
    info = torch.finfo(torch.float16)
    with pytest.raises(AttributeError):
        info.max = 1.0
    assert pickle.loads(pickle.dumps(info)) == info


@pytest.mark.parametrize(
    "make", [lambda: torch.finfo(torch.int8), lambda: torch.iinfo(torch.float32), lambda: torch.iinfo()]
)
def test_wrong_kind_of_dtype(make):
    with pytest.raises(TypeError):
        make()


@pytest.mark.parametrize("kind", [torch.finfo, torch.iinfo])
@pytest.mark.parametrize("value", ["float32", None, 3, torch.bool])
def test_not_a_dtype(kind, value):
    with pytest.raises(TypeError):
        kind(value)
