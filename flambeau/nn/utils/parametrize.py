"""Parametrisations: a parameter computed by modules from another, each time it is read.

`register_parametrization` moves a parameter into `module.parametrizations.<name>.original` and puts a property of its
name on a class made for this module, which computes the value. Inside `cached()` it is computed once.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip

_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Inside the block each parametrised tensor is computed once."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register_parameter_or_buffer(module: Module, name: str, X: Any) -> None:
    if isinstance(X, Parameter):
        module.register_parameter(name, X)
    else:
        module.register_buffer(name, X)


def _maybe_set(dest: Tensor, src: Tensor) -> None:
    """Gives a tensor the value of another, keeping the object."""
    with fl.no_grad():
        if dest.shape == src.shape and dest.dtype == src.dtype:
            dest.copy_(src)
        else:
            dest.data = src


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor, applied in turn to `original` (or original0, original1, ...)."""

    original: Tensor
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor | Parameter, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("[ParametrizationList] expected at least one parametrization, got none")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with fl.no_grad():
            new: Any = original
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):  # the parameter itself is then the original
                        new = module.right_inverse(new)
        if not isinstance(new, Tensor) and not isinstance(new, Sequence):
            raise ValueError(
                f"[ParametrizationList] expected right_inverse to return a tensor or several, got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype != new.dtype:  # type: ignore[union-attr]
                raise ValueError(
                    f"[ParametrizationList] expected right_inverse to keep the dtype {original.dtype}, got {new.dtype}"  # type: ignore[union-attr]
                )
            # The object stays: optimizers hold it.
            with fl.no_grad():
                _maybe_set(original, new)  # type: ignore[arg-type]
            _register_parameter_or_buffer(self, "original", original)
        else:
            for place, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        f"[ParametrizationList] expected right_inverse to return tensors, got {type(part).__name__}"
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                part.requires_grad_(original.requires_grad)
                _register_parameter_or_buffer(self, f"original{place}", part)
        if not unsafe:
            value = self()
            if not isinstance(value, Tensor):
                raise ValueError(f"[ParametrizationList] expected a tensor, got {type(value).__name__}")
            if value.dtype != dtype or value.shape != shape:
                raise ValueError(
                    f"[ParametrizationList] expected a parametrization that keeps shape {tuple(shape)} and dtype {dtype}, "
                    f"got {tuple(value.shape)} and {value.dtype}; pass unsafe=True to allow it"
                )

    def right_inverse(self, value: Tensor) -> None:
        """Sets the originals so that the parametrised tensor becomes `value`."""
        with fl.no_grad():
            new: Any = value
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"[right_inverse] expected {type(module).__name__} to define right_inverse, which it does not"
                    )
                new = module.right_inverse(new)
            if self.is_tensor:
                if not isinstance(new, Tensor):
                    raise ValueError(f"[right_inverse] expected a tensor, got {type(new).__name__}")
                if value.dtype != new.dtype:
                    raise ValueError(f"[right_inverse] expected the dtype {value.dtype} to be kept, got {new.dtype}")
                _maybe_set(self.original, new)
                return
            if not isinstance(new, Sequence) or len(new) != self.ntensors:
                raise ValueError(f"[right_inverse] expected {self.ntensors} tensors, got {type(new).__name__}")
            for place, part in enumerate(new):
                own = getattr(self, f"original{place}")
                if own.dtype != part.dtype:
                    raise ValueError(f"[right_inverse] expected the dtype {own.dtype} to be kept, got {part.dtype}")
                _maybe_set(own, part)

    def forward(self) -> Tensor:
        if self.is_tensor:
            value = self[0](self.original)
        else:
            value = self[0](*(getattr(self, f"original{place}") for place in range(self.ntensors)))
        for place in range(1, len(self)):
            value = self[place](value)
        return value


