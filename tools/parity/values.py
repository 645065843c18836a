"""Values of PyTorch as values of another library with its API, and results of that library as PyTorch's."""

from __future__ import annotations

import dataclasses
import importlib
import types
from typing import Any

import numpy as np
import torch

TEST_DEFINITIONS = ("torch.testing._internal", "torch.testing._utils")


class Untranslatable(Exception):
    """An argument has no counterpart: the sample is left out."""


def find(root: Any, path: str) -> Any:
    """What a dotted path leads to, or None; modules are imported on the way."""
    for part in path.split("."):
        try:
            following = getattr(root, part, None)
            if following is None and isinstance(root, types.ModuleType):
                following = importlib.import_module(f"{root.__name__}.{part}")
        except ImportError:
            return None
        root = following
    return root


def from_test_definitions(value: Any) -> bool:
    return isinstance(value, types.FunctionType) and str(value.__module__).startswith(TEST_DEFINITIONS)


def _names(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def rebound(function: Any, library: Any) -> Any:
    """A function of PyTorch's test definitions that reaches for the library where it says torch, and sets no seed."""
    if not from_test_definitions(function):
        return function
    if function.__name__ == "wrapper_set_seed":  # random results are known by differing from call to call
        return lambda op, *args, **kwargs: op(*args, **kwargs)
    names = dict(function.__globals__)
    for name in _names(function.__code__) & names.keys():
        value = names[name]
        if value is torch:
            names[name] = library
        elif isinstance(value, types.ModuleType) and value.__name__.startswith("torch."):
            names[name] = find(library, value.__name__.removeprefix("torch."))
        elif value is not function:
            names[name] = rebound(value, library)
    cells = tuple(types.CellType(rebound(cell.cell_contents, library)) for cell in function.__closure__ or ())
    copy = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def short(name: Any) -> str:
    """float32 for torch.float32."""
    return str(name).rpartition(".")[2]


class Translator:
    """Rebuilds arguments with the tensors of a library; the same tensor twice is the same tensor there."""

    def __init__(self, library: Any, device: str = "cpu") -> None:
        self.library, self.device = library, device
        self.leaves: list[Any] = []  # tensors that want a gradient
        self._seen: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        library = self.library
        if isinstance(value, torch.Tensor):
            if id(value) not in self._seen:
                self._seen[id(value)] = self._tensor(value)
            return self._seen[id(value)]
        if isinstance(value, torch.Size):
            return library.Size(tuple(value))
        if isinstance(value, (list, tuple)):
            parts = [self(part) for part in value]
            return parts if isinstance(value, list) else tuple(parts)
        if isinstance(value, dict):
            named = {name: self(part) for name, part in value.items()}
            return named | ({"device": self.device} if named.get("device") is not None else {})
        if isinstance(value, slice):
            return slice(self(value.start), self(value.stop), self(value.step))
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return getattr(library, short(value))
        if isinstance(value, torch.device):
            return library.device(self.device)
        return self._other(value)

    def _other(self, value: Any) -> Any:
        """Functions, modules without parameters and records of options."""
        if library_function := from_test_definitions(value):
            return rebound(value, self.library) if library_function else value
        kind = type(value)
        if isinstance(value, torch.nn.Module) and not list(value.parameters()):
            return getattr(self.library.nn, kind.__name__)()
        if dataclasses.is_dataclass(value) and hasattr(torch.nn, kind.__name__):
            fields = {field.name: self(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return getattr(self.library.nn, kind.__name__)(**fields)
        if kind.__module__.startswith("torch"):
            raise Untranslatable(f"an argument of type {kind.__name__}")
        if callable(value) and str(getattr(value, "__module__", "")).startswith("torch"):
            return find(self.library, f"{value.__module__}.{value.__name__}".partition(".")[2])
        return value

    def _tensor(self, source: torch.Tensor) -> Any:
        """The same dtype, sizes, strides, offset and memory around it."""
        if source.layout is not torch.strided or source.is_quantized:
            raise Untranslatable(f"a tensor of layout {source.layout}")
        plain = source.detach().resolve_conj().resolve_neg()
        memory = plain.untyped_storage().nbytes() // plain.element_size()
        dense = plain.is_contiguous() and plain.numel() == memory
        flat = plain if dense else plain.as_strided((memory,), (1,), 0)
        if self.device == "cpu":
            tensor = self._from_numpy(flat)
        else:
            tensor = self.library.empty(
                tuple(flat.shape), dtype=getattr(self.library, short(flat.dtype)), device=self.device
            )
        if not dense:
            tensor = self.library.as_strided(tensor, tuple(plain.shape), plain.stride(), plain.storage_offset())
        if source.requires_grad:
            tensor = tensor.detach().requires_grad_()
            self.leaves.append(tensor)
        return tensor

    def _from_numpy(self, tensor: torch.Tensor) -> Any:
        library = self.library
        if tensor.dtype is torch.bfloat16:
            return library.from_numpy(tensor.view(torch.int16).numpy().copy()).view(library.bfloat16)
        try:
            return library.from_numpy(tensor.numpy().copy())
        except TypeError:
            raise Untranslatable(f"a tensor of {tensor.dtype}") from None

    def constant(self, array: np.ndarray, dtype: str) -> Any:
        """An array as a tensor that wants no gradient."""
        return self._from_numpy(torch.from_numpy(np.ascontiguousarray(array)).to(getattr(torch, dtype)))


def flat(value: Any) -> list[Any]:
    """The tensors and numbers of a nested result, in order."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in flat(part)]
    return [value]


def to_torch(value: Any, library: Any) -> Any:
    """A tensor of the library as one of PyTorch; anything else as it is."""
    if library is torch or not isinstance(value, library.Tensor):
        return value.detach().clone() if isinstance(value, torch.Tensor) else value
    dtype = getattr(torch, short(value.dtype))
    if value.device.type == "meta":
        return torch.empty(tuple(value.shape), dtype=dtype, device="meta")
    value = value.detach().clone().resolve_conj().resolve_neg()
    if dtype is torch.bfloat16:
        return torch.from_numpy(np.array(value.contiguous().view(library.int16).numpy())).view(dtype)
    if dtype is torch.complex32:  # which NumPy has not
        value = value.to(library.complex64)
    return torch.from_numpy(np.array(value.numpy())).to(dtype)
