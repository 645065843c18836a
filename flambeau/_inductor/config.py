"""Settings of the compiler: `flambeau._inductor.config.max_autotune = True`, or `compile(..., options={...})`.

Names are PyTorch's where it has the setting. `MODES` says what the modes of `compile` set.
"""

from __future__ import annotations

import os

from flambeau.utils._options import settings

# Measure kernels in several builds and keep the fastest, on disk too.
max_autotune = False
max_autotune_pointwise = False
max_autotune_gemm = False
# Check every stage against the rules of `verify.py`.
verify_stages = os.environ.get("FLAMBEAU_VERIFY", "") not in ("", "0")
# Where every stage of every graph is written, as text; None: nowhere.
dump_folder = os.environ.get("FLAMBEAU_DUMP") or None
# Convolutions and products take what follows them along, where derivatives are not wanted.
epilogue_fusion = True
# Without derivatives, what is computed from parameters alone is computed once and kept, until one is written (`freezing.py`).
freezing = False
# Programs are for other processors, too: nothing in them may depend on what this one can do.
portable = False
# What forward saves for backward, as a fraction; None: as flambeau._functorch.config says.
memory_budget: float | None = None
# Intermediate results lie in one arena and take the places of what dies; otherwise each has memory of its own, in which
# a sanitizer sees its ends.
allow_buffer_reuse = os.environ.get("FLAMBEAU_ARENA", "1") not in ("", "0")
# Programs for sizes between recorded ones are made from those instead of being recorded too.
parametric_plans = True
# Of PyTorch's, which programs set. What they ask for is always done, or never, and changes no result.
coordinate_descent_tuning = False
cpp_wrapper = False
debug = False
force_disable_caches = False
fx_graph_cache = True
nan_asserts = False
size_asserts = True
# Rows of matrices begin at even addresses, where matrix products gain from it (`pitch.py`).
shape_padding = True


class cpp:
    threads = -1  # 1 keeps kernels on the calling thread; otherwise there are as many as pay


class triton:
    cudagraphs = False
    multi_kernel = 0  # there is one kernel for each reduction


class trace:
    enabled = False


MODES: dict[str, dict[str, object]] = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True},
}

patch, _options = settings(__name__)


def resolve(mode: str | None, options: dict[str, object] | None) -> dict[str, object]:
    """What a mode and options of `compile` set, checked."""
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"[compile] expected a mode among {', '.join(MODES)}, got {mode!r}")
    known = _options()
    settings = dict(MODES[mode or "default"])
    for name, value in (options or {}).items():
        name = name.replace("-", "_")
        if name not in known:
            raise RuntimeError(f"[compile] expected an option among {', '.join(sorted(known))}, got {name!r}")
        held = known[name]
        if (
            held is not None
            and type(value) is not type(held)
            and not (isinstance(held, float) and isinstance(value, int))
        ):
            raise RuntimeError(
                f"[compile] expected {type(held).__name__} for the option {name}, got {type(value).__name__}"
            )
        settings[name] = value
    return settings


def __getattr__(name: str) -> object:
    """Settings that programs set and nothing here reads."""
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
