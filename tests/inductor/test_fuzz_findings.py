"""What fuzzing the compiler has found: one test for each mistake."""

import math

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor.compile_fx import compile_tensor_function


def agrees(function, *inputs):
    """Results, their layouts, and gradients are those of eager mode."""
    got, expected = compile_tensor_function(function, len(inputs))(*inputs), function(*inputs)
    for a, b in zip(got, expected):
        assert (a.dtype, a.stride(), a.requires_grad) == (b.dtype, b.stride(), b.requires_grad)
        fl.testing.assert_close(a, b)
    leaves = [t for t in inputs if t.requires_grad]
    roots = [k for k, t in enumerate(expected) if t.requires_grad]
    if roots and leaves:
        seeds = [fl.randn(expected[k].shape) for k in roots]
        mine, true = (
            fl.autograd.grad([r[k] for k in roots], leaves, seeds, allow_unused=True) for r in (got, expected)
        )
        for a, b in zip(mine, true):
            fl.testing.assert_close(a, b)


def test_mixed_precision_inside_the_function():
    def function(x):
        with fl.autocast(fl.get_default_device().type, dtype=fl.bfloat16):
            return [F.linear(x, x)]

    agrees(function, fl.randn(3, 4))
    assert compile_tensor_function(function, 1)(fl.randn(3, 4))[0].dtype == fl.bfloat16


def test_mixed_precision_around_the_function():
    compiled = compile_tensor_function(lambda x: [F.linear(x, x)], 1)
    x = fl.randn(3, 4, requires_grad=True)
    assert compiled(x)[0].dtype == fl.float32
    with fl.autocast(fl.get_default_device().type, dtype=fl.bfloat16):
        y = compiled(x)[0]
        assert y.dtype == fl.bfloat16
    y.sum().backward()
    assert x.grad.dtype == fl.float32
    assert compiled(x)[0].dtype == fl.float32


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integer_division(name):
    def function(a, b):
        return [getattr(fl, name)(a, b) + 1, getattr(fl, name)(a + 1, 3)]

    a, b = fl.tensor([7, -7, 9, 0]), fl.tensor([2, 3, -4, 5])
    agrees(function, a, b)
    if fl.get_default_device().type != "cpu":
        return  # devices do not notice a division by zero
    with pytest.raises(RuntimeError, match="zero"):
        compile_tensor_function(function, 2)(a, b * 0)


@pytest.mark.parametrize(
    "layer", [lambda x: F.softmax(x, -1), lambda x: F.rms_norm(x, (4,)), lambda x: F.layer_norm(x, (4,))]
)
def test_results_lie_in_memory_as_those_of_eager_mode(layer):
    agrees(lambda x: [layer(x * 2)], fl.randn(4, 3).t().requires_grad_())


def test_a_derivative_that_looks_at_values():
    agrees(lambda x: [x.cumprod(0)], fl.randn(5, requires_grad=True))


def test_results_that_are_parts_of_others_have_gradients():
    def function(x):
        y = x * 2
        return [y, y[1:3], y.unsqueeze(-1).expand(4, 8, 3), y.t()[::2]]

    agrees(function, fl.randn(8, 4).t().requires_grad_())


def test_an_input_that_is_returned_twice():
    agrees(lambda x, y: [x, y * 2, x], fl.randn(3, requires_grad=True), fl.randn(3, requires_grad=True))


def test_inputs_that_share_memory_with_one_that_is_written():
    def function(x, y):
        x.add_(1)
        return [x * y]

    base = fl.arange(6.0)
    other = base.clone()
    got = compile_tensor_function(function, 2)(base[:4], base[2:])[0]
    fl.testing.assert_close(got, function(other[:4], other[2:])[0])
    fl.testing.assert_close(base, other)


def test_writing_to_an_input_with_a_history():
    def function(x):
        x.mul_(2)
        return [x.sin()]

    x = fl.randn(4, requires_grad=True)
    got = compile_tensor_function(function, 1)(x * 1)[0]
    expected = function(x * 1)[0]
    fl.testing.assert_close(got, expected)
    fl.testing.assert_close(*(fl.autograd.grad(t.sum(), x)[0] for t in (got, expected)))


