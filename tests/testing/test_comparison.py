"""assert_close: what agrees, what does not, and what it says."""

import re

import numpy
import pytest

import flambeau as torch
from flambeau.testing import assert_allclose, assert_close
from flambeau.testing._comparison import (
    BooleanPair,
    NonePair,
    NumberPair,
    ObjectPair,
    TensorLikePair,
    not_close_error_metas,
)

nan = float("nan")


def message(*args, **kwargs):
    with pytest.raises(AssertionError) as caught:
        assert_close(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    "actual, expected",
    [
        (1, 1),
        (1.0, 1.0 + 1e-9),
        (None, None),
        (True, True),
        ([], []),
        ((1, 2), [1, 2]),
        ({"a": [torch.ones(2)]}, {"a": [torch.ones(2)]}),
        (torch.tensor([1.0]), torch.tensor([1.000001])),
        (torch.tensor([float("inf")]), torch.tensor([float("inf")])),
        (torch.empty(0), torch.empty(0)),
        (torch.ones(2, device="meta"), torch.ones(2, device="meta")),
        (torch.ones(1, requires_grad=True), torch.ones(1)),
        (numpy.ones(2), numpy.ones(2)),
    ],
    ids=str,
)
def test_close(actual, expected):
    assert_close(actual, expected)


def test_message_for_tensors():
    assert message(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 2.0], [3.0, 8.0]])) == (
        "Tensor-likes are not close!\n\n"
        "Mismatched elements: 1 / 4 (25.0%)\n"
        "Greatest absolute difference: 4.0 at index (1, 1) (up to 1e-05 allowed)\n"
        "Greatest relative difference: 0.5 at index (1, 1) (up to 1.3e-06 allowed)"
    )


def test_message_for_integers():
    assert message(torch.tensor([2, 1], dtype=torch.uint8), torch.tensor([1, 2], dtype=torch.uint8)) == (
        "Tensor-likes are not equal!\n\n"
        "Mismatched elements: 2 / 2 (100.0%)\n"
        "Greatest absolute difference: 1 at index (0,)\n"
        "Greatest relative difference: 1.0 at index (0,)"
    )


def test_message_for_numbers():
    assert message(1.0, 2.0) == (
        "Scalars are not close!\n\n"
        "Expected 2.0 but got 1.0.\n"
        "Absolute difference: 1.0 (up to 1e-07 allowed)\n"
        "Relative difference: 0.5 (up to 1e-07 allowed)"
    )
    assert message(1, 2).startswith("Scalars are not equal!")
    assert message(torch.tensor(1.0), torch.tensor(2.0)).startswith("Scalars are not close!")


def test_message_names_the_place():
    assert message({"a": [1, 2]}, {"a": [1, 3]}).endswith("The failure occurred for item ['a'][1]")


@pytest.mark.parametrize(
    "actual, expected, options, text",
    [
        (torch.ones(3), torch.ones(4), {}, "attribute 'shape'"),
        (torch.ones(3), torch.ones(3, dtype=torch.float64), {}, "attribute 'dtype'"),
        (torch.ones(3), torch.ones(3, device="meta"), {}, "attribute 'device'"),
        (torch.ones(2, 3), torch.ones(3, 2).t(), {"check_stride": True}, r"attribute 'stride\(\)'"),
        ([1], [1, 2], {}, "length of the sequences mismatch: 1 != 2"),
        ({"a": 1}, {"b": 1}, {}, r"Missing keys in the actual mapping: \['b'\]"),
        (1, 1.0, {}, r"The \(d\)types do not match"),
        (True, False, {}, "Booleans mismatch"),
        (None, 1, {}, "None mismatch"),
        (torch.tensor([nan]), torch.tensor([nan]), {}, "difference: nan"),
    ],
    ids=lambda value: None,
)
def test_mismatch(actual, expected, options, text):
    with pytest.raises(AssertionError, match=text):
        assert_close(actual, expected, **options)


