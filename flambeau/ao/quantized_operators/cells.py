"""Steps of recurrent layers with weights that were packed before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.quantized_operators.layers import PackedParams

__all__ = ["FUNCTIONS", "PackedCell"]


class PackedCell:
    """The two matrices of a direction of a recurrent layer, as checkpoints have them."""

    STATE_TYPE = "(str, Tensor[], float[], int[], __torch__.torch.classes.quantized.LinearPackedParamsBase[])"
    script_class = "__torch__.torch.classes.rnn.CellParamsBase"
    KINDS = ("quantized_dynamic", "quantized_fp16")

    def __init__(self, ih: PackedParams, hh: PackedParams) -> None:
        self.matrices = [ih, hh]

    def script_state(self) -> Any:
        weights, biases = zip(*(matrix.unpack() for matrix in self.matrices), strict=True)
        if weights[0].is_quantized:
            rows = weights[0].shape[0]
            shown = [fl.zeros(rows) if bias is None else bias for bias in biases]
            return self.KINDS[0], shown, [], [1], self.matrices
        return self.KINDS[1], [], [], [], self.matrices

    def set_script_state(self, state: Any) -> None:
        kind, _, _, _, matrices = state
        if kind not in self.KINDS or len(matrices) != 2 or not all(isinstance(m, PackedParams) for m in matrices):
            raise RuntimeError(f"[load] expected two matrices in one of the forms {self.KINDS}, got {kind!r}")
        self.matrices = list(matrices)


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
