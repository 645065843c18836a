"""Sliding blocks as columns (`unfold`) and their sum back into an image (`fold`); each is the other's gradient."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import composite, native, node, vjp

native(
    "_im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor", method=False
)
native(
    "_col2im(Tensor self, int[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
    method=False,
)


@vjp("_im2col")
def im2col_vjp(
    g: fl.Tensor,
    self_sizes: fl.Size,
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> fl.Tensor:
    return fl._ops._col2im(g, list(self_sizes[-2:]), kernel_size, dilation, padding, stride)


@vjp("_col2im")
def col2im_vjp(
    g: fl.Tensor, kernel_size: list[int], dilation: list[int], padding: list[int], stride: list[int]
) -> fl.Tensor:
    return fl._ops._im2col(g, kernel_size, dilation, padding, stride)


@composite(
    "nn_unfold(Tensor input, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor",
    module="nn.functional",
    public="unfold",
)
def nn_unfold(input, kernel_size, dilation=1, padding=0, stride=1):  # type: ignore[no-untyped-def]
    return fl._ops._im2col(input, kernel_size, dilation, padding, stride)


@composite(
    "nn_fold(Tensor input, int[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) "
    "-> Tensor",
    module="nn.functional",
    public="fold",
)
def nn_fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):  # type: ignore[no-untyped-def]
    return fl._ops._col2im(input, output_size, kernel_size, dilation, padding, stride)


# ---------------------------------------------------------------- what passes know of these operators

node("Col2ImBackward0", "_col2im")
node("Im2ColBackward0", "_im2col")
