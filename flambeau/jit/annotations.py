"""Types for the annotations of TorchScript programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, TypeVar, Union  # noqa: F401, UP035

from flambeau import Tensor  # noqa: F401


def try_ann_to_type(ann: Any, loc: Any = None, rcb: Any = None) -> Any:
    """The type of scripts for an annotation of Python; None where there is none."""
    from flambeau.jit import _types
    from flambeau.jit._frontend.annotations import type_of

    if ann is None:
        return _types.TENSOR
    if ann is type(None):
        return _types.NONE
    try:
        return type_of(ann)
    except TypeError:
        return None


def ann_to_type(ann: Any, loc: Any = None, rcb: Any = None) -> Any:
    """The type of scripts for an annotation of Python."""
    kind = try_ann_to_type(ann, loc, rcb)
    if kind is None:
        raise ValueError(f"Unknown type annotation: '{ann}'{'' if loc is None else f' at {loc.highlight()}'}")
    return kind


class _Broadcasting:
    """`BroadcastingList2[int]`: one number or a list of them."""

    def __getitem__(self, item: Any) -> Any:
        return Union[item, List[item]]  # noqa: UP006


if TYPE_CHECKING:
    _Element = TypeVar("_Element")
    BroadcastingList1 = Union[_Element, List[_Element]]  # noqa: UP006
    BroadcastingList2 = Union[_Element, List[_Element]]  # noqa: UP006
    BroadcastingList3 = Union[_Element, List[_Element]]  # noqa: UP006
    BroadcastingList4 = Union[_Element, List[_Element]]  # noqa: UP006
    BroadcastingList5 = Union[_Element, List[_Element]]  # noqa: UP006
    BroadcastingList6 = Union[_Element, List[_Element]]  # noqa: UP006
else:
    BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _Broadcasting()
    BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1
