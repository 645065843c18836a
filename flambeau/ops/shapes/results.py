"""Shape rules of operators that make new tensors: the sizes of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.ops.shapes import Geometry, shape
from flambeau.ops.shapes.geometry import Int, Ints, broadcast, dimension, equal_sizes, numel, require
from flambeau.ops.symbolic.numbers import SymInt, hint_of, sym_max

# ---------------------------------------------------------------------------------------------- the shape of an operand

_SAME = """
_softmax _log_softmax softmax.int log_softmax.int special_softmax special_log_softmax cumsum cumprod logcumsumexp argsort
argsort.stable flip roll tril triu clone contiguous _to_copy to.dtype to.device to.other type_as cpu _to_cpu float double
half bfloat16 int long short char byte bool cfloat cdouble empty_like zeros_like ones_like full_like rand_like randn_like
randint_like randint_like.low_dtype bernoulli index_fill put conj resolve_conj resolve_neg matrix_exp poisson
_standard_gamma _sample_dirichlet zero_ fill_ fill normal_ uniform_ exponential_ geometric_ cauchy_ log_normal_
random_ random_.to random_.from bernoulli_.float copy_.number
""".split()


@shape(*_SAME)
def same(self: Geometry) -> Ints:
    return self.sizes


@shape("_softmax_backward_data", "_log_softmax_backward_data")
def same_as_gradient(grad_output: Geometry) -> Ints:
    return grad_output.sizes


@shape("sort", "sort.stable", "cummax", "cummin")
def same_twice(self: Geometry) -> list[Ints]:
    return [self.sizes, self.sizes]


@shape("native_dropout")
def native_dropout(input: Geometry) -> list[Ints]:
    return [input.sizes, input.sizes]


@shape("_cross_entropy_backward")
def cross_entropy_backward(self: Geometry) -> Ints:
    return self.sizes


def fits(sizes: Ints, target: Ints, what: str) -> None:
    """Check that a shape broadcasts to another one."""
    require(len(sizes) <= len(target), f"[{what}] expected at most {len(target)} dimensions, got {len(sizes)}")
    for own, wanted in zip(reversed(sizes), reversed(target)):
        if type(own) is SymInt or own != 1:
            if hint_of(own) == 1 and hint_of(wanted) != 1:
                require(own == 1, f"[{what}] expected a size of 1, got {own}")
            else:
                equal_sizes(own, wanted, what)


@shape("copy_")
def copy_(self: Geometry, src: Geometry) -> Ints:
    fits(src.sizes, self.sizes, "copy_")
    return self.sizes


@shape("bernoulli_.Tensor")
def bernoulli_(self: Geometry, p: Geometry) -> Ints:
    fits(p.sizes, self.sizes, "bernoulli_")
    return self.sizes


@shape("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add", "scatter_reduce.two")
def scatter(self: Geometry, dim: int, index: Geometry, src: Geometry | None) -> Ints:
    d = dimension(dim, len(self.sizes))
    for i, size in enumerate(index.sizes):
        if i != d:
            require(size <= self.sizes[i], f"[scatter] expected an index of at most {self.sizes[i]}, got {size}")
        if src is not None:
            require(size <= src.sizes[i], f"[scatter] expected a source of at least {size}, got {src.sizes[i]}")
    return self.sizes


@shape("index_add", "index_copy", "index_reduce")
def index_add(self: Geometry, dim: int, index: Geometry, source: Geometry) -> Ints:
    d = dimension(dim, len(self.sizes))
    for i, size in enumerate(source.sizes):
        equal_sizes(size, numel(index.sizes) if i == d else self.sizes[i], "index_add")
    return self.sizes


@shape("index_put")
def index_put(self: Geometry, indices: Sequence[Geometry | None], values: Geometry) -> Ints:
    fits(values.sizes, index(self, indices), "index_put")
    return self.sizes


@shape("masked_scatter")
def masked_scatter(self: Geometry, mask: Geometry) -> Ints:
    return broadcast(self.sizes, mask.sizes)


# ---------------------------------------------------------------------------------------------- reductions


def reduced(sizes: Ints, dim: Any, keepdim: bool) -> Ints:
    rank = len(sizes)
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        gone = set(range(rank))
    else:
        gone = {dimension(d, rank) for d in (dim if isinstance(dim, (list, tuple)) else [dim])}
    if keepdim:
        return tuple(1 if d in gone else s for d, s in enumerate(sizes))
    return tuple(s for d, s in enumerate(sizes) if d not in gone)


_REDUCTIONS = """
sum mean prod amax amin all any count_nonzero nansum max min _norm_0 _norm_1 _norm_2 _norm_inf _norm_neg_inf _norm_p
argmax argmin var var.dim var.correction std std.dim std.correction _logsumexp median nanmedian
sum.dim mean.dim prod.dim all.dim any.dim all.dims any.dims count_nonzero.dim count_nonzero.dim_IntList
""".split()


@shape(*_REDUCTIONS)
def reduction(self: Geometry, dim: Any, keepdim: Any) -> Ints:
    return reduced(self.sizes, dim, bool(keepdim))


@shape(*"var_mean var_mean.dim var_mean.correction std_mean std_mean.dim std_mean.correction max.dim min.dim median.dim "
       "nanmedian.dim mode kthvalue".split())  # fmt: skip
def reduction_to_two(self: Geometry, dim: Any, keepdim: Any) -> list[Ints]:
    sizes = reduced(self.sizes, dim, bool(keepdim))
    return [sizes, sizes]


@shape("trace")
def trace(self: Geometry) -> Ints:
    return ()


# ---------------------------------------------------------------------------------------------- products


@shape("mm")
def mm(self: Geometry, mat2: Geometry) -> Ints:
    equal_sizes(self.sizes[1], mat2.sizes[0], "mm")
    return self.sizes[0], mat2.sizes[1]


@shape("_scaled_mm")
def scaled_mm(self: Geometry, mat2: Geometry) -> Ints:
    return mm(self, mat2)


@shape("bmm")
def bmm(self: Geometry, mat2: Geometry) -> Ints:
    equal_sizes(self.sizes[2], mat2.sizes[1], "bmm")
    return equal_sizes(self.sizes[0], mat2.sizes[0], "bmm"), self.sizes[1], mat2.sizes[2]


@shape("mv")
def mv(self: Geometry, vec: Geometry) -> Ints:
    equal_sizes(self.sizes[1], vec.sizes[0], "mv")
    return self.sizes[:1]


@shape("dot")
def dot(self: Geometry, tensor: Geometry) -> Ints:
    equal_sizes(self.sizes[0], tensor.sizes[0], "dot")
    return ()


@shape("matmul")
def matmul(self: Geometry, other: Geometry) -> Ints:
    a, b = self.sizes, other.sizes
    equal_sizes(a[-1], b[-2] if len(b) > 1 else b[0], "matmul")
    batch = broadcast(a[:-2], b[:-2])
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


@shape("linear")
def linear(input: Geometry, weight: Geometry, bias: Geometry | None) -> Ints:
    equal_sizes(input.sizes[-1], weight.sizes[-1], "linear")
    if bias is not None and bias.sizes and weight.sizes[:-1]:
        fits(bias.sizes, weight.sizes[:-1], "linear")
    return (*input.sizes[:-1], *weight.sizes[:-1])


@shape("addmm")
def addmm(self: Geometry, mat1: Geometry, mat2: Geometry) -> Ints:
    result = mm(mat1, mat2)
    broadcast(self.sizes, result)
    return result


@shape("addmv")
def addmv(self: Geometry, mat: Geometry, vec: Geometry) -> Ints:
    result = mv(mat, vec)
    broadcast(self.sizes, result)
    return result


@shape("baddbmm")
def baddbmm(self: Geometry, batch1: Geometry, batch2: Geometry) -> Ints:
    result = bmm(batch1, batch2)
    broadcast(self.sizes, result)
    return result


@shape("addbmm")
def addbmm(self: Geometry, batch1: Geometry, batch2: Geometry) -> Ints:
    result = bmm(batch1, batch2)[1:]
    broadcast(self.sizes, result)
    return result


@shape("outer", "ger")
def outer(self: Geometry, vec2: Geometry) -> Ints:
    return self.sizes[0], vec2.sizes[0]


@shape("linalg_cross")
def cross(self: Geometry, other: Geometry) -> Ints:
    return broadcast(self.sizes, other.sizes)


@shape("_cdist")
def cdist(x1: Geometry, x2: Geometry) -> Ints:
    equal_sizes(x1.sizes[-1], x2.sizes[-1], "cdist")
    return (*broadcast(x1.sizes[:-2], x2.sizes[:-2]), x1.sizes[-2], x2.sizes[-2])


@shape("_flash_attention")
def flash_attention(query: Geometry, key: Geometry, value: Geometry, attn_mask: Geometry | None) -> list[Ints]:
    if attn_mask is not None:
        fits(attn_mask.sizes, (*query.sizes[:-1], key.sizes[-2]), "attention")
    equal_sizes(query.sizes[-1], key.sizes[-1], "attention")
    equal_sizes(key.sizes[-2], value.sizes[-2], "attention")
    equal_sizes(query.sizes[0], key.sizes[0], "attention")
    return [(*query.sizes[:-1], value.sizes[-1]), query.sizes[:-1]]


@shape("_flash_attention_backward")
def flash_attention_backward(query: Geometry, key: Geometry, value: Geometry) -> list[Ints]:
    return [query.sizes, key.sizes, value.sizes]


# ---------------------------------------------------------------------------------------------- convolution and pooling


def _spread(value: Any, n: int) -> list[Int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * n if len(values) == 1 else values


def _windows(size: Int, kernel: Int, stride: Int, padding: Int, dilation: Int) -> Int:
    span = dilation * (kernel - 1) + 1
    require(
        size + 2 * padding >= span, f"[window] expected at least {span} elements, got {size} with padding {padding}"
    )
    return (size + 2 * padding - span) // stride + 1


def _convolved(input: Geometry, weight: Geometry, stride: Any, padding: Any, dilation: Any) -> Ints:
    n = len(weight.sizes) - 2
    stride, padding, dilation = _spread(stride, n), _spread(padding, n), _spread(dilation, n)
    lead = input.sizes[: len(input.sizes) - n - 1]
    spatial = [_windows(input.sizes[i - n], weight.sizes[i - n], stride[i], padding[i], dilation[i]) for i in range(n)]
    return (*lead, weight.sizes[0], *spatial)


def _transposed(
    input: Geometry, weight: Geometry, stride: Any, padding: Any, output_padding: Any, groups: Int, dilation: Any
) -> Ints:
    n = len(weight.sizes) - 2
    stride, padding = _spread(stride, n), _spread(padding, n)
    output_padding, dilation = _spread(output_padding, n), _spread(dilation, n)
    lead = input.sizes[: len(input.sizes) - n - 1]
    spatial = [
        (input.sizes[i - n] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (weight.sizes[i - n] - 1) + output_padding[i] + 1
        for i in range(n)
    ]  # fmt: skip
    return (*lead, weight.sizes[1] * groups, *spatial)


def _check_channels(input: Geometry, weight: Geometry, groups: Int, transposed: bool) -> None:
    channels = input.sizes[-(len(weight.sizes) - 1)]
    equal_sizes(channels, weight.sizes[0] if transposed else weight.sizes[1] * groups, "channels")


def _check_bias(bias: Geometry | None, channels: Int) -> None:
    if bias is not None:
        equal_sizes(bias.sizes[0], channels, "bias")


@shape("conv1d", "conv2d", "conv3d")
def conv(
    input: Geometry, weight: Geometry, bias: Geometry | None, stride: Any, padding: Any, dilation: Any, groups: Int
) -> Ints:
    _check_channels(input, weight, groups, False)
    _check_bias(bias, weight.sizes[0])
    return _convolved(input, weight, stride, padding, dilation)


@shape("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    input: Geometry,
    weight: Geometry,
    bias: Geometry | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Int,
    dilation: Any,
) -> Ints:
    _check_channels(input, weight, groups, True)
    _check_bias(bias, weight.sizes[1] * groups)
    return _transposed(input, weight, stride, padding, output_padding, groups, dilation)


@shape("convolution", "_convolution")
def convolution(
    input: Geometry,
    weight: Geometry,
    bias: Geometry | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: Int,
) -> Ints:
    _check_channels(input, weight, groups, transposed)
    _check_bias(bias, weight.sizes[1] * groups if transposed else weight.sizes[0])
    if transposed:
        return _transposed(input, weight, stride, padding, output_padding, groups, dilation)
    return _convolved(input, weight, stride, padding, dilation)


@shape("_convolution_backward")
def convolution_backward(
    grad_output: Geometry, input: Geometry, weight: Geometry, transposed: bool, output_mask: Sequence[bool]
) -> list[Ints]:
    n = len(weight.sizes) - 2
    shapes = [input.sizes, weight.sizes, (grad_output.sizes[len(grad_output.sizes) - n - 1],)]
    return [s if wanted else (0,) for s, wanted in zip(shapes, output_mask)]


def _pooled(self: Geometry, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Ints:
    kernel, padding, dilation = _spread(kernel, n), _spread(padding, n), _spread(dilation, n)
    stride = kernel if stride is None or (isinstance(stride, (list, tuple)) and not stride) else _spread(stride, n)
    sizes = []
    for i in range(n):
        size, step = self.sizes[i - n], stride[i]
        if ceil_mode:
            span = dilation[i] * (kernel[i] - 1) + 1
            count = -(-(size + 2 * padding[i] - span) // step) + 1
            # A last window that would start in the padding does not count.
            if (count - 1) * step >= size + padding[i]:
                count = count - 1
            sizes.append(count)
        else:
            sizes.append(_windows(size, kernel[i], step, padding[i], dilation[i]))
    return (*self.sizes[: len(self.sizes) - n], *sizes)


def _register(name: str, n: int, twice: bool) -> None:
    @shape(name)
    def pool(self: Geometry, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        sizes = _pooled(self, n, kernel_size, stride, padding, 1 if dilation is None else dilation, ceil_mode)
        return [sizes, sizes] if twice else sizes


@shape("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_pool(self: Geometry, output_size: Ints) -> Ints:
    n = len(output_size)
    lead = self.sizes[: len(self.sizes) - n]
    return (*lead, *(self.sizes[i - n] if size is None else size for i, size in enumerate(output_size)))


@shape("_adaptive_max_pool2d", "_adaptive_max_pool3d", "adaptive_max_pool1d")
def adaptive_max_pool(self: Geometry, output_size: Ints) -> list[Ints]:
    sizes = adaptive_pool(self, output_size)
    return [sizes, sizes]


@shape("_avg_pool_backward", "_adaptive_avg_pool_backward", "_interpolate_backward")
def input_sized(input_size: Ints) -> Ints:
    return tuple(input_size)


@shape("_select_backward", "_slice_backward", "_diagonal_backward")
def inputs_sized(input_sizes: Ints) -> Ints:
    return tuple(input_sizes)


@shape("_nll_loss_backward", "_edge_pad_backward")
def sized(sizes: Ints) -> Ints:
    return tuple(sizes)


@shape("_pool_scatter")
def pool_scatter(self: Geometry, output_size: Ints) -> Ints:
    n = len(output_size)
    return (*self.sizes[: len(self.sizes) - n], *output_size)


@shape("_pool_gather")
def pool_gather(indices: Geometry) -> Ints:
    return indices.sizes


@shape("_interpolate")
def interpolate(self: Geometry, output_size: Ints) -> Ints:
    return (*self.sizes[:2], *output_size)


@shape("constant_pad_nd", "_edge_pad")
def constant_pad(self: Geometry, pad: Ints) -> Ints:
    sizes = list(self.sizes)
    for i in range(len(pad) // 2):
        sizes[-1 - i] = sizes[-1 - i] + pad[2 * i] + pad[2 * i + 1]
        require(sizes[-1 - i] >= 0, f"[pad] expected sizes that are not negative, got {sizes[-1 - i]}")
    return tuple(sizes)


@shape("_im2col")
def im2col(self: Geometry, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Ints:
    kernel, dilation = _spread(kernel_size, 2), _spread(dilation, 2)
    padding, stride = _spread(padding, 2), _spread(stride, 2)
    lead = self.sizes[:-3]
    counts = [_windows(self.sizes[i - 2], kernel[i], stride[i], padding[i], dilation[i]) for i in range(2)]
    return (*lead, self.sizes[-3] * kernel[0] * kernel[1], counts[0] * counts[1])


@shape("_col2im")
def col2im(self: Geometry, output_size: Any, kernel_size: Any) -> Ints:
    kernel, size = _spread(kernel_size, 2), _spread(output_size, 2)
    return (*self.sizes[:-2], self.sizes[-2] // (kernel[0] * kernel[1]), *size)


@shape("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(input: Geometry, grid: Geometry) -> Ints:
    equal_sizes(input.sizes[0], grid.sizes[0], "grid_sample")
    return (*input.sizes[:2], *grid.sizes[1:-1])


@shape("_grid_sampler_backward")
def grid_sampler_backward(input: Geometry, grid: Geometry) -> list[Ints]:
    return [input.sizes, grid.sizes]


@shape("_fft_c2c")
def fft_c2c(self: Geometry) -> Ints:
    return self.sizes


@shape("_fft_r2c")
def fft_r2c(self: Geometry, dim: Ints, onesided: bool) -> Ints:
    d = dimension(dim[-1], len(self.sizes))
    return tuple(s // 2 + 1 if i == d and onesided else s for i, s in enumerate(self.sizes))


@shape("_fft_c2r")
def fft_c2r(self: Geometry, dim: Ints, last_size: Int) -> Ints:
    d = dimension(dim[-1], len(self.sizes))
    return tuple(last_size if i == d else s for i, s in enumerate(self.sizes))


# ---------------------------------------------------------------------------------------------- normalisation and losses


@shape("native_layer_norm")
def layer_norm(
    input: Geometry, normalized_shape: Ints, weight: Geometry | None = None, bias: Geometry | None = None
) -> list[Ints]:
    for given in (weight, bias):
        for own, wanted in zip(given.sizes if given is not None else (), normalized_shape):
            equal_sizes(own, wanted, "layer_norm")
    lead = len(input.sizes) - len(normalized_shape)
    for own, wanted in zip(input.sizes[lead:], normalized_shape):
        equal_sizes(own, wanted, "layer_norm")
    statistics = (*input.sizes[:lead], *([1] * len(normalized_shape)))
    return [input.sizes, statistics, statistics]


@shape("_fused_rms_norm")
def rms_norm(input: Geometry, normalized_shape: Ints, weight: Geometry | None) -> list[Ints]:
    return layer_norm(input, normalized_shape, weight)[:2]


@shape("native_batch_norm")
def batch_norm(
    input: Geometry,
    weight: Geometry | None,
    bias: Geometry | None,
    running_mean: Geometry | None,
    running_var: Geometry | None,
) -> list[Ints]:
    for given in (weight, bias, running_mean, running_var):
        _check_bias(given, input.sizes[1])
    statistics = (input.sizes[1],)  # as on the meta device; without training the kernels return none
    return [input.sizes, statistics, statistics]


@shape("batch_norm")
def batch_norm_result(
    input: Geometry,
    weight: Geometry | None,
    bias: Geometry | None,
    running_mean: Geometry | None,
    running_var: Geometry | None,
) -> Ints:
    return batch_norm(input, weight, bias, running_mean, running_var)[0]


@shape("_batch_norm_statistics")
def batch_norm_statistics(
    input: Geometry,
    weight: Geometry | None,
    bias: Geometry | None,
    running_mean: Geometry | None,
    running_var: Geometry | None,
) -> list[Ints]:
    return batch_norm(input, weight, bias, running_mean, running_var)[1:] * 2


@shape("_batch_norm_backward", "_layer_norm_backward", "_group_norm_backward")
def norm_backward(input: Geometry, mask: Sequence[bool], ndim: Any, weight: Geometry | None) -> list[Ints]:
    inner = input.sizes[1:2] if ndim is None else input.sizes[len(input.sizes) - ndim :]
    return [s if wanted else (0,) for s, wanted in zip([input.sizes, inner, inner], mask)]


@shape("native_group_norm")
def group_norm(
    input: Geometry, weight: Geometry | None, bias: Geometry | None, N: Int, C: Int, group: Int
) -> list[Ints]:
    for given in (weight, bias):
        _check_bias(given, C)
    require(C % group == 0, f"[group_norm] expected channels that {group} divides, got {C}")
    return [input.sizes, (N, group), (N, group)]


def _check_classes(self: Geometry, target: Geometry, weight: Geometry | None) -> None:
    classes = 1 if len(self.sizes) > 1 else 0
    rest = [size for i, size in enumerate(self.sizes) if i != classes]
    for own, wanted in zip(target.sizes, rest):
        equal_sizes(own, wanted, "targets")
    _check_bias(weight, self.sizes[classes])


@shape("_cross_entropy_forward")
def cross_entropy(self: Geometry, target: Geometry, weight: Geometry | None, reduction: int) -> list[Ints]:
    _check_classes(self, target, weight)
    return [target.sizes if reduction == 0 else (), (), target.sizes]


@shape("_nll_loss_forward")
def nll_loss(self: Geometry, target: Geometry, weight: Geometry | None, reduction: int) -> list[Ints]:
    _check_classes(self, target, weight)
    return [target.sizes if reduction == 0 else (), ()]


# ---------------------------------------------------------------------------------------------- joining and indexing


def _is_empty(size: Int, rank: int) -> bool:
    if type(size) is not SymInt:
        return bool(size == 0)
    return rank > 1 and bool(size == 0)  # among vectors it makes no difference


@shape("cat")
def cat(tensors: Sequence[Geometry], dim: int) -> Ints:
    # An empty vector joins with anything, as it always did.
    rank = max(len(t.sizes) for t in tensors)
    shapes = [t.sizes for t in tensors if len(t.sizes) != 1 or not _is_empty(t.sizes[0], rank)]
    if not shapes:
        return (0,)
    d = dimension(dim, len(shapes[0]))
    result = list(shapes[0])
    for other in shapes[1:]:
        for i, size in enumerate(other):
            result[i] = result[i] + size if i == d else equal_sizes(result[i], size, "cat")
    return tuple(result)


@shape("stack")
def stack(tensors: Sequence[Geometry], dim: int) -> Ints:
    first = list(tensors[0].sizes)
    for other in tensors[1:]:
        first = [equal_sizes(a, b, "stack") for a, b in zip(first, other.sizes)]
    d = dimension(dim, len(first) + 1)
    return (*first[:d], len(tensors), *first[d:])


@shape("embedding")
def embedding(weight: Geometry, indices: Geometry) -> Ints:
    return (*indices.sizes, *weight.sizes[1:])


@shape("gather")
def gather(self: Geometry, dim: int, index: Geometry) -> Ints:
    d = dimension(dim, len(self.sizes))
    for i, size in enumerate(index.sizes):
        if i != d:
            require(size <= self.sizes[i], f"[gather] expected an index of at most {self.sizes[i]}, got {size}")
    return index.sizes


@shape("take")
def take(index: Geometry) -> Ints:
    return index.sizes


@shape("index_select")
def index_select(self: Geometry, dim: int, index: Geometry) -> Ints:
    if not self.sizes:
        return ()
    d = dimension(dim, len(self.sizes))
    return (*self.sizes[:d], numel(index.sizes), *self.sizes[d + 1 :])


@shape("index.Tensor")
def index(self: Geometry, indices: Sequence[Geometry | None]) -> Ints:
    at = [i for i, geometry in enumerate(indices) if geometry is not None]
    found = broadcast(*(indices[i].sizes for i in at))  # type: ignore[union-attr]
    rest = [size for i, size in enumerate(self.sizes) if i not in at]
    # Indices side by side put their result where they are; others put it first.
    place = at[0] if at == list(range(at[0], at[-1] + 1)) else 0
    return (*rest[:place], *found, *rest[place:])


@shape("topk")
def topk(self: Geometry, k: Int, dim: int) -> list[Ints]:
    if not self.sizes:
        return [(), ()]
    d = dimension(dim, len(self.sizes))
    require(k <= self.sizes[d], f"[topk] expected k of at most {self.sizes[d]}, got {k}")
    sizes = (*self.sizes[:d], k, *self.sizes[d + 1 :])
    return [sizes, sizes]


@shape("repeat")
def repeat(self: Geometry, repeats: Ints) -> Ints:
    lead = len(repeats) - len(self.sizes)
    return tuple(n * (self.sizes[i - lead] if i >= lead else 1) for i, n in enumerate(repeats))


@shape("diag_embed")
def diag_embed(self: Geometry, offset: int, dim1: int, dim2: int) -> Ints:
    rank = len(self.sizes) + 1
    a, b = sorted((dimension(dim1, rank), dimension(dim2, rank)))
    size = self.sizes[-1] + abs(offset)
    rest = list(self.sizes[:-1])
    rest.insert(a, size)
    rest.insert(b, size)
    return tuple(rest)


@shape("_search")
def search(values: Geometry) -> Ints:
    return values.sizes


@shape("multinomial")
def multinomial(self: Geometry, num_samples: Int) -> Ints:
    return (*self.sizes[:-1], num_samples)


# ---------------------------------------------------------------------------------------------- making tensors


@shape(*"empty zeros ones full rand randn randint randint.low new_empty new_zeros new_ones new_full".split())
def made(size: Ints) -> Ints:
    return tuple(size)


@shape("eye")
def eye(n: Int) -> Ints:
    return n, n


@shape("eye.m")
def eye_m(n: Int, m: Int) -> Ints:
    return n, m


@shape("arange", "arange.start", "arange.start_step")
def arange(start: Any, end: Any, step: Any) -> Ints:
    start, step = (0 if start is None else start), (1 if step is None else step)
    for value in (start, end, step):
        if not isinstance(value, (int, SymInt)):
            raise NotImplementedError
    if step < 0:
        start, end, step = -start, -end, -step
    count = end - start if hint_of(step) == 1 and type(step) is int else (end - start + step - 1) // step
    require(count >= 0, f"[arange] expected an end beyond the start, got {start} and {end}")
    return (sym_max(count, 0),)


@shape("linspace", "logspace")
def linspace(steps: Int) -> Ints:
    return (steps,)


@shape("randperm")
def randperm(n: Int) -> Ints:
    return (n,)


for _n in (1, 2, 3):
    for _name, _twice in ((f"max_pool{_n}d", False), (f"max_pool{_n}d_with_indices", True), (f"avg_pool{_n}d", False)):
        _register(_name, _n, _twice)
