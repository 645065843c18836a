"""CUDA's switches. They are remembered, and have no effect where there is no CUDA device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def is_built() -> bool:
    import flambeau

    return flambeau.cuda.is_available()


def _set_tf32(on: bool) -> None:
    import flambeau

    if flambeau.cuda.is_available():
        flambeau.cuda._library.call("set_tf32", int(on))


class _MatmulSettings:
    _tf32 = False

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may round their operands to TF32; for convolutions see backends.cudnn."""
        return self._tf32

    @allow_tf32.setter
    def allow_tf32(self, on: bool) -> None:
        from flambeau import _settings

        self._tf32 = bool(on)
        _settings._state["precision"] = "high" if on else "highest"
        _set_tf32(self._tf32)

    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False
    fp32_precision = "none"


class _PlanCache:
    """The FFT plan cache: always empty."""

    size = 0
    max_size = 0

    def clear(self) -> None: ...

    def __getitem__(self, device: Any) -> _PlanCache:
        return self


matmul = _MatmulSettings()
cufft_plan_cache = _PlanCache()
_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def flash_sdp_enabled() -> bool:
    return _attention["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    _attention["flash"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    return _attention["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    _attention["mem_efficient"] = bool(enabled)


def math_sdp_enabled() -> bool:
    return _attention["math"]


def enable_math_sdp(enabled: bool) -> None:
    _attention["math"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    return _attention["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    _attention["cudnn"] = bool(enabled)


def is_flash_attention_available() -> bool:
    return False


def can_use_flash_attention(params: Any, debug: bool = False) -> bool:
    return False


can_use_efficient_attention = can_use_cudnn_attention = can_use_flash_attention


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    _attention["reduced_math"] = bool(enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    return _attention.get("reduced_math", False)


class SDPAParams:
    """What an attention implementation is asked about."""

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any,
        dropout: float,
        is_causal: bool,
        enable_gqa: bool = False,
    ) -> None:
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


def preferred_blas_library(backend: Any = None) -> str:
    return "default"


def preferred_rocm_fa_library(backend: Any = None) -> str:
    return "default"


def preferred_linalg_library(backend: Any = None) -> str:
    return "default"


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """The attention implementations allowed inside a `with` block."""
    before = dict(_attention)
    _attention.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _attention.update(before)


def __getattr__(name: str) -> Any:
    if name == "SDPBackend":
        from flambeau.nn.attention import SDPBackend

        return SDPBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
