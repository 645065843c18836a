"""Neural networks: modules, parameters, and the functions of `nn.functional`, which come from the op records.

Importing flambeau imports this package for the functions' sake; the layers are imported when the first is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau._C.nn import *  # noqa: F403

# Where a name that is not here is looked for: submodules, single names by their module, then the layers.
_SUBMODULES = frozenset(
    "modules functional init parameter utils attention parallel grad common_types _reduction quantized intrinsic".split()
)
_LAZY = {
    "Parameter": "parameter", "Buffer": "parameter", "UninitializedParameter": "parameter",
    "UninitializedBuffer": "parameter", "LinearCrossEntropyOptions": "_linear_cross_entropy",
    "factory_kwargs": "_factory", "DataParallel": "parallel",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [name for name in __dir__() if name[0].isupper()]
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    module = import_module(f"{__name__}.{_LAZY.get(name, 'modules')}")
    if name.startswith("__") or not hasattr(module, name):
        from flambeau._compat import absent

        return absent.attribute(__name__, name)
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    layers = import_module(f"{__name__}.modules")
    return sorted({*globals(), *_SUBMODULES, *_LAZY, *(n for n in dir(layers) if n[0].isupper())})
