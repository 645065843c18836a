"""Pooling in ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


def _each(value: Any, n: int) -> list[int]:
    return list(value) * (n if len(value) == 1 else 1) if isinstance(value, Sequence) else [value] * n


def _batched(g: Any, x: Any, n: int, make: Any) -> Any:
    """Pooling of a tensor that may lack its first dimension."""
    if x.rank != n + 1:
        return make(x)
    result = make(g.unsqueeze(x, 0))
    return tuple(g.squeeze(part, 0) for part in result) if isinstance(result, tuple) else g.squeeze(result, 0)


def _max_pool(n: int, indices: bool) -> Any:
    def rule(g: Any, self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        kernel = _each(kernel_size, n)
        attributes = {
            "kernel_shape": kernel, "strides": _each(stride, n) if stride else kernel, "pads": _each(padding, n) * 2,
            "dilations": _each(dilation, n), "ceil_mode": int(ceil_mode),
        }  # fmt: skip

        def make(x: Any) -> Any:
            if not indices:
                return g.op("MaxPool", x, **attributes)
            if any(not isinstance(size, int) for size in x.shape[1:]):
                raise g.unsupported("indices of maxima in images whose size varies")
            values, flat = g.op("MaxPool", x, outputs=2, **attributes)
            flat.dtype = fl.int64
            area = 1
            for size in x.shape[-n:]:
                area *= size
            return values, g.op("Mod", flat, g.constant(area, fl.int64), dtype=fl.int64)

        return _batched(g, self, n, make)

    return rule


def _avg_pool(n: int) -> Any:
    def rule(
        g: Any, self: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
        divisor_override: Any = None,
    ) -> Any:  # fmt: skip
        if divisor_override is not None:
            raise g.unsupported("a divisor of its own")
        kernel = _each(kernel_size, n)
        attributes = {
            "kernel_shape": kernel, "strides": _each(stride, n) if stride else kernel, "pads": _each(padding, n) * 2,
            "ceil_mode": int(ceil_mode), "count_include_pad": int(count_include_pad),
        }  # fmt: skip
        return _batched(g, self, n, lambda x: g.op("AveragePool", x, **attributes))

    return rule


def _adaptive(g: Any, self: Any, output_size: Any, n: int, whole: str, kind: str) -> Any:
    sizes = [self.shape[i - n] if size is None else size for i, size in enumerate(output_size)]
    if all(size == 1 for size in sizes):
        return _batched(g, self, n, lambda x: g.op(whole, x))
    spans = self.shape[-n:]
    if kind == "AveragePool" and n <= 2 and all(isinstance(span, int) for span in spans) and any(span % size for span, size in zip(spans, sizes)):  # fmt: skip
        return _averaged(g, self, spans, sizes)
    if any(not isinstance(span, int) or span % size for span, size in zip(spans, sizes)):
        raise g.unsupported("windows of different sizes: the input's size is no multiple of the output's")
    kernel = [span // size for span, size in zip(spans, sizes)]
    if all(size == 1 for size in kernel):
        return self
    return _batched(g, self, n, lambda x: g.op(kind, x, kernel_shape=kernel, strides=kernel))


def _averaged(g: Any, x: Any, spans: Any, sizes: Any) -> Any:
    """Windows of different sizes, as products with matrices of means."""
    matrices = []
    for span, size in zip(spans, sizes):
        mean = fl.zeros(size, span, dtype=x.dtype)
        for i in range(size):
            first, last = i * span // size, -(-(i + 1) * span // size)
            mean[i, first:last] = 1.0 / (last - first)
        matrices.append(mean)
    averaged = g.op("MatMul", x, g.constant(matrices[-1].t().contiguous()))
    return averaged if len(matrices) == 1 else g.op("MatMul", g.constant(matrices[0]), averaged, dtype=x.dtype)


def _adaptive_avg(n: int) -> Any:
    def rule(g: Any, self: Any, output_size: Any) -> Any:
        return _adaptive(g, self, _each(output_size, n), n, "GlobalAveragePool", "AveragePool")

    return rule


for _n in (1, 2, 3):
    onnx(f"max_pool{_n}d")(_max_pool(_n, False))
    onnx(f"max_pool{_n}d_with_indices")(_max_pool(_n, True))
    onnx(f"avg_pool{_n}d")(_avg_pool(_n))
    onnx(f"adaptive_avg_pool{_n}d")(_adaptive_avg(_n))


def _adaptive_max(n: int) -> Any:
    def rule(g: Any, self: Any, output_size: Any) -> Any:
        values = _adaptive(g, self, _each(output_size, n), n, "GlobalMaxPool", "MaxPool")
        return values, None

    return rule


onnx("_adaptive_max_pool2d")(_adaptive_max(2))
onnx("_adaptive_max_pool3d")(_adaptive_max(3))
onnx("adaptive_max_pool1d")(_adaptive_max(1))
