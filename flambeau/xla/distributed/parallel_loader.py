"""Data loaders whose batches come on the device, with a step after each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from flambeau import xla
from flambeau.xla.core import xla_model as xm

__all__ = ["MpDeviceLoader", "ParallelLoader", "PerDeviceLoader"]


class PerDeviceLoader:
    """The batches of a loader on one device. A step ends with each batch, where `batches_per_execution` were taken."""

    def __init__(self, loader: Iterable[Any], device: Any, batches_per_execution: int = 1) -> None:
        if batches_per_execution < 1:
            raise ValueError(
                f"[PerDeviceLoader] expected at least one batch for each execution, got {batches_per_execution}"
            )
        self._loader, self._device, self._each = loader, device, batches_per_execution

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self._loader, 1):
            yield xm.send_cpu_data_to_device(batch, self._device)
            if number % self._each == 0:
                xla.sync()
        xla.sync()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]


class ParallelLoader:
    """A loader for several devices; a process has one here."""

    def __init__(
        self, cpu_loader: Iterable[Any], devices: Sequence[Any], batches_per_execution: int = 1, **_: Any
    ) -> None:
        self._loader, self._devices, self._each = cpu_loader, list(devices), batches_per_execution

    def per_device_loader(self, device: Any) -> PerDeviceLoader:
        if device not in self._devices:
            raise ValueError(f"[ParallelLoader] expected one of {self._devices}, got {device}")
        return PerDeviceLoader(self._loader, device, self._each)

    def close(self) -> None:
        """Nothing is loaded ahead."""


class MpDeviceLoader:
    """A loader whose batches come on the device."""

    def __init__(self, loader: Any, device: Any, batches_per_execution: int = 1, **_: Any) -> None:
        self._loader, self._device, self._each = loader, device, batches_per_execution

    def __iter__(self) -> Iterator[Any]:
        return iter(PerDeviceLoader(self._loader, self._device, self._each))

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)
