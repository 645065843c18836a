"""Layers whose weights are stored in eight bits and whose inputs are rounded as they come.

The arithmetic is that of PyTorch's kernels for x86: weights on a symmetric grid of 255 steps, inputs on one of 127
between the least and the greatest, both with zero on it, products of integers, which float32 holds exactly.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._compat import absent
from flambeau.ao.quantized_types import float_or_quantized
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.rnn import RNNBase

__all__ = ["GRU", "LSTM", "Linear"]


class _Weights(Module):
    """A matrix in eight bits, or in half precision, with its bias."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype
        weight = weight.detach()
        if dtype is fl.float16:
            self.register_buffer("weight", weight.half())
        else:
            scale = (weight.abs().max() / 127.5).clamp(min=fl.finfo(fl.float32).eps)
            self.register_buffer("weight", (weight / scale).round().clamp(-128, 127).to(fl.int8))
            self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def dequantized(self) -> Tensor:
        return self.weight.float() if self.dtype is fl.float16 else self.weight.float() * self.scale

    def forward(self, x: Tensor) -> Tensor:
        if self.dtype is fl.float16:
            return fl.nn.functional.linear(x, self.weight.float(), self.bias)
        low, high = (min(x.min().item(), 0.0), max(x.max().item(), 0.0)) if x.numel() else (0.0, 0.0)
        step = (high - low) / 127 or 1.0
        zero = round(-low / step)
        whole = (x / step).round().add_(zero).clamp_(0, 127).sub_(zero)
        out = fl.nn.functional.linear(whole, self.weight.float()) * (step * self.scale)
        return out if self.bias is None else out + self.bias


class _Shown(Module):
    """A layer that prints as one, whatever holds its weights."""

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"


class Linear(_Shown):
    """A linear layer with weights in eight bits."""

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.dtype = fl.qint8 if dtype is None else dtype
        self._packed_params = _Weights(
            fl.zeros(out_features, in_features), fl.zeros(out_features) if bias_ else None, self.dtype
        )

    @classmethod
    def from_float(cls, mod: Any, dtype: Any = None) -> Linear:
        layer = cls(mod.in_features, mod.out_features, mod.bias is not None, float_or_quantized(dtype))
        layer._packed_params = _Weights(mod.weight, mod.bias, layer.dtype)
        layer.training = mod.training
        return layer

    def weight(self) -> Tensor:
        return self._packed_params.dequantized()

    def bias(self) -> Tensor | None:
        return self._packed_params.bias

    def forward(self, x: Tensor) -> Tensor:
        return self._packed_params(x)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self.dtype}"
        return text if self.dtype is fl.float16 else f"{text}, qscheme=torch.per_tensor_affine"


class _Recurrent(_Shown):
    """What LSTM and GRU share: layers, directions, and the order of the input."""

    def __init__(self, mod: RNNBase, dtype: Any) -> None:
        super().__init__()
        if getattr(mod, "proj_size", 0):
            raise NotImplementedError("[quantize_dynamic] expected recurrent layers without projections, got one with")
        for name in ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"):
            setattr(self, name, getattr(mod, name))
        self.dtype = float_or_quantized(dtype)
        self.training = mod.training
        self.directions = 2 if mod.bidirectional else 1
        self._all_weight_values = fl.nn.ModuleList()
        for layer in range(mod.num_layers):
            for end in ("", "_reverse")[: self.directions]:
                for part in ("ih", "hh"):
                    weight, bias = (getattr(mod, f"{kind}_{part}_l{layer}{end}", None) for kind in ("weight", "bias"))
                    self._all_weight_values.append(_Weights(weight, bias, self.dtype))

    @classmethod
    def from_float(cls, mod: Any, dtype: Any = None) -> Any:
        return cls(mod, dtype)

    def cell(self, inputs: Tensor, state: list[Tensor], hidden: Module) -> list[Tensor]:
        """The state after one step, the output first."""
        raise NotImplementedError(
            f"[{type(self).__name__}] expected a layer with a cell such as LSTM or GRU, got a base class"
        )

    def run(self, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """All layers over a sequence; states and results have a row for each layer and direction."""
        ends: list[list[Tensor]] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.directions):
                row = layer * self.directions + direction
                inputs = self._all_weight_values[2 * row](x)
                state = [s[row] for s in states]
                steps = []
                for t in range(x.shape[0]):
                    at = x.shape[0] - 1 - t if direction else t
                    state = self.cell(inputs[at], state, self._all_weight_values[2 * row + 1])
                    steps.append(state[0])
                outputs.append(fl.stack(steps[::-1] if direction else steps))
                ends.append(state)
            x = fl.cat(outputs, -1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = fl.nn.functional.dropout(x, self.dropout)
        return x, [fl.stack(rows) for rows in zip(*ends)]

    def sequence(self, input: Any, states: list[Tensor] | None, count: int) -> tuple[Tensor, list[Tensor]]:
        if not isinstance(input, Tensor):
            raise NotImplementedError(
                f"[{self._get_name()}] expected a tensor, got {type(input).__name__}: packed sequences are not handled"
            )
        single = input.dim() == 2
        x = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input
        if states is None:
            rows = self.num_layers * self.directions
            states = [x.new_zeros(rows, x.shape[1], self.hidden_size) for _ in range(count)]
        elif single:
            states = [s.unsqueeze(1) for s in states]
        out, last = self.run(x, states)
        if single:
            return out.squeeze(1), [s.squeeze(1) for s in last]
        return (out.transpose(0, 1) if self.batch_first else out), last

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        return text + "".join(f", {k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v)


class LSTM(_Recurrent):
    """An LSTM with weights in eight bits."""

    def cell(self, inputs: Tensor, state: list[Tensor], hidden: Module) -> list[Tensor]:
        i, f, g, o = (inputs + hidden(state[0])).chunk(4, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return [o.sigmoid() * c.tanh(), c]

    def forward(self, input: Any, hx: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, (h, c) = self.sequence(input, None if hx is None else list(hx), 2)
        return out, (h, c)


class GRU(_Recurrent):
    """A GRU with weights in eight bits."""

    def cell(self, inputs: Tensor, state: list[Tensor], hidden: Module) -> list[Tensor]:
        reset, update, new = inputs.chunk(3, -1)
        old_reset, old_update, old_new = hidden(state[0]).chunk(3, -1)
        z = (update + old_update).sigmoid()
        n = (new + (reset + old_reset).sigmoid() * old_new).tanh()
        return [(1 - z) * n + z * state[0]]

    def forward(self, input: Any, hx: Any = None) -> tuple[Tensor, Tensor]:
        out, (h,) = self.sequence(input, None if hx is None else [hx], 1)
        return out, h


__getattr__ = absent.names_of(__name__)
