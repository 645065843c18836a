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


def tags(full_name: str, name: str, inplace: bool, out: bool) -> list[Any]:
    """The tags of an operator of ours, given by its full name and the name that ATen has for it."""
    from flambeau.ops.record import find

    base, _, overload = full_name.partition(".")
    if base.endswith("_") and not base.startswith("__"):
        base = base[:-1]
    candidates = (full_name, f"{base}.{overload}", base, f"{base}.Tensor")
    record = next((r for r in map(find, candidates) if r is not None), None)
    known = frozenset() if record is None else {record.kind, *record.tags}
    tags = {Tag.pt2_compliant_tag}
    if "core" in known and not inplace and not out:
        tags.add(Tag.core)
    if "pointwise" in known:
        tags.add(Tag.pointwise)
    if "reduction" in known:
        tags.add(Tag.reduction)
    if "random" in known:
        tags.add(Tag.nondeterministic_seeded)
    if "data_dependent" in known:
        tags.add(Tag.dynamic_output_shape)
    if name == "_local_scalar_dense":
        tags.add(Tag.data_dependent_output)
    if inplace:
        tags.add(Tag.inplace)
    if "reshapes" in known:
        tags.add(Tag.inplace_view)
    return sorted(tags, key=lambda tag: tag.value)
