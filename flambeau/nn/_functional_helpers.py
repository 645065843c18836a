"""Helpers that libraries reach for in `nn.functional`: masks, shapes and projections of attention, and sizes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import _reduction as _Reduction  # noqa: F401
from flambeau.nn._scaled_mm import ScalingType, SwizzleType, scaled_mm  # noqa: F401
from flambeau.nn.modules.utils import _list_with_default, _pair, _single, _triple  # noqa: F401
from flambeau.overrides import handle_torch_function, has_torch_function  # noqa: F401

GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


def has_torch_function_unary(tensor: Any) -> bool:
    return has_torch_function((tensor,))


def has_torch_function_variadic(*tensors: Any) -> bool:
    return has_torch_function(tensors)


def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The dimension of a softmax called without one."""
    warnings.warn(f"[{name}] expected dim, got None; one is chosen, which is deprecated", stacklevel=stacklevel)
    return 0 if ndim in (0, 1, 3) else 1


def _none_or_dtype(input: Tensor | None) -> Any:
    return None if input is None else input.dtype


def _canonical_mask(
    mask: Tensor | None, mask_name: str, other_type: Any, other_name: str, target_type: Any, check_other: bool = True
) -> Tensor | None:
    """A mask as numbers to add: of a boolean one, -inf where it is set."""
    if mask is None:
        return None
    if mask.dtype != fl.bool and not mask.is_floating_point():
        raise AssertionError(f"[attention] expected {mask_name} of bool or floating dtype, got {mask.dtype}")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"[attention] expected {mask_name} and {other_name} of one dtype, got {mask.dtype} and {other_type}",
            stacklevel=2,
        )
    if mask.is_floating_point():
        return mask
    return fl.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


def _in_projection_packed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None) -> list[Tensor]:
    """Projections of query, key and value by one weight, in as few products as they are different tensors."""
    linear = fl.nn.functional.linear
    if k is v and q is k:
        return list(linear(q, w, b).chunk(3, -1))
    weights = w.chunk(3)
    biases = (None,) * 3 if b is None else b.chunk(3)
    return [linear(x, weight, bias) for x, weight, bias in zip((q, k, v), weights, biases)]


def _in_projection(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
    b_v: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Projections of query, key and value by a weight each."""
    linear = fl.nn.functional.linear
    return linear(q, w_q, b_q), linear(k, w_k, b_k), linear(v, w_v, b_v)


def _mha_shape_check(
    query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None, num_heads: int
) -> bool:
    """Whether the query is a batch; raises where dimensions do not go together."""
    if query.dim() not in (2, 3):
        raise AssertionError(f"[attention] expected a query of 2 or 3 dimensions, got {query.dim()}")
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(
            f"[attention] expected key and value of {query.dim()} dimensions, got {key.dim()} and {value.dim()}"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != query.dim() - 1:
        raise AssertionError(
            f"[attention] expected key_padding_mask of {query.dim() - 1} dimensions, got {key_padding_mask.dim()}"
        )
    if attn_mask is not None and attn_mask.dim() not in (2, 3):
        raise AssertionError(f"[attention] expected attn_mask of 2 or 3 dimensions, got {attn_mask.dim()}")
    return query.dim() == 3


def _verify_batch_size(size: Sequence[int]) -> None:
    """Raises where there is one value per channel, of which there is no variance."""
    count = size[0]
    for extent in size[2:]:
        count *= extent
    if count == 1:
        raise ValueError(f"[batch_norm] expected more than 1 value per channel when training, got {tuple(size)}")


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str, func_name: str
) -> Any:
    """A function that is one of two, as a flag among its arguments says."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if flag else if_false)(*args, **kwargs)

    chosen.__name__ = func_name
    return chosen
