"""Linear layers and convolutions with weights that were packed before: static, dynamic, and with weights in half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._tensor.quantized_types import qint8, quint8
from flambeau.ao.nn import quantized
from flambeau.ao.nn.quantized import dynamic
from flambeau.ao.quantized_operators.elementwise import on_grid
from flambeau.ao.quantized_tensor import QuantizedTensor

__all__ = ["FUNCTIONS", "PackedParams"]

functional = fl.nn.functional


class PackedParams:
    """Weight and bias of a layer as its kernels read them."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def unpack(self) -> tuple[Any, Tensor | None]:
        return self.layer._weight_bias()

    def bias(self) -> Tensor | None:
        return self.layer._weight_bias()[1]

    def stride(self) -> list[int]:
        return list(self.layer.stride)

    def padding(self) -> list[int]:
        return list(self.layer.padding)

    def output_padding(self) -> list[int]:
        return list(self.layer.output_padding)

    def dilation(self) -> list[int]:
        return list(self.layer.dilation)

    def groups(self) -> int:
        return self.layer.groups

    def transpose(self) -> bool:
        return self.layer.transposed


class PackedLinear(PackedParams):
    """The same of a linear layer, as archives have it."""

    STATE_TYPE = "(Tensor, Tensor?)"
    script_class = "__torch__.torch.classes.quantized.LinearPackedParamsBase"

    def script_state(self) -> Any:
        weight, bias = self.unpack()
        return (weight if weight.is_quantized else weight.float()), bias

    def set_script_state(self, state: Any) -> None:
        weight, bias = state
        pack = linear_prepack if weight.is_quantized else linear_prepack_fp16
        self.layer = pack(weight, bias).layer


class PackedConvolution(PackedParams):
    """The same of a convolution. Archives have one over sequences as one over images of height one."""

    STATE_TYPE = "(str, Tensor[], Tensor?[])"
    VERSION = "2"  # of the layout

    @property
    def script_class(self) -> str:
        return f"__torch__.torch.classes.quantized.Conv{max(2, self.layer.ndim)}dPackedParamsBase"

    def script_state(self) -> Any:
        layer, weight = self.layer, self.layer.weight()
        flat = layer.ndim == 1
        weight = weight._grid.hold(weight.int_repr().unsqueeze(2)) if flat else weight
        numbers = [max(2, layer.ndim)]
        for setting, default in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0)):
            numbers += [*([default] if flat else []), *getattr(layer, setting)]
        numbers += [layer.groups, int(layer.transposed)]
        return self.VERSION, [fl.tensor(numbers, dtype=fl.int16), weight], [layer.bias()]

    def set_script_state(self, state: Any) -> None:
        numbers, weight, bias = _convolution_state(state)
        dims, *rest = numbers
        stride, padding, dilation, output_padding = (rest[i * dims : (i + 1) * dims] for i in range(4))
        groups, transposed = rest[4 * dims :]
        kind = getattr(quantized, f"Conv{'Transpose' if transposed else ''}{dims}d")
        settings = (stride, padding, *([output_padding] if transposed else []), dilation, groups)
        self.layer = _prepack(kind, bool(transposed))(weight, bias, *settings).layer


def _convolution_state(state: Any) -> tuple[list[int], Any, Any]:
    """The settings of a convolution in the order of the present layout, its weight and its bias, from any layout."""
    if isinstance(state[0], Tensor):  # the first one
        weight, bias, *settings, groups = state
        stride, padding, dilation = ([int(n) for n in setting] for setting in settings)
        return [len(stride), *stride, *padding, *dilation, *[0] * len(stride), int(groups), 0], weight, bias
    version, first, second = state
    if version == 3:
        _, weight, bias = second
        return list(first), weight, bias
    if version != PackedConvolution.VERSION:
        raise RuntimeError(f"[jit.load] expected packed weights of version 1, 2 or 3, got {version!r}")
    return first[0].tolist(), first[1], second[0]


def layer_of(packed: Any) -> Any:
    """The layer of packed weights; of weight and bias as linear modules hold them."""
    return (linear_prepack(*packed) if isinstance(packed, tuple) else packed).layer


