"""Pooling in one to three dimensions: maxima, averages, adaptive and fractional windows, and their inverses.

The natively written ops take the window's geometry; `nn.functional` adds composites for what PyTorch decides in Python:
`return_indices`, `None` sizes, unpooled shapes. Gradients are private ops: `_max_pool_backward` (of the maxima of plain
windows), `_pool_scatter` (of every other maximum, by its indices), `_avg_pool_backward` and `_adaptive_avg_pool_backward`;
`_pool_gather` is the derivative of unpooling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, node, tag, vjp

BOTH = ";nn.functional"  # one function, found in the top module and in nn.functional
FUNCTIONAL = "nn.functional"

for _n in (1, 2, 3):
    _window = (
        f"Tensor self, int[{_n}] kernel_size, int[{_n}]? stride=None, int[{_n}] padding=0, int[{_n}] dilation=1, "
        "bool ceil_mode=False"
    )
    native(f"max_pool{_n}d({_window}) -> Tensor", module=BOTH, method=False)
    native(
        f"max_pool{_n}d_with_indices({_window}, bool return_indices=False) -> (Tensor, Tensor)",
        module=BOTH if _n == 1 else FUNCTIONAL,
        method=False,
    )
    native(
        f"adaptive_avg_pool{_n}d(Tensor self, int[{_n}] output_size) -> Tensor",
        module=BOTH if _n == 1 else FUNCTIONAL,
        method=False,
        out=True,
    )

native(
    "avg_pool1d(Tensor self, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, bool ceil_mode=False, "
    "bool count_include_pad=True) -> Tensor",
    module=BOTH,
    method=False,
)
for _n in (2, 3):
    native(
        f"avg_pool{_n}d(Tensor self, int[{_n}] kernel_size, int[{_n}]? stride=None, int[{_n}] padding=0, "
        "bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
        module=FUNCTIONAL,
        out=True,
    )
    native(f"_adaptive_max_pool{_n}d(Tensor self, int[{_n}] output_size) -> (Tensor, Tensor)", method=False)
    native(
        f"_fractional_max_pool{_n}d(Tensor self, int[{_n}] kernel_size, int[{_n}] output_size, Tensor random_samples) "
        "-> (Tensor, Tensor)",
        method=False,
    )
native("adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)", method=False)

native("_pool_scatter(Tensor self, Tensor indices, int[] output_size, bool accumulate) -> Tensor", method=False)
native("_pool_gather(Tensor self, Tensor indices, int ndim) -> Tensor", method=False)
native(
    "_max_pool_backward(Tensor grad, Tensor indices, int[] input_size, int[] kernel_size, int[]? stride, int[] padding, "
    "int[] dilation, bool ceil_mode) -> Tensor"
)
native(
    "_avg_pool_backward(Tensor grad, int[] input_size, int[] kernel_size, int[]? stride, int[] padding, bool ceil_mode, "
    "bool count_include_pad, int? divisor_override) -> Tensor"
)
native("_adaptive_avg_pool_backward(Tensor grad, int[] input_size, int ndim) -> Tensor")


def _spatial(self_sizes: fl.Size, n: int) -> list[int]:
    return list(self_sizes[-n:])


@vjp("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_vjp(
    g0: fl.Tensor,
    self_sizes: fl.Size,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    out1: fl.Tensor,
) -> fl.Tensor:
    return fl._ops._max_pool_backward(g0, out1, self_sizes, kernel_size, stride, padding, dilation, ceil_mode)


@vjp("_max_pool_backward")
def max_pool_backward_vjp(
    g: fl.Tensor, indices: fl.Tensor, kernel_size: list[int], padding: list[int]
) -> tuple[fl.Tensor | None, ...]:
    return fl._ops._pool_gather(g, indices, max(len(kernel_size), len(padding))), None


@vjp("_adaptive_max_pool2d")
def adaptive_max_pool2d_vjp(g0: fl.Tensor, self_sizes: fl.Size, out1: fl.Tensor) -> fl.Tensor:
    return fl._ops._pool_scatter(g0, out1, _spatial(self_sizes, 2), True)


@vjp("_adaptive_max_pool3d")
def adaptive_max_pool3d_vjp(g0: fl.Tensor, self_sizes: fl.Size, out1: fl.Tensor) -> fl.Tensor:
    return fl._ops._pool_scatter(g0, out1, _spatial(self_sizes, 3), True)


@vjp("adaptive_max_pool1d")
def adaptive_max_pool1d_vjp(g0: fl.Tensor, self_sizes: fl.Size, out1: fl.Tensor) -> fl.Tensor:
    return fl._ops._pool_scatter(g0, out1, _spatial(self_sizes, 1), True)


@vjp("_fractional_max_pool2d")
def fractional_max_pool2d_vjp(g0: fl.Tensor, self_sizes: fl.Size, out1: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    return fl._ops._pool_scatter(g0, out1, _spatial(self_sizes, 2), True), None


@vjp("_fractional_max_pool3d")
def fractional_max_pool3d_vjp(g0: fl.Tensor, self_sizes: fl.Size, out1: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    return fl._ops._pool_scatter(g0, out1, _spatial(self_sizes, 3), True), None


@vjp("max_pool1d")
def max_pool1d_plain_vjp(
    g: fl.Tensor,
    self: fl.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> fl.Tensor:
    indices = fl.max_pool1d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)[1]
    return fl._ops._max_pool_backward(g, indices, self.shape, kernel_size, stride, padding, dilation, ceil_mode)


@vjp("max_pool2d")
def max_pool2d_plain_vjp(
    g: fl.Tensor,
    self: fl.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> fl.Tensor:
    indices = fl.nn.functional.max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)[1]
    return fl._ops._max_pool_backward(g, indices, self.shape, kernel_size, stride, padding, dilation, ceil_mode)


@vjp("max_pool3d")
def max_pool3d_plain_vjp(
    g: fl.Tensor,
    self: fl.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> fl.Tensor:
    indices = fl.nn.functional.max_pool3d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)[1]
    return fl._ops._max_pool_backward(g, indices, self.shape, kernel_size, stride, padding, dilation, ceil_mode)


@vjp("_pool_scatter")
def pool_scatter_vjp(g: fl.Tensor, indices: fl.Tensor, output_size: list[int]) -> tuple[fl.Tensor | None, ...]:
    return fl._ops._pool_gather(g, indices, len(output_size)), None


@vjp("_pool_gather")
def pool_gather_vjp(g: fl.Tensor, self_sizes: fl.Size, indices: fl.Tensor, ndim: int) -> tuple[fl.Tensor | None, ...]:
    return fl._ops._pool_scatter(g, indices, _spatial(self_sizes, ndim), True), None


@vjp("avg_pool1d")
def avg_pool1d_vjp(
    g: fl.Tensor,
    self_sizes: fl.Size,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
) -> fl.Tensor:
    return fl._ops._avg_pool_backward(g, self_sizes, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@vjp("avg_pool2d", "avg_pool3d")
def avg_pool_vjp(
    g: fl.Tensor,
    self_sizes: fl.Size,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Any,
) -> fl.Tensor:
    return fl._ops._avg_pool_backward(
        g, self_sizes, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@vjp("_avg_pool_backward")
def avg_pool_backward_vjp(
    g: fl.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Any,
) -> fl.Tensor:
    dims = max(len(kernel_size), len(padding))
    if dims == 1:
        return fl.avg_pool1d(g, kernel_size, stride, padding, ceil_mode, count_include_pad)
    pool = fl.nn.functional.avg_pool2d if dims == 2 else fl.nn.functional.avg_pool3d
    return pool(g, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@vjp("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_avg_pool_vjp(g: fl.Tensor, self_sizes: fl.Size, output_size: list[int]) -> fl.Tensor:
    return fl._ops._adaptive_avg_pool_backward(g, self_sizes, len(output_size))


@vjp("_adaptive_avg_pool_backward")
def adaptive_avg_pool_backward_vjp(g: fl.Tensor, grad_sizes: fl.Size, ndim: int) -> fl.Tensor:
    functional = fl.nn.functional
    pool = (functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d)[ndim - 1]
    return pool(g, list(grad_sizes[-ndim:]))


def _functional(name: str, arguments: str, returns: str = "Tensor") -> Callable[..., Any]:
    return composite(f"nn_{name}({arguments}) -> {returns}", module=FUNCTIONAL, public=name)


def _tuple(value: Any, n: int) -> list[Any]:
    """One value for each dimension."""
    return list(value) if isinstance(value, (tuple, list)) else [value] * n


# ---------------------------------------------------------------- maxima

_MAX = (
    "Tensor input, int[{0}] kernel_size, int[{0}]? stride=None, int[{0}] padding=0, int[{0}] dilation=1, "
    "bool ceil_mode=False, bool return_indices=False"
)


def _max_pool(plain: Any, with_indices: Any, return_indices: bool, input: fl.Tensor, *window: Any) -> Any:
    """The indices of the maxima are saved where backward needs them, which is cheaper than to search again."""
    if return_indices:
        return with_indices(input, *window)
    if input.requires_grad and fl.is_grad_enabled():
        return with_indices(input, *window)[0]
    return plain(input, *window)


@_functional("max_pool1d", _MAX.format(1), "any")
def nn_max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):  # type: ignore[no-untyped-def]
    pools = fl.max_pool1d, fl.nn.functional.max_pool1d_with_indices
    return _max_pool(*pools, return_indices, input, kernel_size, stride, padding, dilation, ceil_mode)


@_functional("max_pool2d", _MAX.format(2), "any")
def nn_max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):  # type: ignore[no-untyped-def]
    pools = fl.max_pool2d, fl.nn.functional.max_pool2d_with_indices
    return _max_pool(*pools, return_indices, input, kernel_size, stride, padding, dilation, ceil_mode)


@_functional("max_pool3d", _MAX.format(3), "any")
def nn_max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):  # type: ignore[no-untyped-def]
    pools = fl.max_pool3d, fl.nn.functional.max_pool3d_with_indices
    return _max_pool(*pools, return_indices, input, kernel_size, stride, padding, dilation, ceil_mode)


# ---------------------------------------------------------------- adaptive windows


def _adaptive_size(op: str, input: fl.Tensor, output_size: Any, ndim: int) -> list[int]:
    """The output size, None meaning that the input's stays."""
    sizes = _tuple(output_size, ndim)
    if len(sizes) == 1:
        sizes = sizes * ndim
    if input.dim() not in (ndim + 1, ndim + 2):
        # Those who ask in too few dimensions get a ValueError, as a size is missing to choose from.
        kind = ValueError if input.dim() <= len(sizes) else RuntimeError
        raise kind(f"[{op}] expected an input of {ndim + 1} or {ndim + 2} dimensions, got shape {tuple(input.shape)}")
    if len(sizes) != ndim:
        raise RuntimeError(f"[{op}] expected {ndim} values for output_size, got {output_size}")
    return [n if want is None else int(want) for want, n in zip(sizes, input.shape[-ndim:])]


