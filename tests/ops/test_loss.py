"""Losses and embeddings against their definitions in NumPy."""

import math

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F

RNG = np.random.default_rng(0)


def log_softmax(x, axis):
    m = x.max(axis, keepdims=True)
    return x - m - np.log(np.exp(x - m).sum(axis, keepdims=True))


def pair(*shape, positive=False):
    a = RNG.random(shape) if positive else RNG.standard_normal(shape)
    return a, fl.as_tensor(a)


def placed(*shape, **options):
    """The same on the default device."""
    a, t = pair(*shape, **options)
    return a, fl.tensor(t.tolist(), dtype=t.dtype)


@pytest.mark.parametrize("shape", [(7, 5), (33, 100), (3, 4, 6), (2, 10, 3, 50)])
@pytest.mark.parametrize("dtype,tolerance", [(fl.float32, 1e-5), (fl.float64, 1e-12), (fl.bfloat16, 3e-2)])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy(shape, dtype, tolerance, reduction):
    classes = shape[1]
    x = fl.as_tensor(RNG.standard_normal(shape) * 3).to(dtype)
    scores = log_softmax(x.to(fl.float64).cpu().numpy(), 1)
    target = RNG.integers(0, classes, (shape[0], *shape[2:]))
    target.flat[0] = -100
    w = fl.as_tensor(RNG.random(classes)).to(dtype)
    factor = w.to(fl.float64).cpu().numpy()
    kept = target != -100
    index = np.where(kept, target, 0)
    picked = -np.take_along_axis(scores, index[:, None], 1)[:, 0]
    for weight, each in ((None, np.ones_like(index, float)), (w, factor[index])):
        each = each * kept
        loss = picked * each
        want = loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.sum() / each.sum()
        got = F.cross_entropy(x, fl.as_tensor(target), weight, reduction=reduction).to(fl.float64).cpu().numpy()
        assert np.allclose(got, want, rtol=tolerance, atol=tolerance * 3)
        got = (
            F.nll_loss(fl.log_softmax(x, 1), fl.as_tensor(target), weight, reduction=reduction)
            .to(fl.float64)
            .cpu()
            .numpy()
        )
        assert np.allclose(got, want, rtol=tolerance, atol=tolerance * 3)


def test_cross_entropy_forms():
    x, t = placed(4, 5)
    scores = log_softmax(x, 1)
    target = np.array([0, 4, 2, 2])
    smooth = np.full((4, 5), 0.1 / 5)
    smooth[np.arange(4), target] += 0.9
    want = -(smooth * scores).sum(1).mean()
    assert np.allclose(F.cross_entropy(t, fl.tensor(target), label_smoothing=0.1).item(), want)
    assert np.allclose(F.cross_entropy(t, fl.tensor(smooth)).item(), want)
    one = F.cross_entropy(t[0], fl.tensor(3))
    assert one.shape == () and np.allclose(one.item(), -scores[0, 3])
    assert math.isnan(F.cross_entropy(t, fl.full((4,), -100)).item())
    assert F.cross_entropy(t, fl.tensor(target), reduction="sum", ignore_index=2).item() == pytest.approx(
        -(scores[0, 0] + scores[1, 4])
    )


def test_class_index_errors():
    x = fl.randn(3, 5)
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(IndexError):
            loss(x, fl.tensor([0, 1, 5])).item()  # waits for devices that report indices later
        with pytest.raises(ValueError):
            loss(x, fl.tensor([0, 1]))
        with pytest.raises(RuntimeError):
            loss(x, fl.tensor([0.0, 1.0, 2.0]))
        with pytest.raises(ValueError):
            loss(x, fl.tensor([0, 1, 2]), reduction="other")
        assert loss(fl.empty(3, 5, device="meta"), fl.empty(3, dtype=fl.int64, device="meta")).shape == ()


def bce(x, y):
    return -(y * np.log(x) + (1 - y) * np.log1p(-x))


