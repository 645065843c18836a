"""Recurrent networks: RNN, LSTM and GRU over whole sequences, padded or packed, and their single cells."""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """What the networks share: weights named by layer and direction, checks of arguments, and the order of samples.

    >>> network = nn.RNNBase("GRU", 2, 3)
    >>> network.weight_ih_l0.shape
    torch.Size([9, 2])
    """

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError(f"[{name}] expected dropout to be a probability between 0 and 1, got {dropout!r}")
        if not isinstance(hidden_size, int):
            raise TypeError(f"[{name}] expected hidden_size to be an int, got {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError(f"[{name}] expected hidden_size > 0, got {hidden_size}")
        if num_layers <= 0:
            raise ValueError(f"[{name}] expected num_layers > 0, got {num_layers}")
        if not 0 <= proj_size < hidden_size:
            raise ValueError(f"[{name}] expected proj_size of at least 0 and below hidden_size, got {proj_size}")
        if mode not in _GATES:
            raise ValueError(f"[{name}] expected a mode among {', '.join(_GATES)}, got {mode!r}")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"[{name}] dropout acts between layers and has no effect on a single one, got dropout={dropout}",
                stacklevel=2,
            )
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []

        gates = _GATES[mode] * hidden_size
        state = proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else state * (2 if bidirectional else 1)
            for suffix in ("", "_reverse") if bidirectional else ("",):
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, width), "weight_hh": (gates, state)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = [f"{kind}_l{layer}{suffix}" for kind in shapes]
                for weight, shape in zip(names, shapes.values()):
                    setattr(self, weight, Parameter(fl.empty(shape, device=device, dtype=dtype)))
                self._flat_weights_names.extend(names)
                self._all_weights.append(names)
        self.reset_parameters()

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def reset_parameters(self) -> None:
        """Draw all weights uniformly within 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do: the kernels take the weights as they lie."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {key: value for key, value in state.items() if key not in ("_flat_weights", "_flat_weight_refs")}
        super().__setstate__(state)
        self.__dict__.setdefault("proj_size", 0)

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if self.proj_size != 0:
            parts.append(f"proj_size={self.proj_size}")
        if self.num_layers != 1:
            parts.append(f"num_layers={self.num_layers}")
        if self.bias is not True:
            parts.append(f"bias={self.bias}")
        if self.batch_first is not False:
            parts.append(f"batch_first={self.batch_first}")
        if self.dropout != 0:
            parts.append(f"dropout={self.dropout}")
        if self.bidirectional is not False:
            parts.append(f"bidirectional={self.bidirectional}")
        return ", ".join(parts)

    # ---------------------------------------------------------------- arguments of forward

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise where the input's dtype, dimensions or features do not fit."""
        name = type(self).__name__
        dims = 2 if batch_sizes is not None else 3
        own = self._first_weight().dtype
        autocast = getattr(fl, "is_autocast_enabled", None)
        if input.dtype != own and not (autocast is not None and autocast(input.device.type)):
            raise ValueError(f"[{name}] expected an input of the weights' dtype {own}, got {input.dtype}")
        if input.dim() != dims:
            raise RuntimeError(f"[{name}] expected an input of {dims} dimensions, got {input.dim()}")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"[{name}] expected an input of {self.input_size} features, got {input.shape[-1]}")

    def _first_weight(self) -> Tensor:
        return getattr(self, self._flat_weights_names[0])

    def _states(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int]:
        """How many states there are, and for how many samples."""
        if batch_sizes is not None:
            samples = int(batch_sizes[0])
        else:
            samples = input.size(0) if self.batch_first else input.size(1)
        return self.num_layers * (2 if self.bidirectional else 1), samples

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of the hidden state."""
        return (*self._states(input, batch_sizes), self.proj_size or self.hidden_size)

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, int, int], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Raise where a state has another shape."""
        if tuple(hx.shape) != expected_hidden_size:
            detail = msg.format(expected_hidden_size, list(hx.shape))
            raise RuntimeError(f"[{type(self).__name__}] {detail[0].lower()}{detail[1:]}")

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Raise where input or state do not fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state with its samples in another order."""
        return hx if permutation is None else _apply_permutation(hx, permutation)

    def _prepared(self, input: Any, hx: Any) -> tuple[Tensor, Any, Tensor | None, Any, Any, bool]:
        """Input and state as the operators take them: data, state, batch sizes, orders of samples, whether unbatched."""
        name = type(self).__name__
        if isinstance(input, PackedSequence):
            data, batch_sizes, order, back = input
            state = self._zero_state(data, batch_sizes) if hx is None else self.permute_hidden(hx, order)
            return data, state, batch_sizes, order, back, False
        if input.dim() not in (2, 3):
            raise ValueError(f"[{name}] expected an input of 2 or 3 dimensions, got {input.dim()}")
        single = input.dim() == 2
        if hx is not None:
            self._check_state_dims(hx, input.dim())
        if single:
            input = input.unsqueeze(0 if self.batch_first else 1)
            hx = self._batched_state(hx)
        return input, self._zero_state(input, None) if hx is None else hx, None, None, None, single

    def _check_state_dims(self, hx: Any, dims: int) -> None:
        if hx.dim() != dims:
            raise RuntimeError(
                f"[{type(self).__name__}] expected a state of as many dimensions as the input, {dims}, got {hx.dim()}"
            )

    def _batched_state(self, hx: Any) -> Any:
        return None if hx is None else hx.unsqueeze(1)

    def _zero_state(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        shape = self.get_expected_hidden_size(input, batch_sizes)
        return fl.zeros(shape, dtype=input.dtype, device=input.device)

    def _options(self) -> tuple[bool, int, float, bool, bool]:
        return self.bias, self.num_layers, self.dropout, self.training, self.bidirectional

    def _run(self, padded: Any, input: Any, hx: Any) -> Any:
        """Forward of the networks whose state is one tensor."""
        data, state, batch_sizes, order, back, single = self._prepared(input, hx)
        self.check_forward_args(data, state, batch_sizes)
        if batch_sizes is not None:
            out, hidden = padded(data, batch_sizes, state, self._flat_weights, *self._options())
            return PackedSequence(out, batch_sizes, order, back), self.permute_hidden(hidden, back)
        out, hidden = padded(data, state, self._flat_weights, *self._options(), self.batch_first)
        if single:
            return out.squeeze(0 if self.batch_first else 1), hidden.squeeze(1)
        return out, hidden


class RNN(RNNBase):
    """Elman network over whole sequences, of several layers.

    - input_size, hidden_size, num_layers; nonlinearity: "tanh" or "relu"; bias.
    - batch_first: (N, T, features) instead of (T, N, features); dropout: between layers; bidirectional; device, dtype.

    Returns (output, h). Takes packed sequences.

    >>> out, h = nn.RNN(2, 3)(flambeau.randn(5, 1, 2))
    >>> out.shape, h.shape
    (torch.Size([5, 1, 3]), torch.Size([1, 1, 3]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError(
                "[RNN] expected no proj_size, which only an LSTM has, got one: proj_size argument is only supported for LSTM, not RNN or GRU"
            )
        if len(args) > 3:
            nonlinearity = args[3]
            args = (*args[:3], *args[4:])
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"[RNN] expected nonlinearity 'tanh' or 'relu', got {nonlinearity!r}: Unknown nonlinearity"
            )
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Tensor | None = None) -> Any:
        return self._run(fl.rnn_tanh if self.mode == "RNN_TANH" else fl.rnn_relu, input, hx)


