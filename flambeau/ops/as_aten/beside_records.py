"""Operators of ATen that are no records here: a function of the library's, under ATen's arguments.

Backwards of operators are computed by differentiating the operator; resizing and padding choose a mode by a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl


def _resized(mode: str, t: Any, output_size: Any, align_corners: bool | None, scales: Sequence[Any]) -> Any:
    if output_size is None:
        return fl.nn.functional.interpolate(t, scale_factor=list(scales[0]), mode=mode, align_corners=align_corners)
    given_scales = [scale for scale in scales if scale is not None]
    if len(given_scales) == len(output_size) and len(given_scales) > 0:
        resized = fl.nn.functional.interpolate(t, scale_factor=given_scales, mode=mode, align_corners=align_corners)
        if tuple(resized.shape[2:]) == tuple(output_size):
            return resized
    return fl.nn.functional.interpolate(t, size=list(output_size), mode=mode, align_corners=align_corners)


def _nearest(mode: str) -> Callable[..., Any]:
    def call(self: Any, output_size: Any, *scales: Any, out: Any = None) -> Any:
        return _into(out, _resized(mode, self, output_size, None, scales))

    return call


def _linear(mode: str) -> Callable[..., Any]:
    def call(self: Any, output_size: Any, align_corners: bool, *scales: Any, out: Any = None) -> Any:
        return _into(out, _resized(mode, self, output_size, align_corners, scales))

    return call


def _into(out: Any, result: Any) -> Any:
    if out is None:
        return result
    return out.resize_(result.shape).copy_(result)


def _padded(mode: str) -> Callable[..., Any]:
    return lambda self, padding: fl.nn.functional.pad(self, list(padding), mode=mode)


def embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """The gradient of a table, from those of the rows that were read."""
    places = indices.reshape(-1)
    rows = grad_output.expand(*indices.shape, grad_output.shape[-1]).reshape(places.shape[0], -1)
    if padding_idx >= 0:
        rows = fl.where((places == padding_idx).unsqueeze(1), 0, rows)
    if scale_grad_by_freq:
        rows = rows / fl.bincount(places, minlength=num_weights)[places].unsqueeze(1)
    return fl.zeros(num_weights, rows.shape[1], dtype=rows.dtype, device=rows.device).index_add(0, places, rows)


def convolution_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:
    """The gradients of input, weight and bias that the mask asks for."""
    with fl.enable_grad():
        x, w = (t.detach().requires_grad_() for t in (input, weight))
        out = fl.convolution(x, w, None, stride, padding, dilation, transposed, output_padding, groups)
        to_input, to_weight = fl.autograd.grad(out, (x, w), grad_output)
    others = [d for d in range(grad_output.dim()) if d != 1]
    to_bias = grad_output.sum(others) if output_mask[2] else None
    return to_input if output_mask[0] else None, to_weight if output_mask[1] else None, to_bias


def unique2(
    self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, Any, Any]:
    """Three results always, of which those that are not asked for are empty."""
    return unique_dim(self, None, sorted, return_inverse, return_counts)


def unique_dim(
    self: Any, dim: int | None, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, Any, Any]:
    """The distinct slices of a tensor, where each of them is, and how often; what is not asked for is empty.

    >>> values, inverse, counts = flambeau.unique_dim(flambeau.tensor([[1], [1], [2]]), 0, return_counts=True)
    >>> values.tolist(), counts.tolist()
    ([[1], [2]], [2, 1])
    """
    values, inverse, counts = fl.unique(self, sorted=sorted, return_inverse=True, return_counts=True, dim=dim)
    nothing = counts[:0]
    return values, inverse if return_inverse else nothing, counts if return_counts else nothing


def _unique(self: Any, sorted: bool = True, return_inverse: bool = False) -> tuple[Any, Any]:
    return unique2(self, sorted, return_inverse)[:2]


_unique2 = unique2
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"upsample_nearest{n}d": _nearest("nearest") for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": _nearest("nearest-exact") for n in (1, 2, 3)},
    "upsample_linear1d": _linear("linear"),
    "upsample_bilinear2d": _linear("bilinear"),
    "upsample_bicubic2d": _linear("bicubic"),
    "upsample_trilinear3d": _linear("trilinear"),
    **{f"reflection_pad{n}d": _padded("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _padded("replicate") for n in (1, 2, 3)},
    "im2col": lambda self, kernel_size, dilation, padding, stride: fl.nn.functional.unfold(
        self, kernel_size, dilation, padding, stride
    ),
    "col2im": lambda self, output_size, kernel_size, dilation, padding, stride: fl.nn.functional.fold(
        self, output_size, kernel_size, dilation, padding, stride
    ),
    "embedding_dense_backward": embedding_dense_backward,
    "convolution_backward": convolution_backward,
    "native_dropout_backward": lambda grad_output, mask, scale: grad_output * mask * scale,
    "_unique2": unique2,
    "unique_dim": unique_dim,
    "glu": lambda self, dim=-1: fl.nn.functional.glu(self, dim),
    "log_sigmoid_forward": lambda self: (fl.nn.functional.logsigmoid(self), self.new_empty(0)),
    "_is_all_true": lambda self: self.all(),
    "_is_any_true": lambda self: self.any(),
    "_stack": lambda tensors, dim=0: fl.stack(tensors, dim),
    "_unsafe_index": lambda self, indices: fl.ops.aten.index(self, indices),
    "is_inference": lambda self: self.is_inference(),
    "is_leaf": lambda self: self.is_leaf,
    "get_device": lambda self: self.get_device(),
    "_version": lambda self: self._version,
    "result_type": lambda *args: fl.result_type(*args),
    "pad_sequence": lambda sequences, batch_first=False, padding_value=0.0, padding_side="right": fl.nn.utils.rnn.pad_sequence(
        sequences, batch_first, padding_value, padding_side
    ),
    **{
        name: lambda self, *args, _name=name: getattr(self, _name)(*args)
        for name in ("coalesce", "is_coalesced", "indices", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices")
    },
    **{
        name: lambda self, *args, _name=name, **kwargs: getattr(self, _name)(*args, **kwargs)
        for name in ("_indices", "_values", "_nnz", "sparse_dim", "dense_dim", "sparse_mask", "to_dense", "retain_grad")
    },
}  # fmt: skip