def test_low_precision_statistics_are_kept_in_single_precision():
    x = fl.randn(4, 9).bfloat16().requires_grad_()
    mine, true = (
        fl.autograd.grad(y.sum(), x)[0]
        for y in (compile_tensor_function(lambda x: [F.rms_norm(x, (9,))], 1)(x)[0], F.rms_norm(x, (9,)))
    )
    fl.testing.assert_close(mine, true, rtol=0.05, atol=0.02)


def test_passes_over_everything_divide_by_the_same_sum():
    def function(x):
        total = x.exp().sum()
        share = x / total
        square = (share * share).sum()
        return [share, (x / total + square) / square, (x / total - square).exp().sum()]

    agrees(function, fl.randn(3, 70))


@pytest.mark.host  # kernels of devices keep more digits between operations, as PyTorch's do
@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16])
def test_the_largest_element_is_found_again_in_low_precision(dtype):
    agrees(
        lambda x: [((x / 3).to(dtype).sin().abs() + 0.5).amin(0, keepdim=True).float()],
        fl.randn(33, 2, requires_grad=True),
    )


@pytest.mark.host
def test_low_precision_is_rounded_after_each_operation():
    x = fl.randn(200).bfloat16()
    function = lambda x: [(x * 1.7 + 0.3) / 3 - x * 0.1]  # noqa: E731
    assert fl.equal(compile_tensor_function(function, 1)(x)[0], function(x)[0])


@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16, fl.float32])
def test_root_mean_squares_of_small_numbers(dtype):
    agrees(lambda x: [F.rms_norm(x, (3,)) * 1], fl.tensor([[0.05, 0.04, 0.1], [1e-3, 2e-3, 1e-3]]).to(dtype))


def test_an_input_that_gets_its_history_by_being_written():
    weight, rows = fl.randn(4, requires_grad=True), fl.tensor([1, 0, 2, 2])
    total = fl.zeros(4)

    def function(total, weight, rows):
        total.index_add_(0, rows, weight)
        return []

    compile_tensor_function(function, 3)(total, weight, rows)
    assert total.grad_fn is not None
    total.sum().backward()
    assert weight.grad.tolist() == [1.0] * 4


def test_an_input_with_a_history_is_written_without_complaint(caplog):
    weight, rows = fl.randn(4, requires_grad=True), fl.tensor([1, 0, 2, 2])

    def function(total, weight, rows):
        total.index_add_(0, rows, weight)
        return [total]

    results = []
    for run in (function, compile_tensor_function(function, 3)):
        weight.grad = None
        run(weight * 2, weight, rows)[0].square().sum().backward()
        results.append(weight.grad)
    fl.testing.assert_close(*results)
    assert not caplog.records


def test_an_input_with_a_history_may_be_a_result():
    weight = fl.randn(4, requires_grad=True)
    total = weight * 2
    same, double = compile_tensor_function(lambda total: [total, total * 2], 1)(total)
    (same + double).sum().backward()
    assert weight.grad.tolist() == [6.0] * 4


def test_second_derivatives_where_an_input_is_a_result():
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    same, cube = compile_tensor_function(lambda x: [x, x**3], 1)(x)
    (first,) = fl.autograd.grad(cube.sum() + same.sum(), x, create_graph=True)
    assert fl.autograd.grad(first.sum(), x)[0].tolist() == [6.0, 12.0]


def test_sums_of_many_rows():
    x = fl.full((300_000, 2), 0.1)
    total = compile_tensor_function(lambda x: [(x * 1).sum(0)], 1)(x)[0]
    fl.testing.assert_close(total, fl.full((2,), 30_000.0), rtol=1e-6, atol=0)


@pytest.mark.host  # to the last bit
@pytest.mark.parametrize("layout", [fl.contiguous_format, fl.channels_last])
def test_batch_normalisation_is_computed_as_in_eager_mode(layout):
    """Training is a chaotic map: one bit is enough for another loss after a hundred steps."""
    fl.manual_seed(0)
    x = fl.randn(4, 5, 6, 7).contiguous(memory_format=layout).requires_grad_()
    weight, bias = fl.randn(5, requires_grad=True), fl.randn(5, requires_grad=True)
    running = [fl.zeros(5), fl.ones(5)]

    def function(x, weight, bias, mean, variance):
        return [F.batch_norm(x, mean, variance, weight, bias, training=True).relu() + 1]

    compiled = compile_tensor_function(function, 5)
    gradient = fl.randn(4, 5, 6, 7)
    found = []
    for run in (compiled, function):
        mean, variance = (t.clone() for t in running)
        (y,) = run(x, weight, bias, mean, variance)
        found.append([y, mean, variance, *fl.autograd.grad(y, [x, weight, bias], gradient)])
    assert all(fl.equal(a, b) for a, b in zip(found[0][1:3], found[1][1:3]))
    for a, b in zip(*found):
        fl.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.host
