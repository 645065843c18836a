"""Batches from samples: samples of one structure become one structure of tensors."""

from __future__ import annotations

import collections.abc
import copy
import re
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau._C import Tensor
from flambeau._tensor import beside_torch

np_str_obj_array_pattern = re.compile(r"[SaUO]")


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def default_convert(data: Any) -> Any:
    """Arrays inside of containers as tensors.

    - data: an array, or containers of them.

    >>> import numpy
    >>> flambeau.utils.data.default_convert([numpy.zeros(2)])
    [tensor([0., 0.], dtype=torch.float64)]
    """
    kind = type(data)
    if isinstance(data, Tensor):
        return data
    if _is_array(data):
        if kind.__name__ == "ndarray" and np_str_obj_array_pattern.search(data.dtype.str):
            return data
        return flambeau.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _rebuild_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _rebuild_sequence(data, [default_convert(d) for d in data])
    return data


def _rebuild_mapping(model: Any, values: dict[Any, Any]) -> Any:
    """A mapping of the class of another, where the class can be made so."""
    if type(model) is dict:
        return values
    try:
        if isinstance(model, collections.abc.MutableMapping):
            clone = copy.copy(model)
            clone.update(values)
            return clone
        return type(model)(values)
    except TypeError:
        return values


def _rebuild_sequence(model: Any, values: list[Any]) -> Any:
    if type(model) is list:
        return values
    try:
        if isinstance(model, collections.abc.MutableSequence):
            clone = copy.copy(model)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(model)(values)
    except TypeError:
        return values


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """One structure from a list of samples; the map says how to join leaves of a type."""
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        for known, function in collate_fn_map.items():
            if isinstance(first, known):
                return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, collections.abc.Mapping):
        joined = {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in first}
        return _rebuild_mapping(first, joined)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        columns = zip(*batch, strict=True)
        return kind(*(collate(column, collate_fn_map=collate_fn_map) for column in columns))
    if isinstance(first, collections.abc.Sequence):
        length = len(first)
        if any(len(sample) != length for sample in batch):
            raise RuntimeError(
                f"[default_collate] expected samples of equal length, got lengths {sorted({len(s) for s in batch})}; "
                "pad them in the dataset or in collate_fn"
            )
        joined = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=True)]  # type: ignore[assignment]
        return joined if isinstance(first, tuple) else _rebuild_sequence(first, joined)  # type: ignore[arg-type]
    raise TypeError(
        "[default_collate] expected a batch of tensors, arrays, numbers, strings, dicts or sequences, got "
        f"{beside_torch.named(first)}; pass collate_fn to join samples of this type"
    )


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    first = batch[0]
    if first.layout is not flambeau.strided:
        raise RuntimeError(f"[default_collate] expected dense tensors, got layout {first.layout}")
    try:
        return flambeau.stack(batch, 0)
    except RuntimeError:
        shapes = sorted({tuple(sample.shape) for sample in batch})
        if len(shapes) == 1:
            raise
        raise RuntimeError(
            f"[default_collate] expected samples of one shape, got {', '.join(map(str, shapes))}; pad or resize them in "
            "the dataset, or pass collate_fn: stack expects each tensor to be equal size"
        ) from None


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    first = batch[0]
    if np_str_obj_array_pattern.search(first.dtype.str) is not None:
        raise TypeError(f"[default_collate] expected arrays of numbers, got dtype {first.dtype}")
    return collate([flambeau.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    return flambeau.as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    return flambeau.tensor(batch, dtype=flambeau.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    return flambeau.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensor_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
_numpy_known = False


def _learn_numpy() -> None:
    """NumPy's types join the map once someone has imported NumPy."""
    global _numpy_known
    import sys

    numpy = sys.modules.get("numpy")
    if numpy is not None:
        default_collate_fn_map[numpy.ndarray] = collate_numpy_array_fn
        default_collate_fn_map[(numpy.bool_, numpy.number, numpy.object_)] = collate_numpy_scalar_fn
        _numpy_known = True


def default_collate(batch: Any) -> Any:
    """Items joined into a batch: tensors, arrays and numbers are stacked, containers item by item.

    - batch: a list of items.

    >>> flambeau.utils.data.default_collate([{"x": 1}, {"x": 2}])
    {'x': tensor([1, 2])}
    """
    if not _numpy_known:
        _learn_numpy()
    return collate(batch, collate_fn_map=default_collate_fn_map)
