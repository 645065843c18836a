"""The types of named results: `return_types.topk` is what `topk` returns."""

from __future__ import annotations

from typing import Any

import flambeau

# Calls that return each type, for a matrix.
_CALLS = {
    "aminmax": lambda x: flambeau.aminmax(x), "cummax": lambda x: x.cummax(0), "cummin": lambda x: x.cummin(0),
    "frexp": lambda x: flambeau.frexp(x), "geqrf": lambda x: flambeau.geqrf(x),
    "histogram": lambda x: flambeau.histogram(x, 2), "kthvalue": lambda x: x.kthvalue(1),
    "linalg_eig": lambda x: flambeau.linalg.eig(x), "linalg_eigh": lambda x: flambeau.linalg.eigh(x),
    "linalg_inv_ex": lambda x: flambeau.linalg.inv_ex(x), "linalg_lu": lambda x: flambeau.linalg.lu(x),
    "linalg_qr": lambda x: flambeau.linalg.qr(x), "linalg_slogdet": lambda x: flambeau.linalg.slogdet(x),
    "linalg_svd": lambda x: flambeau.linalg.svd(x), "logdet": lambda x: flambeau.logdet(x),
    "max": lambda x: x.max(0), "median": lambda x: x.median(0), "min": lambda x: x.min(0), "mode": lambda x: x.mode(0),
    "nanmedian": lambda x: x.nanmedian(0), "qr": lambda x: flambeau.qr(x), "slogdet": lambda x: flambeau.slogdet(x),
    "sort": lambda x: x.sort(), "svd": lambda x: flambeau.svd(x), "topk": lambda x: x.topk(1),
    "triangular_solve": lambda x: flambeau.triangular_solve(x, x),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _CALLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with flambeau.no_grad():
        kind = type(_CALLS[name](flambeau.eye(2)))
    globals()[name] = kind
    return kind
