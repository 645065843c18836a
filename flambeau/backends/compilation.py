"""What connects printers of registered devices with compile(): the compiler, above this layer, asks here."""

from __future__ import annotations

from typing import Any

__all__ = ["announce", "printers"]

printers: dict[str, Any] = {}  # by the name of the device: a KernelPrinter


def announce(name: str, printer: Any) -> None:
    """From now on compile() prints kernels for the device."""
    printers[name] = printer
