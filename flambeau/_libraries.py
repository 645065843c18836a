"""Tells the native core where pip put the libraries it opens at first use: oneDNN and OpenBLAS (LAPACK)."""

from __future__ import annotations

import os
import sys

from flambeau import _C

# Library name: paths relative to the environment and to each folder of sys.path.
_PLACES = {
    "dnnl": (("lib/libdnnl.so.3",), ()),
    "openblas": ((), ("scipy_openblas32/lib/libscipy_openblas.so",)),
}


def path(name: str) -> str | None:
    """Where the wheel of a library installed it; None if it is not there."""
    in_prefix, in_path = _PLACES[name]
    candidates = [os.path.join(sys.prefix, place) for place in in_prefix]
    candidates += [os.path.join(folder, place) for place in in_path for folder in sys.path if folder]
    return next((candidate for candidate in candidates if os.path.exists(candidate)), None)


def locate() -> None:
    """Names the places to the core; a library that is in none of them is searched for by the loader."""
    for name in _PLACES:
        if place := path(name):
            _C._set_library_path(name, place)
