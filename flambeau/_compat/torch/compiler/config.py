"""Settings of compilation, for programs that read or change them."""

from __future__ import annotations

from typing import Any

from flambeau._compat.absent import patch

__all__ = ["get_config_copy", "patch"]

job_id = None
dynamic_sources = unbacked_sources = ""
force_disable_caches = False
cache_key_tag = ""


def get_config_copy() -> dict[str, Any]:
    names = ("job_id", "dynamic_sources", "unbacked_sources", "force_disable_caches", "cache_key_tag")
    return {name: globals()[name] for name in names}
