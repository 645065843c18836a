"""Types for the annotations of TorchScript programs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401, UP035

from flambeau import Tensor  # noqa: F401


class _Broadcasting:
    """`BroadcastingList2[int]`: one number or a list of them."""

    def __getitem__(self, item: Any) -> Any:
        return Union[item, List[item]]  # noqa: UP006


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _Broadcasting()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingList1
