"""Settings of compilation, for programs that read them; those of this compiler are in `flambeau._inductor.config`."""

from __future__ import annotations

from typing import Any

from flambeau._compat.settings import fix
from flambeau.utils._options import settings

__all__ = ["get_config_copy", "patch"]

job_id = None
# Places (`L['x'], L['self'].scale`) whose integers and sizes are symbols from the first call on; patterns may be given. No
# artifact is made for the sizes 0 and 1 alone, so that both settings are one.
dynamic_sources = unbacked_sources = ""
force_disable_caches = False
cache_key_tag = ""

patch, _options = settings(__name__)
fix(
    __name__,
    "job_id force_disable_caches cache_key_tag",
    "the compiler has no such setting",
)


def get_config_copy() -> dict[str, Any]:
    return _options()