@composite()
def nn_adaptive_avg_pool2d(input: fl.Tensor, output_size: Any) -> fl.Tensor:
    return fl.nn.functional.adaptive_avg_pool2d(input, _adaptive_size("adaptive_avg_pool2d", input, output_size, 2))


@composite()
def nn_adaptive_avg_pool3d(input: fl.Tensor, output_size: Any) -> fl.Tensor:
    return fl.nn.functional.adaptive_avg_pool3d(input, _adaptive_size("adaptive_avg_pool3d", input, output_size, 3))


def _adaptive_max(ndim: int, input: fl.Tensor, output_size: Any) -> Any:
    sizes = _adaptive_size(f"adaptive_max_pool{ndim}d", input, output_size, ndim)
    pools = (fl.adaptive_max_pool1d, fl._ops._adaptive_max_pool2d, fl._ops._adaptive_max_pool3d)
    return pools[ndim - 1](input, sizes)


@composite()
def nn_adaptive_max_pool1d(input: fl.Tensor, output_size: Any, return_indices: bool = False) -> Any:
    pooled = _adaptive_max(1, input, output_size)
    return pooled if return_indices else pooled[0]


@composite()
def nn_adaptive_max_pool2d(input: fl.Tensor, output_size: Any, return_indices: bool = False) -> Any:
    pooled = _adaptive_max(2, input, output_size)
    return pooled if return_indices else pooled[0]


