"""The bases of chained datasets, and the registration of steps as their methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from flambeau.utils.data.dataset import Dataset, IterableDataset


class _Pipe:
    """Steps that were registered are methods."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        for kind in type(self).__mro__:
            steps = kind.__dict__.get("functions")
            if steps and name in steps:
                return functools.partial(steps[name], self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        if function_name in cls.functions:
            raise Exception(f"[datapipe] expected a new name for a step, got {function_name!r}, which is taken")
        cls.functions[function_name] = lambda source, *args, **kwargs: cls_to_register(source, *args, **kwargs)

    def reset(self) -> None: ...


class IterDataPipe(_Pipe, IterableDataset[Any]):
    """A stream with steps."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class DFIterDataPipe(IterDataPipe):
    """A stream of data frames."""


class MapDataPipe(_Pipe, Dataset[Any]):
    """Samples by index, with steps."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class DataChunk(list):
    """A batch of samples."""

    def __init__(self, items: Iterable[Any]) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        return f"{indent}[{', '.join(str(item) for item in self)}]"

    def raw_iterator(self) -> Iterator[Any]:
        yield from self.items


def functional_datapipe(name: str, enable_df_api_tracing: bool = False) -> Callable[[Any], Any]:
    """Registers a class of pipes as a method of the others."""

    def register(cls: Any) -> Any:
        base = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe
        if not issubclass(cls, base):
            raise TypeError(f"[functional_datapipe] expected a class of pipes, got {cls!r}")
        base.register_datapipe_as_function(name, cls)
        return cls

    return register
