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


def _clamp(self: Any, min: Any, max: Any) -> Any:
    numbers = not isinstance(min, fl.Tensor) and not isinstance(max, fl.Tensor)
    return (_aten().clamp.default, (self, min, max)) if numbers else NotImplemented


def _norm(order: float) -> Callable[..., Any]:
    def norm(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        if dtype is not None:
            return NotImplemented
        return _aten().linalg_vector_norm.default, (self, order, dim, keepdim)

    return norm


def _max_pool2d(self: Any, *options: Any, **named: Any) -> Any:
    return _aten().max_pool2d_with_indices.default(self, *options, **named)[0]


def _update(name: str) -> Callable[..., None]:
    """A step of an optimizer, operator by operator: what is no tensor of a handler, as the count of steps, is written
    once."""

    def update(*args: Any, **kwargs: Any) -> None:
        from flambeau.ops.lists import update_evaluation

        update_evaluation.run(name, *args, **kwargs)

    return update


_UPDATES = (
    "adadelta adagrad adam adam_amsgrad adamax asgd nadam radam rmsprop rmsprop_centered rmsprop_momentum "
    "rmsprop_centered_momentum rprop sgd sgd_momentum".split()
)
PARTS: dict[str, Callable[..., Any]] = {
    "_clamp": _clamp,
    "max_pool2d": _max_pool2d,
    "_norm_1": _norm(1.0),
    "_norm_2": _norm(2.0),
    "_norm_inf": _norm(math.inf),
    **{f"_update_{name}_": _update(f"_update_{name}_") for name in _UPDATES},
    "transpose": _transpose,
    "matmul": _matmul,
    "linear": _linear,
    **{f"conv{n}d": _convolution(n, False) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _convolution(n, True) for n in (1, 2, 3)},
}
