"""Settings of ahead-of-time autograd: `flambeau._functorch.config.activation_memory_budget = 0.5`."""

from __future__ import annotations

from flambeau.utils._options import settings

# What forward may save for backward, as a fraction of what it saves when only passes over elements are computed again.
activation_memory_budget = 1.0

patch, _options = settings(__name__)


def __getattr__(name: str) -> object:
    """Settings that programs set and nothing here reads."""
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
