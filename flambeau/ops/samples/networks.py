"""Samples of the ops of networks: convolution, pooling, normalisation, attention, embedding, resizing, losses."""

from __future__ import annotations

from flambeau.ops.samples import Constant, Through, call, samples, without


def first(out):
    """What is kept for backward has no derivative."""
    return out[0]


# ---------------------------------------------------------------- convolution


def _space(n):
    return [4, 3, 3][:n]


def _kernel(n):
    return [2, 3, 2][:n]


def _convolutions(n, transposed):
    def generate(make):
        if transposed:
            yield call(make(1, 2, *_space(n)), make(2, 3, *_kernel(n)), make(3), stride=2, output_padding=1)
            yield call(make(2, 2, *_space(n)), make(2, 1, *_kernel(n)), groups=2, padding=1)
        else:
            yield call(make(2, 2, *_space(n)), make(3, 2, *_kernel(n)), make(3), stride=2, padding=1)
            yield call(make(1, 2, *_space(n)), make(2, 1, *_kernel(n)), groups=2, padding=2, dilation=2)
            yield call(make(2, *_space(n)), make(1, 2, *_kernel(n)))

    return generate


def _named_padding(n):
    def generate(make):
        yield call(make(1, 2, *_space(n)), make(2, 2, *_kernel(n)), padding="same")
        yield call(make(1, 2, *_space(n)), make(2, 2, *_kernel(n)), make(2), padding="valid")

    return generate


for _n in (1, 2, 3):
    samples(f"conv{_n}d")(_convolutions(_n, False))
    samples(f"conv_transpose{_n}d")(_convolutions(_n, True))
    samples(f"conv{_n}d.padding")(_named_padding(_n))


@samples("convolution", "_convolution")
def convolution(make):
    yield call(make(2, 2, 5), make(3, 2, 3), make(3), [2], [1], [1], False, [0], 1)
    yield call(make(1, 2, 3, 3), make(2, 2, 2, 2), None, [1, 2], [0, 1], [1, 1], True, [0, 1], 1)


@samples("_convolution_backward")
def convolution_backward(make):
    yield call(make(2, 3, 3), make(2, 2, 5), make(3, 2, 3), [2], [1], [1], False, [0], 1, [True, True, True])
    yield call(make(2, 3, 3), make(2, 2, 5), make(3, 2, 3), [2], [1], [1], False, [0], 1, [True, False, False])


without(
    "compiled networks call it where no derivative is wanted, in single precision; tests/inductor/test_epilogue.py",
    "_convolution_finished",
    "_convolution_packed",
)


@samples("conv_tbc")
def conv_tbc(make):
    yield call(make(4, 1, 2), make(2, 2, 3), make(3), 1)


@samples("_im2col")
def im2col(make):
    yield call(make(1, 2, 3, 4), [2, 2], [1, 1], [0, 1], [1, 2])


@samples("_col2im")
def col2im(make):
    yield call(make(1, 4, 6), [3, 4], [2, 2], [1, 1], [0, 0], [1, 1])


@samples("nn_unfold")
def unfold(make):
    yield call(make(1, 2, 3, 4), 2, padding=1, stride=2)


@samples("nn_fold")
def fold(make):
    yield call(make(1, 4, 6), [3, 4], 2)


# ---------------------------------------------------------------- pooling


def _pools(n):
    space = [5, 4, 3][:n]

    def maximum(make):
        yield call(make(1, 2, *space), 2)
        yield call(make(2, *space), 3, 2, 1)

    def average(make):
        yield call(make(1, 2, *space), 2)
        yield call(make(2, *space), 3, 2, 1, True, False)

    def adaptive(make):
        yield call(make(1, 2, *space), [2, 3, 1][:n])

    def unpool(make):
        import flambeau as fl

        count = 1
        for _ in range(n):
            count *= 2
        indices = fl.arange(count).reshape(1, 1, *([2] * n)) * 2
        yield call(make(1, 1, *([2] * n)), indices, 2, 2)

    def lp(make):
        yield call(make.positive(1, 2, *space), 2.0, 2)
        yield call(make.positive(1, 2, *space), 3.0, 2, 1)

    samples(f"max_pool{n}d", f"max_pool{n}d_with_indices", f"nn_max_pool{n}d")(maximum)
    samples(f"avg_pool{n}d")(average)
    adaptive_names = [f"adaptive_avg_pool{n}d", f"nn_adaptive_max_pool{n}d", f"nn_adaptive_max_pool{n}d_with_indices"]
    adaptive_names += ["adaptive_max_pool1d"] if n == 1 else [f"_adaptive_max_pool{n}d", f"nn_adaptive_avg_pool{n}d"]
    samples(*adaptive_names)(adaptive)
    samples(f"nn_max_unpool{n}d")(unpool)
    samples(f"nn_lp_pool{n}d")(lp)


