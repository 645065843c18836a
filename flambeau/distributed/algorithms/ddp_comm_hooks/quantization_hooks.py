"""Hooks that send gradients as bytes with a scale for each process (or for each part of a bucket)."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._groups import _get_default_group
from flambeau.futures import Future

__all__ = ["quantization_perchannel_hook", "quantization_pertensor_hook"]


def _quantize(rows: Any) -> tuple[Any, Any, Any]:
    """Bytes, and for each row the scale and the value of byte 0."""
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    scale = ((high - low) / 255).clamp_min(1e-12)
    return ((rows - low) / scale).round().clamp(0, 255).to(flambeau.uint8), scale, low


def _exchange(group: Any, rows: Any) -> Any:
    group = group if group is not None else _get_default_group()
    parts = []
    for tensor in _quantize(rows):
        received = [flambeau.empty_like(tensor) for _ in range(group.size())]
        collectives.all_gather(received, tensor.contiguous(), group)
        parts.append(received)
    total = flambeau.zeros_like(rows)
    for data, scale, low in zip(*parts):
        total += data * scale + low
    return total / group.size()


def _done(value: Any) -> Any:
    future: Any = Future()
    future.set_result(value)
    return future


def quantization_pertensor_hook(process_group: Any, bucket: Any) -> Any:
    buffer = bucket.buffer()
    return _done(_exchange(process_group, buffer.view(1, -1)).view(-1))


def quantization_perchannel_hook(process_group: Any, bucket: Any, bucket_size: int = 512) -> Any:
    buffer = bucket.buffer()
    rows = flambeau.nn.functional.pad(buffer, (0, -buffer.numel() % bucket_size)).view(-1, bucket_size)
    return _done(_exchange(process_group, rows).view(-1)[: buffer.numel()])
