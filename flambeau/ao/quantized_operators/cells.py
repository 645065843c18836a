"""Steps of recurrent layers with weights that were packed before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.quantized_operators.layers import PackedParams

__all__ = ["FUNCTIONS"]


def _product(x: Tensor, packed: PackedParams) -> Tensor:
    """The bias is the packed one."""
    if isinstance(packed, fl.nn.Module):  # the weights of a dynamic layer
        return packed(x)
    weight, bias = packed.unpack()
    if weight.dtype is fl.float16:
        return fl.nn.functional.linear(x, weight.float(), bias)
    return fl._ops._int8_linear_dynamic(x, *packed.layer.operands(), True, False)


def _chunks(x: Tensor, hidden: Tensor, w_ih: PackedParams, w_hh: PackedParams, count: int) -> tuple[Any, Any]:
    return _product(x, w_ih).chunk(count, -1), _product(hidden, w_hh).chunk(count, -1)


def lstm(
    input: Tensor, hx: Any, w_ih: PackedParams, w_hh: PackedParams, bias_ih: Tensor, bias_hh: Tensor
) -> tuple[Tensor, Tensor]:
    hidden, cell = hx
    i, f, g, o = (a + b for a, b in zip(*_chunks(input, hidden, w_ih, w_hh, 4), strict=True))
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru(
    input: Tensor, hx: Tensor, w_ih: PackedParams, w_hh: PackedParams, b_ih: Tensor, b_hh: Tensor
) -> Tensor:  # fmt: skip
    (reset, update, new), (old_reset, old_update, old_new) = _chunks(input, hx, w_ih, w_hh, 3)
    z = (update + old_update).sigmoid()
    n = (new + (reset + old_reset).sigmoid() * old_new).tanh()
    return n + z * (hx - n)


def _rnn(activation: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def function(
        input: Tensor, hx: Tensor, w_ih: PackedParams, w_hh: PackedParams, b_ih: Tensor, b_hh: Tensor
    ) -> Tensor:
        return activation(_product(input, w_ih) + _product(hx, w_hh))

    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantized_lstm_cell_dynamic": lstm,
    "quantized_gru_cell_dynamic": gru,
    "quantized_rnn_tanh_cell_dynamic": _rnn(fl.tanh),
    "quantized_rnn_relu_cell_dynamic": _rnn(fl.relu),
}