def _inject_new_class(module: Module) -> None:
    """Gives a module a class of its own, on which properties can be set."""
    cls = module.__class__

    def default_deepcopy(self: Module, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        replica = self.__new__(self.__class__)
        memo[id(self)] = replica
        replica.__dict__ = deepcopy(self.__dict__, memo)
        slots = copyreg._slotnames(self.__class__)
        for slot in slots:
            if hasattr(self, slot):
                setattr(replica, slot, deepcopy(getattr(self, slot), memo))
        return replica

    def getstate(self: Module) -> Any:
        raise RuntimeError(
            "[pickle] expected a state dict of a parametrized module, got the module: its class exists only here; save "
            "state_dict() instead"
        )

    members: dict[str, Any] = {"__getstate__": getstate}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = default_deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Module, tensor_name: str) -> None:
    """Puts a property of the tensor's name on the module's own class."""

    def computed(self: Module) -> Tensor:
        if not _cache_enabled:
            return self.parametrizations[tensor_name]()
        key = (id(self), tensor_name)
        if (cached := _cache.get(key)) is None:
            _cache[key] = cached = self.parametrizations[tensor_name]()
        return cached

    def assign(self: Module, value: Tensor) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(module.__class__, tensor_name, property(computed, assign))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Computes a parameter or buffer of a module by another module from now on."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            if not isinstance(after, Tensor):
                raise ValueError(f"[register_parametrization] expected a tensor, got {type(after).__name__}")
            if after.dtype != before.dtype or after.shape != before.shape:
                raise ValueError(
                    f"[register_parametrization] expected shape {tuple(before.shape)} and dtype {before.dtype} to be kept, "
                    f"got {tuple(after.shape)} and {after.dtype}; pass unsafe=True to allow it"
                )
            if hasattr(parametrization, "right_inverse"):
                try:
                    back = parametrization.right_inverse(after)
                except NotImplementedError:
                    back = None
                if back is not None and (back.shape != before.shape or back.dtype != before.dtype):
                    raise ValueError(
                        f"[register_parametrization] expected right_inverse to lead back to shape {tuple(before.shape)} and "
                        f"dtype {before.dtype}, got {tuple(back.shape)} and {back.dtype}"
                    )
        chain = module.parametrizations[tensor_name]
        chain.append(parametrization)
        chain.unsafe = chain.unsafe or unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ValueError(
            f"[register_parametrization] expected a parameter or buffer {tensor_name!r}, got none in {type(module).__name__}"
        )
    original = getattr(module, tensor_name)
    chain = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _inject_new_class(module)
        module.parametrizations = ModuleDict()
    _inject_property(module, tensor_name)
    module.parametrizations[tensor_name] = chain
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrisations, or one of a given tensor."""
    chains = getattr(module, "parametrizations", None)
    if chains is None or not isinstance(chains, ModuleDict):
        return False
    return len(chains) > 0 if tensor_name is None else tensor_name in chains


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes a tensor a plain one again, with its parametrised value or else its original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"[remove_parametrizations] expected a parametrization of {tensor_name!r}, got none")
    chain = module.parametrizations[tensor_name]
    if chain.is_tensor:
        original = chain.original
        if leave_parametrized:
            with fl.no_grad():
                _maybe_set(original, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "[remove_parametrizations] expected leave_parametrized=True for a tensor computed from several, got False"
        )
    delattr(module.__class__, tensor_name)
    del module.parametrizations[tensor_name]
    _register_parameter_or_buffer(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = module.__class__.__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class a module had before it was parametrised."""
    return module.__class__.__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Gives a module the parametrisations, and the parameters they start from, of another."""
    if not is_parametrized(from_module):
        return to_module
    chains = from_module.parametrizations
    if not isinstance(chains, ModuleDict):
        raise AssertionError(
            f"[transfer_parametrizations_and_params] expected a ModuleDict, got {type(chains).__name__}"
        )
    names = list(chains) if tensor_name is None else [tensor_name]
    for name in names:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in chains[name]:
            register_parametrization(to_module, name, parametrization)
        if hasattr(chains[name], "original"):
            to_module.parametrizations[name].original = chains[name].original
        else:
            place = 0
            while hasattr(chains[name], part := f"original{place}"):
                setattr(to_module.parametrizations[name], part, getattr(chains[name], part))
                place += 1
    return to_module
