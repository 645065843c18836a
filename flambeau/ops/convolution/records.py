"""Convolutions of one to three spatial dimensions, transposed ones included.

All of them are one native kernel over the engine in csrc/cpu/convolution/kernel.h; `_convolution_backward` returns the
gradients of input, weight and bias that its mask asks for (an empty tensor where it does not).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, node, tag, vjp

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
# 3 x 3 without steps, with what follows it in evaluation: ((conv - mean) * scale + shift + residual).relu()
native(
    "_convolution_finished(Tensor input, Tensor weight, Tensor? bias, Tensor? mean, Tensor? scale, Tensor? shift, "
    "Tensor? residual, bool relu, int[2] padding, Tensor? packed=None) -> Tensor"
)
native("_convolution_packed(Tensor weight) -> Tensor")
# With weights in the layout of oneDNN's primitive: (conv * scale + shift + residual).relu()
native(
    "_convolution_prepacked(Tensor input, Tensor packed, int[] weight_size, Tensor? scale, Tensor? shift, "
    "Tensor? residual, bool relu, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor"
)
native(
    "_convolution_prepack(Tensor weight, int[] input_size, int[2] stride, int[2] padding, int[2] dilation, int groups) "
    "-> Tensor"
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


def _conj(x: fl.Tensor) -> fl.Tensor:
    return x.conj() if x.is_complex() else x


def _gradients(
    g: fl.Tensor,
    input: fl.Tensor,
    weight: fl.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    ndim = weight.dim() - 2
    single = input.dim() == ndim + 1
    if single:
        g, input = g.unsqueeze(0), input.unsqueeze(0)

    def full(x: Sequence[int]) -> list[int]:
        return list(x) * ndim if len(x) == 1 else list(x)

    grads = fl._ops._convolution_backward(
        g,
        _conj(input),
        _conj(weight),
        full(stride),
        full(padding),
        full(dilation),
        transposed,
        full(output_padding),
        groups,
        list(needs),
    )
    wanted = [x if needed else None for x, needed in zip(grads, needs)]
    if single and wanted[0] is not None:
        wanted[0] = wanted[0].squeeze(0)
    return tuple(wanted)


@vjp("convolution", "_convolution")
def convolution_vjp(
    g: fl.Tensor,
    input: fl.Tensor,
    weight: fl.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    return _gradients(g, input, weight, stride, padding, dilation, transposed, output_padding, groups, needs)


@vjp("conv1d", "conv2d", "conv3d")
def conv_vjp(
    g: fl.Tensor,
    input: fl.Tensor,
    weight: fl.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    return _gradients(g, input, weight, stride, padding, dilation, False, [0], groups, needs)


@vjp("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose_vjp(
    g: fl.Tensor,
    input: fl.Tensor,
    weight: fl.Tensor,
    stride: list[int],
    padding: list[int],
    output_padding: list[int],
    groups: int,
    dilation: list[int],
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    return _gradients(g, input, weight, stride, padding, dilation, True, output_padding, groups, needs)


@vjp("_convolution_backward")
def convolution_backward_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    g2: fl.Tensor | None,
    grad_output: Any,
    input: fl.Tensor,
    weight: fl.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: Any,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    """The three gradients are products of pairs of the operands, so their derivatives are the other pairs."""
    options = (stride, padding, dilation, transposed, output_padding, groups)
    g0, g1, g2 = (x if wanted else None for x, wanted in zip((g0, g1, g2), output_mask))
    grad_grad = grad_input = grad_weight = None
    if needs[0]:
        parts = []
        if g0 is not None:
            parts.append(fl.convolution(g0, _conj(weight), None, *options))
        if g1 is not None:
            parts.append(fl.convolution(_conj(input), g1, None, *options))
        if g2 is not None:
            parts.append(g2.reshape([1, -1] + [1] * (grad_output.dim() - 2)).expand(grad_output.shape))
        for part in parts:
            grad_grad = part if grad_grad is None else grad_grad + part
    if needs[1] and g1 is not None:
        grad_input = fl._ops._convolution_backward(_conj(grad_output), input, g1, *options, [True, False, False])[0]
    if needs[2] and g0 is not None:
        grad_weight = fl._ops._convolution_backward(_conj(grad_output), g0, weight, *options, [False, True, False])[1]
    return grad_grad, grad_input, grad_weight


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


@composite(module=BOTH)
def conv_tbc(self: fl.Tensor, weight: fl.Tensor, bias: fl.Tensor, pad: int = 0) -> fl.Tensor:
    """Convolution over (time, batch, channels) with a weight of (kernel, in, out)."""
    if self.dim() != 3 or weight.dim() != 3 or bias.dim() != 1:
        raise RuntimeError(
            "[conv_tbc] expected input and weight of 3 dimensions and bias of 1, got "
            f"{tuple(self.shape)}, {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    out = fl.conv1d(self.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return out.permute(2, 0, 1)


# ---------------------------------------------------------------- what passes know of these operators

tag(
    "convolution",
    "_convolution _convolution_backward conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "convolution",
)
tag("core", "convolution")
tag("integer_product", "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")
tag("recomputable", "_convolution _convolution_packed _convolution_prepack conv2d convolution")
autocast("lower", "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d")
node("ConvolutionBackward0", "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")
