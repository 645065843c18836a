"""Pointwise operators in ONNX."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx

_UNARY = {
    "neg": "Neg", "abs": "Abs", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "floor": "Floor", "ceil": "Ceil",
    "round": "Round", "sign": "Sign", "reciprocal": "Reciprocal", "relu": "Relu",
}  # fmt: skip


def _unary(name: str, op_type: str) -> None:
    @onnx(name)
    def rule(g: Any, self: Any) -> Any:
        dtype = g.dtype
        if not dtype.is_floating_point and op_type in ("Floor", "Ceil", "Round"):
            return self
        return g.op(op_type, g.cast(self, dtype))


for _name, _op_type in _UNARY.items():
    _unary(_name, _op_type)


def _binary(name: str, op_type: str) -> None:
    @onnx(name)
    def rule(g: Any, self: Any, other: Any) -> Any:
        return g.op(op_type, g.cast(self, g.dtype), g.cast(other, g.dtype))


for _name, _op_type in {
    "mul.Tensor": "Mul", "mul.Number": "Mul", "multiply.Tensor": "Mul", "maximum": "Max", "minimum": "Min", "max.other": "Max",
    "min.other": "Min", "fmax": "Max", "fmin": "Min",
}.items():  # fmt: skip
    if fl._C._record_place(_name) is not None and fl._C._record_place(_name)[0].startswith("flambeau.ops.elementwise"):
        _binary(_name, _op_type)


def _scaled(g: Any, x: Any, alpha: Any) -> Any:
    value = g.cast(x, g.dtype)
    return value if alpha == 1 else g.op("Mul", value, g.cast(alpha, g.dtype))


def _as_boolean(g: Any, op_type: str, self: Any, other: Any) -> Any:
    return g.op(op_type, g.cast(self, fl.bool), g.cast(other, fl.bool), dtype=fl.bool)


@onnx("add.Tensor", "add.Number")
def add(g: Any, self: Any, other: Any, alpha: Any) -> Any:
    if g.dtype == fl.bool:
        return _as_boolean(g, "Or", self, other)
    return g.op("Add", g.cast(self, g.dtype), _scaled(g, other, alpha))


@onnx("sub.Tensor", "sub.Number")
def sub(g: Any, self: Any, other: Any, alpha: Any) -> Any:
    return g.op("Sub", g.cast(self, g.dtype), _scaled(g, other, alpha))


@onnx("rsub.Tensor")
def rsub(g: Any, self: Any, other: Any, alpha: Any) -> Any:
    return g.op("Sub", g.cast(other, g.dtype), _scaled(g, self, alpha))


@onnx("div.Tensor", "div.Number", "true_divide.Tensor")
def div(g: Any, self: Any, other: Any) -> Any:
    return g.op("Div", g.cast(self, g.dtype), g.cast(other, g.dtype))


def _floor_of_quotient(g: Any, self: Any, other: Any) -> Any:
    a, b = g.cast(self, g.dtype), g.cast(other, g.dtype)
    if g.dtype.is_floating_point:
        return g.op("Floor", g.op("Div", a, b))
    # ONNX truncates: one less where the remainder has another sign than the divisor.
    quotient = g.op("Div", a, b)
    remainder = g.op("Mod", a, b)
    truncated = g.op("Sub", a, g.op("Mul", quotient, b))
    wrong = g.op("Not", g.op("Equal", remainder, truncated, dtype=fl.bool))
    return g.op("Sub", quotient, g.cast(wrong, g.dtype))


@onnx("div.Tensor_mode", "div.Number_mode")
def div_mode(g: Any, self: Any, other: Any, rounding_mode: Any) -> Any:
    if rounding_mode is None:
        return div(g, self, other)
    if rounding_mode == "floor":
        return _floor_of_quotient(g, self, other)
    quotient = div(g, self, other)
    if not g.dtype.is_floating_point:
        return quotient
    return g.op("Mul", g.op("Sign", quotient), g.op("Floor", g.op("Abs", quotient)))


@onnx("floor_divide", "floor_divide.Number")
def floor_divide(g: Any, self: Any, other: Any) -> Any:
    return _floor_of_quotient(g, self, other)


@onnx("_div_trunc")
def div_trunc(g: Any, self: Any, other: Any) -> Any:
    return div_mode(g, self, other, "trunc")


@onnx("remainder.Tensor", "remainder.Scalar_Tensor")
def remainder(g: Any, self: Any, other: Any) -> Any:
    a, b = g.cast(self, g.dtype), g.cast(other, g.dtype)
    if not g.dtype.is_floating_point:
        return g.op("Mod", a, b)
    return g.op("Sub", a, g.op("Mul", g.op("Floor", g.op("Div", a, b)), b))


@onnx("fmod.Tensor")
def fmod(g: Any, self: Any, other: Any) -> Any:
    return g.op("Mod", g.cast(self, g.dtype), g.cast(other, g.dtype), fmod=1)


@onnx("pow.Tensor_Tensor", "pow.Scalar")
def pow(g: Any, self: Any, exponent: Any) -> Any:
    base = g.cast(self, g.dtype)
    if exponent == 2 and not hasattr(exponent, "name"):
        return g.op("Mul", base, base)
    if exponent == 0.5 and not hasattr(exponent, "name"):
        return g.op("Sqrt", base)
    return g.op("Pow", base, g.cast(exponent, g.dtype))


@onnx("square")
def square(g: Any, self: Any) -> Any:
    return g.op("Mul", self, self)


@onnx("rsqrt")
def rsqrt(g: Any, self: Any) -> Any:
    return g.op("Reciprocal", g.op("Sqrt", g.cast(self, g.dtype)))


@onnx("exp2")
def exp2(g: Any, self: Any) -> Any:
    return g.op("Pow", g.constant(2.0, g.dtype), g.cast(self, g.dtype), dtype=g.dtype)


@onnx("expm1")
def expm1(g: Any, self: Any) -> Any:
    return g.op("Sub", g.op("Exp", g.cast(self, g.dtype)), g.constant(1.0, g.dtype))


@onnx("log1p")
def log1p(g: Any, self: Any) -> Any:
    return g.op("Log", g.op("Add", g.cast(self, g.dtype), g.constant(1.0, g.dtype)))


def _logarithm(base: float) -> Any:
    def rule(g: Any, self: Any) -> Any:
        return g.op("Div", g.op("Log", g.cast(self, g.dtype)), g.constant(math.log(base), g.dtype))

    return rule


onnx("log2")(_logarithm(2.0))
onnx("log10")(_logarithm(10.0))


@onnx("trunc")
def trunc(g: Any, self: Any) -> Any:
    if not g.dtype.is_floating_point:
        return self
    return g.op("Mul", g.op("Sign", self), g.op("Floor", g.op("Abs", self)))


@onnx("erfc")
def erfc(g: Any, self: Any) -> Any:
    return g.op("Sub", g.constant(1.0, g.dtype), g.op("Erf", g.cast(self, g.dtype)), dtype=g.dtype)


@onnx("addcmul")
def addcmul(g: Any, self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    product = g.op("Mul", g.cast(tensor1, g.dtype), g.cast(tensor2, g.dtype))
    return g.op("Add", g.cast(self, g.dtype), _scaled(g, product, value))


@onnx("lerp.Scalar", "lerp.Tensor")
def lerp(g: Any, self: Any, end: Any, weight: Any) -> Any:
    return g.op("Add", self, g.op("Mul", g.cast(weight, g.dtype), g.op("Sub", end, self)))


@onnx("atan2")
def atan2(g: Any, self: Any, other: Any) -> Any:
    y, x = g.cast(self, g.dtype), g.cast(other, g.dtype)
    zero = g.constant(0.0, g.dtype)
    angle = g.op("Atan", g.op("Div", y, x))
    upper = g.op("Not", g.op("Less", y, zero, dtype=fl.bool))
    shift = g.op("Where", upper, g.constant(math.pi, g.dtype), g.constant(-math.pi, g.dtype), dtype=g.dtype)
    half = g.op("Where", upper, g.constant(math.pi / 2, g.dtype), g.constant(-math.pi / 2, g.dtype), dtype=g.dtype)
    left = g.op("Where", g.op("Less", x, zero, dtype=fl.bool), g.op("Add", angle, shift), angle, dtype=g.dtype)
    sided = g.op("Where", g.op("Equal", x, zero, dtype=fl.bool), half, left, dtype=g.dtype)
    both = g.op("And", g.op("Equal", x, zero, dtype=fl.bool), g.op("Equal", y, zero, dtype=fl.bool))
    return g.op("Where", both, zero, sided, dtype=g.dtype)


# ---------------------------------------------------------------------------------------------- comparison and logic


def _comparison(name: str, op_type: str, negated: bool = False) -> None:
    @onnx(name)
    def rule(g: Any, self: Any, other: Any) -> Any:
        a, b = g.promoted(self, other)
        if a.dtype == fl.bool and op_type != "Equal":
            a, b = g.cast(a, fl.int32), g.cast(b, fl.int32)
        result = g.op(op_type, a, b, dtype=fl.bool)
        return g.op("Not", result) if negated else result


for _name, _op_type in {
    "eq": "Equal",
    "lt": "Less",
    "gt": "Greater",
    "le": "LessOrEqual",
    "ge": "GreaterOrEqual",
}.items():
    _comparison(f"{_name}.Tensor", _op_type)
_comparison("ne.Tensor", "Equal", negated=True)


def _logical(name: str, op_type: str) -> None:
    @onnx(name)
    def rule(g: Any, self: Any, other: Any) -> Any:
        return _as_boolean(g, op_type, self, other)


for _name, _op_type in {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}.items():
    _logical(_name, _op_type)


@onnx("logical_not")
def logical_not(g: Any, self: Any) -> Any:
    return g.op("Not", g.cast(self, fl.bool))


def _bitwise(name: str, op_type: str) -> None:
    @onnx(f"{name}.Tensor", f"{name}.Scalar_Tensor")
    def rule(g: Any, self: Any, other: Any) -> Any:
        if g.dtype == fl.bool:
            return _as_boolean(g, op_type, self, other)
        if g.opset < 18:
            raise g.unsupported("bits of integers need opset 18")
        return g.op(f"Bitwise{op_type}", g.cast(self, g.dtype), g.cast(other, g.dtype))


for _name, _op_type in {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"}.items():
    _bitwise(_name, _op_type)


@onnx("bitwise_not")
def bitwise_not(g: Any, self: Any) -> Any:
    return g.op("Not" if g.dtype == fl.bool else "BitwiseNot", self)


@onnx("where.self")
def where(g: Any, condition: Any, self: Any, other: Any) -> Any:
    return g.op("Where", g.cast(condition, fl.bool), g.cast(self, g.dtype), g.cast(other, g.dtype), dtype=g.dtype)


@onnx("where.method")
def where_method(g: Any, self: Any, condition: Any, other: Any) -> Any:
    return where(g, condition, self, other)


@onnx("masked_fill")
def masked_fill(g: Any, self: Any, mask: Any, value: Any) -> Any:
    return where(g, mask, value, self)


@onnx("isnan")
def isnan(g: Any, self: Any) -> Any:
    return g.op("IsNaN", self, dtype=fl.bool)


@onnx("isinf")
def isinf(g: Any, self: Any) -> Any:
    return g.op("IsInf", self, dtype=fl.bool)


# ---------------------------------------------------------------------------------------------- bounds and activations


def _clipped(g: Any, x: Any, low: Any, high: Any) -> Any:
    tensors = any(hasattr(bound, "name") and bound.shape != () for bound in (low, high))
    x = g.cast(x, g.dtype)
    if tensors:
        x = x if low is None else g.op("Max", x, g.cast(low, g.dtype))
        return x if high is None else g.op("Min", x, g.cast(high, g.dtype))
    bounds = [None if bound is None else g.cast(bound, g.dtype) for bound in (low, high)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    return g.op("Clip", x, *bounds)


@onnx("clamp", "clamp.Tensor", "_clamp")
def clamp(g: Any, self: Any, min: Any, max: Any) -> Any:
    return _clipped(g, self, min, max)


@onnx("clamp_min")
def clamp_min(g: Any, self: Any, min: Any) -> Any:
    return _clipped(g, self, min, None)


@onnx("clamp_max")
def clamp_max(g: Any, self: Any, max: Any) -> Any:
    return _clipped(g, self, None, max)


@onnx("hardtanh")
def hardtanh(g: Any, self: Any, min_val: Any, max_val: Any) -> Any:
    return _clipped(g, self, min_val, max_val)


@onnx("relu6")
def relu6(g: Any, self: Any) -> Any:
    return _clipped(g, self, 0.0, 6.0)


@onnx("leaky_relu")
def leaky_relu(g: Any, self: Any, negative_slope: Any) -> Any:
    return g.op("LeakyRelu", self, alpha=float(negative_slope))


@onnx("elu")
def elu(g: Any, self: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    if input_scale != 1:
        raise g.unsupported("a scale of the input other than 1")
    result = g.op("Elu", self, alpha=float(alpha))
    return result if scale == 1 else g.op("Mul", result, g.constant(float(scale), g.dtype))


@onnx("selu")
def selu(g: Any, self: Any) -> Any:
    return g.op("Selu", self, alpha=1.6732632423543772, gamma=1.0507009873554805)


@onnx("celu")
def celu(g: Any, self: Any, alpha: Any) -> Any:
    return g.op("Celu", self, alpha=float(alpha))


@onnx("silu")
def silu(g: Any, self: Any) -> Any:
    return g.op("Mul", self, g.op("Sigmoid", self))


@onnx("mish")
def mish(g: Any, self: Any) -> Any:
    return g.op("Mul", self, g.op("Tanh", g.op("Softplus", self)))


@onnx("softplus")
def softplus(g: Any, self: Any, beta: Any, threshold: Any) -> Any:
    if beta == 1:
        return g.op("Softplus", self)
    factor = g.constant(float(beta), g.dtype)
    return g.op("Div", g.op("Softplus", g.op("Mul", self, factor)), factor)


@onnx("log_sigmoid")
def log_sigmoid(g: Any, self: Any) -> Any:
    return g.op("Neg", g.op("Softplus", g.op("Neg", self)))


@onnx("hardsigmoid")
def hardsigmoid(g: Any, self: Any) -> Any:
    return g.op("HardSigmoid", self, alpha=1.0 / 6.0, beta=0.5)


@onnx("hardswish")
def hardswish(g: Any, self: Any) -> Any:
    return g.op("HardSwish", self)


@onnx("gelu")
def gelu(g: Any, self: Any, approximate: str) -> Any:
    if g.opset >= 20:
        return g.op("Gelu", self, approximate=approximate)
    half, one = g.constant(0.5, g.dtype), g.constant(1.0, g.dtype)
    if approximate == "tanh":
        cubed = g.op("Mul", g.op("Mul", self, self), self)
        inner = g.op("Add", self, g.op("Mul", cubed, g.constant(0.044715, g.dtype)))
        curve = g.op("Tanh", g.op("Mul", inner, g.constant(math.sqrt(2 / math.pi), g.dtype)))
    else:
        curve = g.op("Erf", g.op("Div", self, g.constant(math.sqrt(2.0), g.dtype)))
    return g.op("Mul", g.op("Mul", self, half), g.op("Add", curve, one))


@onnx("threshold")
def threshold(g: Any, self: Any, threshold: Any, value: Any) -> Any:
    above = g.op("Greater", self, g.constant(float(threshold), g.dtype), dtype=fl.bool)
    return g.op("Where", above, self, g.constant(float(value), g.dtype), dtype=g.dtype)


@onnx("hardshrink")
def hardshrink(g: Any, self: Any, lambd: Any) -> Any:
    return g.op("Shrink", self, lambd=float(lambd), bias=0.0)


@onnx("softshrink")
def softshrink(g: Any, self: Any, lambd: Any) -> Any:
    return g.op("Shrink", self, lambd=float(lambd), bias=float(lambd))


@onnx("_prelu_kernel")
def prelu(g: Any, self: Any, weight: Any) -> Any:
    return g.op("PRelu", self, weight)


@onnx("_nan_to_num")
def nan_to_num(g: Any, self: Any, nan: float, posinf: float, neginf: float) -> Any:
    result = g.op("Where", g.op("IsNaN", self, dtype=fl.bool), g.constant(float(nan), g.dtype), self, dtype=g.dtype)
    for value, sign in ((posinf, "positive"), (neginf, "negative")):
        others = {"detect_negative": int(sign == "negative"), "detect_positive": int(sign == "positive")}
        infinite = g.op("IsInf", self, dtype=fl.bool, **others)
        result = g.op("Where", infinite, g.constant(float(value), g.dtype), result, dtype=g.dtype)
    return result


@onnx("xlogy.Tensor")
def xlogy(g: Any, self: Any, other: Any) -> Any:
    a, b = g.cast(self, g.dtype), g.cast(other, g.dtype)
    zero = g.constant(0.0, g.dtype)
    return g.op("Where", g.op("Equal", a, zero, dtype=fl.bool), zero, g.op("Mul", a, g.op("Log", b)), dtype=g.dtype)
