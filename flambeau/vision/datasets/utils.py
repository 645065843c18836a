"""Downloads and checks of files."""

from __future__ import annotations

import hashlib
import os
from typing import Any


def check_integrity(fpath: Any, md5: str | None = None) -> bool:
    """Whether a file is there, and has the hash if one is given."""
    if not os.path.isfile(fpath):
        return False
    if md5 is None:
        return True
    with open(fpath, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest() == md5


def download_url(url: str, root: Any, filename: str | None = None, md5: str | None = None, **options: Any) -> None:
    from flambeau.hub import download_url_to_file

    os.makedirs(root, exist_ok=True)
    path = os.path.join(root, filename or os.path.basename(url))
    if not check_integrity(path, md5):
        download_url_to_file(url, path)
        if not check_integrity(path, md5):
            raise RuntimeError(f"[download_url] expected a file with the hash {md5}, got another at {path}")
