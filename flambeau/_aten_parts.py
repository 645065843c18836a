"""How handlers of `__torch_dispatch__` see operators that ATen takes apart, or has under another name.

Programs that count work, choose what to keep or define a tensor of their own compare operators with `aten.mm`,
`aten.addmm`, `aten.t`, `aten.convolution`; here `matmul`, `linear` and convolutions are one operator each. `PARTS` has a
function for each of those. It computes the result by ATen's operators, each of which reaches the handler, or returns the
operator and the arguments that ATen has for the call, or NotImplemented where the operator is the same there. Modes of
the package itself (`_sees_parts = False`) see operators as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl


def _aten() -> Any:
    return fl.ops.aten


def _transpose(self: Any, dim0: int, dim1: int) -> Any:
    return (_aten().t.default, (self,)) if self.dim() == 2 and (dim0, dim1) == (0, 1) else NotImplemented


def _matmul(self: Any, other: Any) -> Any:
    a, b = self.dim(), other.dim()
    if not a or not b or self.dtype != other.dtype:
        return NotImplemented  # and let the operator say what is wrong
    if a == 1 and b == 1:
        return fl.dot(self, other)
    if a == 2 and b == 1:
        return fl.mv(self, other)
    if a == 1 and b == 2:
        return fl.mm(self.unsqueeze(0), other).squeeze(0)
    if a == 2 and b == 2:
        return fl.mm(self, other)
    if self.shape[-1] != other.shape[max(b - 2, 0)]:
        return NotImplemented
    if b <= 2:  # the dimensions in front are rows of one product
        rows = self.reshape(-1, self.shape[-1])
        made = fl.mv(rows, other) if b == 1 else fl.mm(rows, other)
        return made.view([*self.shape[:-1], *other.shape[1:]])
    if a == 1:
        return _matmul(self.unsqueeze(0), other).squeeze(-2)
    batch = fl.broadcast_shapes(self.shape[:-2], other.shape[:-2])
    (m, k), n = self.shape[-2:], other.shape[-1]
    many = math.prod(batch)
    left = self.expand([*batch, m, k]).reshape(many, m, k)
    right = other.expand([*batch, k, n]).reshape(many, k, n)
    return fl.bmm(left, right).view([*batch, m, n])


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    if weight.dim() != 2 or not input.dim() or input.dtype != weight.dtype or input.shape[-1] != weight.shape[1]:
        return NotImplemented
    flipped = weight.transpose(0, 1)
    if bias is None or input.dim() == 1 or bias.dim() != 1:
        made = _matmul(input, flipped)
        return made if bias is None else made + bias
    if input.dim() == 2:
        return fl.addmm(bias, input, flipped)
    rows = input.reshape(-1, input.shape[-1])
    return fl.addmm(bias, rows, flipped).view([*input.shape[:-1], weight.shape[0]])


def _convolution(n: int, transposed: bool) -> Callable[..., Any]:
    def full(value: Any, default: int) -> list[int]:
        value = default if value is None else value
        return list(value) * (n if len(value) == 1 else 1) if isinstance(value, Sequence) else [value] * n

    def convolution(input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, out: Any) -> Any:  # fmt: skip
        if input.dim() not in (n + 1, n + 2) or weight.dim() != n + 2:
            return NotImplemented
        options = (full(stride, 1), full(padding, 0), full(dilation, 1), transposed, full(out, 0), groups)
        if input.dim() == n + 1:
            return fl.convolution(input.unsqueeze(0), weight, bias, *options).squeeze(0)
        return fl.convolution(input, weight, bias, *options)

    def forward(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:  # fmt: skip
        return convolution(input, weight, bias, stride, padding, dilation, groups, 0)

    def backward(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Any:  # fmt: skip
        return convolution(input, weight, bias, stride, padding, dilation, groups, output_padding)

    return backward if transposed else forward


PARTS: dict[str, Callable[..., Any]] = {
    "transpose": _transpose,
    "matmul": _matmul,
    "linear": _linear,
    **{f"conv{n}d": _convolution(n, False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _convolution(n, True) for n in (1, 2, 3)},
}
