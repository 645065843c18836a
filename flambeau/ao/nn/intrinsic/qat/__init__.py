"""Fused layers for training that knows of quantization.

A batch norm behind a layer is part of the weight that is rounded, as it will be once the layer is quantized: the weight is
scaled by what the running statistics say, the result is scaled back, and batch norm is applied to it as usual.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor, nn
from flambeau._compat import absent
from flambeau.ao.nn import intrinsic, qat
from flambeau.ao.nn.qat import check_config, take_parameters

__all__ = [
    "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d",
    "LinearBn1d", "LinearReLU", "freeze_bn_stats", "update_bn_stats",
]  # fmt: skip


class _WithNorm:
    """A layer and the batch norm behind it."""

    freeze_bn = False

    def _scaled(self: Any, input: Tensor) -> Tensor:
        norm = self.bn
        factor = norm.weight / (norm.running_var + norm.eps).sqrt()
        rows = [-1] + [1] * (self.weight.dim() - 1)
        channels = [1, -1] + [1] * (self.weight.dim() - 2)
        weight = self.weight_fake_quant(self.weight * factor.reshape(rows))
        result = self._product(input, weight) / factor.reshape(channels)
        if self.bias is not None:
            result = result + self.bias.reshape(channels)
        return norm(result)

    def forward(self: Any, input: Tensor) -> Tensor:
        return self._scaled(input)

    def reset_running_stats(self: Any) -> None:
        self.bn.reset_running_stats()

    def reset_bn_parameters(self: Any) -> None:
        self.bn.reset_running_stats()
        nn.init.uniform_(self.bn.weight)
        nn.init.zeros_(self.bn.bias)

    def update_bn_stats(self: Any) -> Any:
        self.freeze_bn = False
        self.bn.training = True
        return self

    def freeze_bn_stats(self: Any) -> Any:
        self.freeze_bn = True
        self.bn.training = False
        return self

    def train(self: Any, mode: bool = True) -> Any:
        """Batch norm that is frozen stays so."""
        super().train(mode)  # type: ignore[misc]
        if self.freeze_bn:
            self.bn.training = False
        return self

    def _take(self: Any, mod: Any) -> Any:
        take_parameters(self, mod[0])
        self.bn.weight, self.bn.bias = mod[1].weight, mod[1].bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(self.bn, name, getattr(mod[1], name))
        self.bn.training = mod[1].training
        return self


class _ConvBnNd(_WithNorm):
    """A convolution and batch norm."""

    _FLOAT_CONV_MODULE: Any = None
    _FLOAT_BN_MODULE: Any = None

    def __init__(
        self: Any, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool | None = None, padding_mode: str = "zeros", eps: float = 1e-05, momentum: float = 0.1,
        freeze_bn: bool = False, qconfig: Any = None,
    ) -> None:  # fmt: skip
        self._FLOAT_CONV_MODULE.__init__(
            self, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bool(bias), padding_mode
        )
        self.qconfig = check_config("qat.ConvBn", qconfig)
        self.bn = self._FLOAT_BN_MODULE(out_channels, eps, momentum)
        self.weight_fake_quant = qconfig.weight()
        self.freeze_bn = self.training and freeze_bn
        if self.freeze_bn:
            self.freeze_bn_stats()

    def _product(self: Any, input: Tensor, weight: Tensor) -> Tensor:
        return self._conv_forward(input, weight, None)

    @classmethod
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        conv, norm = mod[0], mod[1]
        layer = cls(
            conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups,
            conv.bias is not None, conv.padding_mode, norm.eps, norm.momentum, False, mod.qconfig,
        )  # fmt: skip
        return layer._take(mod)


class _Relu:
    """What is behind a layer with relu."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).relu()  # type: ignore[misc]


class ConvBn1d(_ConvBnNd, nn.Conv1d):
    """A convolution over sequences and batch norm."""

    _FLOAT_MODULE = intrinsic.ConvBn1d
    _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = nn.Conv1d, nn.BatchNorm1d


class ConvBn2d(_ConvBnNd, nn.Conv2d):
    """A convolution over images and batch norm."""

    _FLOAT_MODULE = intrinsic.ConvBn2d
    _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = nn.Conv2d, nn.BatchNorm2d


class ConvBn3d(_ConvBnNd, nn.Conv3d):
    """A convolution over volumes and batch norm."""

    _FLOAT_MODULE = intrinsic.ConvBn3d
    _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = nn.Conv3d, nn.BatchNorm3d


class ConvBnReLU1d(_Relu, ConvBn1d):
    """A convolution over sequences, batch norm and relu."""

    _FLOAT_MODULE = intrinsic.ConvBnReLU1d


class ConvBnReLU2d(_Relu, ConvBn2d):
    """A convolution over images, batch norm and relu."""

    _FLOAT_MODULE = intrinsic.ConvBnReLU2d


class ConvBnReLU3d(_Relu, ConvBn3d):
    """A convolution over volumes, batch norm and relu."""

    _FLOAT_MODULE = intrinsic.ConvBnReLU3d


class ConvReLU1d(_Relu, qat.Conv1d):
    """A convolution over sequences and relu."""


class ConvReLU2d(_Relu, qat.Conv2d):
    """A convolution over images and relu."""


class ConvReLU3d(_Relu, qat.Conv3d):
    """A convolution over volumes and relu."""


class LinearReLU(_Relu, qat.Linear):
    """A linear layer and relu."""


class LinearBn1d(_WithNorm, nn.Linear):
    """A linear layer and batch norm."""

    _FLOAT_MODULE = intrinsic.LinearBn1d

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, eps: float = 1e-05, momentum: float = 0.1,
        freeze_bn: bool = False, qconfig: Any = None,
    ) -> None:  # fmt: skip
        nn.Linear.__init__(self, in_features, out_features, bias)
        self.qconfig = check_config("qat.LinearBn1d", qconfig)
        self.bn = nn.BatchNorm1d(out_features, eps, momentum)
        self.weight_fake_quant = qconfig.weight()
        if self.training and freeze_bn:
            self.freeze_bn_stats()

    def _product(self, input: Tensor, weight: Tensor) -> Tensor:
        return fl.nn.functional.linear(input, weight)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        linear, norm = mod[0], mod[1]
        layer = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            norm.eps,
            norm.momentum,
            False,
            mod.qconfig,
        )
        return layer._take(mod)


def update_bn_stats(mod: Any) -> None:
    """For `apply`: batch norms in fused layers follow their inputs."""
    if isinstance(mod, _WithNorm):
        mod.update_bn_stats()


def freeze_bn_stats(mod: Any) -> None:
    """For `apply`: batch norms in fused layers stay as they are."""
    if isinstance(mod, _WithNorm):
        mod.freeze_bn_stats()


__getattr__ = absent.names_of(__name__)
