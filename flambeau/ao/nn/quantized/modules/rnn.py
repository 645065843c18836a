"""A statically quantized LSTM: its linear layers, sums and products on grids."""

from __future__ import annotations

from typing import Any

from flambeau.ao.nn import quantizable

__all__ = ["LSTM"]


class LSTM(quantizable.LSTM):
    """An LSTM on quantized tensors."""

    _FLOAT_MODULE: Any = quantizable.LSTM

    def _get_name(self) -> str:
        return "QuantizedLSTM"

    @classmethod
    def from_float(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "[quantized.LSTM] expected a layer of nn.quantizable that was observed, got a float one: prepare the model first"
        )

    @classmethod
    def from_observed(cls, other: Any) -> LSTM:
        from flambeau.ao.quantization.quantize import convert

        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"[quantized.LSTM] expected an observed layer, got {type(other).__name__}")
        converted: Any = convert(other, inplace=False, remove_qconfig=True)
        converted.__class__ = cls
        for cell in converted._cells():
            cell.initial_hidden_state_qparams = _grid_of(cell.ogate_cy)
            cell.initial_cell_state_qparams = _grid_of(cell.fgate_cx_igate_cgate)
        return converted


def _grid_of(function: Any) -> tuple[float, int]:
    return function.scale, function.zero_point
