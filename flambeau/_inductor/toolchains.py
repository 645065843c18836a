"""Compilers for other processors than this one's: what packages and self-contained models for them are built with."""

from __future__ import annotations

import os
import platform
import shutil
from typing import NamedTuple

from flambeau._inductor import build

__all__ = ["NATIVE", "TARGETS", "Toolchain", "toolchain"]


class Toolchain(NamedTuple):
    """A compiler with the binary tools that belong to it."""

    target: str
    compiler: str
    nm: str
    march: str
    flags: tuple[str, ...] = ()  # of all sources
    without: tuple[str, ...] = ()  # flags that its compiler does not know


NATIVE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())

# Half precision is __fp16 in C++ until GCC 13, which knows both names.
_AARCH64 = Toolchain(
    "aarch64",
    "aarch64-linux-gnu-g++",
    "aarch64-linux-gnu-nm",
    "armv8-a",
    flags=("-D_Float16=__fp16",),
    without=("-mprefer-vector-width=512",),
)
TARGETS = {"aarch64": _AARCH64}


def toolchain(target: str) -> Toolchain:
    """The compiler for a target. FLAMBEAU_CXX_AARCH64 names another one."""
    if target not in TARGETS:
        raise ValueError(f"[package] expected a target among {', '.join(TARGETS)}, got {target!r}")
    known = TARGETS[target]
    named = os.environ.get(f"FLAMBEAU_CXX_{target.upper()}")
    compiler = shutil.which(named or known.compiler) or (build.compiler() if target == NATIVE else None)
    if compiler is None:
        raise build.BuildError(
            f"[package] expected a compiler for {target}, got none: {named or known.compiler} is not found "
            f"(Debian has it in g++-aarch64-linux-gnu; FLAMBEAU_CXX_{target.upper()} names another one)"
        )
    return known._replace(compiler=compiler, nm=known.nm if shutil.which(known.nm) else "nm")