@composite()
def nn_adaptive_max_pool3d(input: fl.Tensor, output_size: Any, return_indices: bool = False) -> Any:
    pooled = _adaptive_max(3, input, output_size)
    return pooled if return_indices else pooled[0]


@composite()
def nn_adaptive_max_pool1d_with_indices(
    input: fl.Tensor, output_size: Any, return_indices: bool = False
) -> tuple[fl.Tensor, fl.Tensor]:
    return _adaptive_max(1, input, output_size)


@composite()
def nn_adaptive_max_pool2d_with_indices(
    input: fl.Tensor, output_size: Any, return_indices: bool = False
) -> tuple[fl.Tensor, fl.Tensor]:
    return _adaptive_max(2, input, output_size)


@composite()
def nn_adaptive_max_pool3d_with_indices(
    input: fl.Tensor, output_size: Any, return_indices: bool = False
) -> tuple[fl.Tensor, fl.Tensor]:
    return _adaptive_max(3, input, output_size)


# ---------------------------------------------------------------- power averages


def _lp_pool(ndim: int, input: fl.Tensor, p: float, kernel: Any, stride: Any, ceil_mode: bool) -> fl.Tensor:
    """The p-norm of each window (signed for odd p), as a scaled average of powers."""
    functional = fl.nn.functional
    if math.isinf(p):
        pool = (fl.max_pool1d, fl.max_pool2d, fl.max_pool3d)[ndim - 1]
        if p > 0:
            return pool(fl.abs(input), kernel, stride, 0, 1, ceil_mode)
        return -pool(-fl.abs(input), kernel, stride, 0, 1, ceil_mode)
    average = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[ndim - 1]
    mean = average(fl.pow(input, p), kernel, stride, 0, ceil_mode)
    sizes = _tuple(kernel, ndim)
    count = math.prod(sizes * ndim if len(sizes) == 1 else sizes)
    return fl.pow(fl.sign(mean) * fl.relu(fl.abs(mean)) * count, 1.0 / p)


