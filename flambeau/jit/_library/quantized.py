"""Modules that stand for the layers of `ao.nn.quantized` in scripts: weights packed, computed by the operators `quantized::*`.

A layer's `script_form` makes one of these, which is compiled in its place. Archives then name operators that PyTorch has as well.
"""

from __future__ import annotations

from typing import Any, ClassVar

import flambeau as torch
from flambeau import Tensor
from flambeau.nn import Module

quantized = torch.ops.quantized


class _Form(Module):
    """Attributes by keyword; what is not annotated has the type of its value."""

    DEFAULTS: ClassVar[dict[str, Any]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        for name, value in {**self.DEFAULTS, **attributes}.items():
            setattr(self, name, value)


def _padded(x: Tensor, sides: list[int] | None) -> Tensor:
    """The input with a border of reflected values, where a layer does not have zeros around it."""
    return x if sides is None else torch.nn.functional.pad(x, sides, "reflect")


class Packed(_Form):
    """A layer with packed weights and the grid of its results."""

    DEFAULTS = {"sides": None}  # noqa: RUF012
    sides: list[int] | None

    def forward(self, x: Tensor) -> Tensor:
        return self._function(_padded(x, self.sides), self._packed_params, self.scale, self.zero_point)


class PackedLeakyReLU(_Form):
    """A linear layer and leaky relu."""

    def forward(self, x: Tensor) -> Tensor:
        return quantized.linear_leaky_relu(x, self._packed_params, self.scale, self.zero_point, self.negative_slope)


class PackedSum(_Form):
    """A convolution and the sum with another tensor."""

    DEFAULTS = {"sides": None}  # noqa: RUF012
    sides: list[int] | None

    def forward(self, x: Tensor, extra_input: Tensor) -> Tensor:
        x = _padded(x, self.sides)
        return self._function(x, extra_input, self._packed_params, self.scale, self.zero_point)


class Dynamic(_Form):
    """A layer with packed weights on float tensors, which are quantized as they come."""

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x, self._packed_params, True)


