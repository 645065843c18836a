"""Helpers around modules and their parameters: clipping, packing, reparametrisations, fusion. Imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Two functions share the name of their file; importing them here makes the name mean the function.
from flambeau.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from flambeau.nn.utils.weight_norm import remove_weight_norm, weight_norm

_SUBMODULES = frozenset(
    "clip_grad convert_parameters fusion init memory_format parametrizations parametrize prune rnn stateless "
    "_named_member_accessor".split()
)
_LAZY = {
    "clip_grad_norm": "clip_grad", "clip_grad_norm_": "clip_grad", "clip_grad_value_": "clip_grad",
    "clip_grads_with_norm_": "clip_grad", "get_total_norm": "clip_grad",
    "parameters_to_vector": "convert_parameters", "vector_to_parameters": "convert_parameters",
    "fuse_conv_bn_eval": "fusion", "fuse_conv_bn_weights": "fusion", "fuse_linear_bn_eval": "fusion",
    "fuse_linear_bn_weights": "fusion", "skip_init": "init",
    "convert_conv2d_weight_memory_format": "memory_format", "convert_conv3d_weight_memory_format": "memory_format",
}  # fmt: skip
__all__ = [
    *_LAZY, "parametrizations", "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn", "spectral_norm",
    "stateless", "weight_norm",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_SUBMODULES})
