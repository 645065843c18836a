"""`OpOverload.tags`: what programs ask operators about, such as whether they are pointwise or in the core set of ATen."""

from __future__ import annotations

import enum
from typing import Any


class Tag(enum.Enum):
    """What is known of an operator."""

    (
        core, cudagraph_unsafe, data_dependent_output, dynamic_output_shape, flexible_layout, generated, inplace,
        inplace_view, maybe_aliasing_or_mutating, needs_contiguous_strides, needs_exact_strides,
        needs_fixed_stride_order, nondeterministic_bitwise, nondeterministic_seeded, out, out_variant, pointwise,
        pt2_compliant_tag, reduction, view_copy,
    ) = range(20)  # fmt: skip


# The operators that exported programs are decomposed into.
CORE = frozenset(
    "_adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _embedding_bag _fft_c2r _fft_r2c _local_scalar_dense "
    "_log_softmax _native_batch_norm_legit _native_batch_norm_legit_no_training _pdist_forward _softmax _to_copy abs acos "
    "acosh add addmm alias amax amin any arange argmax argmin as_strided asin asinh atan atan2 atanh avg_pool2d avg_pool3d "
    "bitwise_and bitwise_not bitwise_or bitwise_xor bmm cat ceil clamp clone col2im constant_pad_nd convolution "
    "convolution_backward copy cos cosh cumsum diagonal div elu embedding embedding_dense_backward empty empty_strided eq "
    "erf exp expand expm1 fill flip floor fmod full full_like gather ge gelu grid_sampler_2d gt hardtanh index index_put "
    "index_select isinf isnan le leaky_relu log log10 log1p log2 logical_and logical_not logical_or logical_xor lt "
    "masked_scatter max max_pool2d_with_indices max_pool3d_with_indices maximum mean min minimum mm mul native_dropout "
    "native_group_norm native_layer_norm ne neg nonzero permute pow prod rand randn randperm reciprocal reflection_pad1d "
    "reflection_pad2d reflection_pad3d relu remainder repeat replication_pad2d replication_pad3d round rsqrt scalar_tensor "
    "scatter scatter_add scatter_reduce select select_scatter sigmoid sign sin sinh slice slice_scatter sort "
    "split_with_sizes sqrt squeeze sub sum sym_numel sym_size sym_storage_offset sym_stride tan tanh topk trunc unsqueeze "
    "upsample_bilinear2d upsample_nearest2d var view where".split()
)
_SHAPED_BY_DATA = frozenset("nonzero masked_select unique_dim unique_consecutive _unique2 bincount".split())
_INPLACE_VIEWS = frozenset(
    "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ detach_ resize_ resize_as_ set_ rename_".split()
)


def tags(full_name: str, name: str, inplace: bool, out: bool) -> list[Any]:
    """The tags of an operator of ours, given by its full name and the name that ATen has for it."""
    from flambeau.backends import records

    base, _, overload = full_name.partition(".")
    if base.endswith("_") and not base.startswith("__"):
        base = base[:-1]
    known = records._all()
    kinds = [known[n] for n in (f"{base}.{overload}", base, f"{base}.Tensor") if n in known][:1]
    found = set()
    if name in CORE and not out:
        found.add(Tag.core)
    if any(r.kind == "pointwise" for r in kinds):
        found.add(Tag.pointwise)
    if any(r.kind == "reduction" for r in kinds):
        found.add(Tag.reduction)
    if any("random" in r.tags for r in kinds):
        found.add(Tag.nondeterministic_seeded)
    if name in _SHAPED_BY_DATA:
        found.add(Tag.dynamic_output_shape)
    if name == "_local_scalar_dense":
        found.add(Tag.data_dependent_output)
    if inplace:
        found.add(Tag.inplace)
    if name in _INPLACE_VIEWS:
        found.add(Tag.inplace_view)
    found.add(Tag.pt2_compliant_tag)
    return sorted(found, key=lambda tag: tag.value)
