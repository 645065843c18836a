"""flambeau: PyTorch's public API over an engine of its own.

The names of this module come from three places: the native module (`_C`: Tensor, dtypes, and every operator of the
op records, installed from the generated table), `functional.py` (functions that are not operators), and the
subpackages, which are imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from flambeau import _C, _libraries
from flambeau._C import *  # noqa: F403
from flambeau._C import Size, Tensor, device, dtype, layout, memory_format  # noqa: F401
from flambeau.version import __version__  # noqa: F401

float = _C.float32  # noqa: A001
double = _C.float64
half = _C.float16
int = _C.int32  # noqa: A001
long = _C.int64
short = _C.int16
bool = _C.bool  # noqa: A001
cfloat = _C.complex64
cdouble = _C.complex128

_LAZY = ("linalg", "special", "fft", "nn", "optim", "utils", "autograd", "random", "testing", "overrides", "library", "ops", "backends", "types")


def _operator_module(name: str) -> ModuleType:
    """The module that holds the operators of a group; made empty when the package has no file for it yet."""
    if not name:
        return sys.modules[__name__]
    full = f"{__name__}.{name}"
    if full not in sys.modules:
        try:
            importlib.import_module(full)
        except ModuleNotFoundError:
            parent, _, leaf = full.rpartition(".")
            module = ModuleType(full)
            sys.modules[full] = module
            _operator_module(parent[len(__name__) + 1 :])
            setattr(sys.modules[parent], leaf, module)
    return sys.modules[full]


_C._install(_operator_module, Tensor)
_libraries.locate()

from flambeau import _tensor  # noqa: E402
from flambeau._tensor import *  # noqa: E402,F403
from flambeau.random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state  # noqa: E402,F401
from flambeau.functional import *  # noqa: E402,F403


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'flambeau' has no attribute {name!r}")
