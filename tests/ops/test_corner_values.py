"""Corners that random programs found: nothing to reduce, ties, NaN among what is searched, one element without a dimension."""

import math
import warnings

import pytest

import flambeau as fl
import flambeau.nn.functional as F

NAN = float("nan")


def second_derivative(function, x):
    (slope,) = fl.autograd.grad(function(x).sum(), x, create_graph=True)
    return fl.autograd.grad(slope.sum(), x, allow_unused=True, materialize_grads=True)[0]


def test_nan_is_in_no_list():
    many = fl.tensor([1.0, NAN, *[3.0] * 8, 4.0])
    values = fl.tensor([1.0, 2.0, NAN, 5.0, 4.0])
    assert fl.isin(values, many).tolist() == [True, False, False, False, True]
    assert fl.isin(values, many, invert=True).tolist() == [False, True, True, True, False]


def test_boundaries_may_have_another_dtype():
    values = fl.tensor([-1.5, 0.5, 2.5], dtype=fl.float64)
    assert fl.bucketize(values, fl.tensor([-1, 0, 1])).tolist() == [0, 2, 3]
    assert fl.searchsorted(fl.tensor([0.5, 1.5]), fl.tensor([0, 1, 2])).tolist() == [0, 1, 2]


def test_unique_slices_are_in_the_order_of_their_elements():
    x = fl.tensor([[[0, 0], [1, 0]], [[0, 1], [1, 1]]])  # slices along the last dimension: 0 1 0 1 and 0 0 1 1
    assert x.unique(dim=2)[..., 0].flatten().tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("k", [0, 1])
def test_the_largest_of_a_single_number_is_itself(k):
    values, indices = fl.tensor(3.0).topk(k)
    assert (values.item(), indices.item()) == (3.0, 0)


@pytest.mark.parametrize("dtype", [fl.float16, fl.bfloat16])
def test_mantissas_keep_the_dtype_with_and_without_gradients(dtype):
    x = fl.tensor([3.0, -0.25], dtype=dtype, requires_grad=True)
    assert fl.frexp(x)[0].dtype == fl.frexp(x.detach())[0].dtype == dtype


@pytest.mark.parametrize("dtype", [fl.float16, fl.bfloat16])
def test_truncated_quotients_of_mixed_dtypes_are_rounded_first(dtype):
    quotient = fl.div(fl.tensor([True]), fl.tensor([-0.04], dtype=dtype), rounding_mode="trunc")
    assert quotient.item() == math.trunc((fl.tensor([1.0], dtype=dtype) / fl.tensor([-0.04], dtype=dtype)).item())


def test_differences_look_at_the_neighbours_only():
    x = fl.tensor([0.5, math.inf, -2.5, 1.0])
    assert fl.gradient(x)[0].tolist()[1] == -1.5


def test_covariances_of_nothing():
    assert fl.cov(fl.zeros(2, 0, dtype=fl.int8)).isnan().all()
    assert fl.cov(fl.zeros(2, 0, requires_grad=True)).requires_grad


def test_integrals_of_nothing_have_the_dtype_of_others():
    y = fl.zeros(3, 0, dtype=fl.int16)
    assert fl.trapezoid(y).dtype == fl.int16
    assert fl.cumulative_trapezoid(y).dtype == fl.float32


def test_out_decides_the_dtype_where_one_can_be_asked_for():
    x = fl.tensor([1.5, 2.5])
    assert fl.sum(x, 0, out=fl.empty((), dtype=fl.int32)).item() == 3
    assert fl.cumsum(x, 0, out=fl.empty(2, dtype=fl.int64)).tolist() == [1, 3]
    total = fl.empty((), dtype=fl.float64)
    fl.sum(fl.tensor([1.0, 1e-10]), 0, out=total)
    assert total.item() > 1.0


def test_quotients_may_be_written_to_before_backward():
    x, y = fl.tensor([1.0, 2.0], requires_grad=True), fl.tensor([2.0, 4.0], requires_grad=True)
    quotient = x / y
    quotient.add_(1)
    quotient.sum().backward()
    fl.testing.assert_close(x.grad, fl.tensor([0.5, 0.25]))
    fl.testing.assert_close(y.grad, fl.tensor([-0.25, -0.125]))


