"""out= and in-place forms: rounding before conversion, shapes that stay, and what functions over lists return."""

import math

import pytest

import flambeau as fl


@pytest.mark.parametrize("dtype", [fl.half, fl.bfloat16])
def test_a_wider_out_holds_the_rounded_result(dtype):
    a, b = fl.randn(257).to(dtype), fl.randn(257).to(dtype)
    for function in (fl.add, fl.mul, fl.sub, fl.div, fl.atan2):
        expected = function(a, b).double()
        assert function(a, b, out=fl.empty(257, dtype=fl.double)).equal(expected)
        strided = fl.empty(257, 2, dtype=fl.double)
        assert function(a, b, out=strided[:, 0]).equal(expected)
    assert fl.exp(a, out=fl.empty(257)).equal(fl.exp(a).float())


def test_a_wider_integer_out_holds_the_wrapped_result():
    a = fl.tensor([100, 100], dtype=fl.int8)
    assert fl.add(a, a, out=fl.empty(2, dtype=fl.int32)).tolist() == [-56, -56]
    assert fl.mul(a, a, out=fl.empty(2, dtype=fl.int64)).tolist() == [16, 16]


@pytest.mark.parametrize("dtype", [fl.half, fl.bfloat16])
def test_nextafter_visits_every_number_of_a_reduced_dtype(dtype):
    top = 0x7C00 if dtype == fl.half else 0x7F80  # the bits of infinity
    numbers = fl.arange(0, top + 1, dtype=fl.int32).to(fl.int16).view(dtype)
    below, above = numbers[:-1], numbers[1:]
    infinity = fl.tensor(math.inf, dtype=dtype)
    for sign in (1, -1):
        assert fl.nextafter(sign * below, sign * infinity).equal(sign * above)
        assert fl.nextafter(sign * above, -sign * infinity).equal(sign * below)
    assert fl.nextafter(numbers, numbers).equal(numbers)
    zero = fl.zeros(2, dtype=dtype)
    stepped = fl.nextafter(zero, fl.tensor([1.0, -1.0], dtype=dtype))
    assert stepped.view(fl.int16).tolist() == [1, -0x7FFF]
    assert fl.nextafter(zero, zero * math.nan).isnan().all()
    inplace = below.clone()
    assert inplace.nextafter_(infinity).equal(above)


@pytest.mark.host
def test_half_powers_of_a_half_are_powers():
    x = fl.tensor([-math.inf, -0.0, -2.0, 4.0], dtype=fl.half)
    power = x**0.5
    assert power[0] == math.inf and power[2].isnan() and power[3] == 2
    assert not power[1].signbit()


@pytest.mark.parametrize("make", [fl.linspace, fl.logspace, fl.arange, fl.range])
def test_sequences_fill_an_out_of_their_size_in_its_own_strides(make):
    arguments = {fl.arange: (0, 6), fl.range: (0, 5)}.get(make, (0, 5, 6))
    expected = make(*arguments, dtype=fl.float).reshape(2, 3)
    for view in (lambda t: t[::2, ::2], lambda t: t.t()[:2, :3]):
        base = fl.full((4, 6), -1.0)
        out = view(base)
        strides = out.stride()
        assert make(*arguments, out=out) is out
        assert out.equal(expected) and out.stride() == strides
        assert (base == -1).sum() == 18
    resized = fl.empty(2)
    assert make(*arguments, out=resized).shape == (6,)


def test_inplace_functions_over_lists_return_their_list():
    tensors = [fl.ones(2), fl.ones(3)]
    assert fl._foreach_add_(tensors, 1) is tensors
    assert fl._foreach_mul_(self=tensors, other=[fl.ones(2), fl.ones(3)]) is tensors
    assert fl._foreach_zero_(tensors) is tensors
    as_tuple = tuple(tensors)
    assert fl._foreach_copy_(as_tuple, tensors) is as_tuple
    assert fl.ops.aten._foreach_add_.Scalar(tensors, 1) is None

    @fl.compile(fullgraph=True)
    def compiled(a, b):
        result = fl._foreach_add_([a, b], 1)
        return result[0] * 2, result[1]

    a, b = fl.ones(2), fl.ones(3)
    doubled, second = compiled(a, b)
    assert doubled.tolist() == [4, 4] and second.tolist() == [2, 2, 2] and a.tolist() == [2, 2]


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "nansum", "cumsum", "cumprod"])
def test_a_dtype_beside_out_is_that_of_out(name):
    function, x = getattr(fl, name), fl.ones(2, 3)
    out = fl.empty_like(function(x, 0, dtype=fl.float64))
    assert function(x, 0, dtype=fl.float64, out=out) is out
    for wanted in (fl.float32, fl.complex64):
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
            function(x, 0, dtype=wanted, out=out)


def test_norms_of_complex_numbers_take_a_real_out():
    x, out = fl.ones(3, dtype=fl.complex64), fl.empty((), dtype=fl.float64)
    assert fl.linalg.vector_norm(x, dtype=fl.complex128, out=out) is out