_LP = "Tensor input, Scalar norm_type, int[{0}] kernel_size, int[{0}]? stride=None, bool ceil_mode=False"


@_functional("lp_pool1d", _LP.format(1))
def nn_lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):  # type: ignore[no-untyped-def]
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@_functional("lp_pool2d", _LP.format(2))
def nn_lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):  # type: ignore[no-untyped-def]
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@_functional("lp_pool3d", _LP.format(3))
def nn_lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):  # type: ignore[no-untyped-def]
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# ---------------------------------------------------------------- unpooling


def _max_unpool(
    ndim: int, input: fl.Tensor, indices: fl.Tensor, kernel: Any, stride: Any, padding: Any, output_size: Any
) -> fl.Tensor:
    op = f"max_unpool{ndim}d"

    def spread(value: Sequence[int]) -> list[int]:
        return list(value) * ndim if len(value) == 1 else list(value)

    kernel = spread(kernel)
    stride = spread(stride) if stride else kernel
    padding = spread(padding)
    if input.dim() not in (ndim + 1, ndim + 2):
        raise RuntimeError(
            f"[{op}] expected an input of {ndim + 1} or {ndim + 2} dimensions, got shape {tuple(input.shape)}"
        )
    if any(s <= 0 for s in stride):
        raise RuntimeError(f"[{op}] expected strides greater than zero, got {tuple(stride)}")
    if any(n == 0 for n in input.shape[-ndim - 1 :]):
        raise RuntimeError(f"[{op}] expected an input without empty dimensions but the batch, got {tuple(input.shape)}")
    default = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(input.shape[-ndim:], stride, kernel, padding)]
    if output_size is None:
        sizes = default
    else:
        sizes = list(output_size)
        if len(sizes) == ndim + 2:
            sizes = sizes[2:]
        if len(sizes) != ndim:
            raise ValueError(f"[{op}] expected {ndim} or {ndim + 2} values for output_size, got {tuple(output_size)}")
        for want, usual, s in zip(sizes, default, stride):
            if not usual - s < want < usual + s:
                raise ValueError(f"[{op}] expected output_size between {usual - s} and {usual + s}, got {tuple(sizes)}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"[{op}] expected an output size not below zero, got {tuple(sizes)}")
    fl._C._alert_not_deterministic(f"max_unpooling{max(ndim, 2)}d_forward_out")
    return fl._ops._pool_scatter(input, indices, sizes, False)


_UNPOOL = "Tensor input, Tensor indices, int[{0}] kernel_size, int[{0}]? stride=None, int[{0}] padding=0, int[]? output_size=None"


@_functional("max_unpool1d", _UNPOOL.format(1))
def nn_max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):  # type: ignore[no-untyped-def]
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@_functional("max_unpool2d", _UNPOOL.format(2))
def nn_max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):  # type: ignore[no-untyped-def]
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@_functional("max_unpool3d", _UNPOOL.format(3))
def nn_max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):  # type: ignore[no-untyped-def]
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


# ---------------------------------------------------------------- fractional windows


