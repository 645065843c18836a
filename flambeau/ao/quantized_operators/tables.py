"""Rows of tables in eight, four and two bits, each row with a scale and its smallest value behind it.

With eight bits both are float32, otherwise float16. Fewer than eight bits lie in bytes from the lowest bits on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.nn.quantized.modules.embedding_ops import EmbeddingPackedParams
from flambeau.ao.quantized_tensor import QuantizedTensor

__all__ = ["FUNCTIONS"]

MODES = ("sum", "mean", "max")


class PackedTable:
    """A quantized table."""

    STATE_TYPE = "(int, Tensor[], float[], int[])"
    VERSION = 1  # of the layout in archives
    script_class = "__torch__.torch.classes.quantized.EmbeddingPackedParamsBase"

    def __init__(self, weight: QuantizedTensor) -> None:
        self.table = EmbeddingPackedParams(weight.shape[0], weight.shape[1], weight.dtype)
        self.table.set_weight(weight)

    def unpack(self) -> QuantizedTensor:
        return self.table._weight()

    def script_state(self) -> Any:
        weight = self.unpack()
        return self.VERSION, [weight], [], [8 if weight.dtype is fl.quint8 else 4]

    def set_script_state(self, state: Any) -> None:
        version, (weight, *_), _, _ = state
        if version != self.VERSION:
            raise RuntimeError(f"[jit.load] expected a table of version {self.VERSION}, got {version!r}")
        PackedTable.__init__(self, weight)


def embedding_bag_prepack(weight: QuantizedTensor) -> PackedTable:
    return PackedTable(weight)


def embedding_bag_unpack(W_prepack: PackedTable) -> QuantizedTensor:
    return W_prepack.unpack()


# ---------------------------------------------------------------------------------------------- rows of bytes


def _grid_dtype(bits: int) -> Any:
    return fl.float32 if bits == 8 else fl.float16


def _prepack(bits: int) -> Callable[..., Any]:
    """Float rows to bytes, and the grid of each row behind them."""
    per_byte, top = 8 // bits, 2**bits - 1

    def function(weight: Tensor, optimized_qparams: bool = False, nbins: int = 200, ratio: float = 0.16) -> Tensor:
        if optimized_qparams:
            from flambeau.ao.quantized_operators.ranges import choose_qparams_optimized

            ends = [choose_qparams_optimized(row, row.numel(), nbins, ratio, bits) for row in weight.float()]
            most, least = (fl.stack([end[i] for end in ends]).reshape(-1, 1) for i in (0, 1))
        else:
            least, most = weight.float().amin(-1, keepdim=True), weight.float().amax(-1, keepdim=True)
        kind = _grid_dtype(bits)
        least = least.to(kind).float()
        width = most - least
        if bits == 8:
            scale, inverse = width / 255.0, 255.0 / (width + 1e-8)
        else:
            scale = fl.where(width == 0, fl.ones_like(width), width / top).to(kind).float()
            scale = fl.where(scale == 0, fl.ones_like(scale), scale)
            inverse = 1.0 / scale
        places = ((weight.float() - least) * inverse).round().clamp(0, top).to(fl.int32)
        if places.shape[-1] % per_byte:
            places = fl.nn.functional.pad(places, (0, -places.shape[-1] % per_byte))
        parts = places.unflatten(-1, (-1, per_byte))
        packed = sum((parts[..., i] << (bits * i) for i in range(per_byte)), fl.zeros_like(parts[..., 0]))
        grids = fl.cat([scale, least], -1).to(kind).contiguous().view(fl.uint8)
        return fl.cat([packed.to(fl.uint8), grids.reshape(*packed.shape[:-1], -1)], -1)

    return function


def _unpack(bits: int) -> Callable[[Tensor], Tensor]:
    """The values that rows of bytes stand for."""
    kind, tail = _grid_dtype(bits), 8 if bits == 8 else 4

    def function(weight: Tensor) -> Tensor:
        packed, grids = weight[..., :-tail], weight[..., -tail:].contiguous().view(kind).float()
        parts = [(packed.to(fl.int32) >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
        places = fl.stack(parts, -1).flatten(-2)
        return places.float() * grids[..., :1] + grids[..., 1:]

    return function


# ---------------------------------------------------------------------------------------------- looking rows up


def _bag(rows: Callable[[Any, Tensor], Tensor], pruned: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    def function(
        weight: Any, indices: Tensor, offsets: Tensor | None = None, scale_grad_by_freq: bool = False, mode: int = 0,
        pruned_weights: bool = False, per_sample_weights: Tensor | None = None,
        compressed_indices_mapping: Tensor | None = None, include_last_offset: bool = False,
    ) -> Tensor:  # fmt: skip
        flat = indices.reshape(-1).long()
        if pruned_weights and compressed_indices_mapping is not None and compressed_indices_mapping.numel() > 1:
            flat = compressed_indices_mapping.long()[flat]
        is_present = flat >= 0
        values = rows(weight, flat.clamp(min=0)) * is_present.unsqueeze(-1)
        where = fl.arange(flat.numel()).reshape(indices.shape)
        if offsets is not None:
            offsets = offsets.long()
        return fl.nn.functional.embedding_bag(
            where, values, offsets, mode=MODES[mode], per_sample_weights=per_sample_weights,
            include_last_offset=include_last_offset,
        )  # fmt: skip

    return function


def _packed_rows(weight: PackedTable, indices: Tensor) -> Tensor:
    return weight.table.rows(indices)


def _byte_rows(bits: int) -> Callable[[Tensor, Tensor], Tensor]:
    unpack = _unpack(bits)
    return lambda weight, indices: unpack(weight[indices])


def embedding(weight: PackedTable, indices: Tensor, pruned_weights: bool = False) -> Tensor:
    return weight.table.rows(indices.long())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "embedding_bag_prepack": embedding_bag_prepack, "embedding_bag_unpack": embedding_bag_unpack,
    "embedding_byte": embedding, "embedding_4bit": embedding, "embedding_bag_byte": _bag(_packed_rows),
    "embedding_bag_4bit": _bag(_packed_rows),
}  # fmt: skip
for _bits, _name in ((8, "byte"), (4, "4bit"), (2, "2bit")):
    FUNCTIONS[f"embedding_bag_{_name}_prepack"] = _prepack(_bits)
    FUNCTIONS[f"embedding_bag_{_name}_unpack"] = _unpack(_bits)
    FUNCTIONS[f"embedding_bag_{_name}_rowwise_offsets"] = _bag(_byte_rows(_bits))