def test_batch_statistics_do_not_depend_on_the_layout():
    fl.manual_seed(0)
    x = fl.randn(8, 5, 6, 7) + 3
    results = []
    for given in (x, x.contiguous(memory_format=fl.channels_last)):
        mean, variance = fl.zeros(5), fl.ones(5)
        results.append([F.batch_norm(given, mean, variance, training=True), mean, variance])
    assert all(fl.equal(a, b) for a, b in zip(*results))


@pytest.mark.parametrize("driver", ["gels", pytest.param("gelsd", marks=pytest.mark.host)])
def test_results_whose_shape_depends_on_values(driver):
    agrees(lambda a, b: list(fl.linalg.lstsq(a, b, driver=driver))[:3], fl.randn(5, 3), fl.randn(5, 2))


def test_one_row_says_nothing_about_the_layout_of_many():
    def function(x):
        return x.t().contiguous().t() * 2

    compiled = fl.compile(function)
    for rows in (1, 2, 3):
        x = fl.randn(rows, 6)
        got, expected = compiled(x), function(x)
        assert got.stride() == expected.stride()
        fl.testing.assert_close(got, expected)


def test_a_single_wide_integer_is_cut_to_what_it_meets():
    x = fl.arange(6, dtype=fl.uint8)
    agrees(lambda x, n: [fl.maximum(~n, x), (x ^ ~n) + 1, x + n], x, fl.tensor(1))


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_fills_that_are_not_finite(number):
    compiled = fl.compile(lambda x: (fl.full_like(x, number) + x, x.clone().fill_(number)), fullgraph=True)
    for result in compiled(fl.ones(3)):
        fl.testing.assert_close(result, fl.full((3,), number), equal_nan=True)


@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16, fl.float32, fl.float64])
def test_what_is_not_finite_becomes_the_same_integers(dtype):
    x = fl.tensor([math.nan, math.inf, -math.inf, 1.5, -1.5] * 5).to(dtype)
    agrees(lambda x: [(x * 1).to(fl.int64), (x * 1).to(fl.int32), (x + 1).to(fl.uint8)], x)


def test_windows_at_a_place_in_the_storage_of_an_input():
    base = fl.arange(20.0)
    for function in (
        lambda x: x.as_strided((2, 2), (1, 2), 0) * 2,
        lambda x: x.as_strided((2, 2), (1, 2)) * 2,
        lambda x: (x * 1).as_strided((2, 2), (1, 2), 1),
        lambda x: fl.as_strided(x, (2, 2), (1, 2), storage_offset=3).sum(),
    ):
        compiled = fl.compile(function)
        for part in (base, base[5:], base[3:13]):
            fl.testing.assert_close(compiled(part), function(part))


@pytest.mark.parametrize("dtype", [fl.float16, fl.bfloat16, fl.float32, fl.float64])
@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, 3, -1, 0, 1.5])
def test_powers_at_the_ends_of_the_range(dtype, exponent):
    x = fl.tensor([-math.inf, -1.0, 0.0, -0.0, 4.0, math.inf] * 9, dtype=dtype)
    assert repr(fl.compile(lambda x: x**exponent)(x).tolist()) == repr((x**exponent).tolist())


@pytest.mark.parametrize("dtype", [fl.bool, fl.uint8, fl.int64])
@pytest.mark.parametrize("name", ["prod", "sum", "nansum", "cumsum", "cumprod"])
def test_reductions_that_convert_first(name, dtype):
    x = fl.tensor([[0.11, 1.0], [1.0, 0.5], [0.5, 7.0]])
    agrees(lambda x: [getattr(x, name)(0, dtype=dtype), getattr(x * 1, name)(-1, dtype=dtype)], x)


@pytest.mark.parametrize("dtype", [fl.int64, fl.uint8, fl.float32, fl.float16])
def test_conditions_as_numbers_of_integer_loops(dtype):
    x = fl.arange(4).to(dtype)
    agrees(
        lambda x: [x.clamp(0, True), x.clamp(True, -1), fl.where(x > 1, True, x), x + True, x.masked_fill(x > 1, True)],
        x,
    )