for _n in (1, 2, 3):
    _pools(_n)


@samples("_fractional_max_pool2d")
def fractional_2d(make):
    yield call(make(1, 2, 5, 4), 2, [2, 2], make.constant(1, 2, 2))


@samples("_fractional_max_pool3d")
def fractional_3d(make):
    yield call(make(1, 1, 4, 4, 4), 2, [2, 2, 2], make.constant(1, 1, 3))


@samples("nn_fractional_max_pool2d", "nn_fractional_max_pool2d_with_indices")
def nn_fractional_2d(make):
    yield call(make(1, 2, 5, 4), 2, [2, 2], _random_samples=make.constant(1, 2, 2))


@samples("nn_fractional_max_pool3d", "nn_fractional_max_pool3d_with_indices")
def nn_fractional_3d(make):
    yield call(make(1, 1, 4, 4, 4), 2, [2, 2, 2], _random_samples=make.constant(1, 1, 3))


@samples("_pool_scatter")
def pool_scatter(make):
    yield call(make(1, 2, 2), make.index([[[0, 3], [3, 3]]]), [4], True)


@samples("_pool_gather")
def pool_gather(make):
    yield call(make(1, 2, 4), make.index([[[0, 3], [3, 3]]]), 1)


@samples("_avg_pool_backward")
def avg_pool_backward(make):
    yield call(make(1, 2, 2, 2), [1, 2, 4, 4], [2, 2], None, [0, 0], False, True, None)


@samples("_adaptive_avg_pool_backward")
def adaptive_avg_pool_backward(make):
    yield call(make(1, 2, 2, 3), [1, 2, 5, 4], 2)


# ---------------------------------------------------------------- normalisation


@samples("native_layer_norm")
def native_layer_norm(make):
    yield call(make(2, 3, 4), [4], make(4), make(4), 1e-5).then(first)
    yield call(make.strided(2, 3, 2), [3, 2], None, None, 1e-5).then(first)
    yield call(make(0, 3), [3], make(3), None, 1e-5).then(first)


@samples("_fused_rms_norm")
def fused_rms_norm(make):
    yield call(make(2, 3, 4), [4], make(4), None).then(first)
    yield call(make.strided(2, 3), [3], None, 1e-3).then(first)


@samples("nn_layer_norm", "layer_norm")
def layer_norm(make):
    yield call(make(2, 3, 4), [4], make(4), make(4))
    yield call(make(3), [3])


@samples("nn_rms_norm", "rms_norm")
def rms_norm(make):
    yield call(make(2, 3, 4), [4], make(4))


@samples("native_group_norm")
def native_group_norm(make):
    yield call(make(2, 4, 3), make(4), make(4), 2, 4, 3, 2, 1e-5)
    yield call(make.strided(1, 2, 4), None, None, 1, 2, 4, 1, 1e-5)


@samples("nn_group_norm", "group_norm")
def group_norm(make):
    yield call(make(2, 4, 3), 2, make(4), make(4))


@samples("native_batch_norm")
def native_batch_norm(make):
    yield call(make(4, 3), make(3), make(3), None, None, True, 0.1, 1e-5).then(first)
    yield call(make(2, 3, 2, 2), make(3), make(3), *_running(make), False, 0.1, 1e-5).then(first)
    yield call(make.strided(3, 2, 4), None, None, *_running(make, 2), True, 0.1, 1e-5).then(first)


@samples("_batch_norm_statistics")
def batch_norm_statistics(make):
    yield call(make.constant(4, 3), None, make.constant(3), None, None, 0.1, 1e-5)
    yield call(make.constant(3, 2, 4, low=None), make.constant(2), None, *_running(make, 2), 0.1, 1e-5)


def _running(make, channels=3):
    return make.constant(channels, low=None), make.constant(channels)


