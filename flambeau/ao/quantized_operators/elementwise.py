"""Functions that are computed from the values and rounded to a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.nn.quantized.modules.functional_modules import scalar_added, scalar_multiplied
from flambeau.ao.quantized_tensor import Grid, QuantizedTensor

__all__ = ["FUNCTIONS"]

functional = fl.nn.functional


def on_grid(values: Tensor, like: QuantizedTensor, scale: Any, zero_point: Any) -> QuantizedTensor:
    """Values on a grid of the dtype of another tensor."""
    scale = scale.item() if isinstance(scale, Tensor) else scale
    zero_point = zero_point.item() if isinstance(zero_point, Tensor) else zero_point
    return Grid(like.dtype, float(scale), int(zero_point)).quantize(values)


def _relu(result: QuantizedTensor) -> QuantizedTensor:
    return result.relu()  # type: ignore[return-value]


# ---------------------------------------------------------------------------------------------- sums and products


def _binary(compute: Callable[[Tensor, Tensor], Tensor], by_scalar: Any, relu: bool) -> Callable[..., Any]:
    """`f(a, b, scale, zero_point)`, `f(a, number)`, `f(a, b, out=)`."""

    def function(
        qa: QuantizedTensor, qb: Any, scale: Any = None, zero_point: Any = None, *, out: QuantizedTensor | None = None
    ) -> Any:
        if not isinstance(qb, QuantizedTensor):
            result = by_scalar(qa, float(qb))
            result = _relu(result) if relu else result
            return result if out is None else out.copy_(result)
        if qa.dtype is not qb.dtype or qa._grid.axis is not None or qb._grid.axis is not None:
            raise RuntimeError(
                f"[quantized] expected two tensors of one dtype with one scale each, got {qa.dtype} with {qa.qscheme()} "
                f"and {qb.dtype} with {qb.qscheme()}"
            )
        values = compute(qa.dequantize(), qb.dequantize())
        values = values.relu() if relu else values
        if out is None:
            return on_grid(values, qa, scale, zero_point)
        return out.copy_(out._grid.quantize(values))

    return function


def _with_out(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda qa, qb, out: function(qa, qb, out=out)


def cat(qx: Any, dim: int, scale: float | None = None, zero_point: int | None = None) -> QuantizedTensor:
    """Tensors side by side, on a grid or that of the first."""
    scale = qx[0].q_scale() if scale is None else scale
    zero_point = qx[0].q_zero_point() if zero_point is None else zero_point
    return on_grid(fl.cat([x.dequantize() for x in qx], dim), qx[0], scale, zero_point)


def cat_relu(qx: Any, dim: int, scale: float | None = None, zero_point: int | None = None) -> QuantizedTensor:
    return _relu(cat(qx, dim, scale, zero_point))


def cat_out(qx: Any, dim: int, out: QuantizedTensor) -> QuantizedTensor:
    return out.copy_(out._grid.quantize(fl.cat([x.dequantize() for x in qx], dim)))


def cat_relu_out(qx: Any, dim: int, out: QuantizedTensor) -> QuantizedTensor:
    return out.copy_(out._grid.quantize(fl.cat([x.dequantize() for x in qx], dim).relu()))


def matmul(qa: QuantizedTensor, qb: QuantizedTensor, scale: float, zero_point: int) -> QuantizedTensor:
    return on_grid(qa.dequantize() @ qb.dequantize(), qa, scale, zero_point)


# ---------------------------------------------------------------------------------------------- activations


def _activation(compute: Callable[..., Tensor], extra: int = 0) -> Callable[..., Any]:
    """`f(x, <extra arguments>, scale, zero_point, <the rest>)`."""

    def function(qx: QuantizedTensor, *args: Any, **kwargs: Any) -> QuantizedTensor:
        before, rest = args[:extra], list(args[extra:])
        scale = kwargs.pop("output_scale") if "output_scale" in kwargs else rest.pop(0)
        zero_point = kwargs.pop("output_zero_point") if "output_zero_point" in kwargs else rest.pop(0)
        return on_grid(compute(qx.dequantize(), *before, *rest, **kwargs), qx, scale, zero_point)

    return function


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    negative = scale * alpha * ((x * input_scale).exp() - 1)
    return fl.where(x > 0, scale * x, negative)


def relu6(qx: QuantizedTensor, inplace: bool = False) -> QuantizedTensor:
    result = qx._grid.quantize(qx.dequantize().clamp(0, 6))
    return qx.copy_(result) if inplace else result


def clamp(qx: QuantizedTensor, min: Any = None, max: Any = None) -> QuantizedTensor:
    return qx._grid.quantize(qx.dequantize().clamp(min, max))


def threshold(qx: QuantizedTensor, threshold: float, value: float) -> QuantizedTensor:
    return qx._grid.quantize(functional.threshold(qx.dequantize(), threshold, value))


def prelu(qx: QuantizedTensor, weight: QuantizedTensor, output_scale: float, output_zero_point: int) -> Any:
    return on_grid(functional.prelu(qx.dequantize(), weight.dequantize()), qx, output_scale, output_zero_point)


# ---------------------------------------------------------------------------------------------- norms and pools


def _batch_norm(dims: Any, relu: bool) -> Callable[..., Any]:
    def function(
        qx: QuantizedTensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, eps: float, output_scale: float,
        output_zero_point: int,
    ) -> QuantizedTensor:  # fmt: skip
        if dims is not None and qx.dim() not in dims:
            raise RuntimeError(f"[quantized::batch_norm] expected {dims} dimensions, got {qx.dim()}")
        values = functional.batch_norm(qx.dequantize(), mean, var, weight, bias, False, 0.0, eps)
        return on_grid(values.relu() if relu else values, qx, output_scale, output_zero_point)

    return function


def layer_norm(
    input: QuantizedTensor, normalized_shape: Any, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int
) -> QuantizedTensor:  # fmt: skip
    values = functional.layer_norm(input.dequantize(), normalized_shape, weight, bias, eps)
    return on_grid(values, input, output_scale, output_zero_point)


def group_norm(
    input: QuantizedTensor, num_groups: int, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int
) -> QuantizedTensor:  # fmt: skip
    values = functional.group_norm(input.dequantize(), num_groups, weight, bias, eps)
    return on_grid(values, input, output_scale, output_zero_point)


def instance_norm(
    input: QuantizedTensor, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int
) -> QuantizedTensor:
    values = functional.instance_norm(input.dequantize(), weight=weight, bias=bias, eps=eps)
    return on_grid(values, input, output_scale, output_zero_point)


def _max_pool(dims: int) -> Callable[..., Any]:
    pool = getattr(functional, f"max_pool{dims}d")

    def function(
        qx: QuantizedTensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:  # fmt: skip
        return pool(qx, kernel_size, stride or None, padding, dilation, ceil_mode)

    return function


def _dropout(x: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    return functional.dropout(x, p, training)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cat": cat, "cat_relu": cat_relu, "cat_out": cat_out, "cat_relu_out": cat_relu_out, "matmul": matmul,
    "sigmoid": _activation(fl.sigmoid), "tanh": _activation(fl.tanh), "hardswish": _activation(functional.hardswish),
    "elu": _activation(_elu), "celu": _activation(functional.celu), "softmax": _activation(fl.softmax, 1),
    "leaky_relu": _activation(lambda x, slope, inplace=False: functional.leaky_relu(x, slope), 2),
    "dropout": _activation(_dropout), "relu6": relu6, "clamp": clamp, "threshold": threshold, "prelu": prelu,
    "layer_norm": layer_norm, "group_norm": group_norm, "instance_norm": instance_norm,
    "max_pool1d": _max_pool(1), "max_pool2d": _max_pool(2), "max_pool3d": _max_pool(3),
}  # fmt: skip
for _name, _compute, _by_scalar in (("add", fl.add, scalar_added), ("mul", fl.mul, scalar_multiplied)):
    for _end, _with_relu in (("", False), ("_relu", True)):
        _function = _binary(_compute, _by_scalar, _with_relu)
        FUNCTIONS[_name + _end] = FUNCTIONS[f"{_name}_scalar{_end}"] = _function
        FUNCTIONS[f"{_name}{_end}_out"] = FUNCTIONS[f"{_name}_scalar{_end}_out"] = _with_out(_function)
for _dims, _shapes in (("", None), ("1d", (2, 3)), ("2d", (4,)), ("3d", (5,))):
    FUNCTIONS[f"batch_norm{_dims}"] = _batch_norm(_shapes, False)
    FUNCTIONS[f"batch_norm{_dims}_relu"] = _batch_norm(_shapes, True)
