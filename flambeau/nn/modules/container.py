"""Containers of modules and parameters: Sequential, and lists and dicts whose items are registered."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections import abc as container_abcs
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import flambeau as fl
from flambeau._C import Tensor
from flambeau.nn.modules.module import Module, _addindent
from flambeau.nn.parameter import Parameter

__all__ = ["Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]


class Container(Module):
    """A module that holds the given modules by name.

    >>> nn.Container(head=nn.ReLU()).head
    ReLU()
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        for key, value in kwargs.items():
            self.add_module(key, value)


def _index(idx: Any, length: int, what: str) -> int:
    """A place counted from the start, of one that may be negative."""
    at = operator.index(idx)
    if not -length <= at < length:
        raise IndexError(f"[{what}] expected an index in [{-length}, {length}), got {at}")
    return at % length


class _ModuleSequence(Module):
    """What Sequential and ModuleList share: modules under the names "0", "1", …"""

    def _key_at(self, idx: Any) -> str:
        return next(islice(self._modules, _index(idx, len(self), type(self).__name__), None))

    def _renumber(self, modules: Iterable[Any]) -> None:
        modules = list(modules)
        self._modules.clear()
        for i, module in enumerate(modules):
            self._modules[str(i)] = module

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, module: Module) -> Any:
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        if not isinstance(module, Module):
            raise AssertionError(f"[{type(self).__name__}.insert] expected a Module, got {type(module).__name__}")
        count = len(self)
        if isinstance(self, Sequential) and not -count <= index <= count:
            raise IndexError(f"[Sequential.insert] expected an index in [{-count}, {count}], got {index}")
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        if not isinstance(modules, container_abcs.Iterable):
            raise TypeError(f"[{type(self).__name__}.extend] expected an iterable, got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: Any) -> Module:
        module = self[key]  # type: ignore[index]
        del self[key]
        return module


class Sequential(_ModuleSequence):
    """Modules called one after the other.

    - args: modules, or an ordered dict of them by name. Has the methods of a list: indexing, append, insert, extend.

    >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())(flambeau.randn(1, 2)).shape
    torch.Size([1, 3])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for key, module in args[0].items():
                self.add_module(key, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._key_at(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._key_at(idx), module)

    def __delitem__(self, idx: Any) -> None:
        if isinstance(idx, slice):
            for key in list(self._modules)[idx]:
                delattr(self, key)
        else:
            delattr(self, self._key_at(idx))
        self._renumber(self._modules.values())

    def __add__(self, other: Any) -> Sequential:
        return Sequential(*self, *self._checked(other, "add"))

    def __iadd__(self, other: Any) -> Sequential:
        return self.extend(self._checked(other, "add"))

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*(module for _ in range(self._times(other)) for module in self))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Sequential:
        return self.extend([module for _ in range(self._times(other) - 1) for module in self])

    @staticmethod
    def _checked(other: Any, what: str) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"[Sequential.{what}] expected a Sequential, got {type(other).__name__}")
        return other

    @staticmethod
    def _times(count: Any) -> int:
        if not isinstance(count, int):
            raise TypeError(f"[Sequential] expected an int to multiply by, got {type(count).__name__}")
        if count <= 0:
            raise ValueError(f"[Sequential] expected a positive int to multiply by, got {count}")
        return count

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_ModuleSequence):
    """Modules in a list, whose parameters are found.

    - modules: an iterable.

    >>> layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            items = list(self._modules.values())[idx]
            # A capture only walks over it, and does not make modules.
            return items if fl.compiler.is_compiling() else type(self)(items)
        return self._modules[self._key_at(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._key_at(idx), module)

    def __delitem__(self, idx: Any) -> None:
        keys = list(self._modules)[idx] if isinstance(idx, slice) else [self._key_at(idx)]
        for key in keys:
            delattr(self, key)
        self._renumber(self._modules.values())

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __repr__(self) -> str:
        """Runs of equal modules are shown once, with their number."""
        runs: list[list[Any]] = []
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        if not runs:
            return f"{self._get_name()}()"
        lines = []
        for first, last, text in runs:
            label = f"({first})" if first == last else f"({first}-{last})"
            lines.append(f"{label}: {_addindent(text if first == last else f'{last - first + 1} x {text}', 2)}")
        return "\n  ".join([f"{self._get_name()}(", *lines]) + "\n)"

    forward = Module.forward


class ModuleDict(Module):
    """Modules by name, whose parameters are found.

    - modules: a mapping, or pairs.

    >>> nn.ModuleDict({"relu": nn.ReLU()})["relu"]
    ReLU()
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        self._modules.clear()

    def pop(self, key: str) -> Module:
        return self._modules.pop(key)

    def keys(self) -> Any:
        return self._modules.keys()

    def items(self) -> Any:
        return self._modules.items()

    def values(self) -> Any:
        return self._modules.values()

    def get(self, key: str, default: Any = None) -> Any:
        return self._modules.get(key, default)

    def update(self, modules: Any) -> None:
        for key, module in _pairs("ModuleDict.update", modules):
            self[key] = module

    forward = Module.forward


def _pairs(what: str, items: Any) -> Iterable[tuple[Any, Any]]:
    """The items of a mapping or of an iterable of pairs."""
    if not isinstance(items, container_abcs.Iterable):
        raise TypeError(f"[{what}] expected an iterable of key/value pairs, got {type(items).__name__}")
    if isinstance(items, (Mapping, ModuleDict, ParameterDict)):
        return list(items.items())
    pairs = list(items)
    for i, pair in enumerate(pairs):
        if not isinstance(pair, container_abcs.Iterable):
            raise TypeError(f"[{what}] expected pairs, got {type(pair).__name__} at {i}")
        if len(pair) != 2:  # type: ignore[arg-type]
            raise ValueError(f"[{what}] expected pairs, got {len(pair)} items at {i}")  # type: ignore[arg-type]
    return pairs


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(value: Any, type_name: str = "") -> str:
    """A line of the repr of a list or dict of parameters."""
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.size()))
    where = "" if value.device.type == "cpu" else f" ({value.device})"
    return f"{kind} containing: [{type_name or value.dtype} of size {size}{where}]"


class ParameterList(Module):
    """Parameters in a list.

    - values: an iterable; tensors become parameters.

    >>> len(nn.ParameterList([flambeau.zeros(2), flambeau.zeros(3)]))
    2
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(self[i] for i in range(*idx.indices(len(self))))
        return getattr(self, str(_index(idx, len(self), "ParameterList")))

    def __setitem__(self, idx: int, param: Any) -> None:
        setattr(self, str(_index(idx, len(self), "ParameterList")), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> ParameterList:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, value: Any) -> ParameterList:
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        if not isinstance(values, container_abcs.Iterable) or isinstance(values, Tensor):
            raise TypeError(f"[ParameterList.extend] expected an iterable, got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_describe(value)}" for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("[ParameterList] expected to be indexed, got a call")


class ParameterDict(Module):
    """Parameters by name.

    - parameters: a mapping, or pairs; tensors become parameters.

    >>> list(nn.ParameterDict({"a": flambeau.zeros(2)}))
    ['a']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _attribute(key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(f"[ParameterDict] expected the key to be a string, got {type(key).__name__}")
        return key

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, self._attribute(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._attribute(key)
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> Any:
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        pairs = _pairs("ParameterDict.update", parameters)
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs = sorted(pairs, key=lambda pair: pair[0])  # the order in which optimizers and state dicts list them
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"  ({k}): {_describe(v, fl.typename(v))}" for k, v in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("[ParameterDict] expected to be indexed, got a call")

    def __or__(self, other: ParameterDict) -> ParameterDict:
        union = self.copy()
        union.update(other)
        return union

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        union = other.copy()
        union.update(self)
        return union

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self