class GRU(RNNBase):
    """Gated recurrent units over whole sequences, of several layers.

    - input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype: as for RNN.

    Returns (output, h). Takes packed sequences.

    >>> out, h = nn.GRU(2, 3, bidirectional=True)(flambeau.randn(5, 1, 2))
    >>> out.shape, h.shape
    (torch.Size([5, 1, 6]), torch.Size([2, 1, 3]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError(
                "[GRU] expected no proj_size, which only an LSTM has, got one: proj_size argument is only supported for LSTM, not RNN or GRU"
            )
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> Any:
        return self._run(fl.gru, input, hx)


class LSTM(RNNBase):
    """Long short-term memory over whole sequences, of several layers.

    - input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype: as for RNN.
    - proj_size: project the hidden state to this size.

    Returns (output, (h, c)). Takes packed sequences.

    >>> out, (h, c) = nn.LSTM(2, 3, num_layers=2)(flambeau.randn(5, 1, 2))
    >>> out.shape, c.shape
    (torch.Size([5, 1, 3]), torch.Size([2, 1, 3]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of the cell state."""
        return (*self._states(input, batch_sizes), self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        shape = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], shape, "Expected hidden[0] size {}, got {}")
        shape = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(hidden[1], shape, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        if permutation is None:
            return hx
        return _apply_permutation(hx[0], permutation), _apply_permutation(hx[1], permutation)

    def _check_state_dims(self, hx: Any, dims: int) -> None:
        for state in hx:
            super()._check_state_dims(state, dims)

    def _batched_state(self, hx: Any) -> Any:
        return None if hx is None else (hx[0].unsqueeze(1), hx[1].unsqueeze(1))

    def _zero_state(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        hidden = super()._zero_state(input, batch_sizes)
        if not self.proj_size:
            return hidden, hidden
        shape = self.get_expected_cell_size(input, batch_sizes)
        return hidden, fl.zeros(shape, dtype=input.dtype, device=input.device)

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        data, state, batch_sizes, order, back, single = self._prepared(input, hx)
        self.check_forward_args(data, state, batch_sizes)
        if batch_sizes is not None:
            out, *hidden = fl.lstm(data, batch_sizes, list(state), self._flat_weights, *self._options())
            return PackedSequence(out, batch_sizes, order, back), self.permute_hidden(tuple(hidden), back)
        out, h, c = fl.lstm(data, list(state), self._flat_weights, *self._options(), self.batch_first)
        if single:
            return out.squeeze(0 if self.batch_first else 1), (h.squeeze(1), c.squeeze(1))
        return out, (h, c)


# ---------------------------------------------------------------- cells


class RNNCellBase(Module):
    """Weights of one step, for input and hidden state, of all gates together.

    >>> nn.RNNCellBase(2, 3, bias=True, num_chunks=4).weight_ih.shape
    torch.Size([12, 2])
    """

    input_size: int
    hidden_size: int
    bias: bool

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.weight_ih = Parameter(fl.empty((gates, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(fl.empty((gates, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(fl.empty(gates, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights uniformly within 1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.__dict__.get("nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _check(self, what: str, tensor: Tensor) -> None:
        if tensor.dim() not in (1, 2):
            raise ValueError(f"[{type(self).__name__}] expected {what} of 1 or 2 dimensions, got {tensor.dim()}")

    def _weights(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _prepared(self, input: Tensor, hx: Tensor | None) -> tuple[Tensor, Tensor, bool]:
        """Input and state as batches, and whether they were single samples."""
        self._check("an input", input)
        if hx is not None:
            self._check("a hidden state", hx)
        single = input.dim() == 1
        if single:
            input = input.unsqueeze(0)
        if hx is None:
            hx = fl.zeros((input.size(0), self.hidden_size), dtype=input.dtype, device=input.device)
        elif hx.dim() == 1:
            hx = hx.unsqueeze(0)
        return input, hx, single


class RNNCell(RNNCellBase):
    """One step of an Elman network.

    - input_size, hidden_size; bias; nonlinearity: "tanh" or "relu"; device, dtype.

    >>> nn.RNNCell(2, 3)(flambeau.randn(4, 2)).shape
    torch.Size([4, 3])
    """

    nonlinearity: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        input, hx, single = self._prepared(input, hx)
        if self.nonlinearity == "tanh":
            out = fl.rnn_tanh_cell(input, hx, *self._weights())
        elif self.nonlinearity == "relu":
            out = fl.rnn_relu_cell(input, hx, *self._weights())
        else:
            raise RuntimeError(f"[RNNCell] expected nonlinearity 'tanh' or 'relu', got {self.nonlinearity!r}")
        return out.squeeze(0) if single else out


class LSTMCell(RNNCellBase):
    """One step of an LSTM.

    - input_size, hidden_size; bias; device, dtype.

    Returns (h, c).

    >>> h, c = nn.LSTMCell(2, 3)(flambeau.randn(4, 2))
    >>> h.shape
    torch.Size([4, 3])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        for state in hx or ():
            self._check("states", state)
        batch, hidden, single = self._prepared(input, None if hx is None else hx[0])
        cell = hidden if hx is None else hx[1]
        if cell.dim() == 1:
            cell = cell.unsqueeze(0)
        h, c = fl.lstm_cell(batch, [hidden, cell], *self._weights())
        return (h.squeeze(0), c.squeeze(0)) if single else (h, c)


class GRUCell(RNNCellBase):
    """One step of a GRU.

    - input_size, hidden_size; bias; device, dtype.

    >>> nn.GRUCell(2, 3)(flambeau.randn(4, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        input, hx, single = self._prepared(input, hx)
        out = fl.gru_cell(input, hx, *self._weights())
        return out.squeeze(0) if single else out
