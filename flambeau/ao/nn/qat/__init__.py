"""Layers for training that knows of quantization: weights are rounded to their grid before they are used."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor, nn

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]


def take_parameters(layer: Any, mod: Any) -> Any:
    """Gives a layer the parameters of a float one, which stay the same objects."""
    layer.weight = mod.weight
    if hasattr(mod, "bias"):
        layer.bias = mod.bias
    layer.training = mod.training
    return layer


def check_config(name: str, qconfig: Any) -> Any:
    if not qconfig:
        raise AssertionError(f"[{name}] expected a qconfig for training with fake quantization, got {qconfig}")
    return qconfig


class Linear(nn.Linear):
    """A linear layer."""

    _FLOAT_MODULE: Any = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.qconfig = check_config("qat.Linear", qconfig)
        self.weight_fake_quant = qconfig.weight()

    def forward(self, input: Tensor) -> Tensor:
        return fl.nn.functional.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        layer = mod[0] if isinstance(mod, nn.Sequential) else mod
        module = cls(layer.in_features, layer.out_features, layer.bias is not None, mod.qconfig)
        return take_parameters(module, layer)

    def to_float(self) -> Any:
        module = nn.Linear(self.in_features, self.out_features, self.bias is not None)
        return take_parameters(module, self)


class _ConvNd:
    """What convolutions share, beside their float class."""

    _FLOAT_MODULE: Any = None
    qconfig: Any

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", qconfig: Any = None, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        self._FLOAT_MODULE.__init__(
            self, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.qconfig = check_config("qat.Conv", qconfig)
        self.weight_fake_quant = qconfig.weight()

    def forward(self: Any, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        layer = mod[0] if isinstance(mod, nn.Sequential) else mod
        module = cls(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding, layer.dilation,
            layer.groups, layer.bias is not None, layer.padding_mode, mod.qconfig,
        )  # fmt: skip
        return take_parameters(module, layer)

    def to_float(self: Any) -> Any:
        module = self._FLOAT_MODULE(
            self.in_channels, self.out_channels, self.kernel_size, self.stride, self.padding, self.dilation, self.groups,
            self.bias is not None, self.padding_mode,
        )  # fmt: skip
        return take_parameters(module, self)


class Conv1d(_ConvNd, nn.Conv1d):
    """A convolution over sequences."""

    _FLOAT_MODULE = nn.Conv1d


class Conv2d(_ConvNd, nn.Conv2d):
    """A convolution over images."""

    _FLOAT_MODULE = nn.Conv2d


class Conv3d(_ConvNd, nn.Conv3d):
    """A convolution over volumes."""

    _FLOAT_MODULE = nn.Conv3d


class Embedding(nn.Embedding):
    """A table of rows."""

    _FLOAT_MODULE = nn.Embedding

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None, device: Any = None,
        dtype: Any = None, qconfig: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
            device=device, dtype=dtype,
        )  # fmt: skip
        self.qconfig = check_config("qat.Embedding", qconfig)
        self.weight_fake_quant = qconfig.weight()

    def forward(self, input: Tensor) -> Tensor:
        return fl.nn.functional.embedding(
            input, self.weight_fake_quant(self.weight), self.padding_idx, self.max_norm, self.norm_type,
            self.scale_grad_by_freq, self.sparse,
        )  # fmt: skip

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return cls(
            mod.num_embeddings, mod.embedding_dim, mod.padding_idx, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq,
            mod.sparse, mod.weight, qconfig=mod.qconfig,
        )  # fmt: skip

    def to_float(self) -> Any:
        return nn.Embedding(self.num_embeddings, self.embedding_dim, self.padding_idx, _weight=self.weight.detach())


class EmbeddingBag(nn.EmbeddingBag):
    """Sums or means of rows of a table."""

    _FLOAT_MODULE = nn.EmbeddingBag

    def __init__(self, *args: Any, qconfig: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.qconfig = check_config("qat.EmbeddingBag", qconfig)
        self.weight_fake_quant = qconfig.weight()

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return fl.nn.functional.embedding_bag(
            input, self.weight_fake_quant(self.weight), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return cls(
            mod.num_embeddings, mod.embedding_dim, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq, mod.mode, mod.sparse,
            mod.weight, mod.include_last_offset, mod.padding_idx, qconfig=mod.qconfig,
        )  # fmt: skip
