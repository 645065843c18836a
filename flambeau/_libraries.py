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


def locate() -> None:
    """Looks in the places where the wheels install; a library that is not there is searched for by the loader."""
    for name, (in_prefix, in_path) in _PLACES.items():
        candidates = [os.path.join(sys.prefix, place) for place in in_prefix]
        candidates += [os.path.join(folder, place) for place in in_path for folder in sys.path if folder]
        found = next((path for path in candidates if os.path.exists(path)), None)
        if found:
            _C._set_library_path(name, found)
