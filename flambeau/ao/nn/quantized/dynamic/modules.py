"""Layers whose weights are stored in eight bits and whose inputs are rounded as they come.

Inputs are put on a grid of 128 places between the least and the greatest value, with zero on it; the operator is
`_quantized_linear_dynamic`. Weights may be in half precision instead.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor, _ops
from flambeau._compat import absent
from flambeau._tensor.quantized_types import float_or_quantized, qint8, quint8
from flambeau.ao.nn.quantized import modules as quantized
from flambeau.ao.nn.quantized.modules.base import observed_weight, quantized_weight
from flambeau.ao.quantized_tensor import Grid, channel_grid, quantize_per_tensor_dynamic
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.rnn import RNNBase

__all__ = [
    "GRU", "LSTM", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "GRUCell", "LSTMCell",
    "Linear", "RNNCell",
]  # fmt: skip


def _dynamic_form(packed: Any, dtype: Any, end: str = "") -> Any:
    """A linear layer in scripts."""
    from flambeau.jit._library import quantized as forms

    if dtype is fl.float16:
        return forms.DynamicHalf(_function=getattr(forms.quantized, f"linear{end}_dynamic_fp16"), _packed_params=packed)
    return forms.Dynamic(_function=getattr(forms.quantized, f"linear{end}_dynamic"), _packed_params=packed)


class _Weights(Module):
    """A matrix in eight bits, or in half precision, with its bias."""

    _packed: tuple[Tensor, int, Tensor] | None = None  # the weight, its version, and the weight as the kernel reads it

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: Any, observer: Any = None) -> None:
        super().__init__()
        self.dtype = dtype
        weight = weight.detach()
        if dtype is fl.float16:
            self.register_buffer("weight", weight.half())
        else:
            if observer is None:
                from flambeau.ao.quantization.observer import default_weight_observer

                observer = default_weight_observer()
            observer(weight)
            self._hold(quantized_weight(weight, observer))
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def _hold(self, weight: Any) -> None:
        self.register_buffer("weight", weight.int_repr())
        self.register_buffer("scale", fl.as_tensor(weight._grid.scale, dtype=fl.float32).reshape(-1))
        self.register_buffer("zero_point", fl.as_tensor(weight._grid.zero_point).to(fl.int32).reshape(-1))
        self.has_zeros = bool(self.zero_point.any())

    def held(self) -> Any:
        """The weight as a quantized tensor, or in half precision."""
        if self.dtype is fl.float16:
            return self.weight
        if self.scale.numel() == 1:
            return Grid(qint8, float(self.scale), int(self.zero_point)).hold(self.weight)
        return channel_grid(qint8, self.scale, self.zero_point.long(), 0).hold(self.weight)

    def set(self, weight: Any, bias: Tensor | None) -> None:
        """Another weight, as `held` has it, and bias."""
        self.dtype = qint8 if weight.is_quantized else fl.float16
        if self.dtype is fl.float16:
            self.register_buffer("weight", weight.detach().half())
        else:
            self._hold(weight)
        self.bias = bias

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Nothing: the layer saves its matrices packed, as PyTorch's layers do."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        if prefix + "weight" in state_dict:  # not packed
            super()._load_from_state_dict(state_dict, prefix, *rest)
            self.has_zeros = self.dtype is not fl.float16 and bool(self.zero_point.any())

    def dequantized(self) -> Tensor:
        if self.dtype is fl.float16:
            return self.weight.float()
        return (self.weight.float() - self.zero_point.view(-1, 1)) * self.scale.view(-1, 1)

    def forward(self, x: Tensor) -> Tensor:
        if self.dtype is fl.float16:
            return fl.nn.functional.linear(x, self.weight.float(), self.bias)
        zero_points = self.zero_point if self.has_zeros else None
        return _ops._int8_linear_dynamic(x, self.weight, self._as_read(), self.scale, zero_points, self.bias)

    def _as_read(self) -> Tensor:
        """The weight as the kernel reads it; graphs pack it themselves."""
        if fl.compiler.is_compiling():
            return _ops._int8_pack(self.weight)
        if self._packed is None or self._packed[0] is not self.weight or self._packed[1] != self.weight._version:
            self._packed = self.weight, self.weight._version, _ops._int8_pack(self.weight)
        return self._packed[2]

    def packed(self) -> Any:
        """Weight and bias as operators of recurrent cells take them."""
        from flambeau.ao.quantized_operators import layers

        pack = layers.linear_prepack_fp16 if self.dtype is fl.float16 else layers.linear_prepack
        return pack(self.held(), self.bias)

    @property
    def param(self) -> Any:
        return self.packed()

    def _script_form(self) -> Any:
        return _dynamic_form(self.packed(), self.dtype)


class _Shown(Module):
    """A layer that prints as one, whatever holds its weights."""

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"


class Linear(quantized.Linear):
    """A linear layer with weights in eight bits, or in half precision, on float tensors."""

    _version = 4  # of the layout in checkpoints; before it PyTorch put inputs on grids of 256 places

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = None) -> None:
        super().__init__(in_features, out_features, bias_, float_or_quantized(dtype))
        self.version: int | None = self._version

    @property
    def dtype(self) -> Any:
        return self._packed_params.dtype

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, metadata, *rest)
        self.version = metadata.get("version", self._version)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        observer = getattr(mod, "weight_fake_quant", None)
        layer = mod[0] if isinstance(mod, fl.nn.Sequential) else mod
        config = getattr(mod, "qconfig", None)
        if observer is None:
            from flambeau.ao.quantization.qconfig import default_dynamic_qconfig

            observer = (config or default_dynamic_qconfig).weight()
        dtype = float_or_quantized(observer.dtype)
        module = cls(layer.in_features, layer.out_features, layer.bias is not None, dtype)
        if dtype is fl.float16:
            module.set_weight_bias(layer.weight.detach().half(), layer.bias)
        else:
            observer(layer.weight)
            module.set_weight_bias(quantized_weight(layer.weight, observer), layer.bias)
        module.training = mod.training
        return module

    @classmethod
    def from_reference(cls, ref_qlinear: Any) -> Linear:  # type: ignore[override]
        module = cls(ref_qlinear.in_features, ref_qlinear.out_features, True, ref_qlinear.weight_dtype)
        module.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        return module

    def weight(self) -> Any:
        return self._weight.float() if self.dtype is fl.float16 else self._weight

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        if self.dtype is fl.float16:
            values = fl.nn.functional.linear(x, self._weight.float(), self._bias)
            return values.relu() if self.post_op == "relu" else values
        half_range = self.version is not None and self.version >= 4
        return _ops._int8_linear_dynamic(x, *self.operands(), half_range, False, self.post_op)

    def _script_form(self) -> Any:
        from flambeau.ao.quantized_operators.layers import PackedLinear

        return _dynamic_form(PackedLinear(self), self.dtype, "_relu" if self.post_op == "relu" else "")

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self.dtype}"
        return text if self.dtype is fl.float16 else f"{text}, qscheme={self.weight().qscheme()}"


def _dynamic_convolution(kind: Any) -> Any:
    """A convolution with weights in eight bits on float tensors, which are quantized as they come."""

    def forward(self: Any, input: Tensor, reduce_range: bool = True) -> Tensor:
        x = quantize_per_tensor_dynamic(input, quint8, reduce_range)
        if self.transposed:
            convolve = getattr(fl.nn.functional, f"conv_transpose{self.ndim}d")
            settings = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
            return convolve(x.dequantize(), self.weight().dequantize(), self._bias, *settings)
        return _ops._int8_convolution(
            x.int_repr(), x.q_scale(), x.q_zero_point(), *self.operands(), self.stride, self.padding,
            self.dilation, self.groups, 1.0, 0, None, self.post_op,
        )  # fmt: skip

    @classmethod  # type: ignore[misc]
    def from_float(cls: Any, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        layer = cls._like(mod)
        layer.set_weight_bias(observed_weight(mod), mod.bias)
        return layer

    def _get_name(self: Any) -> str:
        return f"Dynamic{kind._get_name(self)}"

    def _script_form(self: Any) -> Any:
        from flambeau.jit._library import quantized as forms

        name = f"conv{'_transpose' if self.transposed else ''}{self.ndim}d_dynamic"
        return forms.Dynamic(_function=getattr(forms.quantized, name), _packed_params=self._packed_params)

    body = {
        "forward": forward, "_script_form": _script_form, "from_float": from_float, "_get_name": _get_name, "__module__": __name__,
        "__doc__": f"{kind.__name__} with weights in eight bits, on float tensors.",
    }  # fmt: skip
    return type(kind.__name__, (kind,), body)


Conv1d = _dynamic_convolution(quantized.Conv1d)
Conv2d = _dynamic_convolution(quantized.Conv2d)
Conv3d = _dynamic_convolution(quantized.Conv3d)
ConvTranspose1d = _dynamic_convolution(quantized.ConvTranspose1d)
ConvTranspose2d = _dynamic_convolution(quantized.ConvTranspose2d)
ConvTranspose3d = _dynamic_convolution(quantized.ConvTranspose3d)


def _weight_dtype(mod: Any) -> Any:
    """The dtype that the configuration of a layer asks for its weights."""
    config = getattr(mod, "qconfig", None)
    return None if config is None else float_or_quantized(config.weight().dtype)


def _taken_over(cls: Any, mod: Any) -> Any:
    """The quantized form of a float module, without one of random weights first."""
    layer = cls.__new__(cls)
    Module.__init__(layer)
    layer._take_over(mod, _weight_dtype(mod))
    return layer


class _Recurrent(_Shown):
    """What LSTM and GRU share: layers, directions, and the order of the input."""

    _version = 2  # of the layout in checkpoints

    def __init__(self, *sizes: Any, dtype: Any = qint8, **settings: Any) -> None:
        super().__init__()
        self._take_over(getattr(fl.nn, type(self).__name__)(*sizes, **settings), dtype)

    def _take_over(self, mod: RNNBase, dtype: Any) -> None:
        if getattr(mod, "proj_size", 0):
            raise NotImplementedError("[quantize_dynamic] expected recurrent layers without projections, got one with")
        for name in ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"):
            setattr(self, name, getattr(mod, name))
        self.mode, self.version = type(self).__name__, self._version
        self.dtype = float_or_quantized(dtype)
        self.training = mod.training
        self.directions = 2 if mod.bidirectional else 1
        self._all_weight_values = fl.nn.ModuleList()
        for layer in range(mod.num_layers):
            for end in ("", "_reverse")[: self.directions]:
                for part in ("ih", "hh"):
                    weight, bias = (getattr(mod, f"{kind}_{part}_l{layer}{end}", None) for kind in ("weight", "bias"))
                    self._all_weight_values.append(_Weights(weight, bias, self.dtype))  # type: ignore[arg-type]

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return _taken_over(cls, mod)

    def _places(self) -> list[tuple[str, int]]:
        """The ends of the names of weights and biases, and their places among all."""
        ends = [f"{part}_l{layer}{end}" for layer in range(self.num_layers) for end in ("", "_reverse")[: self.directions]
                for part in ("ih", "hh")]  # fmt: skip
        return [(name, i) for i, name in enumerate(ends)]

    def get_weight(self) -> dict[str, Any]:
        return {f"weight_{name}": self._all_weight_values[i].held() for name, i in self._places()}

    def get_bias(self) -> dict[str, Any]:
        return {f"bias_{name}": self._all_weight_values[i].bias for name, i in self._places()}

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Other weights and biases, by the names that `get_weight` and `get_bias` have for them."""
        for name, i in self._places():
            self._all_weight_values[i].set(weight_bias_dict[f"weight_{name}"], weight_bias_dict[f"bias_{name}"])

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

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        from flambeau.ao.quantized_operators.cells import PackedCell

        super()._save_to_state_dict(destination, prefix, keep_vars)
        weights = [part.packed() for part in self._all_weight_values]
        for row, pair in enumerate(zip(weights[::2], weights[1::2], strict=True)):
            destination[f"{prefix}_all_weight_values.{row}.param"] = PackedCell(*pair)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, *rest: Any
    ) -> None:
        for row in range(len(self._all_weight_values) // 2):
            key = f"{prefix}_all_weight_values.{row}.param"
            if key in state_dict:
                for i, matrix in enumerate(state_dict.pop(key).matrices):
                    self._all_weight_values[2 * row + i].set(*matrix.unpack())
            elif strict and f"{prefix}_all_weight_values.{2 * row}.weight" not in state_dict:
                missing.append(key)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        kind, weights = type(self).__name__, self._all_weight_values
        directions = [
            getattr(forms, f"{kind}Direction")(ih=weights[i], hh=weights[i + 1], reverse=bool(i // 2 % self.directions))
            for i in range(0, len(weights), 2)
        ]
        return getattr(forms, kind)(
            directions=fl.nn.ModuleList(directions), rows=len(directions), each=self.directions,
            hidden_size=self.hidden_size, batch_first=bool(self.batch_first), dropout=float(self.dropout),
        )  # fmt: skip

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


class _Cell(_Shown):
    """What single steps of recurrent layers share: two matrices."""

    def __init__(self, *sizes: Any, dtype: Any = qint8, **settings: Any) -> None:
        super().__init__()
        self._take_over(getattr(fl.nn, type(self).__name__)(*sizes, **settings), dtype)

    def _take_over(self, mod: Any, dtype: Any) -> None:
        self.input_size, self.hidden_size, self.bias = mod.input_size, mod.hidden_size, mod.bias
        self.weight_dtype = float_or_quantized(dtype)
        self._packed_weight_ih = _Weights(mod.weight_ih, mod.bias_ih, self.weight_dtype)
        self._packed_weight_hh = _Weights(mod.weight_hh, mod.bias_hh, self.weight_dtype)
        self.nonlinearity = getattr(mod, "nonlinearity", "tanh")

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return _taken_over(cls, mod)

    @property
    def bias_ih(self) -> Any:
        return self._packed_weight_ih.bias

    @property
    def bias_hh(self) -> Any:
        return self._packed_weight_hh.bias

    def get_weight(self) -> dict[str, Any]:
        return {f"weight_{part}": getattr(self, f"_packed_weight_{part}").held() for part in ("ih", "hh")}

    def get_bias(self) -> dict[str, Any]:
        return {"bias_ih": self.bias_ih, "bias_hh": self.bias_hh}

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        """Other weights and biases, by the names that `get_weight` and `get_bias` have for them."""
        for part in ("ih", "hh"):
            weights = getattr(self, f"_packed_weight_{part}")
            weights.set(weight_bias_dict[f"weight_{part}"], weight_bias_dict[f"bias_{part}"])

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in ("_packed_weight_ih", "_packed_weight_hh"):
            destination[prefix + name] = getattr(self, name).packed()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, *rest: Any
    ) -> None:
        for name in ("_packed_weight_ih", "_packed_weight_hh"):
            if prefix + name in state_dict:
                getattr(self, name).set(*state_dict.pop(prefix + name).unpack())
            elif strict and f"{prefix}{name}.weight" not in state_dict:
                missing.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        settings = {"relu": self.nonlinearity == "relu"} if isinstance(self, RNNCell) else {}
        return getattr(forms, type(self).__name__)(
            ih=self._packed_weight_ih, hh=self._packed_weight_hh, hidden_size=self.hidden_size, **settings
        )

    def _state(self, input: Tensor, hx: Any) -> Any:
        return input.new_zeros(input.shape[0], self.hidden_size) if hx is None else hx

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")
        return text if self.nonlinearity == "tanh" else f"{text}, nonlinearity={self.nonlinearity}"


class RNNCell(_Cell):
    """A step of an RNN with weights in eight bits."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        total = self._packed_weight_ih(input) + self._packed_weight_hh(self._state(input, hx))
        return total.tanh() if self.nonlinearity == "tanh" else total.relu()


class LSTMCell(_Cell):
    """A step of an LSTM with weights in eight bits."""

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        h, c = (self._state(input, None),) * 2 if hx is None else hx
        h, c = LSTM.cell(self, self._packed_weight_ih(input), [h, c], self._packed_weight_hh)  # type: ignore[arg-type]
        return h, c


class GRUCell(_Cell):
    """A step of a GRU with weights in eight bits."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        state = [self._state(input, hx)]
        return GRU.cell(self, self._packed_weight_ih(input), state, self._packed_weight_hh)[0]  # type: ignore[arg-type]


__getattr__ = absent.names_of(__name__)
