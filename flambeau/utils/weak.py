"""Dictionaries whose keys are tensors by identity, kept only while the tensors live."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary", "WeakTensorRefKey"]


class WeakIdRef(weakref.ref):
    """A weak reference that equals another when both are to the same object."""

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, WeakIdRef) and self._id == other._id and self() is other())


class WeakIdKeyDictionary(MutableMapping):
    """Keys by identity; an entry goes when its key does."""

    def __init__(self, dict: Any = None, ref_type: type = WeakIdRef) -> None:
        self.data: dict[Any, Any] = {}
        self.ref_type = ref_type
        own = weakref.ref(self)

        def remove(reference: Any) -> None:
            table = own()
            if table is not None:
                table.data.pop(reference, None)

        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:
            return False

    def __iter__(self) -> Iterator[Any]:
        for reference in list(self.data):
            if (key := reference()) is not None:
                yield key

    def __len__(self) -> int:
        return len(self.data)


WeakTensorRefKey = WeakIdRef
WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Any) -> None:
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Any:
        return self.ref()
