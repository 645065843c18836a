"""How the library was built, as text."""

from __future__ import annotations

import platform

from flambeau import _C, version
from flambeau.version import __version__


def show() -> str:
    """The build's settings, one line each."""
    cuda = f"CUDA {version.cuda}" if version.cuda else "no CUDA device"
    return f"flambeau {__version__} built with:\n  - C++17\n  - {platform.machine()}, {cuda}\n"


def parallel_info() -> str:
    return f"at_parallel_info:\n  intra-op threads: {_C.get_num_threads()}\n  backend: own thread pool\n"
