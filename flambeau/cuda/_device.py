"""What serves operators that have no CUDA kernel: their definitions by other operators. There is no silent detour over
the CPU: an operator without a definition raises NotImplementedError. Imported when the CUDA library is opened.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from flambeau import _C
from flambeau.backends import RegisteredDevice, registered


def _library_folders() -> list[str]:
    """Where packages of NVIDIA's libraries (cuBLAS, cuDNN) put them."""
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [str(folder) for place in places for folder in sorted(Path(place).glob("*/lib"))]


os.environ.setdefault("FLAMBEAU_CUDA_LIBRARY_PATH", ":".join(_library_folders()))

device = RegisteredDevice("cuda", _C._device_key("cuda"), False, host_draws=True)
registered["cuda"] = device
