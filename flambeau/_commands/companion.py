"""`flambeau companion`: a distribution called torch that stands for flambeau, so that pip installs no PyTorch beside it.

Libraries such as timm require the distribution `torch`. The companion satisfies them: a wheel of a few kilobytes with the
version of PyTorch whose API is followed, whose only module is `torch.py`, which imports the alias. It is made on this machine
and belongs on no index. `pip uninstall torch` takes it away.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

from flambeau._commands.wheel_file import write_wheel
from flambeau._compat.alias import VERSIONS

_MODULE = '''"""Stands for flambeau; made by `flambeau companion`."""

import sys

del sys.modules[__name__]
import flambeau.as_torch  # from here on the name means a module of flambeau

__import__(__name__)
'''


def wheel(folder: Path, name: str = "torch") -> Path:
    """Writes the wheel of a companion into a folder."""
    version = VERSIONS[name]
    needs = "flambeau" if name == "torch" else f"torch=={VERSIONS['torch']}"
    summary = "Stands for flambeau; made on this machine by `flambeau companion`"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    if name != "torch" or installed("flambeau"):  # pip does not know a checkout, and would look for PyTorch instead
        metadata += f"Requires-Dist: {needs}\n"
    return write_wheel(folder, f"{name}-{version}", "py3-none-any", metadata, {f"{name}.py": _MODULE.encode()})


def installed(name: str) -> str | None:
    """The version of the distribution that is installed, whatever the alias says."""
    versions = (
        d.version for d in importlib.metadata.PathDistribution.discover(name=name) if d.metadata["Name"] == name
    )
    return next(versions, None)


def install() -> int:
    theirs = installed("torch")
    if theirs is not None and not theirs.endswith("+flambeau"):
        print(
            f"flambeau companion: expected an environment without PyTorch, got {theirs}: pip uninstall torch first",
            file=sys.stderr,
        )
        return 1
    with tempfile.TemporaryDirectory() as folder:
        wheels = [str(wheel(Path(folder), name)) for name in VERSIONS]
        status = subprocess.call([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", *wheels])
    if status == 0:
        print("torch means flambeau in this environment now; flambeau companion remove takes that back")
    return status


def remove() -> int:
    ours = [name for name in VERSIONS if (installed(name) or "").endswith("+flambeau")]
    if not ours:
        print("flambeau companion: there is none in this environment")
        return 0
    return subprocess.call([sys.executable, "-m", "pip", "uninstall", "-q", "-y", *ours])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau companion",
        description="Let pip take flambeau for PyTorch in this environment, so that libraries that require torch do not install it.",
        epilog="example: flambeau companion install && pip install timm",
    )
    parser.add_argument("what", choices=["install", "remove", "wheel"])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="where `wheel` writes it (default: here)")
    options = parser.parse_args(arguments)
    if options.what == "wheel":
        for name in VERSIONS:
            print(wheel(options.folder, name))
        return 0
    return install() if options.what == "install" else remove()
