"""Convolutions of one to three spatial dimensions, transposed ones included.

All of them are one native kernel over the engine in csrc/cpu/convolution_kernel.h; `_convolution_backward` returns the
gradients of input, weight and bias that its mask asks for (an empty tensor where it does not).
"""

from __future__ import annotations

from typing import Sequence

import flambeau as fl
from flambeau.ops.record import composite, native

BOTH = ";nn.functional"  # one function, found in the top module and in nn.functional

GENERAL = (
    "Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, "
    "int[] output_padding, int groups"
)
native(f"convolution({GENERAL}) -> Tensor")
native(f"_convolution({GENERAL}) -> Tensor")
native(
    "_convolution_backward(Tensor grad_output, Tensor input, Tensor weight, int[] stride, int[] padding, int[] dilation, "
    "bool transposed, int[] output_padding, int groups, bool[] output_mask) -> (Tensor, Tensor, Tensor)"
)

for _n in (1, 2, 3):
    native(
        f"conv{_n}d(Tensor input, Tensor weight, Tensor? bias=None, int[{_n}] stride=1, int[{_n}] padding=0, "
        f"int[{_n}] dilation=1, int groups=1) -> Tensor",
        module=BOTH,
    )
    native(
        f"conv_transpose{_n}d(Tensor input, Tensor weight, Tensor? bias=None, int[{_n}] stride=1, int[{_n}] padding=0, "
        f"int[{_n}] output_padding=0, int groups=1, int[{_n}] dilation=1) -> Tensor",
        module=BOTH,
    )


def _convolve_named_padding(
    ndim: int,
    input: fl.Tensor,
    weight: fl.Tensor,
    bias: fl.Tensor | None,
    stride: Sequence[int],
    padding: str,
    dilation: Sequence[int],
    groups: int,
) -> fl.Tensor:
    """Convolution with padding "valid" (none) or "same" (as much as keeps the spatial size)."""
    stride = list(stride) * ndim if len(stride) == 1 else list(stride)
    dilation = list(dilation) * ndim if len(dilation) == 1 else list(dilation)
    before = [0] * ndim
    if padding == "same":
        if any(s != 1 for s in stride):
            raise RuntimeError(f"[conv{ndim}d] expected stride 1 with padding='same', got {tuple(stride)}")
        if weight.dim() != ndim + 2:
            raise RuntimeError(f"[conv{ndim}d] expected a weight of {ndim + 2} dimensions, got {tuple(weight.shape)}")
        total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
        before = [t // 2 for t in total]
        if any(t % 2 for t in total):
            # The odd element goes after the last one.
            extra = [n for t in reversed(total) for n in (0, t % 2)]
            input = fl.nn.functional.pad(input, extra)
    elif padding != "valid":
        raise RuntimeError(f"[conv{ndim}d] expected padding 'same' or 'valid', got {padding!r}")
    return fl.convolution(input, weight, bias, stride, before, dilation, False, [0] * ndim, groups)


NAMED = "Tensor input, Tensor weight, Tensor? bias=None, int[{0}] stride=1, str padding='valid', int[{0}] dilation=1, int groups=1"


@composite(f"conv1d.padding({NAMED.format(1)}) -> Tensor", module=BOTH)
def conv1d_padding(input, weight, bias, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    return _convolve_named_padding(1, input, weight, bias, stride, padding, dilation, groups)


@composite(f"conv2d.padding({NAMED.format(2)}) -> Tensor", module=BOTH)
def conv2d_padding(input, weight, bias, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    return _convolve_named_padding(2, input, weight, bias, stride, padding, dilation, groups)


@composite(f"conv3d.padding({NAMED.format(3)}) -> Tensor", module=BOTH)
def conv3d_padding(input, weight, bias, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    return _convolve_named_padding(3, input, weight, bias, stride, padding, dilation, groups)


@composite("conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor", module=BOTH)
def conv_tbc(self: fl.Tensor, weight: fl.Tensor, bias: fl.Tensor, pad: int = 0) -> fl.Tensor:
    """Convolution over (time, batch, channels) with a weight of (kernel, in, out)."""
    if self.dim() != 3 or weight.dim() != 3 or bias.dim() != 1:
        raise RuntimeError(
            "[conv_tbc] expected input and weight of 3 dimensions and bias of 1, got "
            f"{tuple(self.shape)}, {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    out = fl.conv1d(self.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return out.permute(2, 0, 1)
