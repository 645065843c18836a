"""The fusing compiler: recorded operator calls become a few generated loops and library calls.

lower      calls -> loops over elements (arithmetic from the op records) and operator calls that stay as they are
schedule   loops -> groups that run as one kernel each
cpp        a group -> C++ source that holds for every size
build      sources -> a shared object, kept on disk by its content
printers   which of these a device has: cpp and build, or tiles, triton and triton_build on a GPU
plan       groups and calls -> the steps of a native program
compile_fx all of it, for each geometry of the inputs that a function meets
config     settings; stages shows each stage as text, verify holds it to its rules
"""

from __future__ import annotations

from typing import Any


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """What the modes of `compile` set, or one of them."""
    from flambeau._inductor import config

    return config.MODES if mode is None else config.MODES[mode]


def list_options() -> list[str]:
    """The names that `compile(..., options={...})` takes."""
    from flambeau._inductor import config

    return list(config._options())


def __getattr__(name: str) -> Any:
    from importlib import import_module

    from flambeau._compat import absent

    try:
        return absent.attribute(__name__, name)
    except AttributeError:
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
