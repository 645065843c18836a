"""Which modules can be fused, and into what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import nn
from flambeau.ao.nn import intrinsic
from flambeau.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    "fuse_conv_bn", "fuse_conv_bn_relu", "fuse_convtranspose_bn", "fuse_linear_bn", "get_fuser_method", "get_fuser_method_new",
]  # fmt: skip


def _check_mode(conv: Any, bn: Any) -> None:
    if conv.training != bn.training:
        raise AssertionError(
            "[fuse_modules] expected layer and batch norm both in train or both in eval mode, got one of each"
        )


def _numbered(kind: str, layer: Any) -> Any:
    return getattr(intrinsic, f"{kind}{type(layer).__name__[-2:]}")


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> Any:
    """A convolution and batch norm: one convolution, or a pair to be trained."""
    _check_mode(conv, bn)
    if is_qat:
        return _numbered("ConvBn", conv)(conv, bn)
    return fuse_conv_bn_eval(conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> Any:
    """The same with relu."""
    _check_mode(conv, bn)
    if is_qat:
        return _numbered("ConvBnReLU", conv)(conv, bn, relu)
    return _numbered("ConvReLU", conv)(fuse_conv_bn_eval(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> Any:
    """A linear layer and batch norm."""
    _check_mode(linear, bn)
    return intrinsic.LinearBn1d(linear, bn) if is_qat else fuse_linear_bn_eval(linear, bn)


def fuse_linear_bn_relu(is_qat: bool, linear: Any, bn: Any, relu: Any) -> Any:
    """The same with relu, for evaluation."""
    _check_mode(linear, bn)
    if is_qat:
        raise NotImplementedError(
            "[fuse_modules] expected a linear layer with batch norm alone for training, got relu behind them"
        )
    return intrinsic.LinearReLU(fuse_linear_bn_eval(linear, bn), relu)


def fuse_convtranspose_bn(is_qat: bool, convt: Any, bn: Any) -> Any:
    """A transposed convolution and batch norm, for evaluation."""
    _check_mode(convt, bn)
    if is_qat:
        raise NotImplementedError("[fuse_modules] expected a convolution for training, got a transposed one")
    return fuse_conv_bn_eval(convt, bn, transpose=True)


def _pair(kind: Any) -> Callable[..., Any]:
    return lambda is_qat, *parts: kind(*parts)


_sequential_wrapper2 = _pair

_METHODS: dict[tuple[Any, ...], Callable[..., Any]] = {
    (nn.Linear, nn.BatchNorm1d): fuse_linear_bn,
    (nn.Linear, nn.BatchNorm1d, nn.ReLU): fuse_linear_bn_relu,
    (nn.Linear, nn.ReLU): _pair(intrinsic.LinearReLU),
    (nn.Linear, nn.LeakyReLU): _pair(intrinsic.LinearLeakyReLU),
    (nn.Linear, nn.Tanh): _pair(intrinsic.LinearTanh),
    (nn.BatchNorm2d, nn.ReLU): _pair(intrinsic.BNReLU2d),
    (nn.BatchNorm3d, nn.ReLU): _pair(intrinsic.BNReLU3d),
}
for _n in (1, 2, 3):
    _conv, _norm = getattr(nn, f"Conv{_n}d"), getattr(nn, f"BatchNorm{_n}d")
    _METHODS[_conv, _norm] = fuse_conv_bn
    _METHODS[_conv, _norm, nn.ReLU] = fuse_conv_bn_relu
    _METHODS[_conv, nn.ReLU] = _pair(getattr(intrinsic, f"ConvReLU{_n}d"))
    _METHODS[getattr(nn, f"ConvTranspose{_n}d"), _norm] = fuse_convtranspose_bn


def get_fuser_method(op_list: Any, additional_fuser_method_mapping: dict[Any, Any] | None = None) -> Callable[..., Any]:
    """The function that fuses modules of these classes, called with `is_qat` and the modules."""
    table = {**_METHODS, **(additional_fuser_method_mapping or {})}
    method = table.get(tuple(op_list))
    if method is None:
        names = [getattr(kind, "__name__", str(kind)) for kind in op_list]
        raise NotImplementedError(f"[fuse_modules] expected a layer with batch norm, relu or both, got {names}")
    return method


get_fuser_method_new = get_fuser_method
