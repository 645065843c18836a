"""Embeddings with rows in eight or four bits, each row on a grid of its own. Results are float32."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._tensor.quantized_types import per_channel_affine_float_qparams, quint4x2, quint8
from flambeau.ao.nn.quantized.modules.base import quantized_weight
from flambeau.ao.quantized_tensor import Grid, QuantizedTensor
from flambeau.nn.modules.module import Module

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingPackedParams"]


class EmbeddingPackedParams(Module):
    """The table, under the name that it has in PyTorch's checkpoints."""

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = quint8) -> None:
        super().__init__()
        if dtype not in (quint8, quint4x2):
            raise NotImplementedError(f"[Embedding] expected dtype quint8 or quint4x2, got {dtype}")
        self.dtype = dtype
        grid = Grid(dtype, fl.ones(num_embeddings), fl.zeros(num_embeddings), 0)
        self._packed_weight = grid.hold(fl.zeros(num_embeddings, embedding_dim, dtype=fl.uint8))

    def set_weight(self, weight: QuantizedTensor) -> None:
        self._packed_weight = weight

    def _weight(self) -> QuantizedTensor:
        return self._packed_weight

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_weight"] = self._packed_weight

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, *rest: Any
    ) -> None:
        for name in ("dtype", "_packed_weight"):
            if prefix + name in state_dict:
                setattr(self, name, state_dict.pop(prefix + name))
            elif strict:
                missing.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, *rest)

    def rows(self, indices: Tensor) -> Tensor:
        """Values of some rows."""
        grid, integers = self._packed_weight._grid, self._packed_weight.int_repr()
        scale, zero_point = grid.scale[indices].float(), grid.zero_point[indices].float()
        return (integers[indices].float() - zero_point.unsqueeze(-1)) * scale.unsqueeze(-1)

    def __repr__(self) -> str:
        return repr(self._packed_weight)


class Embedding(Module):
    """Rows of a table by their numbers."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None, dtype: Any = quint8,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.dtype = num_embeddings, embedding_dim, dtype
        self._packed_params = EmbeddingPackedParams(num_embeddings, embedding_dim, dtype)
        if _weight is not None:
            self.set_weight(_weight)

    def forward(self, indices: Tensor) -> Tensor:
        return self._packed_params.rows(indices)

    def _script_form(self) -> Any:
        from flambeau.ao.quantized_operators.tables import MODES, PackedTable
        from flambeau.jit._library import quantized as forms

        end = "byte" if self.dtype is quint8 else "4bit"
        packed = PackedTable(self.weight())
        if not isinstance(self, EmbeddingBag):
            return forms.Embedding(_function=getattr(forms.quantized, f"embedding_{end}"), _packed_params=packed)
        return forms.EmbeddingBag(
            _function=getattr(forms.quantized, f"embedding_bag_{end}"), _packed_params=packed,
            mode=MODES.index(self.mode), include_last_offset=bool(self.include_last_offset),
        )  # fmt: skip

    def set_weight(self, w: QuantizedTensor) -> None:
        self._packed_params.set_weight(w)

    def weight(self) -> QuantizedTensor:
        return self._packed_params._weight()

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, dtype={self.dtype}, "
            f"qscheme={self.weight().qscheme()}"
        )

    @classmethod
    def _like(cls, mod: Any, dtype: Any) -> Any:
        return cls(mod.num_embeddings, mod.embedding_dim, dtype=dtype)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        observer = getattr(mod, "weight_fake_quant", None)
        if observer is None:
            from flambeau.ao.quantization.qconfig import float_qparams_weight_only_qconfig

            config = getattr(mod, "qconfig", None) or float_qparams_weight_only_qconfig
            observer = config.weight()
        if observer.dtype not in (quint8, quint4x2) or observer.qscheme is not per_channel_affine_float_qparams:
            raise AssertionError(
                f"[{cls.__name__}] expected float_qparams_weight_only_qconfig, got an observer of {observer.dtype} and "
                f"{observer.qscheme}"
            )
        observer(mod.weight)
        layer = cls._like(mod, observer.dtype)
        layer.set_weight(quantized_weight(mod.weight, observer))
        return layer


class EmbeddingBag(Embedding):
    """Sums or means of rows of a table."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "sum", sparse: bool = False, _weight: Any = None,
        include_last_offset: bool = False, dtype: Any = quint8,
    ) -> None:  # fmt: skip
        super().__init__(num_embeddings, embedding_dim, _weight=_weight, dtype=dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    @classmethod
    def _like(cls, mod: Any, dtype: Any) -> Any:
        return cls(
            mod.num_embeddings,
            mod.embedding_dim,
            mode=mod.mode,
            include_last_offset=mod.include_last_offset,
            dtype=dtype,
        )

    def forward(
        self, indices: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None,
        compressed_indices_mapping: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        flat, where = indices.reshape(-1).unique(return_inverse=True)
        return fl.nn.functional.embedding_bag(
            where.reshape(indices.shape), self._packed_params.rows(flat), offsets, mode=self.mode,
            per_sample_weights=per_sample_weights, include_last_offset=self.include_last_offset,
        )  # fmt: skip