class DynamicHalf(_Form):
    """A linear layer with weights in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x, self._packed_params)


class Embedding(_Form):
    def forward(self, indices: Tensor) -> Tensor:
        return self._function(self._packed_params, indices)


class EmbeddingBag(_Form):
    def forward(
        self,
        indices: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        compressed_indices_mapping: Tensor | None = None,
    ) -> Tensor:
        return self._function(
            self._packed_params, indices, offsets, False, self.mode, False, per_sample_weights, None, self.include_last_offset
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------- without packed weights


class Quantize(_Form):
    def forward(self, X: Tensor) -> Tensor:
        return torch.quantize_per_tensor(X, float(self.scale), int(self.zero_point), self.dtype)


class DeQuantize(_Form):
    def forward(self, Xq: Tensor) -> Tensor:
        return Xq.dequantize()


class OnGrid(_Form):
    """A function of the values, rounded to a grid."""

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x, self.scale, self.zero_point)


class ELU(_Form):
    def forward(self, x: Tensor) -> Tensor:
        return quantized.elu(x, self.scale, self.zero_point, self.alpha)


class LeakyReLU(_Form):
    def forward(self, x: Tensor) -> Tensor:
        return quantized.leaky_relu(x, self.negative_slope, False, self.scale, self.zero_point)


class PReLU(_Form):
    def forward(self, x: Tensor) -> Tensor:
        return quantized.prelu(x, self.weight, self.scale, self.zero_point)


class Softmax(_Form):
    dim: int | None

    def forward(self, x: Tensor) -> Tensor:
        dim = self.dim
        if dim is None:
            dim = 0 if x.dim() == 0 or x.dim() == 1 or x.dim() == 3 else 1
        return quantized.softmax(x, dim, self.scale, self.zero_point)


class ReLU6(_Form):
    def forward(self, x: Tensor) -> Tensor:
        return quantized.relu6(x, False)


class Identity(_Form):
    def forward(self, x: Tensor) -> Tensor:
        return x


class BatchNorm(_Form):
    weight: Tensor | None
    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        return self._function(
            x, self.weight, self.bias, self.running_mean, self.running_var, self.eps, self.scale, self.zero_point
        )


class LayerNorm(_Form):
    weight: Tensor | None
    bias: Tensor | None
    normalized_shape: list[int]

    def forward(self, x: Tensor) -> Tensor:
        return quantized.layer_norm(
            x, self.normalized_shape, self.weight, self.bias, self.eps, self.scale, self.zero_point
        )


class GroupNorm(_Form):
    weight: Tensor | None
    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        return quantized.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, self.scale, self.zero_point)


class InstanceNorm(_Form):
    weight: Tensor | None
    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        return quantized.instance_norm(x, self.weight, self.bias, self.eps, self.scale, self.zero_point)


class QFunctional(_Form):
    """Sums, products and joins."""

    @torch.jit.export
    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return quantized.add(x, y, self.scale, self.zero_point)

    @torch.jit.export
    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return quantized.mul(x, y, self.scale, self.zero_point)

    @torch.jit.export
    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return quantized.add_relu(x, y, self.scale, self.zero_point)

    @torch.jit.export
    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return quantized.matmul(x, y, self.scale, self.zero_point)

    @torch.jit.export
    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        return quantized.cat(x, dim, self.scale, self.zero_point)

    @torch.jit.export
    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return quantized.add_scalar(x, y)

    @torch.jit.export
    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return quantized.mul_scalar(x, y)


# ---------------------------------------------------------------------------------------------- recurrent layers


class LSTMCell(_Form):
    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if hx is None:
            zeros = torch.zeros([input.size(0), self.hidden_size], dtype=input.dtype, device=input.device)
            h, c = zeros, zeros
        else:
            h, c = hx
        i, f, g, o = (self.ih(input) + self.hh(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRUCell(_Form):
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if hx is None:
            h = torch.zeros([input.size(0), self.hidden_size], dtype=input.dtype, device=input.device)
        else:
            h = hx
        reset, update, new = self.ih(input).chunk(3, -1)
        old_reset, old_update, old_new = self.hh(h).chunk(3, -1)
        z = (update + old_update).sigmoid()
        n = (new + (reset + old_reset).sigmoid() * old_new).tanh()
        return (1 - z) * n + z * h


class RNNCell(_Form):
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if hx is None:
            h = torch.zeros([input.size(0), self.hidden_size], dtype=input.dtype, device=input.device)
        else:
            h = hx
        total = self.ih(input) + self.hh(h)
        if self.relu:
            return total.relu()
        return total.tanh()


class LSTMDirection(_Form):
    """One layer in one direction over a sequence of batches."""

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs = self.ih(x)
        outputs: list[Tensor] = []
        for t in range(x.size(0)):
            at = x.size(0) - 1 - t if self.reverse else t
            i, f, g, o = (inputs[at] + self.hh(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        if self.reverse:
            outputs.reverse()
        return torch.stack(outputs), h, c


class GRUDirection(_Form):
    """One layer in one direction over a sequence of batches."""

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs = self.ih(x)
        outputs: list[Tensor] = []
        for t in range(x.size(0)):
            at = x.size(0) - 1 - t if self.reverse else t
            reset, update, new = inputs[at].chunk(3, -1)
            old_reset, old_update, old_new = self.hh(h).chunk(3, -1)
            z = (update + old_update).sigmoid()
            n = (new + (reset + old_reset).sigmoid() * old_new).tanh()
            h = (1 - z) * n + z * h
            outputs.append(h)
        if self.reverse:
            outputs.reverse()
        return torch.stack(outputs), h, c


class _Recurrent(_Form):
    def run(self, input: Tensor, h0: Tensor | None, c0: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """All layers; states have a row for each layer and direction."""
        single = input.dim() == 2
        x = input
        if single:
            x = input.unsqueeze(1)
        elif self.batch_first:
            x = input.transpose(0, 1)
        zeros = torch.zeros([self.rows, x.size(1), self.hidden_size], dtype=x.dtype, device=x.device)
        h = zeros if h0 is None else (h0.unsqueeze(1) if single else h0)
        c = zeros if c0 is None else (c0.unsqueeze(1) if single else c0)
        last_h: list[Tensor] = []
        last_c: list[Tensor] = []
        parts: list[Tensor] = []
        row = 0
        for direction in self.directions:
            out, h_n, c_n = direction(x, h[row], c[row])
            last_h.append(h_n)
            last_c.append(c_n)
            parts.append(out)
            row += 1  # noqa: SIM113
            if row % self.each == 0:
                x = torch.cat(parts, -1)
                parts = []
                if self.dropout > 0.0 and self.training and row < self.rows:
                    x = torch.dropout(x, self.dropout, True)
        h, c = torch.stack(last_h), torch.stack(last_c)
        if single:
            return x.squeeze(1), h.squeeze(1), c.squeeze(1)
        if self.batch_first:
            x = x.transpose(0, 1)
        return x, h, c


class LSTM(_Recurrent):
    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if hx is None:
            out, h, c = self.run(input, None, None)
        else:
            out, h, c = self.run(input, hx[0], hx[1])
        return out, (h, c)


class GRU(_Recurrent):
    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        out, h, _ = self.run(input, hx, None)
        return out, h
