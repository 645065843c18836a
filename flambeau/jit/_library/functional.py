"""What `derived.py` cannot tell of `nn.functional`, in the language of scripts."""
# Annotations are those of scripts: a BroadcastingList is a list in the body, a dtype an int.
# mypy: disable-error-code="arg-type, index"

import flambeau
from flambeau import Tensor
from flambeau.jit._library.derived import reduction_code
from flambeau.jit.annotations import BroadcastingList1, BroadcastingList2

aten = flambeau.ops.aten

__all__ = [
    "softsign", "tanhshrink", "logsigmoid", "softmax", "softmin", "log_softmax",
    "gumbel_softmax", "dropout1d", "dropout2d", "dropout3d", "batch_norm",
    "local_response_norm", "normalize", "embedding", "embedding_bag", "unfold", "fold",
    "lp_pool1d", "lp_pool2d", "max_unpool2d",
    "_verify_batch_size", "kl_div", "ctc_loss",
]  # fmt: skip


def softsign(input: Tensor) -> Tensor:
    return input / (input.abs() + 1)


def tanhshrink(input: Tensor) -> Tensor:
    return input - input.tanh()


def logsigmoid(input: Tensor) -> Tensor:
    return aten.log_sigmoid(input)


def _softmax_dim(ndim: int) -> int:
    if ndim == 0 or ndim == 1 or ndim == 3:
        ret = 0
    else:
        ret = 1
    return ret


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        dim = _softmax_dim(input.dim())
    if dtype is None:
        ret = input.softmax(dim)
    else:
        ret = input.softmax(dim, dtype=dtype)
    return ret


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        dim = _softmax_dim(input.dim())
    if dtype is None:
        ret = (-input).softmax(dim)
    else:
        ret = (-input).softmax(dim, dtype=dtype)
    return ret


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        dim = _softmax_dim(input.dim())
    if dtype is None:
        ret = input.log_softmax(dim)
    else:
        ret = input.log_softmax(dim, dtype=dtype)
    return ret


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    gumbels = -torch.empty_like(logits).exponential_().log()
    y_soft = ((logits + gumbels) / tau).softmax(dim)
    if hard:
        index = y_soft.max(dim, keepdim=True)[1]
        y_hard = torch.zeros_like(logits).scatter_(dim, index, 1.0)
        ret = y_hard - y_soft.detach() + y_soft
    else:
        ret = y_soft
    return ret


def _check_probability(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    _check_probability(p)
    batched = input.dim() == 3
    if not batched:
        input = input.unsqueeze(0)
    result = aten.feature_dropout(input, p, training)
    if not batched:
        result = result.squeeze(0)
    return result


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    _check_probability(p)
    if inplace:
        result = aten.feature_dropout_(input, p, training)
    else:
        result = aten.feature_dropout(input, p, training)
    return result


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    _check_probability(p)
    if inplace:
        result = aten.feature_dropout_(input, p, training)
    else:
        result = aten.feature_dropout(input, p, training)
    return result


# ---------------------------------------------------------------------------------------------- normalisation


def _verify_batch_size(size: list[int]) -> None:
    size_prods = size[0]
    for i in range(len(size) - 2):
        size_prods *= size[i + 2]
    if size_prods == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    if training:
        _verify_batch_size(input.size())
    return aten.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    dim = input.dim()
    div = input.mul(input)
    if dim == 3:
        div = div.unsqueeze(1)
        div = aten.constant_pad_nd(div, [0, 0, size // 2, (size - 1) // 2], 0.0)
        div = aten.avg_pool2d(div, [size, 1], [1, 1]).squeeze(1)
    else:
        sizes = input.size()
        div = div.view([sizes[0], 1, sizes[1], sizes[2], -1])
        div = aten.constant_pad_nd(div, [0, 0, 0, 0, size // 2, (size - 1) // 2], 0.0)
        div = aten.avg_pool3d(div, [size, 1, 1], [1, 1, 1]).squeeze(1)
        div = div.view(sizes)
    div = div.mul(alpha).add(k).pow(beta)
    return input / div


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    denom = input.norm(p, [dim], keepdim=True).clamp_min(eps).expand_as(input)
    return input / denom


# ---------------------------------------------------------------------------------------------- layers


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if padding_idx is not None:
        if padding_idx > 0:
            assert padding_idx < weight.size(0), "Padding_idx must be within num_embeddings"
        elif padding_idx < 0:
            assert padding_idx >= -weight.size(0), "Padding_idx must be within num_embeddings"
            padding_idx = weight.size(0) + padding_idx
    else:
        padding_idx = -1
    if max_norm is not None:
        input = input.contiguous()
        aten.embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    return aten.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    if input.dim() == 2:
        offsets = torch.arange(0, input.numel(), input.size(1), dtype=input.dtype, device=input.device)
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if mode == "sum":
        mode_enum = 0
    elif mode == "mean":
        mode_enum = 1
    elif mode == "max":
        mode_enum = 2
    else:
        raise ValueError("mode has to be one of sum, mean or max")
    if max_norm is not None:
        aten.embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    ret, _a, _b, _c = aten.embedding_bag(
        weight,
        input,
        offsets,
        scale_grad_by_freq,
        mode_enum,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    return ret


def unfold(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    dilation: BroadcastingList2[int] = 1,
    padding: BroadcastingList2[int] = 0,
    stride: BroadcastingList2[int] = 1,
) -> Tensor:
    return aten.im2col(input, kernel_size, dilation, padding, stride)


def fold(
    input: Tensor,
    output_size: BroadcastingList2[int],
    kernel_size: BroadcastingList2[int],
    dilation: BroadcastingList2[int] = 1,
    padding: BroadcastingList2[int] = 0,
    stride: BroadcastingList2[int] = 1,
) -> Tensor:
    return aten.col2im(input, output_size, kernel_size, dilation, padding, stride)


# ---------------------------------------------------------------------------------------------- pooling


def lp_pool2d(
    input: Tensor,
    norm_type: int | float,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    out = aten.avg_pool2d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (torch.sign(out) * aten.relu(torch.abs(out))).mul(kernel_size[0] * kernel_size[1]).pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor,
    norm_type: int | float,
    kernel_size: int,
    stride: BroadcastingList1[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    out = aten.avg_pool1d(input.pow(norm_type), [kernel_size], stride, 0, ceil_mode)
    return (torch.sign(out) * aten.relu(torch.abs(out))).mul(kernel_size).pow(1.0 / norm_type)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    output_size: list[int] | None = None,
) -> Tensor:
    steps = kernel_size
    if stride is not None:
        steps = stride
    if output_size is None:
        size = input.size()
        height = (size[len(size) - 2] - 1) * steps[0] - 2 * padding[0] + kernel_size[0]
        width = (size[len(size) - 1] - 1) * steps[1] - 2 * padding[1] + kernel_size[1]
        output_size = [height, width]
    else:
        output_size = output_size[len(output_size) - 2 :]
    return aten.max_unpool2d(input, indices, output_size)


# ---------------------------------------------------------------------------------------------- distances


torch = flambeau


# ---------------------------------------------------------------------------------------------- losses


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    if reduction == "batchmean":
        reduced = aten.kl_div(input, target, 2, log_target=log_target) / input.size(0)
    else:
        reduced = aten.kl_div(input, target, reduction_code(reduction), log_target=log_target)
    return reduced


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    return aten.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, reduction_code(reduction), zero_infinity
    )
