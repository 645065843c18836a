"""Convolutions in ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