@samples("batch_norm")
def batch_norm(make):
    yield call(make(4, 3), make(3), make(3), None, None, True, 0.1, 1e-5, False)


@samples("nn_batch_norm")
def nn_batch_norm(make):
    yield call(make(4, 3), None, None, make(3), make(3), True)
    yield call(make(2, 3, 2), *_running(make), make(3), make(3))


@samples("instance_norm")
def instance_norm(make):
    yield call(make(2, 3, 4), make(3), make(3), None, None, True, 0.1, 1e-5, False)


@samples("nn_instance_norm")
def nn_instance_norm(make):
    yield call(make(2, 3, 4), None, None, make(3), make(3))


@samples("local_response_norm")
def local_response_norm(make):
    yield call(make(2, 4, 3), 3)


@samples("_layer_norm_backward")
def layer_norm_backward(make):
    mean, rstd = make.constant(2, 1, low=None), make.constant(2, 1)
    for mask in ([True] * 3, [True, False, False]):
        yield call(*(make.constant(2, 4, low=None) for _ in range(2)), mean, rstd, make.constant(4, low=None), 1, mask)
    yield call(*(make.constant(2, 4, low=None) for _ in range(2)), None, rstd, None, 1, [True, True, False])


@samples("_group_norm_backward")
def group_norm_backward(make):
    mean, rstd = make.constant(2, 2, low=None), make.constant(2, 2)
    grad, input = make.constant(2, 4, 3, low=None), make.constant(2, 4, 3, low=None)
    yield call(grad, input, mean, rstd, make.constant(4, low=None), 2, 4, 3, 2, [True] * 3)


@samples("_batch_norm_backward")
def batch_norm_backward(make):
    mean, rstd = make.constant(3, low=None), make.constant(3)
    for shape in ((4, 3), (2, 3, 2)):
        grad, input = make.constant(*shape, low=None), make.constant(*shape, low=None)
        for training in (True, False):
            yield call(grad, input, mean, rstd, make.constant(3, low=None), training, [True] * 3)


