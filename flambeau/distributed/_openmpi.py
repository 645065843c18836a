"""Open MPI behind the names of MPI's standard ABI, which its versions up to 5 do not have.

A small library (`openmpi.c`) is built with Open MPI's `mpicc` when it is first needed, and kept where compiled kernels are. It is taken
under Open MPI's `mpirun`, when `FLAMBEAU_MPI` names an `mpicc`, and where no library with the standard ABI is found.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

__all__ = ["Renamed", "compiler", "is_asked_for", "open_library"]

_SOURCE = pathlib.Path(__file__).with_name("openmpi.c")


class Renamed:
    """The library's functions by MPI's own names."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, f"abi_{name}")
        setattr(self, name, function)
        return function


def is_asked_for() -> bool:
    """Whether Open MPI started this process, or a program names its compiler."""
    return "OMPI_COMM_WORLD_SIZE" in os.environ or _named() is not None


def _named() -> str | None:
    own = os.environ.get("FLAMBEAU_MPI", "")
    return own if pathlib.Path(own).name == "mpicc" else None


def _places() -> list[str | None]:
    """Where `mpicc` may be: as named, where Open MPI says it lies, beside the program that started this process, on the path."""
    prefixes = [os.environ.get(name) for name in ("OPAL_PREFIX", "MPI_HOME")]
    below = [str(pathlib.Path(prefix, "bin", "mpicc")) for prefix in prefixes if prefix]
    return [_named(), *below, _beside_parent(), shutil.which("mpicc")]


def _beside_parent() -> str | None:
    """`mpicc` in the folder of the program that started this process; `mpirun` starts its ranks itself on one host."""
    try:
        return os.path.join(os.path.dirname(os.readlink(f"/proc/{os.getppid()}/exe")), "mpicc")
    except OSError:
        return None


@functools.cache
def compiler() -> str | None:
    """Open MPI's `mpicc`, or None."""
    for place in _places():
        if place is None or not os.access(place, os.X_OK):
            continue
        shown = subprocess.run([place, "--showme:version"], capture_output=True, text=True)
        if "Open MPI" in shown.stdout + shown.stderr:
            return place
    return None


def open_library() -> Any:
    """The library, built if it is not there yet; None without Open MPI."""
    mpicc = compiler()
    if mpicc is None:
        return None
    return Renamed(ctypes.CDLL(str(_built(mpicc)), mode=ctypes.RTLD_GLOBAL))


def _built(mpicc: str) -> pathlib.Path:
    from flambeau._inductor.build import cache_dir

    shown = subprocess.run([mpicc, "--showme"], capture_output=True, text=True).stdout
    digest = hashlib.sha256(f"{shown} {_SOURCE.read_text()}".encode()).hexdigest()[:20]
    target = cache_dir() / f"openmpi-{digest}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            library = pathlib.Path(folder, "made.so")
            command = [mpicc, "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-o", str(library), str(_SOURCE)]
            ended = subprocess.run(command, capture_output=True, text=True)
            if ended.returncode:
                raise RuntimeError(
                    f"[init_process_group] expected {mpicc} to build {_SOURCE.name}, got:\n{ended.stderr}"
                )
            library.replace(target)  # ranks that build it at the same time write the same
    return target
