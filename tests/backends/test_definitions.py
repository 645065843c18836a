"""Definitions that devices without a kernel take, against the kernels of the CPU."""

import pytest

import flambeau as fl
from flambeau.ops.rules import definition


def agree(name, *args, tolerance=1e-5):
    got = definition.find(name)(*args)
    want = fl._C._operator_object(name)(*args)
    for g, w in zip(*(x if isinstance(x, (tuple, list)) else [x] for x in (got, want))):
        assert g.shape == w.shape and g.dtype is w.dtype
        fl.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64, fl.complex64])
def test_exponentials_of_matrices(dtype):
    fl.manual_seed(0)
    x = fl.randn(4, 3, 3, dtype=dtype) * fl.tensor([0.1, 1.0, 5.0, 0.0]).reshape(4, 1, 1)
    agree("matrix_exp", x, tolerance=2e-4)
    x[1, 0, 0] = float("inf")
    agree("matrix_exp", x, tolerance=2e-4)
    agree("matrix_exp", fl.empty(0, 3, 3, dtype=dtype))


@pytest.mark.parametrize("concatenated", [False, True])
@pytest.mark.parametrize("target_lengths", [[3, 0, 2, 1], [0, 0, 0, 0], [3, 3, 3, 3]])
def test_losses_of_alignments(concatenated, target_lengths):
    fl.manual_seed(0)
    log_probs = fl.randn(6, 4, 5).log_softmax(-1)
    targets = fl.tensor([[1, 1, 2], [3, 4, 1], [2, 2, 2], [4, 3, 4]])
    if concatenated:
        targets = fl.cat([row[:n] for row, n in zip(targets, target_lengths)])
    for input_lengths in ([6, 5, 6, 3], [2, 0, 1, 6]):
        agree("_ctc_loss", log_probs, targets, input_lengths, target_lengths, 0, False)


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_rows_of_limited_norm(norm):
    weight = fl.arange(12.0).reshape(4, 3) / 4
    indices = fl.tensor([[3, 1], [3, 0]])
    want, got = weight.clone(), weight.clone()
    fl.embedding_renorm_(want, indices, 1.5, norm)
    definition.find("embedding_renorm_")(got, indices, 1.5, norm)
    fl.testing.assert_close(got, want)
    assert got[2].tolist() == weight[2].tolist()


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [-1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_bags_of_rows(mode, padding, last):
    fl.manual_seed(0)
    weight = fl.randn(5, 3)
    indices, offsets = fl.tensor([1, 2, 2, 4, 0, 2, 2]), fl.tensor([0, 2, 2, 5, 7] if last else [0, 2, 2, 5])
    agree("_embedding_bag", weight, indices, offsets, False, mode, False, None, last, padding)
    if mode == 0:
        agree("_embedding_bag", weight, indices, offsets, False, mode, False, fl.randn(7), last, padding)
    agree("_embedding_bag", weight, indices[:0], fl.tensor([0, 0]), False, mode, False, None, last, padding)
