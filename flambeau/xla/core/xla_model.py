"""The functions of torch_xla.core.xla_model: devices, steps and optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import flambeau as fl
from flambeau import xla

__all__ = [
    "get_ordinal", "get_xla_supported_devices", "is_master_ordinal", "mark_step", "master_print", "optimizer_step", "save",
    "wait_device_ops", "xla_device", "xla_device_hw", "xrt_world_size",
]  # fmt: skip


def xla_device(n: int | None = None, devkind: str | None = None) -> Any:
    """The XLA device."""
    return xla.device(n)


def get_xla_supported_devices(devkind: str | None = None, max_devices: int | None = None) -> list[str]:
    return ["xla"]


def xla_device_hw(device: Any) -> str:
    """The kind of hardware behind the device."""
    return xla.engine.platform().upper()


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs what has been recorded."""
    xla.sync(wait)


def wait_device_ops(devices: Iterable[Any] = ()) -> None:
    xla.sync(True)


def optimizer_step(
    optimizer: Any, barrier: bool = False, optimizer_args: dict[str, Any] | None = None, groups: Any = None,
    pin_layout: bool = True,
) -> Any:  # fmt: skip
    """A step of an optimizer; with `barrier` it runs at once. Gradients of other processes are the program's matter."""
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


def get_ordinal() -> int:
    return 0


def xrt_world_size() -> int:
    return 1


def is_master_ordinal(local: bool = True) -> bool:
    return True


def master_print(*args: Any, **kwargs: Any) -> None:
    print(*args, **kwargs)


def save(data: Any, file_or_path: Any, master_only: bool = True, global_master: bool = False) -> None:
    """Saves tensors of the device as tensors of the host."""
    from flambeau.utils._pytree import tree_map

    fl.save(tree_map(lambda t: t.cpu() if isinstance(t, fl.Tensor) else t, data), file_or_path)
