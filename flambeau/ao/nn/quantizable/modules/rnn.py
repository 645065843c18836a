"""An LSTM out of linear layers, activations and sums as modules, step by step.

With `split_gates` each gate has a linear layer of its own, and so a grid of its own.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor, nn
from flambeau.ao.nn.quantized.modules.functional_modules import FloatFunctional
from flambeau.nn.modules.module import Module

__all__ = ["LSTM", "LSTMCell"]

_GATES = ("input", "forget", "cell", "output")
State = tuple[Tensor, Tensor]


class LSTMCell(Module):
    """One step of an LSTM."""

    _FLOAT_MODULE = nn.LSTMCell

    def __init__(
        self, input_dim: int, hidden_dim: int, bias: bool = True, device: Any = None, dtype: Any = None, *,
        split_gates: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_size, self.hidden_size, self.bias, self.split_gates = input_dim, hidden_dim, bias, split_gates
        options: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        if split_gates:
            self.igates: Module = nn.ModuleDict({g: nn.Linear(input_dim, hidden_dim, **options) for g in _GATES})
            self.hgates: Module = nn.ModuleDict({g: nn.Linear(hidden_dim, hidden_dim, **options) for g in _GATES})
            self.gates: Module = nn.ModuleDict({g: FloatFunctional() for g in _GATES})
        else:
            self.igates = nn.Linear(input_dim, 4 * hidden_dim, **options)
            self.hgates = nn.Linear(hidden_dim, 4 * hidden_dim, **options)
            self.gates = FloatFunctional()
        self.input_gate, self.forget_gate = nn.Sigmoid(), nn.Sigmoid()
        self.cell_gate, self.output_gate = nn.Tanh(), nn.Sigmoid()
        self.fgate_cx, self.igate_cgate = FloatFunctional(), FloatFunctional()
        self.fgate_cx_igate_cgate, self.ogate_cy = FloatFunctional(), FloatFunctional()
        # The state starts as zero, on these grids.
        self.initial_hidden_state_qparams = self.initial_cell_state_qparams = (1.0, 0)
        self.hidden_state_dtype = self.cell_state_dtype = fl.quint8

    def _gate_values(self, x: Tensor, hx: Tensor) -> list[Tensor]:
        if not self.split_gates:
            return list(self.gates.add(self.igates(x), self.hgates(hx)).chunk(4, 1))
        igates, hgates, gates = self.igates, self.hgates, self.gates
        return [gates[g].add(igates[g](x), hgates[g](hx)) for g in _GATES]  # type: ignore[index]

    def forward(self, x: Tensor, hidden: State | None = None) -> State:
        if hidden is None or hidden[0] is None or hidden[1] is None:
            hidden = self.initialize_hidden(x.shape[0], x.is_quantized)
        hx, cx = hidden
        i, f, g, o = self._gate_values(x, hx)
        remembered = self.fgate_cx.mul(self.forget_gate(f), cx)
        added = self.igate_cgate.mul(self.input_gate(i), self.cell_gate(g))
        cy = self.fgate_cx_igate_cgate.add(remembered, added)
        return self.ogate_cy.mul(self.output_gate(o), fl.tanh(cy)), cy

    def initialize_hidden(self, batch_size: int, is_quantized: bool = False) -> State:
        """A state of zeros."""
        h, c = (fl.zeros(batch_size, self.hidden_size) for _ in range(2))
        if is_quantized:
            h = fl.quantize_per_tensor(h, *self.initial_hidden_state_qparams, self.hidden_state_dtype)
            c = fl.quantize_per_tensor(c, *self.initial_cell_state_qparams, self.cell_state_dtype)
        return h, c

    @classmethod
    def from_params(cls, wi: Tensor, wh: Tensor, bi: Any = None, bh: Any = None, split_gates: bool = False) -> LSTMCell:
        """With the weights and biases of a float layer, whose gates lie below each other."""
        if (bi is None) != (bh is None):
            raise AssertionError("[LSTMCell] expected two biases or none, got one")
        cell = cls(wi.shape[1], wh.shape[1], bi is not None, split_gates=split_gates)
        for layer, weight, bias in ((cell.igates, wi, bi), (cell.hgates, wh, bh)):
            weights = weight.chunk(4) if split_gates else [weight]
            biases = [None] * 4 if bias is None else bias.chunk(4) if split_gates else [bias]
            layers = list(layer.values()) if split_gates else [layer]
            for part, own_weight, own_bias in zip(layers, weights, biases, strict=False):
                part.weight = nn.Parameter(own_weight.detach())
                if own_bias is not None:
                    part.bias = nn.Parameter(own_bias.detach())
        return cell

    @classmethod
    def from_float(cls, other: Any, use_precomputed_fake_quant: bool = False, split_gates: bool = False) -> LSTMCell:
        if not isinstance(other, cls._FLOAT_MODULE) or not hasattr(other, "qconfig"):
            raise AssertionError(f"[LSTMCell] expected an nn.LSTMCell with a qconfig, got {type(other).__name__}")
        observed = cls.from_params(
            other.weight_ih, other.weight_hh, other.bias_ih, other.bias_hh, split_gates=split_gates
        )
        observed.qconfig = other.qconfig
        return observed

    def _get_name(self) -> str:
        return "QuantizableLSTMCell"


class _LSTMSingleLayer(Module):
    """A layer in one direction."""

    def __init__(self, cell: LSTMCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, hidden: State | None = None) -> tuple[Tensor, Any]:
        results = []
        for step in x:
            hidden = self.cell(step, hidden)
            results.append(hidden[0])
        return fl.stack(results, 0), hidden


class _LSTMLayer(Module):
    """A layer in one direction or both."""

    def __init__(self, forward: LSTMCell, backward: LSTMCell | None, batch_first: bool) -> None:
        super().__init__()
        self.batch_first, self.bidirectional = batch_first, backward is not None
        self.layer_fw = _LSTMSingleLayer(forward)
        if backward is not None:
            self.layer_bw = _LSTMSingleLayer(backward)

    def forward(self, x: Tensor, hidden: State | None = None) -> tuple[Tensor, Any]:
        x = x.transpose(0, 1) if self.batch_first else x
        hx, cx = (None, None) if hidden is None else hidden
        two = self.bidirectional
        first = None if hx is None or cx is None else (hx[0], cx[0]) if two else (hx, cx)
        result, state = self.layer_fw(x, first)
        if two:
            second = None if hx is None or cx is None else (hx[1], cx[1])
            backward, other = self.layer_bw(x.flip(0), second)
            result = fl.cat([result, backward.flip(0)], result.dim() - 1)
            state = tuple(fl.stack(pair, 0) for pair in zip(state, other, strict=True))
        return (result.transpose(0, 1) if self.batch_first else result), state


class LSTM(Module):
    """An LSTM of layers whose results can be observed."""

    _FLOAT_MODULE = nn.LSTM

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None, *,
        split_gates: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"[LSTM] expected a probability as dropout, got {dropout!r}")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, float(dropout), bidirectional
        directions = 2 if bidirectional else 1
        layers = []
        for i in range(num_layers):
            size = input_size if i == 0 else directions * hidden_size
            cells = [
                LSTMCell(size, hidden_size, bias, device, dtype, split_gates=split_gates) for _ in range(directions)
            ]
            layers.append(_LSTMLayer(cells[0], cells[1] if bidirectional else None, False))
        self.layers = nn.ModuleList(layers)

    def _initial(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch = x.shape[1]
        rows = self.num_layers * (2 if self.bidirectional else 1)
        zeros = fl.zeros(rows, batch, self.hidden_size)
        if x.is_quantized:
            zeros = fl.quantize_per_tensor(zeros, 1.0, 0, x.dtype)
        return zeros, zeros

    def forward(self, x: Tensor, hidden: State | None = None) -> tuple[Tensor, State]:
        x = x.transpose(0, 1) if self.batch_first else x
        shape = (self.num_layers, 2 if self.bidirectional else 1, x.shape[1], self.hidden_size)
        h, c = (part.reshape(shape) for part in (self._initial(x) if hidden is None else hidden))
        if not self.bidirectional:
            h, c = h.squeeze(1), c.squeeze(1)
        ends = []
        for i, layer in enumerate(self.layers):
            x, end = layer(x, (h[i], c[i]))
            ends.append(end)
            x = nn.functional.dropout(x, self.dropout, self.training and i < self.num_layers - 1)
        final: Any = tuple(fl.stack(parts) for parts in zip(*ends, strict=True))
        if self.bidirectional:
            final = tuple(part.reshape(-1, *part.shape[-2:]) for part in final)
        return (x.transpose(0, 1) if self.batch_first else x), final

    def _cells(self) -> list[LSTMCell]:
        return [module for module in self.modules() if isinstance(module, LSTMCell)]

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> LSTM:
        """With observers, and the parameters of a float layer."""
        if not isinstance(other, cls._FLOAT_MODULE) or not (hasattr(other, "qconfig") or qconfig):
            raise AssertionError(f"[LSTM] expected an nn.LSTM with a qconfig, got {type(other).__name__}")
        if other.proj_size:
            raise NotImplementedError("[LSTM] expected a layer without projections, got one with")
        observed = cls(
            other.input_size, other.hidden_size, other.num_layers, other.bias, other.batch_first, other.dropout,
            other.bidirectional, split_gates=split_gates,
        )  # fmt: skip
        qconfig = qconfig or other.qconfig
        for i, layer in enumerate(observed.layers):
            for single, end in (("layer_fw", ""), ("layer_bw", "_reverse"))[: 2 if other.bidirectional else 1]:
                names = [f"{kind}_{part}_l{i}{end}" for kind in ("weight", "bias") for part in ("ih", "hh")]
                wi, wh, bi, bh = (getattr(other, name, None) for name in names)
                cell = LSTMCell.from_params(wi, wh, bi, bh, split_gates)  # type: ignore[arg-type]
                cell.qconfig = qconfig
                getattr(layer, single).cell = cell
        observed.qconfig = qconfig
        observed.train(other.training)
        from flambeau.ao.quantization.quantize import prepare, prepare_qat

        if other.training:
            return prepare_qat(observed, inplace=True)  # type: ignore[return-value]
        return prepare(observed, inplace=True)  # type: ignore[return-value]

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        raise NotImplementedError("[quantizable.LSTM] expected nn.quantized.LSTM to be converted to, got this class")

    def _get_name(self) -> str:
        return "QuantizableLSTM"