# ---------------------------------------------------------------------------------------------- linear


def _checked_weight(name: str, weight: Any) -> QuantizedTensor:
    if not isinstance(weight, QuantizedTensor) or weight.dtype is not qint8:
        raise RuntimeError(f"[{name}] expected a weight of qint8, got {weight.dtype}")
    return weight


def linear_prepack(W: QuantizedTensor, B: Tensor | None = None) -> PackedParams:
    """A weight and bias as the kernels of linear layers read them."""
    _checked_weight("quantized::linear_prepack", W)
    layer = quantized.Linear(W.shape[1], W.shape[0], B is not None)
    layer.set_weight_bias(W, B)
    return PackedLinear(layer)


def linear_prepack_fp16(W: Tensor, B: Tensor | None = None) -> PackedParams:
    layer = dynamic.Linear(W.shape[1], W.shape[0], B is not None, fl.float16)
    layer.set_weight_bias(W.detach().half(), B)
    return PackedLinear(layer)


def _linear(post_op: str) -> Callable[..., Any]:
    def function(X: QuantizedTensor, W_prepack: PackedParams, Y_scale_i: float, Y_zero_point_i: int) -> QuantizedTensor:
        return layer_of(W_prepack).on_grid(X, float(Y_scale_i), int(Y_zero_point_i), post_op)

    return function


def linear_leaky_relu(
    X: QuantizedTensor, W_prepack: PackedParams, Y_scale_i: float, Y_zero_point_i: int, negative_slope: float
) -> QuantizedTensor:
    values = _float_product(X, W_prepack)
    return on_grid(functional.leaky_relu(values, negative_slope), X, Y_scale_i, Y_zero_point_i)


def _float_product(X: QuantizedTensor, packed: PackedParams, post_op: str = "none") -> Tensor:
    operands = layer_of(packed).operands()
    return fl._ops._int8_linear(X.int_repr(), X.q_scale(), X.q_zero_point(), *operands, 1.0, 0, None, post_op)


def _dynamic(post_op: str) -> Callable[..., Any]:
    def function(X: Tensor, W_prepack: PackedParams, reduce_range: bool = False) -> Tensor:
        return fl._ops._int8_linear_dynamic(X, *layer_of(W_prepack).operands(), reduce_range, False, post_op)

    return function


def _half(relu: bool) -> Callable[..., Any]:
    def function(X: Tensor, W_prepack: PackedParams) -> Tensor:
        weight, bias = unpack(W_prepack)
        values = functional.linear(X, weight.float(), bias)
        return values.relu() if relu else values

    return function


