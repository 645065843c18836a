"""Which precision operators run in while autocast is on, by type of device.

The names are those of op records; a rule holds for all overloads that make new tensors. Operators without a rule run in
the dtype of their arguments, and composite ones are seen as the operators they consist of.
"""

from __future__ import annotations

from flambeau import _C

LOWER, SINGLE, WIDEST, REFUSED, FIRST, OWN = 1, 2, 3, 4, 5, 6  # as csrc/autograd/autocast.h has them

_PRODUCTS = (
    "conv1d conv2d conv3d _convolution conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d matmul mm bmm "
    "addmm addbmm baddbmm linear linalg_vecdot prelu scaled_dot_product_attention"
).split()

_LOSSES = (
    "binary_cross_entropy_with_logits cosine_embedding_loss hinge_embedding_loss huber_loss kl_div l1_loss "
    "margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss "
    "soft_margin_loss triplet_margin_loss"
).split()

_CPU_SINGLE = (
    "binary_cross_entropy cross_entropy ctc_loss prod quantile nanquantile stft cdist trace polar view_as_complex "
    "grid_sampler grid_sampler_2d grid_sampler_3d grid_sample avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d "
    "adaptive_max_pool3d_with_indices max_pool3d max_pool3d_with_indices max_unpool2d max_unpool3d "
    "fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d "
    "fractional_max_pool3d_with_indices "
    "fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn "
    "fft_rfft fft_rfft2 fft_rfftn "
    "cholesky cholesky_inverse cholesky_solve geqrf inverse lu_solve orgqr ormqr pinverse qr svd triangular_solve "
    "linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh "
    "linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_qr linalg_solve "
    "linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve"
).split()

# Defined here by products, which PyTorch does not use for them.
_CPU_OWN = ("bilinear",)

_ACCELERATOR_SINGLE = (
    "acos asin cosh erfinv exp expm1 log log10 log1p log2 pow reciprocal renorm rsqrt sinh tan softplus cosine_similarity "
    "cross_entropy cumprod cumsum dist group_norm layer_norm native_layer_norm linalg_matrix_norm linalg_vector_norm "
    "log_softmax logsumexp norm nuclear_norm frobenius_norm pdist cdist prod rms_norm softmax sum"
).split()

_RULES: dict[str, dict[str, int]] = {
    "cpu": {
        **dict.fromkeys([*_PRODUCTS, "lstm", "rnn_tanh", "rnn_relu"], LOWER),
        **dict.fromkeys([*_LOSSES, *_CPU_SINGLE], SINGLE),
        **dict.fromkeys(("cat", "stack", "index_copy"), WIDEST),
        **dict.fromkeys(_CPU_OWN, OWN),
        "gru": FIRST,
    },
    "cuda": {
        **dict.fromkeys(
            [*_PRODUCTS, "addmv", "addr", "mv", "chain_matmul", "linalg_multi_dot", "gru_cell", "lstm_cell",
             "rnn_relu_cell", "rnn_tanh_cell", "lstm", "gru", "rnn_tanh", "rnn_relu"], LOWER,
        ),
        **dict.fromkeys([*_LOSSES, *_ACCELERATOR_SINGLE], SINGLE),
        **dict.fromkeys(
            ("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put",
             "scatter_add", "tensordot"), WIDEST,
        ),
        "binary_cross_entropy": REFUSED,
    },
}  # fmt: skip

_installed: set[str] = set()


def install(device_type: str) -> None:
    """Give the operators their rules, once; devices from outside follow those of accelerators."""
    if device_type not in _installed:
        _installed.add(device_type)
        _C._set_autocast_rules(device_type, _RULES.get(device_type, _RULES["cuda"]))
