"""Products in ONNX."""

from __future__ import annotations

from typing import Any

from flambeau.ops.rules import onnx


def _product(g: Any, a: Any, b: Any) -> Any:
    return g.op("MatMul", g.cast(a, g.dtype), g.cast(b, g.dtype))


@onnx("mm", "mv", "dot", "bmm", "matmul", "linalg_matmul")
def matmul(g: Any, **arguments: Any) -> Any:
    first, second = list(arguments.values())[:2]
    return _product(g, first, second)


@onnx("linear")
def linear(g: Any, input: Any, weight: Any, bias: Any) -> Any:
    if input.rank == 2 and weight.rank == 2:
        return g.op("Gemm", input, weight, *([] if bias is None else [bias]), transB=1)
    turned = g.op("Transpose", weight, perm=[1, 0]) if weight.rank == 2 else weight
    product = _product(g, input, turned)
    return product if bias is None else g.op("Add", product, bias)


@onnx("addmm")
def addmm(g: Any, self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    return g.op("Gemm", mat1, mat2, self, alpha=float(alpha), beta=float(beta))


@onnx("baddbmm")
def baddbmm(g: Any, self: Any, batch1: Any, batch2: Any, beta: Any, alpha: Any) -> Any:
    product = _product(g, batch1, batch2)
    product = product if alpha == 1 else g.op("Mul", product, g.cast(alpha, g.dtype))
    return g.op("Add", self if beta == 1 else g.op("Mul", self, g.cast(beta, g.dtype)), product)


@onnx("einsum")
def einsum(g: Any, equation: str, operands: Any) -> Any:
    return g.op("Einsum", *operands, equation=equation.replace(" ", ""))


@onnx("outer", "ger")
def outer(g: Any, self: Any, vec2: Any) -> Any:
    return g.op("Mul", g.unsqueeze(self, 1), g.unsqueeze(vec2, 0))
