"""Memory formats of convolution weights."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules import conv


def _convert(module: Any, kinds: tuple[type, ...], memory_format: Any) -> Any:
    for child in module.modules():
        if isinstance(child, kinds):
            child.weight.data = child.weight.detach().clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Puts the weights of 2-d convolutions into a memory format."""
    return _convert(module, (conv.Conv2d, conv.ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Puts the weights of 3-d convolutions into a memory format."""
    return _convert(module, (conv.Conv3d, conv.ConvTranspose3d), memory_format)