ELEMENTWISE = {
    "mse": (F.mse_loss, lambda x, y: (x - y) ** 2),
    "l1": (F.l1_loss, lambda x, y: abs(x - y)),
    "smooth_l1": (
        lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.5, **k),
        lambda x, y: np.where(abs(x - y) < 0.5, (x - y) ** 2, abs(x - y) - 0.25),
    ),
    "huber": (
        lambda x, y, **k: F.huber_loss(x, y, delta=0.3, **k),
        lambda x, y: np.where(abs(x - y) <= 0.3, 0.5 * (x - y) ** 2, 0.3 * (abs(x - y) - 0.15)),
    ),
    "bce": (F.binary_cross_entropy, bce),
    "bce_logits": (F.binary_cross_entropy_with_logits, lambda x, y: bce(1 / (1 + np.exp(-x)), y)),
    "kl_div": (F.kl_div, lambda x, y: y * (np.log(y) - x)),
    "poisson": (F.poisson_nll_loss, lambda x, y: np.exp(x) - y * x),
    "soft_margin": (F.soft_margin_loss, lambda x, y: np.log1p(np.exp(-x * y))),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.filterwarnings("ignore")
def test_elementwise_losses(name):
    loss, reference = ELEMENTWISE[name]
    (x, tx), (y, ty) = pair(6, 7, positive=True), pair(6, 7, positive=True)
    want = reference(x, y)
    assert np.allclose(loss(tx, ty, reduction="none").cpu().numpy(), want)
    assert np.allclose(loss(tx, ty).item(), want.mean())
    assert np.allclose(loss(tx.t(), ty.t(), reduction="sum").item(), want.sum())
    with pytest.raises(ValueError):
        loss(tx, ty, reduction="other")


def test_binary_cross_entropy_edges():
    assert F.binary_cross_entropy(fl.tensor([0.0, 1.0]), fl.tensor([1.0, 0.0])).item() == 100.0
    if fl.ones(1).is_cpu:  # elsewhere it would take a wait to know
        with pytest.raises(RuntimeError):
            F.binary_cross_entropy(fl.tensor([1.5]), fl.tensor([1.0]))
    assert F.binary_cross_entropy_with_logits(fl.tensor([1000.0, -1000.0]), fl.tensor([1.0, 0.0])).item() == 0.0
    (x, tx), (y, ty), (w, tw) = placed(4, 3), placed(4, 3, positive=True), placed(3, positive=True)
    p = 1 / (1 + np.exp(-x))
    want = -(w * y * np.log(p) + (1 - y) * np.log1p(-p)).mean()
    assert np.allclose(F.binary_cross_entropy_with_logits(tx, ty, pos_weight=tw).item(), want)


def test_margin_losses():
    (x, tx) = pair(3, 4)
    target = np.array([1, 0, 3])
    gaps = np.maximum(0, 1 - x[np.arange(3), target][:, None] + x)
    gaps[np.arange(3), target] = 0
    assert np.allclose(F.multi_margin_loss(tx, fl.as_tensor(target)).item(), (gaps.sum(1) / 4).mean())
    labels = np.array([[3, 0, -1, 1], [2, -1, 0, 0], [-1, 1, 1, 1]])
    total = 0.0
    for row, wanted in zip(x, ([3, 0], [2], [])):
        others = [i for i in range(4) if i not in wanted]
        total += sum(max(0, 1 - (row[j] - row[i])) for j in wanted for i in others) / 4
    assert np.allclose(F.multilabel_margin_loss(tx, fl.as_tensor(labels)).item(), total / 3)


def test_distances():
    (a, ta), (b, tb), (c, tc) = pair(5, 6), pair(5, 6), pair(5, 6)
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert np.allclose(F.cosine_similarity(ta, tb).cpu().numpy(), cosine)
    assert np.allclose(F.pairwise_distance(ta, tb).cpu().numpy(), np.linalg.norm(a - b + 1e-6, axis=1))
    rows, columns = np.triu_indices(5, 1)
    assert np.allclose(F.pdist(ta).cpu().numpy(), np.linalg.norm(a[rows] - a[columns], axis=1))
    near, far = np.linalg.norm(a - b + 1e-6, axis=1), np.linalg.norm(a - c + 1e-6, axis=1)
    assert np.allclose(F.triplet_margin_loss(ta, tb, tc).item(), np.maximum(0, 1 + near - far).mean())
    sign = np.array([1, -1, 1, -1, 1])
    want = np.where(sign == 1, 1 - cosine, np.maximum(0, cosine - 0.1)).mean()
    assert np.allclose(F.cosine_embedding_loss(ta, tb, fl.as_tensor(sign), margin=0.1).item(), want)


