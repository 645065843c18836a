"""Audio: spectrograms and what is made of them, resampling, WAV files.

Under `flambeau run` and `flambeau.as_torch`, `import torchaudio` means this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flambeau.audio.wav import AudioMetaData, info, load, save

__version__ = "2.11.0+flambeau"
__all__ = ["AudioMetaData", "functional", "info", "load", "save", "transforms"]
_MODULES = ("functional", "transforms")


def list_audio_backends() -> list[str]:
    """What reads files: the reader of WAV files here."""
    return ["wav"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
