"""PJRT plugins: shared libraries that export `GetPjrtApi`, opened by their path.

    plugin = xla.load("xla_cuda_plugin.so")
    plugin.platform, plugin.devices
    plugin.use()                      # programs of the device `xla` run on it from now on

The client is native (csrc/pjrt). Tensors of the device are kept in the host's memory: each program copies its inputs to the
plugin's first device and its results back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import flambeau as fl
from flambeau import _C

__all__ = ["Plugin", "PluginProgram"]

Option = str | int | float | bool


class PluginProgram:
    """A compiled module of StableHLO on a plugin's first device."""

    def __init__(self, executable: Any, text: str) -> None:
        self._executable, self.text = executable, text

    def __call__(self, inputs: list[Any], replaced: Any = None) -> list[Any]:
        """The results for tensors of the host."""
        return _C._pjrt_run(self._executable, [t.detach().contiguous() for t in inputs])


class Plugin:
    """An opened plugin. Its client is made when something of it is first needed, with `options` of the plugin's own."""

    def __init__(self, path: str, options: Mapping[str, Option] | None = None) -> None:
        if not os.path.exists(path):
            raise FileNotFoundError(f"[xla.load] expected the path of a PJRT plugin, got {path!r}")
        self.path, self.options = path, dict(options or {})
        self.api_version: tuple[int, int]
        self._plugin, self.api_version, attributes = _C._pjrt_open(path)
        self.attributes = dict(a.split("=", 1) for a in attributes)
        self._client: tuple[str, str, list[str]] | None = None

    def client(self) -> tuple[str, str, list[str]]:
        """The platform, its version and its devices; makes the client."""
        if self._client is None:
            self._client = _C._pjrt_client(self._plugin, self.options)
        return self._client

    @property
    def platform(self) -> str:
        return self.client()[0]

    @property
    def platform_version(self) -> str:
        return self.client()[1]

    @property
    def devices(self) -> list[str]:
        return self.client()[2]

    def compile(self, text: str) -> PluginProgram:
        """A module of StableHLO, as text, as something to call."""
        self.client()
        return PluginProgram(_C._pjrt_compile(self._plugin, text), text)

    def use(self) -> None:
        """Programs of the device `xla` run on this plugin from now on."""
        from flambeau.xla import engine

        self.client()
        fl.xla.sync()
        engine.use(self)