def ctc_by_enumeration(probs, target, blank=0):
    """Sum of the probabilities of every path that collapses to the target."""
    steps, classes = probs.shape
    total = 0.0
    for path in np.ndindex(*[classes] * steps):
        merged = [s for i, s in enumerate(path) if i == 0 or s != path[i - 1]]
        if [s for s in merged if s != blank] == list(target):
            total += math.prod(probs[t, s] for t, s in enumerate(path))
    return -math.log(total) if total else math.inf


def test_ctc_loss():
    scores = log_softmax(RNG.standard_normal((5, 3, 3)), 2)
    targets, lengths = [[1, 2], [1, 1], [2]], [5, 4, 5]
    want = [ctc_by_enumeration(np.exp(scores[:n, b]), t) for b, (t, n) in enumerate(zip(targets, lengths))]
    flat = fl.tensor([label for target in targets for label in target])
    got = F.ctc_loss(fl.tensor(scores), flat, fl.tensor(lengths), fl.tensor([2, 2, 1]), reduction="none")
    assert np.allclose(got.tolist(), want)
    padded = fl.tensor([[1, 2], [1, 1], [2, 0]])
    mean = F.ctc_loss(fl.tensor(scores), padded, lengths, [2, 2, 1])
    assert np.allclose(mean.item(), np.mean(np.array(want) / [2, 2, 1]))
    impossible = F.ctc_loss(fl.tensor(scores[:2]), padded, [2, 2, 2], [2, 2, 1], reduction="none", zero_infinity=True)
    assert impossible.tolist()[1] == 0.0


def test_embedding():
    w, tw = placed(10, 4)
    index = RNG.integers(0, 10, (3, 5))
    assert (F.embedding(fl.tensor(index), tw).cpu().numpy() == w[index]).all()
    assert F.embedding(fl.empty(0, dtype=fl.int64), tw).shape == (0, 4)
    assert (F.embedding(fl.tensor(index.astype(np.int32)), tw.t().contiguous().t()).cpu().numpy() == w[index]).all()
    with pytest.raises(IndexError):
        F.embedding(fl.tensor([10]), tw).tolist()
    with pytest.raises(AssertionError):
        F.embedding(fl.tensor([1]), tw, padding_idx=10)
    renormed = F.embedding(fl.tensor([0, 1]), tw, max_norm=0.5).cpu().numpy()
    assert (np.linalg.norm(renormed, axis=1) <= 0.5 + 1e-6).all()


def test_embedding_bag():
    w, tw = placed(10, 4)
    index, offsets = np.array([1, 2, 3, 3, 9, 0, 2]), [0, 3, 3, 5]
    bags = [index[0:3], index[3:3], index[3:5], index[5:]]
    for mode, combine in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
        want = [combine(w[b], axis=0) if len(b) else np.zeros(4) for b in bags]
        got = F.embedding_bag(fl.tensor(index), tw, fl.tensor(offsets), mode=mode)
        assert np.allclose(got.tolist(), want)
        last = F.embedding_bag(fl.tensor(index), tw, fl.tensor([*offsets, 7]), mode=mode, include_last_offset=True)
        assert np.allclose(last.tolist(), want)
    factors = RNG.random(7)
    got = F.embedding_bag(fl.tensor(index), tw, fl.tensor(offsets), mode="sum", per_sample_weights=fl.tensor(factors))
    assert np.allclose(got.tolist()[2], (w[[3, 9]] * factors[3:5, None]).sum(0))
    grid = fl.tensor([[1, 2], [3, 3]])
    assert np.allclose(F.embedding_bag(grid, tw, padding_idx=2).tolist(), [w[1], w[3]])


def test_one_hot():
    got = F.one_hot(fl.tensor([[0, 2], [1, 0]]))
    assert got.dtype == fl.int64 and (got.cpu().numpy() == np.eye(3, dtype=int)[[[0, 2], [1, 0]]]).all()
    assert F.one_hot(fl.tensor([1]), 5).shape == (1, 5)
    with pytest.raises(RuntimeError):
        F.one_hot(fl.tensor([-1]))
    with pytest.raises(RuntimeError):
        F.one_hot(fl.tensor([3]), 2)


