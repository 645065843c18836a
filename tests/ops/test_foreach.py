"""Operators over lists of tensors."""

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops import tags

VALUES = [np.array([0.5, 1.5, -2.0], "float32"), np.array([[3.0, 0.25]], "float32"), np.float32(0.75)]


def tensors(dtype=fl.float32):
    return [fl.tensor(v).to(dtype) for v in VALUES]


def same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a.cpu().numpy(), b, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "reference"), [("exp", np.exp), ("neg", np.negative), ("abs", np.abs), ("sign", np.sign)]
)
def test_unary(name, reference):
    expected = [reference(v) for v in VALUES]
    same(getattr(fl, f"_foreach_{name}")(tensors()), expected)
    written = tensors()
    assert getattr(fl, f"_foreach_{name}_")(written) is written
    same(written, expected)


def test_what_the_second_operand_may_be():
    same(fl._foreach_add(tensors(), 2), [v + 2 for v in VALUES])
    same(fl._foreach_add(tensors(), [1, 2.0, 3]), [v + n for v, n in zip(VALUES, (1, 2, 3))])
    same(fl._foreach_add(tensors(), tensors(), alpha=3), [4 * v for v in VALUES])
    same(fl._foreach_mul(tensors(), fl.tensor(2.0)), [2 * v for v in VALUES])
    same(fl._foreach_pow(2.0, tensors()), [2.0**v for v in VALUES])


def test_integers_stay_integers_with_integer_lists():
    a, b = fl._foreach_mul([fl.arange(3), fl.arange(2)], [2, 3])
    assert a.dtype == b.dtype == fl.int64
    assert fl._foreach_mul([fl.arange(3)], [2.0])[0].dtype == fl.float32


def test_three_operands():
    t = tensors()
    same(fl._foreach_addcmul(t, t, t, 2), [v + 2 * v * v for v in VALUES])
    same(fl._foreach_addcmul(t, t, t, [1, 2, 3]), [v + n * v * v for v, n in zip(VALUES, (1, 2, 3))])
    same(fl._foreach_addcdiv(t, t, t, fl.tensor([1.0, 2.0, 3.0])), [v + n for v, n in zip(VALUES, (1, 2, 3))])
    same(fl._foreach_lerp(t, [x * 3 for x in t], 0.5), [2 * v for v in VALUES])


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.bfloat16])
@pytest.mark.parametrize("order", [1, 2, 3, float("inf")])
def test_norms(order, dtype):
    found = fl._foreach_norm(tensors(dtype), order)
    assert all(n.dtype == dtype and n.dim() == 0 for n in found)
    expected = [np.linalg.norm(v.reshape(-1), order) for v in VALUES]
    np.testing.assert_allclose([n.item() for n in found], expected, rtol=1e-2 if dtype == fl.bfloat16 else 1e-6)


def test_norms_of_long_empty_and_strided_tensors():
    x = np.random.default_rng(0).standard_normal((300, 700)).astype("float32")
    t = fl.tensor(x)
    found = fl._foreach_norm([t, t.t(), t[:, ::3], fl.zeros(0)])
    expected = [np.linalg.norm(x)] * 2 + [np.linalg.norm(x[:, ::3]), 0.0]
    np.testing.assert_allclose([n.item() for n in found], expected, rtol=1e-6)
    assert fl._foreach_norm([fl.tensor([1.0, float("nan")])], float("inf"))[0].isnan()
    assert fl._foreach_norm([fl.tensor([1.0, 2.0])], 2, fl.float64)[0].dtype == fl.float64


def test_gradients_flow():
    t = [x.requires_grad_() for x in tensors()]
    (sum(y.sum() for y in fl._foreach_mul(t, 2)) + sum(fl._foreach_norm(t, 1))).backward()
    same([x.grad for x in t], [2 + np.sign(v) for v in VALUES])


def test_copy_zero_and_clone():
    t, source = tensors(), [x * 2 for x in tensors()]
    copies = fl._foreach_clone(t)
    fl._foreach_copy_(t, source)
    same(t, [2 * v for v in VALUES])
    fl._foreach_zero_(t)
    same(t, [0 * v for v in VALUES])
    same(copies, VALUES)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fl._foreach_add([], 1),
        lambda: fl._foreach_add(tensors(), [1]),
        lambda: fl._foreach_add(tensors(), tensors()[:2]),
        lambda: fl._foreach_mul(tensors(), fl.ones(3)),
        lambda: fl._foreach_addcmul(tensors(), tensors(), tensors(), fl.ones(2)),
        lambda: fl._foreach_norm([fl.arange(3)]),
        lambda: fl._foreach_add_([fl.arange(3)], 1.5),
    ],
)
def test_bad_lists(call):
    with pytest.raises(RuntimeError):
        call()


def test_unscaling_tells_of_numbers_that_are_not_finite():
    found = fl.tensor(0.0)
    grads = [fl.tensor([2.0, 4.0]), fl.ones(3, 4)[:, ::2], fl.ones(2, dtype=fl.bfloat16)]
    fl._amp_foreach_non_finite_check_and_unscale_(grads, found, fl.tensor(0.5))
    assert found.item() == 0
    same(grads[:2], [[1.0, 2.0], np.full((3, 2), 0.5)])
    for bad in (float("inf"), float("nan")):
        found = fl.tensor(0.0)
        fl._amp_foreach_non_finite_check_and_unscale_([fl.ones(50000), fl.tensor([1.0, bad])], found, fl.tensor(0.5))
        assert found.item() == 1


def test_scale_grows_and_shrinks():
    scale, tracker = fl.tensor(8.0), fl.tensor(0, dtype=fl.int32)
    for found, expected in ((0, (8, 1)), (0, (16, 0)), (1, (8, 0)), (0, (8, 1))):
        fl._amp_update_scale_(scale, tracker, fl.tensor(float(found)), 2.0, 0.5, 2)
        assert (scale.item(), tracker.item()) == expected


@pytest.mark.parametrize("name", sorted(n for n in tags.functions("each") if n.endswith("_")))
def test_compiled_functions_in_place_answer_with_their_list(name):
    function = getattr(fl, name)
    for rest in ((), (0.5,), ([fl.ones(2)] * 2,), ([fl.ones(2)] * 2, 0.5), ([fl.ones(2)] * 2, [fl.ones(2)] * 2)):
        written, compiled_written = ([fl.full((2,), 0.5), fl.full((2,), 0.25)] for _ in range(2))
        try:
            assert function(written, *rest) is written
        except (TypeError, RuntimeError):
            continue  # it takes other arguments
        result = fl.compile(lambda lists, *rest: function(lists, *rest), backend="eager")(compiled_written, *rest)
        assert isinstance(result, list) and all(a is b for a, b in zip(result, compiled_written, strict=True))
        assert all(a.equal(b) for a, b in zip(written, compiled_written))
        return
    pytest.fail(f"no arguments for {name}")
