"""Types of tensors with some sizes known, for annotations that passes read."""

from __future__ import annotations

from typing import Any


class _DynType:
    """A size or type that is not known."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DynType)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Dyn"


Dyn = _DynType()


class TensorType:
    """The type of tensors of given sizes: `TensorType((2, Dyn, 3))`."""

    def __init__(self, dim: Any) -> None:
        self.__origin__ = TensorType
        self.__args__ = dim

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and list(self.__args__) == list(other.__args__)

    def __hash__(self) -> int:
        return hash(tuple(self.__args__))

    @staticmethod
    def __class_getitem__(*args: Any) -> TensorType:
        return TensorType(args[0])


def is_consistent(t1: Any, t2: Any) -> bool:
    """Whether two types can describe one value."""
    if t1 in (t2, Dyn) or t2 == Dyn:
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        same = len(t1.__args__) == len(t2.__args__)
        return same and all(is_consistent(a, b) for a, b in zip(t1.__args__, t2.__args__))
    return False