def test_slopes_on_a_bound_are_the_numbers_own():
    x = fl.tensor([1.0, 1.5, 2.0], requires_grad=True)
    for clamped in (x.clamp(1, 2), x.clamp(min=1).clamp(max=2)):
        assert fl.autograd.grad(clamped.sum(), x)[0].tolist() == [1.0, 1.0, 1.0]


def test_another_dtype_of_the_same_memory_carries_no_gradient():
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    assert not x.view(fl.int32).requires_grad
    assert not (x * 2).view(fl.float32).requires_grad


def test_constant_powers_have_second_derivatives():
    x = fl.tensor([[1.0], [2.0]], requires_grad=True)
    assert second_derivative(lambda x: x**0 * x, x).tolist() == [[0.0], [0.0]]


def test_derivatives_of_derivatives_take_truth_values_for_numbers():
    x = fl.tensor([1.0, 3.0], requires_grad=True)
    target = fl.tensor([True, False])
    assert second_derivative(lambda x: F.mse_loss(x, target, reduction="sum"), x).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("again", [False, True])
def test_gradients_of_nothing(again):
    x = fl.zeros(0, 3, requires_grad=True)
    assert fl.autograd.grad(x.logcumsumexp(0).sum(), x, create_graph=again)[0].shape == (0, 3)
    table = fl.zeros(2, 0, requires_grad=True)
    rows = F.embedding(fl.tensor([0, 0]), table)
    assert fl.autograd.grad(rows.sum(), table, create_graph=again)[0].shape == (2, 0)


@pytest.mark.parametrize("p", [0.5, 2.0, 3.0])
@pytest.mark.parametrize("again", [False, True])
def test_distances_of_points_to_themselves_have_no_slope(p, again):
    x = fl.tensor([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0]], requires_grad=True)
    distances = fl.cdist(x, x, p=p, compute_mode="donot_use_mm_for_euclid_dist")
    (slope,) = fl.autograd.grad(distances.sqrt().sum(), x, create_graph=again)
    assert slope.isfinite().all()
    if again:
        assert fl.autograd.grad(slope.square().sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("related", [lambda x: (x, x, x), lambda x: (x, x * 2, x.sin())])
def test_recorded_gradients_of_attention_count_each_input_once(related):
    x = fl.randn(2, 2, 5, 4, requires_grad=True)

    def slope(again):
        result = F.scaled_dot_product_attention(*related(x), is_causal=True)
        return fl.autograd.grad(result.sin().sum(), x, create_graph=again)[0]

    fl.testing.assert_close(slope(True), slope(False))


def test_products_of_real_parts_have_real_slopes():
    x = fl.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that imaginary parts are dropped
        product = x.prod(0, dtype=fl.float32)
    assert fl.autograd.grad(product, x)[0].tolist() == [3, 1]


def test_contractions_of_whole_numbers_with_one_keep_the_dtype():
    a, b = fl.tensor([[1, 2, 3]], dtype=fl.int32), fl.tensor([[2, 4]], dtype=fl.int32)
    assert fl.tensordot(a, b, dims=1).tolist() == [[12, 24]]


def test_powers_of_two_are_made_in_the_dtype_of_the_result():
    assert fl.ldexp(fl.tensor(1.0, dtype=fl.float64), fl.tensor(200)).item() == 2.0**200


def test_blocks_promote_as_operands_do():
    """A number without a dimension does not widen what has some."""
    short, single = fl.ones(1, dtype=fl.int16), fl.tensor(0, dtype=fl.int64)
    assert fl.block_diag(short, single).dtype == fl.int16
    assert fl.block_diag(short, single[None]).dtype == fl.int64
    assert fl.block_diag(fl.tensor(1.5), fl.ones(2, dtype=fl.int64)).dtype == fl.float32


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_slices_that_keep_their_norm_have_gradients_of_their_own(p):
    x = fl.tensor([[3.0, 4.0], [NAN, 3.0], [0.5, 0.1]], requires_grad=True)
    (g,) = fl.autograd.grad(x.renorm(p, 0, 1.0).sum(), x)
    assert g[1:].tolist() == [[1, 1], [1, 1]] and g[0].isfinite().all()
