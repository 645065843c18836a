"""Which module takes the place of which."""

from __future__ import annotations

from typing import Any

from flambeau import nn
from flambeau.ao.nn import intrinsic, qat, quantized
from flambeau.ao.nn.intrinsic import qat as intrinsic_qat
from flambeau.ao.nn.intrinsic import quantized as intrinsic_quantized
from flambeau.ao.nn.intrinsic.quantized import dynamic as intrinsic_dynamic
from flambeau.ao.nn.qat import dynamic as qat_dynamic
from flambeau.ao.nn.quantized import dynamic, reference
from flambeau.ao.quantization import fake_quantize as fakes
from flambeau.ao.quantization.stubs import DeQuantStub, QuantStub

__all__ = [
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS", "DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS", "DEFAULT_MODULE_TO_ACT_POST_PROCESS",
    "DEFAULT_QAT_MODULE_MAPPINGS", "DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS", "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS", "get_default_compare_output_module_list",
    "get_default_dynamic_quant_module_mappings", "get_default_float_to_quantized_operator_mappings",
    "get_default_qat_module_mappings", "get_default_qconfig_propagation_list", "get_default_static_quant_module_mappings",
    "get_default_static_quant_reference_module_mappings",
    "get_dynamic_quant_module_class", "get_embedding_qat_module_mappings", "get_embedding_static_quant_module_mappings",
    "get_quantized_operator", "get_static_quant_module_class", "no_observer_set",
]  # fmt: skip


def _same_names(source: Any, target: Any, names: str) -> dict[Any, Any]:
    return {getattr(source, name): getattr(target, name) for name in names.split()}


DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: quantized.Quantize,
    DeQuantStub: quantized.DeQuantize,
    **_same_names(
        nn, quantized,
        "BatchNorm2d BatchNorm3d Dropout Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d ELU Embedding "
        "EmbeddingBag GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm LeakyReLU Linear ReLU6 PReLU "
        "Softmax",
    ),
    nn.modules.linear.NonDynamicallyQuantizableLinear: quantized.Linear,
    quantized.FloatFunctional: quantized.QFunctional,
    **_same_names(
        intrinsic, intrinsic_quantized,
        "BNReLU2d BNReLU3d ConvReLU1d ConvReLU2d ConvReLU3d ConvAdd2d ConvAddReLU2d LinearReLU LinearLeakyReLU LinearTanh",
    ),
    **{getattr(intrinsic_qat, f"ConvBn{n}d"): getattr(quantized, f"Conv{n}d") for n in (1, 2, 3)},
    **{getattr(intrinsic_qat, f"ConvBnReLU{n}d"): getattr(intrinsic_quantized, f"ConvReLU{n}d") for n in (1, 2, 3)},
    **_same_names(intrinsic_qat, intrinsic_quantized, "ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU"),
    intrinsic_qat.LinearBn1d: quantized.Linear,
    **_same_names(qat, quantized, "Linear Conv1d Conv2d Conv3d"),
}  # fmt: skip

DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: quantized.Quantize,
    DeQuantStub: quantized.DeQuantize,
    **_same_names(nn, reference, " ".join(reference.modules.__all__)),
}

DEFAULT_QAT_MODULE_MAPPINGS: dict[Any, Any] = {
    **_same_names(nn, qat, "Conv1d Conv2d Conv3d Linear"),
    nn.modules.linear.NonDynamicallyQuantizableLinear: qat.Linear,
    **_same_names(
        intrinsic, intrinsic_qat,
        "ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU LinearBn1d",
    ),
}  # fmt: skip

DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    **_same_names(nn, dynamic, "Linear LSTM GRU LSTMCell GRUCell RNNCell"),
    nn.modules.linear.NonDynamicallyQuantizableLinear: dynamic.Linear,
    qat_dynamic.Linear: dynamic.Linear,
    intrinsic.LinearReLU: intrinsic_dynamic.LinearReLU,
    **_same_names(nn, quantized, "EmbeddingBag Embedding"),
}
_EMBEDDING_QAT = _same_names(nn, qat, "EmbeddingBag Embedding")
_EMBEDDING_STATIC = {
    **_same_names(nn, quantized, "EmbeddingBag Embedding"), **_same_names(qat, quantized, "EmbeddingBag Embedding"),
}  # fmt: skip
DEFAULT_STATIC_QUANT_MODULE_MAPPINGS.update(_same_names(qat, quantized, "EmbeddingBag Embedding"))

DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS: dict[Any, Any] = {}
_UNIT, _SIGNED_UNIT = (
    fakes.default_fixed_qparams_range_0to1_fake_quant,
    fakes.default_fixed_qparams_range_neg1to1_fake_quant,
)
DEFAULT_MODULE_TO_ACT_POST_PROCESS = {
    nn.Hardsigmoid: _UNIT, nn.Sigmoid: _UNIT, nn.Softmax: _UNIT, nn.Tanh: _SIGNED_UNIT,
}  # fmt: skip


def no_observer_set() -> set[Any]:
    """Modules whose results lie on the grid of their input, or that have none."""
    from flambeau.ao.nn import quantizable

    parts_are_observed = {quantizable.LSTM, quantizable.MultiheadAttention}
    return {quantized.Dropout, nn.Dropout, nn.ReLU6} | parts_are_observed


def get_default_static_quant_module_mappings() -> dict[Any, Any]:
    """What `convert` replaces modules by."""
    return dict(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_static_quant_reference_module_mappings() -> dict[Any, Any]:
    """What `convert` with `is_reference` replaces modules by."""
    return dict(DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_qat_module_mappings() -> dict[Any, Any]:
    """What `prepare_qat` replaces modules by."""
    return dict(DEFAULT_QAT_MODULE_MAPPINGS)


def get_embedding_qat_module_mappings() -> dict[Any, Any]:
    """The same with embeddings."""
    return {**DEFAULT_QAT_MODULE_MAPPINGS, **_EMBEDDING_QAT}


def get_embedding_static_quant_module_mappings() -> dict[Any, Any]:
    """What `convert` replaces modules by, embeddings among them."""
    return {**DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, **_EMBEDDING_STATIC}


def get_default_dynamic_quant_module_mappings() -> dict[Any, Any]:
    """What `quantize_dynamic` replaces modules by."""
    return dict(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)


def get_default_float_to_quantized_operator_mappings() -> dict[Any, Any]:
    """Functions that have a quantized form of another name: none, all take quantized tensors."""
    return dict(DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS)


def get_default_qconfig_propagation_list() -> set[Any]:
    """Modules that get a configuration."""
    return {
        *DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, *DEFAULT_QAT_MODULE_MAPPINGS, *DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS, nn.Sequential,
    }  # fmt: skip


def get_default_compare_output_module_list() -> set[Any]:
    """Modules whose results are worth comparing before and after quantization."""
    tables = (DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, DEFAULT_QAT_MODULE_MAPPINGS, DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)
    return {kind for table in tables for pair in table.items() for kind in pair} | {nn.Sequential}


def get_static_quant_module_class(
    float_module_class: Any, additional_static_quant_mapping: Any = None, is_reference: bool = False
) -> Any:
    """The quantized form of a module."""
    table = DEFAULT_REFERENCE_STATIC_QUANT_MODULE_MAPPINGS if is_reference else DEFAULT_STATIC_QUANT_MODULE_MAPPINGS
    return _looked_up({**table, **(additional_static_quant_mapping or {})}, float_module_class, "static")


def get_dynamic_quant_module_class(float_module_class: Any, additional_dynamic_quant_mapping: Any = None) -> Any:
    """The dynamically quantized form of a module."""
    table = {**DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS, **(additional_dynamic_quant_mapping or {})}
    return _looked_up(table, float_module_class, "dynamic")


def get_quantized_operator(float_op: Any) -> Any:
    """The function that computes the same on quantized tensors: the function itself."""
    return DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS.get(float_op, float_op)


def _looked_up(table: dict[Any, Any], kind: Any, how: str) -> Any:
    if kind not in table:
        raise AssertionError(f"[quantization] expected a module with a {how} quantized form, got {kind}")
    return table[kind]