def _fractional(ndim: int, input: fl.Tensor, kernel: Any, output_size: Any, output_ratio: Any, samples: Any) -> Any:
    op = f"fractional_max_pool{ndim}d"
    if output_size is None:
        if output_ratio is None:
            raise ValueError(f"[{op}] expected an output_size or an output_ratio, got neither")
        ratios = _tuple(output_ratio, ndim)
        if len(ratios) != ndim:
            raise ValueError(
                f"[{op}] expected one or {ndim} values for output_ratio, got {output_ratio}: {op} requires output_ratio to either be a "
                "single Int or tuple of Ints."
            )
        output_size = [int(n * r) for n, r in zip(input.shape[-ndim:], ratios)]
    if samples is None:
        batch = 1 if input.dim() == ndim + 1 else input.shape[0]
        samples = fl.rand(batch, input.shape[-ndim - 1], ndim, dtype=input.dtype, device=input.device)
    pool = fl._ops._fractional_max_pool2d if ndim == 2 else fl._ops._fractional_max_pool3d
    return pool(input, kernel, output_size, samples)


_FRACTIONAL = (
    "Tensor input, int[{0}] kernel_size, int[{0}]? output_size=None, any output_ratio=None, bool return_indices=False, "
    "Tensor? _random_samples=None"
)


@_functional("fractional_max_pool2d", _FRACTIONAL.format(2), "any")
def nn_fractional_max_pool2d(input, kernel_size, output_size, output_ratio, return_indices, samples):  # type: ignore[no-untyped-def]
    pooled = _fractional(2, input, kernel_size, output_size, output_ratio, samples)
    return pooled if return_indices else pooled[0]


@_functional("fractional_max_pool3d", _FRACTIONAL.format(3), "any")
def nn_fractional_max_pool3d(input, kernel_size, output_size, output_ratio, return_indices, samples):  # type: ignore[no-untyped-def]
    pooled = _fractional(3, input, kernel_size, output_size, output_ratio, samples)
    return pooled if return_indices else pooled[0]


@_functional("fractional_max_pool2d_with_indices", _FRACTIONAL.format(2), "(Tensor, Tensor)")
def nn_fractional_max_pool2d_with_indices(input, kernel_size, output_size, output_ratio, return_indices, samples):  # type: ignore[no-untyped-def]
    return _fractional(2, input, kernel_size, output_size, output_ratio, samples)


@_functional("fractional_max_pool3d_with_indices", _FRACTIONAL.format(3), "(Tensor, Tensor)")
def nn_fractional_max_pool3d_with_indices(input, kernel_size, output_size, output_ratio, return_indices, samples):  # type: ignore[no-untyped-def]
    return _fractional(3, input, kernel_size, output_size, output_ratio, samples)


# ---------------------------------------------------------------- what passes know of these operators

tag(
    "averages",
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d "
    "nn_adaptive_avg_pool2d nn_adaptive_avg_pool3d",
)
tag(
    "chooses",
    "max_pool1d max_pool2d max_pool3d nn_adaptive_max_pool2d nn_max_pool1d nn_max_pool2d nn_max_pool3d",
)
tag(
    "constant_gradient",
    "_adaptive_max_pool2d _adaptive_max_pool3d _fractional_max_pool2d _fractional_max_pool3d adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d avg_pool1d avg_pool2d avg_pool3d max_pool1d "
    "max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices",
)
tag("core", "avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices")
tag("recomputable", "adaptive_avg_pool2d avg_pool2d max_pool2d")
autocast(
    "float32",
    "adaptive_avg_pool3d avg_pool3d max_pool3d max_pool3d_with_indices nn_adaptive_avg_pool3d "
    "nn_adaptive_max_pool3d nn_adaptive_max_pool3d_with_indices nn_fractional_max_pool2d "
    "nn_fractional_max_pool2d_with_indices nn_fractional_max_pool3d nn_fractional_max_pool3d_with_indices "
    "nn_max_pool3d nn_max_unpool2d nn_max_unpool3d",
    on="cpu",
)
node("AdaptiveAvgPool3DBackward0", "adaptive_avg_pool3d")
node("AvgPool2DBackward0", "avg_pool2d")
node("AvgPool3DBackward0", "avg_pool3d")
node("MaxPool2DWithIndicesBackward0", "max_pool2d")
node("MaxPool3DWithIndicesBackward0", "max_pool3d")
