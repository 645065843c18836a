"""PJRT plugins: shared libraries that export `GetPjrtApi`, opened by their path."""

from __future__ import annotations

import ctypes
import os

__all__ = ["Plugin"]


class _Version(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p), ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    ]  # fmt: skip


class _Api(ctypes.Structure):
    """The beginning of PJRT_Api, which every version has."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p), ("version", _Version)]


class Plugin:
    """An opened plugin: the version of its API. Programs run on jaxlib's client; a client of a plugin is not made yet."""

    def __init__(self, path: str) -> None:
        if not os.path.exists(path):
            raise FileNotFoundError(f"[xla.load] expected the path of a PJRT plugin, got {path!r}")
        self.path = path
        self.library = ctypes.CDLL(path)
        try:
            get = self.library.GetPjrtApi
        except AttributeError:
            raise ValueError(f"[xla.load] expected a library that exports GetPjrtApi, got {path!r}") from None
        get.restype = ctypes.POINTER(_Api)
        self.api = get().contents

    @property
    def api_version(self) -> tuple[int, int]:
        return self.api.version.major, self.api.version.minor