def test_cosine_similarity_of_any_size_of_vectors():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
    scales = np.array([1e-5, 1.0, 1e4, 0.0])[:, None]
    a = a * scales
    x = fl.tensor(a, requires_grad=True)
    y = fl.tensor(b)
    got = F.cosine_similarity(x, y)
    lengths = np.maximum(np.linalg.norm(a, axis=1), 1e-8) * np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(got.detach().cpu().numpy(), (a * b).sum(1) / lengths, atol=1e-12)
    got.sum().backward()
    assert np.isfinite(x.grad.cpu().numpy()).all()
    one, two = a[1], b[1]
    cosine = one @ two / np.linalg.norm(one) / np.linalg.norm(two)
    slope = two / np.linalg.norm(one) / np.linalg.norm(two) - cosine * one / (one @ one)
    np.testing.assert_allclose(x.grad.cpu().numpy()[1], slope, atol=1e-12)
    # Products of large half-precision numbers stay within range.
    half = fl.full((2, 3), 6e4, dtype=fl.bfloat16)
    assert F.cosine_similarity(half, half).float().sub(1).abs().max() < 0.02
    assert F.cosine_similarity(y.unsqueeze(1), y.unsqueeze(0), dim=-1).shape == (4, 4)


def test_ctc_gradient_is_the_one_of_the_scores():
    """The gradient of a leaf of log-probabilities is the one that its log-softmax would pass on to the scores."""
    scores = fl.tensor(np.random.RandomState(0).randn(5, 2, 4).astype("float32"))
    targets, lengths = fl.tensor([[1, 2], [3, 0]]), ([5, 4], [2, 1])
    free = scores.clone().requires_grad_()
    F.ctc_loss(free.log_softmax(2), targets, *lengths, reduction="sum").backward()
    leaf = scores.log_softmax(2).requires_grad_()
    F.ctc_loss(leaf, targets, *lengths, reduction="sum").backward()
    assert fl.allclose(leaf.grad, free.grad, atol=1e-5)
    assert leaf.grad[4, 1].tolist() == [0.0] * 4  # after the end of the second sample
    short = scores[:1].log_softmax(2).requires_grad_()
    F.ctc_loss(short, targets, [1, 1], [2, 1], reduction="sum", zero_infinity=True).backward()
    assert short.grad[0, 0].tolist() == [0.0] * 4 and short.grad[0, 1].abs().sum() > 0


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_gradient_by_differences(zero_infinity):
    """Labels that come again, samples without input, labels that cannot be reached, and states in plenty."""
    fl.manual_seed(1)
    scores = fl.randn(9, 4, 5, dtype=fl.float64)
    targets = fl.tensor([[1, 2, 1, 1], [3, 3, 3, 0], [2, 4, 0, 0], [1, 2, 3, 4]])
    lengths = [9, 8, 0, 3], [4, 3, 0, 4]

    def losses(x):
        return F.ctc_loss(x.log_softmax(2), targets, *lengths, reduction="none", zero_infinity=zero_infinity)

    leaf = scores.clone().requires_grad_()
    (losses(leaf) * fl.arange(1, 5)).sum().backward()
    assert leaf.grad[:, 2].abs().sum() == 0
    last = leaf.grad[:3, 3]
    assert (last == 0).all() if zero_infinity else last.isnan().all()
    for place in ((0, 0, 1), (4, 0, 0), (8, 0, 2), (3, 1, 3), (7, 1, 0)):
        step = fl.zeros_like(scores)
        step[place] = 1e-5
        slope = (losses(scores + step) - losses(scores - step))[place[1]] / 2e-5 * (place[1] + 1)
        assert fl.allclose(leaf.grad[place], slope, rtol=1e-6, atol=1e-7)
    (first,) = fl.autograd.grad(losses(leaf)[:2].sum(), leaf, create_graph=True)
    (plain,) = fl.autograd.grad(losses(leaf)[:2].sum(), leaf)
    assert first.requires_grad and fl.allclose(first[:, :2], plain[:, :2])