@samples("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(make):
    yield call(make.constant(2, 3, low=None), make.constant(2, 3), 1, make.dtype)
    yield call(make.constant(2, 3, low=None), Constant(make.strided(2, 3)), 0, make.dtype)


@samples("_softmax", "_log_softmax")
def softmax_kernel(make):
    yield call(make(2, 3), 1, False)
    yield call(make.strided(2, 3), 0, False)
    yield call(make(), 0, False)


@samples("nn_softmax", "nn_log_softmax", "nn_softmin", "softmax.int", "log_softmax.int", "special_softmax",
         "special_log_softmax")  # fmt: skip
def softmax(make):
    yield call(make(2, 3), 1)
    yield call(make(2, 3, 2), 0)


# ---------------------------------------------------------------- attention and embedding


@samples("scaled_dot_product_attention")
def attention(make):
    yield call(make(2, 3, 2), make(2, 3, 2), make(2, 3, 2), is_causal=True)
    yield call(make(1, 2, 3, 2), make(1, 2, 4, 2), make(1, 2, 4, 2), make(3, 4), scale=0.7)


@samples("_flash_attention")
def flash_attention(make):
    q, k, v = (make.real(1, 2, 3, 2).float() for _ in range(3))
    yield call(Constant(q), Constant(k), Constant(v), None, True, None)


@samples("_flash_attention_backward")
def flash_attention_backward(make):
    import flambeau as fl

    q, k, v, g = (make.real(1, 2, 3, 2).float() for _ in range(4))
    out, sums = fl._ops._flash_attention(q, k, v, None, True, None)
    g, q, k, v, out, sums = map(Constant, (g, q, k, v, out, sums))
    yield call(g, q, k, v, None, out, sums, True, None)


@samples("nn_multi_head_attention_forward")
def multi_head_attention(make):
    query, key, value = make(3, 2, 4), make(2, 2, 4), make(2, 2, 4)
    weights = make(12, 4), make(12), None, None, False, 0.0, make(4, 4), make(4)
    yield call(query, key, value, 4, 2, *weights)


@samples("embedding")
def embedding(make):
    yield call(make(4, 2), make.index([[0, 2], [2, 3]]))
    yield call(make(4, 2), make.index([0, 2, 2]), 1)


@samples("nn_embedding")
def nn_embedding(make):
    yield call(make.index([0, 2, 2]), make(4, 2))
    yield call(make.index([0, 2, 2]), make(4, 2), padding_idx=1)


@samples("embedding_renorm_")
def embedding_renorm(make):
    yield call(make.constant(4, 2, low=None), make.index([0, 2]), 0.3, 2.0)


@samples("_embedding_bag", "embedding_bag")
def embedding_bag(make):
    yield call(make(4, 2), make.index([0, 2, 2]), make.index([0, 1]))
    yield call(make(4, 2), make.index([0, 2, 2]), make.index([0, 1]), per_sample_weights=make(3))
    yield call(make(4, 2), make.index([0, 2, 1]), make.index([0, 1]), mode=1)
    yield call(make(4, 2), make.index([0, 2, 1]), make.index([0, 1]), mode=2)


@samples("nn_embedding_bag")
def nn_embedding_bag(make):
    yield call(make.index([[0, 2], [1, 2]]), make(4, 2))
    yield call(make.index([0, 2, 1]), make(4, 2), make.index([0, 1]), mode="sum", per_sample_weights=make(3))


# ---------------------------------------------------------------- resizing


@samples("_interpolate")
def interpolate_kernel(make):
    yield call(make(1, 1, 3), [5], "linear", False, None, False)
    yield call(make(1, 1, 2, 3), [3, 4], "cubic", True, None, False)


@samples("_interpolate_backward")
def interpolate_backward(make):
    yield call(make(1, 1, 5), [1, 1, 3], "linear", False, None, False)


@samples("nn_interpolate")
def interpolate(make):
    yield call(make(1, 1, 3), 5)
    yield call(make(1, 1, 3), scale_factor=2.0, mode="linear", align_corners=False)
    yield call(make(1, 1, 2, 3), [3, 5], mode="bilinear", align_corners=True)
    yield call(make(1, 1, 4, 4), [3, 2], mode="bicubic", antialias=True)
    yield call(make(1, 1, 2, 2, 2), [3, 1, 2], mode="trilinear")
    yield call(make(1, 1, 4), [2], mode="area")


@samples("nn_upsample", "nn_upsample_nearest", "nn_upsample_bilinear")
def upsample(make):
    yield call(make(1, 1, 2, 3), [4, 3])


@samples("grid_sampler", "grid_sampler_2d")
def grid_sampler_2d(make):
    for mode in (0, 2):
        for padding, align in ((0, False), (1, True), (2, False), (2, True)):
            yield call(make(1, 2, 3, 3), make(1, 2, 2, 2), mode, padding, align)
    yield call(make(1, 2, 3, 3), make.constant(1, 2, 2, 2), 1, 0, False)


@samples("grid_sampler_3d")
def grid_sampler_3d(make):
    yield call(make(1, 1, 3, 3, 2), make(1, 2, 1, 2, 3), 0, 1, False)


@samples("_grid_sampler_backward")
def grid_sampler_backward(make):
    yield call(
        make.constant(1, 2, 2, 2, low=None),
        make.constant(1, 2, 3, 3, low=None),
        make.constant(1, 2, 2, 2, low=None),
        0,
        0,
        False,
    )


@samples("nn_grid_sample")
def grid_sample(make):
    yield call(make(1, 2, 3, 3), make(1, 2, 2, 2), align_corners=False)


@samples("affine_grid_generator")
def affine_grid_generator(make):
    yield call(make(1, 2, 3), [1, 1, 2, 3], False)


@samples("nn_affine_grid")
def affine_grid(make):
    yield call(make(1, 2, 3), [1, 1, 2, 3], align_corners=True)
    yield call(make(1, 3, 4), [1, 1, 2, 2, 2], align_corners=False)


# ---------------------------------------------------------------- losses


@samples("_nll_loss_forward", "_cross_entropy_forward")
def class_losses(make):
    yield call(make(3, 4), make.index([1, 3, 0]), None, 1, -100).then(first)
    yield call(make(3, 4), make.index([1, 3, 0]), make.constant(4), 0, 3).then(first)
    yield call(make(2, 3, 2), make.index([[1, 2], [0, 2]]), None, 2, -100).then(first)
    yield call(make(4), make.index(1), None, 1, -100).then(first)


@samples("_nll_loss_backward")
def nll_loss_backward(make):
    total = make.constant()
    yield call(make.constant(low=None), [3, 4], make.index([1, 3, 0]), make.constant(4), 1, 3, total)
    yield call(make.constant(2, 2, low=None), [2, 3, 2], make.index([[1, 2], [0, 2]]), None, 0, -100, total)


@samples("_cross_entropy_backward")
def cross_entropy_backward(make):
    weight, total = make.constant(4), make.constant()
    x = make(3, 4)
    sums = Constant(x.logsumexp(1))
    yield call(make.constant(low=None), Constant(x), make.index([1, 3, 0]), weight, 1, 3, total, sums)
    x = make(2, 3, 2)
    sums = Constant(x.logsumexp(1))
    yield call(make.constant(2, 2, low=None), Constant(x), make.index([[1, 2], [0, 2]]), None, 0, -100, total, sums)


@samples("nll_loss")
def nll_loss(make):
    yield call(make(3, 4), make.index([1, 3, 0]))
    yield call(make(2, 3, 2), make.index([[1, 2], [0, 2]]), reduction="sum")


@samples("cross_entropy")
def cross_entropy(make):
    yield call(make(3, 4), make.index([1, 3, 0]))
    yield call(make(3, 4), make.index([1, 3, 0]), make.constant(4), label_smoothing=0.2, reduction="none")
    yield call(make(3, 4), make.positive(3, 4))


@samples("linear_cross_entropy")
def linear_cross_entropy(make):
    yield call(make(3, 2), make(4, 2), make.index([1, 3, 0]))


@samples("multi_margin_loss")
def multi_margin_loss(make):
    yield call(make(3, 4), make.index([1, 3, 0]))
    yield call(make(3, 4), make.index([1, 3, 0]), 2, 0.7, reduction="none")


@samples("multilabel_margin_loss")
def multilabel_margin_loss(make):
    yield call(make(2, 3), make.index([[1, 0, -1], [2, -1, 0]]))


@samples("nn_cosine_embedding_loss", "cosine_embedding_loss")
def cosine_embedding_loss(make):
    yield call(make(2, 3), make(2, 3), make.index([1, -1]), 0.1)


def _ctc(make):
    import flambeau as fl

    return Through(lambda x: fl.log_softmax(x * 3, 2), make(4, 2, 3)), make.index([[1, 2], [2, 1]])


@samples("_ctc_loss")
def ctc_loss_kernel(make):
    yield call(*_ctc(make), [4, 3], [2, 1]).then(first)


@samples("_ctc_loss_backward")
def ctc_loss_backward(make):
    import flambeau as fl

    # A label that comes twice; one that is not reached; no input at all.
    for targets, lengths, counts in (([[1, 2], [2, 2]], [4, 3], [2, 2]), ([[1, 1], [2, 1]], [2, 0], [2, 0])):
        x, labels = fl.log_softmax(make(4, 2, 3) * 3, 2), make.index(targets)
        saved = (Constant(t) for t in fl._ctc_loss(x, labels, lengths, counts))
        yield call(make.constant(2, low=None), Constant(x), labels, lengths, counts, *saved, 0, True)


@samples("nn_ctc_loss", "ctc_loss")
def ctc_loss(make):
    yield call(*_ctc(make), [4, 3], [2, 1])


@samples("binary_cross_entropy")
def binary_cross_entropy(make):
    yield call(make.positive(2, 3), make.positive(2, 3))
    yield call(make.positive(2, 3), make.positive(2, 3), make.constant(3), reduction="sum")


@samples("nn_kl_div", "kl_div")
def kl_div(make):
    yield call(make(2, 3), make.positive(2, 3))


@samples("gaussian_nll_loss")
def gaussian_nll_loss(make):
    yield call(make(2, 3), make(2, 3), make.positive(2, 3))


@samples("nn_hinge_embedding_loss", "hinge_embedding_loss")
def hinge_embedding_loss(make):
    yield call(make(2, 3), make.index([[1, -1, 1], [-1, -1, 1]]))


@samples("nn_margin_ranking_loss", "margin_ranking_loss")
def margin_ranking_loss(make):
    yield call(make(3), make(3), make.index([1, -1, 1]), 0.1)


@samples("multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(make):
    yield call(make(2, 3), make.constant(2, 3))
