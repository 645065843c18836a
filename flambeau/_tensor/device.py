"""The device of new tensors when none is named: `set_default_device` and `with device(...):`.

The native argument parser fills it in for every function that makes tensors; it belongs to the thread.
"""

from __future__ import annotations

from flambeau import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_entered: list[Any] = []  # what to go back to, for each `with` block


def set_default_device(device: Any) -> None:
    """Make new tensors on this device from now on; None means the CPU.

    >>> flambeau.set_default_device("cpu")
    >>> flambeau.set_default_device(None)
    """
    _C._set_default_device(device)


def get_default_device() -> Any:
    """The device on which tensors are made when none is named.

    >>> flambeau.get_default_device()
    device(type='cpu')
    """
    return canonical(_C._get_default_device() or _C.device("cpu"))


def canonical(device: Any) -> Any:
    """The device that tensors made with this one say they are on: "cuda" is the current device."""
    device = _C.device(device)
    if device.type == "cuda" and device.index is None:
        import flambeau as fl

        if fl.cuda.is_available():
            return _C.device("cuda", fl.cuda.current_device())
    return device


def enter(device: Any) -> Any:
    """`with device:`"""
    _entered.append(_C._set_default_device(device))
    return device


def exit(device: Any, *exception: Any) -> None:
    _C._set_default_device(_entered.pop())


def decorate(device: Any, function: Any) -> Any:
    """`@device` over a function: calls run with the device as default."""
    import functools

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with device:
            return function(*args, **kwargs)

    return wrapped