def test_checks_can_be_turned_off():
    assert_close(torch.ones(3), torch.ones(3, dtype=torch.float64), check_dtype=False)
    assert_close(torch.ones(2, 3), torch.ones(3, 2).t())
    assert_close(torch.tensor([nan]), torch.tensor([nan]), equal_nan=True)
    assert_close(1, 1.0, check_dtype=False)


def test_tolerances_come_in_pairs():
    assert_close(1.0, 1.1, rtol=0.0, atol=0.2)
    with pytest.raises(ValueError, match="got no atol"):
        assert_close(1.0, 1.1, rtol=0.1)


def test_tolerances_follow_the_wider_dtype():
    assert_close(torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([1.01]), check_dtype=False)


@pytest.mark.parametrize(
    "actual, expected", [("a", "a"), (torch.ones(1), [1.0]), (torch.ones(1), 1.0), ({"a": 1}, [1])], ids=str
)
def test_kinds_that_cannot_be_compared(actual, expected):
    with pytest.raises(TypeError, match="expected tensors, numbers"):
        assert_close(actual, expected)


def test_own_message():
    assert message(1, 2, msg="own") == "own"
    assert message(1, 2, msg=lambda text: text.splitlines()[0] + " Really.") == "Scalars are not equal! Really."


def test_allclose_is_deprecated_and_lenient():
    with pytest.warns(FutureWarning):
        assert_allclose(torch.tensor([1.0, nan]), [1.0, nan])


def test_sparse_tensors():
    one = torch.eye(2).to_sparse()
    assert_close(one, torch.eye(2).to_sparse())
    assert_close(one, torch.eye(2), check_layout=False)
    with pytest.raises(AssertionError, match="Sparse COO values are not close"):
        assert_close(one, one * 2)
    with pytest.raises(AssertionError, match="specified values in sparse COO tensors does not match: 2 != 0"):
        assert_close(one, torch.zeros(2, 2).to_sparse())
    other = torch.sparse_coo_tensor([[0, 1], [0, 0]], [1.0, 1.0], (2, 2))
    with pytest.raises(AssertionError, match="Sparse COO indices are not equal"):
        assert_close(one, other)
    with pytest.raises(AssertionError, match="Sparse CSR col_indices are not equal"):
        assert_close(one.to_sparse_csr(), other.to_sparse_csr())


class Rounded(TensorLikePair):
    """Tensors that agree in whole numbers; lists of them stand for tensors, too."""

    def _to_tensor(self, value):
        return torch.tensor(value) if isinstance(value, tuple) else super()._to_tensor(value)

    def _compare_values(self, actual, expected):
        super()._compare_values(actual.round(), expected.round())


def test_pairs_of_other_libraries():
    def errors(actual, expected, **options):
        kinds = (NonePair, BooleanPair, NumberPair, Rounded, ObjectPair)
        found = not_close_error_metas(actual, expected, pair_types=kinds, sequence_types=(list,), **options)
        return [(error.type, error.id) for error in found]

    assert errors([torch.tensor([1.2]), (1.4, 2.0), "a", None], [torch.tensor([0.9]), (1.0, 1.6), "a", None]) == []
    assert errors({"x": [torch.ones(1), 2, True]}, {"x": [torch.zeros(1), 3, True]}) == [
        (AssertionError, ("x", 0)),
        (AssertionError, ("x", 1)),
    ]
    assert errors("a", "b") == [(AssertionError, ())]
    assert errors([1], [1, 2]) == [(AssertionError, ())]
    assert errors([torch.ones(1)], [torch.ones(1)], rtol=1.0) == [(ValueError, (0,))]
    error = not_close_error_metas([1], [2], pair_types=(NumberPair,), rtol=0, atol=0)[0].to_error(lambda m: m + "!")
    assert re.fullmatch(r"Scalars are not equal!.*occurred for item \[0\]!", str(error), re.DOTALL)


def test_numbers_of_numpy():
    assert_close(numpy.float64(1.0), 1.0)
    with pytest.raises(AssertionError, match="Booleans mismatch: True is not False"):
        assert_close(numpy.bool_(True), False)
