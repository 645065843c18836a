"""Nested tensors: batches of sequences of different lengths without padding, in jagged layout.

    x = nested.nested_tensor([fl.ones(2, 3), fl.ones(4, 3)], layout=fl.jagged)
    x.values(), x.offsets(), x.unbind(), x.to_padded_tensor(0.0)

Functions that treat rows alike, linear layers, normalisations, attention, and sums over a sequence work on them.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._compat import absent
from flambeau.nested._internal.nested_tensor import NestedTensor, jagged, nested_view
from flambeau.overrides import DisableTorchFunctionSubclass

__all__ = [
    "as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor",
]  # fmt: skip


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> NestedTensor:
    """Tensors, or the rows of one tensor, as a nested one; gradients reach them."""
    if isinstance(ts, NestedTensor):
        return ts
    parts = [t if isinstance(t, Tensor) else fl.tensor(t) for t in (ts.unbind() if isinstance(ts, Tensor) else ts)]
    if not parts:
        raise RuntimeError("[nested_tensor] expected at least one tensor, got none")
    parts = [t.to(device=device or t.device, dtype=dtype or t.dtype) for t in parts]
    if any(t.dim() == 0 or t.shape[1:] != parts[0].shape[1:] for t in parts):
        shapes = [tuple(t.shape) for t in parts]
        raise RuntimeError(f"[nested_tensor] expected tensors that differ in their first dimension only, got {shapes}")
    lengths = fl.tensor([0, *(t.shape[0] for t in parts)], device=parts[0].device)
    return nested_view(fl.cat(parts), lengths.cumsum(0), layout=jagged if layout is jagged else fl.strided)


def nested_tensor(
    tensor_list: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> NestedTensor:
    """A new nested tensor with the values of these."""
    parts = [t.detach() if isinstance(t, Tensor) else fl.tensor(t) for t in tensor_list]
    nested = as_nested_tensor(parts, dtype, device, layout)
    values = nested._values.clone() if len(parts) == 1 else nested._values
    nested = nested_view(values, nested._offsets, layout=nested.layout)
    with DisableTorchFunctionSubclass():
        return nested.requires_grad_(requires_grad)


def nested_tensor_from_jagged(
    values: Tensor, offsets: Any = None, lengths: Any = None, jagged_dim: int | None = None, min_seqlen: Any = None,
    max_seqlen: Any = None,
) -> NestedTensor:  # fmt: skip
    """Rows that lie one after the other, from the places where sequences begin, or from their lengths."""
    if jagged_dim not in (None, 1):
        raise NotImplementedError(f"[nested_tensor_from_jagged] expected jagged_dim 1, got {jagged_dim}")
    if offsets is None:
        if lengths is None:
            raise RuntimeError("[nested_tensor_from_jagged] expected offsets or lengths, got neither")
        offsets = fl.nn.functional.pad(lengths.cumsum(0), (1, 0))
    elif lengths is not None:
        raise NotImplementedError("[nested_tensor_from_jagged] expected offsets or lengths, got both: no gaps are kept")
    return nested_view(values, offsets)


def to_padded_tensor(input: Any, padding: float, output_size: Any = None) -> Tensor:
    """A dense tensor with the padding where a sequence is shorter than the longest."""
    if not isinstance(input, NestedTensor):
        raise RuntimeError("[to_padded_tensor] expected a nested tensor, got a dense one")
    return input.to_padded_tensor(padding, output_size)


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = None) -> NestedTensor:
    """Parts of the rows of a dense tensor; a copy, without the gaps between them."""
    if dim != 1:
        raise RuntimeError(f"[narrow] expected dim 1, got {dim}")
    n = tensor.shape[0]
    starts = start.tolist() if isinstance(start, Tensor) else [start] * n
    counts = length.tolist() if isinstance(length, Tensor) else [length] * n
    return as_nested_tensor([row[s : s + c] for row, s, c in zip(tensor, starts, counts)], layout=layout)


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """The elements of each row where the mask is set."""
    return as_nested_tensor([row[m] for row, m in zip(tensor, mask.expand(tensor.shape))], layout=jagged)


__getattr__ = absent.names_of(__name__)
