"""Writes a wheel from files in memory, for packages that need no build system."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def write_wheel(folder: Path, release: str, tag: str, metadata: str, files: dict[str, bytes]) -> Path:
    """Writes the wheel of a release (`name-version`) into a folder; `files` are contents by path."""
    info = f"{release}.dist-info"
    pure = str(tag.endswith("-any")).lower()
    header = f"Wheel-Version: 1.0\nGenerator: flambeau\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    entries = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": header.encode()}
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in entries.items())
    entries[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    target = folder / f"{release}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in entries.items():
            archive.writestr(path, data)
    return target


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
