"""The version of the package, as strings programs look at. `cuda` is that of the toolkit, None without a device."""

from __future__ import annotations

__version__ = "0.1.0"
flambeau = __version__  # stays when `__version__` shows the release of PyTorch whose name is used
debug = False
hip = None
rocm = None
xpu = None
git_version = None


def __getattr__(name: str) -> str | None:
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flambeau.cuda import _library

    if not _library.available():
        return None
    number = _library.call("built_with")
    return f"{number // 1000}.{number % 1000 // 10}"
