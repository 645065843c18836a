"""Convolutions in ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


def _each(value: Any, n: int) -> list[int]:
    return list(value) * (n if len(value) == 1 else 1) if isinstance(value, Sequence) else [value] * n


def _convolution(
    g: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, transposed: bool = False,
    output_padding: Any = 0,
) -> Any:  # fmt: skip
    n = weight.rank - 2
    unbatched = x.rank == n + 1
    x = g.unsqueeze(x, 0) if unbatched else x
    attributes: dict[str, Any] = {
        "kernel_shape": [int(size) for size in weight.shape[2:]], "strides": _each(stride, n), "dilations": _each(dilation, n),
        "group": groups,
    }  # fmt: skip
    if padding == "same":
        attributes["auto_pad"] = "SAME_UPPER"
    elif padding != "valid":
        attributes["pads"] = _each(padding, n) * 2
    if transposed:
        attributes["output_padding"] = _each(output_padding, n)
    inputs = [x, weight] if bias is None else [x, weight, bias]
    result = g.op("ConvTranspose" if transposed else "Conv", *inputs, **attributes)
    return g.squeeze(result, 0) if unbatched else result


@onnx("conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding")
def conv(g: Any, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    return _convolution(g, input, weight, bias, stride, padding, dilation, groups)


@onnx("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    g: Any,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Any:
    return _convolution(g, input, weight, bias, stride, padding, dilation, groups, True, output_padding)


@onnx("convolution")
def convolution(
    g: Any, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    return _convolution(g, input, weight, bias, stride, padding, dilation, groups, transposed, output_padding)


@onnx("_col2im")
def col2im(g: Any, self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if g.opset < 18:
        raise g.unsupported("fold needs opset 18")
    return g.op(
        "Col2Im", self, g.ints(output_size), g.ints(kernel_size), dilations=list(dilation), pads=list(padding) * 2,
        strides=list(stride),
    )  # fmt: skip


@onnx("_im2col")
def im2col(g: Any, self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Windows as columns: rows and columns of all windows are gathered one after the other."""
    kernel, spread, edges, steps = (_each(v, 2) for v in (kernel_size, dilation, padding, stride))
    height, width = self.shape[-2:]
    if not (isinstance(height, int) and isinstance(width, int)):
        raise g.unsupported("windows over sizes that vary")
    axis = self.rank - 2
    around = [0] * axis + edges
    counts: list[int] = []
    gathered = g.op("Pad", self, g.ints([*around, *around])) if any(edges) else self
    for d, size in enumerate((height, width)):
        last = size + 2 * edges[d] - spread[d] * (kernel[d] - 1)
        starts = range(0, last, steps[d])
        index = g.constant(fl.tensor([[start + i * spread[d] for start in starts] for i in range(kernel[d])]))
        gathered = g.op("Gather", gathered, index, axis=axis + 2 * d)
        counts.append(len(starts))
    lead = list(range(axis))
    columns = g.op("Transpose", gathered, perm=[*lead, axis, axis + 2, axis + 1, axis + 3])
    channels = self.shape[axis - 1]
    if not isinstance(channels, int):
        raise g.unsupported("windows over channels that vary")
    batch = [g.dim(self, 0)] if axis == 2 else []
    return g.reshape(columns, [*batch, channels * kernel[0] * kernel[1], counts[0] * counts[1]])
