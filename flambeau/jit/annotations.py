"""Types for the annotations of TorchScript programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, TypeVar, Union  # noqa: F401, UP035

from flambeau import Tensor  # noqa: F401


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
