"""Second derivatives of pooling and losses beside PyTorch's: zeros where it has zeros, None where it has None."""

import inspect

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

rng = np.random.default_rng(0)
X1, X2, X3 = rng.standard_normal((2, 3, 9)), rng.standard_normal((2, 3, 8, 8)), rng.standard_normal((1, 2, 6, 6, 6))
C, Y, CP, YP = (
    rng.standard_normal((5, 4)),
    rng.standard_normal((5, 4)),
    rng.uniform(0.1, 0.9, (5, 4)),
    rng.uniform(0.1, 0.9, (5, 4)),
)
T, W, S = np.array([0, 3, 1, -100, 2]), rng.uniform(0.1, 0.9, 4), np.sign(rng.standard_normal(5))
CI, TI = rng.standard_normal((2, 4, 3, 3)), rng.integers(0, 4, (2, 3, 3))


def F(L):
    return L.nn.functional


CASES = {
    "max_pool1d": ([X1], lambda L, x: F(L).max_pool1d(x, 3, 2, 1)),
    "max_pool2d": ([X2], lambda L, x: F(L).max_pool2d(x, 3, 2, 1)),
    "max_pool2d dil": ([X2], lambda L, x: F(L).max_pool2d(x, 2, 2, dilation=2)),
    "max_pool2d idx": ([X2], lambda L, x: F(L).max_pool2d(x, 2, return_indices=True)[0]),
    "max_pool3d": ([X3], lambda L, x: F(L).max_pool3d(x, 2)),
    "adaptive_max1": ([X1], lambda L, x: F(L).adaptive_max_pool1d(x, 4)),
    "adaptive_max2": ([X2], lambda L, x: F(L).adaptive_max_pool2d(x, 3)),
    "adaptive_max3": ([X3], lambda L, x: F(L).adaptive_max_pool3d(x, 4)),
    "avg1": ([X1], lambda L, x: F(L).avg_pool1d(x, 3, 2, 1)),
    "avg2": ([X2], lambda L, x: F(L).avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "avg3": ([X3], lambda L, x: F(L).avg_pool3d(x, 2)),
    "aavg1": ([X1], lambda L, x: F(L).adaptive_avg_pool1d(x, 4)),
    "aavg2": ([X2], lambda L, x: F(L).adaptive_avg_pool2d(x, 3)),
    "aavg3": ([X3], lambda L, x: F(L).adaptive_avg_pool3d(x, 4)),
    "lp1": ([X1], lambda L, x: F(L).lp_pool1d(x, 2, 3)),
    "lp2": ([X2], lambda L, x: F(L).lp_pool2d(x, 2, 3)),
    "unpool2": ([X2], lambda L, x: F(L).max_unpool2d(*F(L).max_pool2d(x, 2, return_indices=True), 2)),
    "frac2": (
        [X2],
        lambda L, x: F(L).fractional_max_pool2d(
            x, 2, output_size=3, _random_samples=(L.tensor(np.full((2, 3, 2), 0.4)))
        ),
    ),
    "nll": ([C], lambda L, x, t: F(L).nll_loss(x, t)),
    "nll none": ([C], lambda L, x, t: F(L).nll_loss(x, t, reduction="none")),
    "nll w": ([C], lambda L, x, t: F(L).nll_loss(x, t, L.tensor(W))),
    "nll2d": ([CI], lambda L, x, t: F(L).nll_loss(x, t)),
    "ce": ([C], lambda L, x, t: F(L).cross_entropy(x, t)),
    "ce ls": ([C], lambda L, x, t: F(L).cross_entropy(x, t, label_smoothing=0.1)),
    "ce w": ([C], lambda L, x, t: F(L).cross_entropy(x, t, L.tensor(W), label_smoothing=0.1, reduction="sum")),
    "ce prob": ([C, YP], lambda L, x, y: F(L).cross_entropy(x, y)),
    "ce2d": ([CI], lambda L, x, t: F(L).cross_entropy(x, t)),
    "logsoftmax nll": ([C], lambda L, x, t: F(L).nll_loss(F(L).log_softmax(x, 1), t)),
    "mse": ([C, Y], lambda L, x, y: F(L).mse_loss(x, y)),
    "smooth": ([C, Y], lambda L, x, y: F(L).smooth_l1_loss(x, y)),
    "huber": ([C, Y], lambda L, x, y: F(L).huber_loss(x, y)),
    "bce": ([CP, YP], lambda L, x, y: F(L).binary_cross_entropy(x, y)),
    "bcel": ([C, YP], lambda L, x, y: F(L).binary_cross_entropy_with_logits(x, y, pos_weight=L.tensor(W))),
    "kl": ([C, YP], lambda L, x, y: F(L).kl_div(x, y, reduction="batchmean")),
    "kl log": ([C, Y], lambda L, x, y: F(L).kl_div(x, y, reduction="sum", log_target=True)),
    "poisson": ([C, YP], lambda L, x, y: F(L).poisson_nll_loss(x, y, full=True)),
    "gauss": ([C, Y, CP], lambda L, x, y, v: F(L).gaussian_nll_loss(x, y, v)),
    "hinge": ([C], lambda L, x: F(L).hinge_embedding_loss(x, L.tensor(np.sign(Y)))),
    "margin_rank": ([C[:, 0], C[:, 1]], lambda L, x, y: F(L).margin_ranking_loss(x, y, L.tensor(S))),
    "soft margin": ([C], lambda L, x: F(L).soft_margin_loss(x, L.tensor(np.sign(Y)))),
    "multilabel soft": ([C], lambda L, x: F(L).multilabel_soft_margin_loss(x, L.tensor((Y > 0).astype(float)))),
    "cos emb": ([C, Y], lambda L, x, y: F(L).cosine_embedding_loss(x, y, L.tensor(S))),
    "triplet": ([C, Y, CP], lambda L, x, y, z: F(L).triplet_margin_loss(x, y, z)),
}


def derivatives(L, inputs, function):
    """First derivatives, then the derivatives of each by inputs and by the gradient that came in."""
    leaves = [L.tensor(np.ascontiguousarray(a)).requires_grad_() for a in inputs]
    targets = (
        [L.tensor(TI if inputs[0] is CI else T)]
        if len(inspect.signature(function).parameters) > len(inputs) + 1
        else []
    )
    out = function(L, *leaves, *targets)
    given = L.tensor(np.random.default_rng(1).standard_normal(tuple(out.shape))).requires_grad_()
    found = []
    for first in L.autograd.grad(out, leaves, given, create_graph=True, allow_unused=True):
        found.append(first)
        if first is not None and first.requires_grad:
            seed = L.tensor(np.random.default_rng(2).standard_normal(tuple(first.shape)))
            found += L.autograd.grad(first, [*leaves, given], seed, allow_unused=True, retain_graph=True)
    return [None if value is None else value.detach().numpy() for value in found]


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives(name):
    ours, theirs = (derivatives(L, *CASES[name]) for L in (fl, torch))
    assert [value is None for value in ours] == [value is None for value in theirs]
    for a, b in zip(ours, theirs):
        assert a is None or np.allclose(a, b, atol=1e-8)
