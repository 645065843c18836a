"""The patterns that the layers of this package compute with quantized tensors."""

from __future__ import annotations

import operator
from typing import Any

import flambeau as fl
from flambeau import nn
from flambeau._tensor.quantized_types import qint8, quint8
from flambeau.ao.nn import intrinsic, qat
from flambeau.ao.nn.intrinsic import qat as intrinsic_qat
from flambeau.ao.quantization.backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, ObservationType
from flambeau.ao.quantization.fuser_method_mappings import _METHODS
from flambeau.ao.quantization.quantization_mappings import (
    DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
    DEFAULT_QAT_MODULE_MAPPINGS,
)
from flambeau.ops import tags

__all__ = ["native"]

STATIC = DTypeConfig(quint8, quint8, qint8, fl.float32)
DYNAMIC = DTypeConfig(quint8, fl.float32, qint8, fl.float32, is_dynamic=True)
HALF = DTypeConfig(fl.float16, fl.float32, fl.float16, fl.float32, is_dynamic=True)
PLAIN = DTypeConfig(quint8, quint8)
WEIGHT_ONLY = DTypeConfig(fl.float32, fl.float32, quint8)

_OWN, _SHARED = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT, ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
_FUNCTIONS = nn.functional


def _pattern(kind: Any, observation: ObservationType, *dtypes: DTypeConfig) -> BackendPatternConfig:
    config = BackendPatternConfig(kind).set_dtype_configs(list(dtypes))
    return config.set_observation_type(observation)


def _layers() -> list[BackendPatternConfig]:
    patterns = []
    weighted = (
        nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
        *(getattr(intrinsic, name) for name in intrinsic.__all__ if not name.startswith("BN")),
        *(getattr(qat, name) for name in ("Linear", "Conv1d", "Conv2d", "Conv3d")),
        *(getattr(intrinsic_qat, name) for name in intrinsic_qat.__all__ if name[0].isupper()),
    )  # fmt: skip
    for kind in weighted:
        config = _pattern(kind, _OWN, STATIC, DYNAMIC, HALF)
        config.qat_module = DEFAULT_QAT_MODULE_MAPPINGS.get(kind)
        config.root_module = kind
        patterns.append(config)
    for function in (
        _FUNCTIONS.linear,
        _FUNCTIONS.conv1d,
        _FUNCTIONS.conv2d,
        _FUNCTIONS.conv3d,
        fl.conv1d,
        fl.conv2d,
        fl.conv3d,
    ):
        config = _pattern(function, _OWN, STATIC, DYNAMIC)
        config._input_type_to_index = {"input": 0, "weight": 1, "bias": 2}
        patterns.append(config)
    others = (
        nn.BatchNorm2d, nn.BatchNorm3d, intrinsic.BNReLU2d, intrinsic.BNReLU3d, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d,
        nn.InstanceNorm2d, nn.InstanceNorm3d, nn.ELU, nn.Hardswish, nn.LeakyReLU, nn.PReLU, nn.Softmax, nn.Sigmoid, nn.Tanh,
        nn.Hardsigmoid, _FUNCTIONS.layer_norm, _FUNCTIONS.elu, _FUNCTIONS.hardswish, _FUNCTIONS.leaky_relu,
    )  # fmt: skip
    patterns += [_pattern(kind, _OWN, PLAIN) for kind in others]
    for kind in DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS:
        if kind not in weighted and kind not in (nn.Embedding, nn.EmbeddingBag):
            patterns.append(_pattern(kind, _OWN, DYNAMIC, HALF))
    for kind in (nn.Embedding, nn.EmbeddingBag, qat.Embedding, qat.EmbeddingBag):
        config = _pattern(kind, ObservationType.INPUT_OUTPUT_NOT_OBSERVED, WEIGHT_ONLY)
        config.qat_module = {nn.Embedding: qat.Embedding, nn.EmbeddingBag: qat.EmbeddingBag}.get(kind)
        patterns.append(config)
    return patterns


def _functions() -> list[BackendPatternConfig]:
    functions = (fl.add, fl.mul, fl.sigmoid, fl.tanh)
    methods = [f.__name__ + end for f in functions for end in ("", "_")]
    operators = (operator.add, operator.iadd, operator.mul, operator.imul, operator.matmul)
    kinds = (*functions, *methods, *operators, fl.matmul, _FUNCTIONS.hardsigmoid)
    patterns = [_pattern(kind, _OWN, PLAIN) for kind in kinds]
    patterns += [_pattern(fl.cat, _SHARED, PLAIN)]
    modules = (
        nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d,
        nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.Dropout, nn.Identity, nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Flatten,
        nn.PixelShuffle, nn.Upsample,
    )  # fmt: skip
    patterns += [_pattern(kind, _SHARED, PLAIN) for kind in modules]
    for name in sorted(
        tags.functions("moves", "chooses", "averages", "piecewise_linear", "dropout")
        | {fl.relu.__name__, fl.clamp.__name__}
    ):
        patterns.append(_pattern(name, _SHARED, PLAIN))
        for home in (fl, _FUNCTIONS):
            if callable(function := getattr(home, name, None)):
                patterns.append(_pattern(function, _SHARED, PLAIN))
    return patterns


def _fusions() -> list[BackendPatternConfig]:
    patterns = []
    for kinds, method in _METHODS.items():
        config = BackendPatternConfig(kinds).set_dtype_configs([STATIC])
        config.fuser_method = method
        patterns.append(config)
        if kinds[-1] is nn.ReLU:
            for relu in (_FUNCTIONS.relu, fl.relu):
                functional = BackendPatternConfig((*kinds[:-1], relu)).set_dtype_configs([STATIC])
                functional.fuser_method = method
                patterns.append(functional)
    return patterns


def native(name: str) -> BackendConfig:
    """All patterns."""
    return BackendConfig(name).set_backend_pattern_configs([*_fusions(), *_functions(), *_layers()])
