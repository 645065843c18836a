"""Gives the package's metadata what depends on where it is published: addresses, and a README whose links are absolute.

Called by scikit-build-core. The repository's page is FLAMBEAU_HOME_URL, or what the remote `origin` of the checkout says;
without either there are no addresses, and the README stays as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The target of a link or picture of Markdown that is a path in the repository.
_PATH = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?://|#)(?P<path>[^)]+)\)")


def home() -> str:
    """The repository's page, or nothing."""
    if named := os.environ.get("FLAMBEAU_HOME_URL"):
        return named.rstrip("/")
    try:
        command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
        address = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""
    address = re.sub(r"^git@([^:]+):", r"https://\1/", address).removesuffix(".git")
    return address if address.startswith("https://") else ""


def readme(page: str) -> str:
    """The README; with a page, its links and pictures lead there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if not page:
        return text

    def absolute(link: re.Match[str]) -> str:
        form = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({page}/{form}/main/{link['path']})"

    return _PATH.sub(absolute, text)


def dynamic_metadata(field: str, settings: object = None, project: object = None) -> Any:
    """The value of `project.urls` or `project.readme`."""
    page = home()
    if field == "readme":
        return {"content-type": "text/markdown", "text": readme(page)}
    if field != "urls":
        raise ValueError(f"[package_metadata] expected 'urls' or 'readme', got {field!r}")
    if not page:
        return {}
    return {
        "Source": page,
        "Issues": f"{page}/issues",
        "Changelog": f"{page}/blob/main/CHANGELOG.md",
        "Documentation": f"{page}/tree/main/docs",
    }
