"""The names programs use to set up the device behind the dispatch key PrivateUse1. `backends.register_device` is the
seam underneath, and needs none of this."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import backends

__all__ = ["rename_privateuse1_backend", "generate_methods_for_privateuse1_backend"]


def rename_privateuse1_backend(backend_name: str) -> None:
    """Give the device behind PrivateUse1 its name."""
    backends.rename_privateuse1_backend(backend_name)


def generate_methods_for_privateuse1_backend(
    for_tensor: bool = True,
    for_module: bool = True,
    for_packed_sequence: bool = True,
    for_storage: bool = False,
    unsupported_dtype: list[Any] | None = None,
) -> None:
    """Add `x.<name>()` and `x.is_<name>` to tensors and packed sequences and `m.<name>()` to modules, as devices built in
    have them."""
    name = backends.private_use_name()
    refused = frozenset(unsupported_dtype or ())

    def to_device(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        place = (
            flambeau.device(name)
            if device is None
            else flambeau.device(name, device)
            if isinstance(device, int)
            else device
        )
        return self.to(device=place, non_blocking=non_blocking, **kwargs)

    def storage_to_device(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        if getattr(self, "dtype", None) in refused:
            raise RuntimeError(f"[{name}] expected a storage of a dtype that the device has, got {self.dtype}")
        return to_device(self, device, non_blocking)

    def module_to_device(self: Any, device: Any = None) -> Any:
        return self._apply(lambda t: to_device(t, device))

    to_device.__name__ = module_to_device.__name__ = name
    to_device.__doc__ = f"A copy on the device {name}, or the tensor itself when it is there."
    module_to_device.__doc__ = f"Moves all parameters and buffers to the device {name}."
    targets = []
    if for_tensor:
        targets.append((flambeau.Tensor, name, to_device))
        targets.append((flambeau.Tensor, f"is_{name}", property(lambda self: self.device.type == name)))
    if for_module and hasattr(flambeau.nn, "Module"):
        targets.append((flambeau.nn.Module, name, module_to_device))
    if for_packed_sequence:
        packed = flambeau.nn.utils.rnn.PackedSequence
        targets.append((packed, name, to_device))
        targets.append((packed, f"is_{name}", property(lambda self: self.data.device.type == name)))
    if for_storage:
        for storage in (flambeau.UntypedStorage, flambeau.TypedStorage):
            targets.append((storage, name, storage_to_device))
            targets.append((storage, f"is_{name}", property(lambda self: self.device.type == name)))
    for cls, attribute, value in targets:
        if hasattr(cls, attribute):
            raise RuntimeError(
                f"[generate_methods_for_privateuse1_backend] expected a new attribute, got {cls.__name__}.{attribute}, "
                f"which exists. The custom device module of {name} has its methods already"
            )
        setattr(cls, attribute, value)


def _get_custom_mod_func(func_name: str) -> Any:
    """A function of the module of the device behind PrivateUse1, by its name."""
    name = backends.private_use_name()
    function = getattr(backends.registered[name].module, func_name, None)
    if function is None:
        raise RuntimeError(
            f"[_get_custom_mod_func] expected a function of torch.{name}, got {func_name!r}. Try to call torch.{name}.{func_name} "
            "after the module has one"
        )
    return function
