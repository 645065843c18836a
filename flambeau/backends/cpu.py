"""The CPU backend."""

from __future__ import annotations


def get_cpu_capability() -> str:
    """The widest instruction set the kernels use here."""
    return _capability


def _read_capability() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = file.read()
    except OSError:
        return "DEFAULT"
    return "AVX512" if "avx512vl" in flags else "AVX2" if "avx2" in flags else "DEFAULT"


_capability = _read_capability()
