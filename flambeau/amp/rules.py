"""Which precision operators run in while autocast is on, by type of device.

The rules are on the op records (`record.autocast`) and hold for what makes new tensors. Operators without a rule run in the
dtype of their arguments, and composite ones are seen as the operators they consist of.
"""

from __future__ import annotations

from flambeau import _C

_installed: set[str] = set()


def install(device_type: str) -> None:
    """Give the operators their rules, once; devices from outside follow those of accelerators."""
    if device_type not in _installed:
        _installed.add(device_type)
        _C._install_autocast_rules(device_type)