def linear_dynamic_fp16_unpacked_weight(X: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.linear(X, weight.half().float(), bias)


def _from_float(relu: bool) -> Callable[..., Any]:
    """Puts a float input on a grid and multiplies."""

    def function(X: Tensor, X_scale: float, X_zero_point: int, W_prepack: PackedParams) -> Tensor:
        return _float_product(fl.quantize_per_tensor(X, X_scale, X_zero_point, quint8), W_prepack, "relu" if relu else "none")  # fmt: skip

    return function


def unpack(packed: PackedParams) -> tuple[Any, Tensor | None]:
    """Weight and bias as they were before packing."""
    return packed if isinstance(packed, tuple) else packed.unpack()


# ---------------------------------------------------------------------------------------------- convolutions


def _prepack(kind: Any, transposed: bool) -> Callable[..., Any]:
    def function(weight: QuantizedTensor, bias: Tensor | None, stride: Any, padding: Any, *rest: Any) -> PackedParams:
        _checked_weight("quantized::conv_prepack", weight)
        output_padding, dilation, groups = rest if transposed else (0, *rest)
        n, out = weight.dim() - 2, weight.shape[1] * groups if transposed else weight.shape[0]
        channels = weight.shape[0] if transposed else weight.shape[1] * groups
        spread: Any = lambda v: tuple(v) * n if isinstance(v, (list, tuple)) and len(v) == 1 else v  # noqa: E731
        settings = {"stride": spread(stride), "padding": spread(padding), "dilation": spread(dilation)}
        if transposed:
            settings["output_padding"] = spread(output_padding)
        layer = kind(channels, out, tuple(weight.shape[2:]), groups=groups, bias=bias is not None, **settings)
        layer.set_weight_bias(weight, bias)
        return PackedConvolution(layer)

    return function


def _on_images(convolve: Callable[[Any], Any], x: Any, layer: Any) -> Any:
    """Sequences as images of height one, where the weights came from an archive, which has no others."""
    if layer.ndim != 2 or layer.weight().shape[2] != 1 or x.dim() != 3:
        return convolve(x)
    return convolve(x.unsqueeze(2)).squeeze(2)


def _convolution(post_op: str) -> Callable[..., Any]:
    """`f(x, packed, scale, zero_point)`; an older form has the settings, which the packed weight knows, before the grid."""

    def function(qx: QuantizedTensor, packed_weight: PackedParams, *args: Any, **kwargs: Any) -> QuantizedTensor:
        scale: Any = kwargs.get("output_scale", args[-2] if len(args) > 1 else None)
        zero_point: Any = kwargs.get("output_zero_point", args[-1] if args else None)
        layer = packed_weight.layer
        return _on_images(lambda x: layer.on_grid(x, float(scale), int(zero_point), post_op), qx, layer)

    return function


def _convolution_and_sum(post_op: str) -> Callable[..., Any]:
    def function(
        qx: QuantizedTensor, qaccum: QuantizedTensor, packed_weight: PackedParams, output_scale: float, output_zero_point: int
    ) -> QuantizedTensor:  # fmt: skip
        other = qaccum.int_repr(), qaccum.q_scale(), qaccum.q_zero_point()
        return packed_weight.layer.on_grid(qx, float(output_scale), int(output_zero_point), post_op, *other)

    return function


def _dynamic_convolution(dims: int, transposed: bool) -> Callable[..., Any]:
    kind = getattr(dynamic, f"Conv{'Transpose' if transposed else ''}{dims}d")

    def function(qx: Tensor, packed_weight: PackedParams, reduce_range: bool = False) -> Tensor:
        layer = packed_weight.layer
        return _on_images(lambda x: kind.forward(layer, x, reduce_range), qx, layer)

    return function


def _setting(name: str) -> Callable[..., Any]:
    return lambda packed_weights: getattr(packed_weights, name)()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linear_prepack": linear_prepack, "linear_prepack_fp16": linear_prepack_fp16, "linear_unpack": unpack,
    "linear_unpack_fp16": unpack, "linear": _linear("none"), "linear_relu": _linear("relu"), "linear_tanh": _linear("tanh"),
    "linear_leaky_relu": linear_leaky_relu, "linear_dynamic": _dynamic("none"), "linear_relu_dynamic": _dynamic("relu"),
    "linear_dynamic_fp16": _half(False), "linear_relu_dynamic_fp16": _half(True),
    "linear_dynamic_fp16_unpacked_weight": linear_dynamic_fp16_unpacked_weight,
    "linear_with_input_q_dq_qweight_dq_output_fp32": _from_float(False),
    "linear_with_input_q_dq_qweight_dq_relu_output_fp32": _from_float(True),
    "conv2d_add": _convolution_and_sum("add"), "conv2d_add_relu": _convolution_and_sum("add_relu"), "conv_unpack": unpack,
}  # fmt: skip
for _n in (1, 2, 3):
    for _form, _transposed in (("conv", False), ("conv_transpose", True)):
        _name = f"{_form}{_n}d"
        _kind = getattr(quantized, f"Conv{'Transpose' if _transposed else ''}{_n}d")
        FUNCTIONS[f"{_name}_prepack"] = _prepack(_kind, _transposed)
        FUNCTIONS[_name] = _convolution("none")
        FUNCTIONS[f"{_name}_relu"] = _convolution("relu")
        FUNCTIONS[f"{_name}_dynamic"] = _dynamic_convolution(_n, _transposed)
        FUNCTIONS[f"{_name}_unpack"] = unpack
        for _each in ("stride", "padding", "output_padding", "dilation", "groups", "transpose"):
            FUNCTIONS[f"{_name}_{_each}"] = _setting(_each)
