"""Recurrent networks: whole networks of layers and directions, single cells, and packed sequences.

One direction of one layer over all steps is native (csrc/cpu/rnn/rnn.cpp), on CUDA too; the networks put such layers
together. On other devices, and where derivatives of derivatives are asked for, the same layer is written by its cells below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.record import Scalar, autocast, composite, native, tag, vjp
from flambeau.ops.retrace import retrace

TANH, RELU, LSTM, GRU = range(4)

_LAYER = (
    "Tensor input, Tensor hx, Tensor? cx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor? w_hr, "
    "int[] batch_sizes, int mode, bool reverse"
)
native(f"_rnn_layer({_LAYER}) -> (Tensor output, Tensor hy, Tensor cy, Tensor gates, Tensor reserve)")
native(
    "_rnn_layer_backward(Tensor? grad_output, Tensor? grad_hy, Tensor? grad_cy, Tensor input, Tensor hx, Tensor? cx, "
    "Tensor w_ih, Tensor w_hh, Tensor? w_hr, int[] batch_sizes, int mode, bool reverse, Tensor output, Tensor gates, "
    "Tensor reserve, bool[] output_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


@vjp("_rnn_layer")
def rnn_layer_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    g2: fl.Tensor | None,
    input: fl.Tensor,
    hx: Any,
    cx: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    w_hr: Any,
    batch_sizes: fl.Size,
    mode: str,
    reverse: Any,
    output: fl.Tensor,
    gates: Any,
    reserve: Any,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    if fl.is_grad_enabled():
        # The derivative with a history of its own: that of the layer written by its cells.
        return retrace(
            lambda *arguments: _layer_by_cells(*arguments, batch_sizes, mode, reverse),  # type: ignore[call-arg]
            (input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr),
            needs,
            (g0, g1, g2),
        )
    grads = fl._ops._rnn_layer_backward(
        g0, g1, g2, input, hx, cx, w_ih, w_hh, w_hr, batch_sizes, mode, reverse, output, gates, reserve, list(needs)
    )
    return tuple(grad if wanted else None for grad, wanted in zip(grads, needs))


# ---------------------------------------------------------------- cells


def _activated(mode: int, from_input: Any, from_hidden: Any, hx: Any, cx: Any) -> tuple[Any, Any]:
    """Hidden and cell state after a step, from the products of input and hidden state with the weights."""
    if mode == LSTM:
        i, f, g, o = (from_input + from_hidden).chunk(4, -1)
        cell = f.sigmoid() * cx + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell
    if mode == GRU:
        input_r, input_z, input_n = from_input.chunk(3, -1)
        hidden_r, hidden_z, hidden_n = from_hidden.chunk(3, -1)
        update = (input_z + hidden_z).sigmoid()
        new = (input_n + (input_r + hidden_r).sigmoid() * hidden_n).tanh()
        return new + update * (hx - new), None
    total = from_input + from_hidden
    return (total.relu() if mode == RELU else total.tanh()), None


def _layer_by_cells(
    input: Any,
    hx: Any,
    cx: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    w_hr: Any,
    batch_sizes: Sequence[int],
    mode: int,
    reverse: bool,
) -> tuple[Any, Any, Any]:
    """What the native layer computes, step by step; the results are output, last hidden and last cell state."""
    projected = fl.nn.functional.linear(input, w_ih, b_ih)
    steps = list(projected.split(list(batch_sizes))) if batch_sizes else list(projected.unbind(0))
    outputs: list[Any] = [None] * len(steps)
    for place in reversed(range(len(steps))) if reverse else range(len(steps)):
        step = steps[place]
        active = step.shape[0]
        whole = active == hx.shape[0]
        h = hx if whole else hx[:active]
        c = cx if whole or cx is None else cx[:active]
        new_h, new_c = _activated(mode, step, fl.nn.functional.linear(h, w_hh, b_hh), h, c)
        if w_hr is not None:
            new_h = fl.nn.functional.linear(new_h, w_hr)
        outputs[place] = new_h
        # Samples that have ended, or not begun yet, keep their state.
        hx = new_h if whole else fl.cat([new_h, hx[active:]])
        if cx is not None:
            cx = new_c if whole else fl.cat([new_c, cx[active:]])
    return (fl.cat(outputs) if batch_sizes else fl.stack(outputs)), hx, cx


def _check_cell(op: str, input: Any, hx: Any, cx: Any, w_ih: Any, w_hh: Any, gates: int) -> None:
    if input.dim() != hx.dim():
        raise RuntimeError(
            f"[{op}] expected input and state of as many dimensions, got {tuple(input.shape)} and {tuple(hx.shape)}"
        )
    if input.shape[-1] != w_ih.shape[1]:
        raise RuntimeError(f"[{op}] expected an input of {w_ih.shape[1]} features, got {input.shape[-1]}")
    if hx.shape[-1] != w_hh.shape[1] or w_hh.shape[0] != gates * w_hh.shape[1]:
        raise RuntimeError(f"[{op}] expected a state of {w_hh.shape[0] // gates} features, got {hx.shape[-1]}")
    if input.dim() == 2 and input.shape[0] != hx.shape[0]:
        raise RuntimeError(f"[{op}] expected a state for each of {input.shape[0]} samples, got {hx.shape[0]}")
    if cx is not None and cx.shape != hx.shape:
        raise RuntimeError(
            f"[{op}] expected a cell state of the hidden state's shape, got {tuple(cx.shape)} and {tuple(hx.shape)}"
        )


def _cell(op: str, mode: int, input: Any, hx: Any, cx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    _check_cell(op, input, hx, cx, w_ih, w_hh, (1, 1, 4, 3)[mode])
    linear = fl.nn.functional.linear
    return _activated(mode, linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh), hx, cx)


@composite()
def lstm_cell(
    input: fl.Tensor,
    hx: list[fl.Tensor],
    w_ih: fl.Tensor,
    w_hh: fl.Tensor,
    b_ih: fl.Tensor | None = None,
    b_hh: fl.Tensor | None = None,
) -> tuple[fl.Tensor, fl.Tensor]:
    if len(hx) != 2:
        raise RuntimeError(f"[lstm_cell] expected a hidden and a cell state, got {len(hx)} tensors")
    return _cell("lstm_cell", LSTM, input, hx[0], hx[1], w_ih, w_hh, b_ih, b_hh)


@composite()
def gru_cell(
    input: fl.Tensor,
    hx: fl.Tensor,
    w_ih: fl.Tensor,
    w_hh: fl.Tensor,
    b_ih: fl.Tensor | None = None,
    b_hh: fl.Tensor | None = None,
) -> fl.Tensor:
    return _cell("gru_cell", GRU, input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]


@composite()
def rnn_tanh_cell(
    input: fl.Tensor,
    hx: fl.Tensor,
    w_ih: fl.Tensor,
    w_hh: fl.Tensor,
    b_ih: fl.Tensor | None = None,
    b_hh: fl.Tensor | None = None,
) -> fl.Tensor:
    return _cell("rnn_tanh_cell", TANH, input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]


@composite()
def rnn_relu_cell(
    input: fl.Tensor,
    hx: fl.Tensor,
    w_ih: fl.Tensor,
    w_hh: fl.Tensor,
    b_ih: fl.Tensor | None = None,
    b_hh: fl.Tensor | None = None,
) -> fl.Tensor:
    return _cell("rnn_relu_cell", RELU, input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]


# ---------------------------------------------------------------- networks


def _network(
    op: str,
    mode: int,
    input: Any,
    hx: Any,
    cx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int] = (),
) -> tuple[Any, Any, Any]:
    directions = 2 if bidirectional else 1
    count = num_layers * directions
    if count <= 0:
        raise RuntimeError(f"[{op}] expected at least one layer, got {num_layers}")
    each, left_over = divmod(len(params), count)
    if left_over or each not in ((4, 5) if has_biases else (2, 3)) or (each % 2 and mode != LSTM):
        raise RuntimeError(f"[{op}] expected weights for {count} layers and directions, got {len(params)} tensors")
    if hx.dim() != 3 or hx.shape[0] != count:
        raise RuntimeError(f"[{op}] expected a hidden state of ({count}, batch, features), got {tuple(hx.shape)}")
    by_kernel = input.device.type in ("cpu", "meta", "cuda")
    hidden = hx.unbind(0)
    cells = (None,) * count if cx is None else cx.unbind(0)
    last_hidden: list[Any] = []
    last_cells: list[Any] = []
    place = 0
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            weights = params[place * each : (place + 1) * each]
            biases = weights[2:4] if has_biases else (None, None)
            projection = weights[-1] if each % 2 else None
            arguments = (input, hidden[place], cells[place], *weights[:2], *biases, projection, batch_sizes, mode)
            if by_kernel:
                output, h, c, _, _ = fl._ops._rnn_layer(*arguments, direction == 1)
            else:
                output, h, c = _layer_by_cells(*arguments, direction == 1)  # type: ignore[call-arg]
            outputs.append(output)
            last_hidden.append(h)
            last_cells.append(c)
            place += 1
        input = outputs[0] if directions == 1 else fl.cat(outputs, -1)
        if dropout and train and layer < num_layers - 1:
            input = fl.dropout(input, dropout, True)
    if count == 1:
        return input, last_hidden[0].unsqueeze(0), None if cx is None else last_cells[0].unsqueeze(0)
    return input, fl.stack(last_hidden), None if cx is None else fl.stack(last_cells)


def _padded(op: str, mode: int, input: Any, hx: Any, cx: Any, batch_first: bool, *rest: Any) -> tuple[Any, Any, Any]:
    if input.dim() != 3:
        raise RuntimeError(f"[{op}] expected an input of 3 dimensions, got {input.dim()}")
    if batch_first:
        input = input.transpose(0, 1)
    if input.shape[0] == 0:
        raise RuntimeError(f"[{op}] expected a sequence of at least one step, got {tuple(input.shape)}")
    output, h, c = _network(op, mode, input, hx, cx, *rest)
    return output.transpose(0, 1) if batch_first else output, h, c


def _states(op: str, hx: Sequence[Any]) -> Sequence[Any]:
    if len(hx) != 2:
        raise RuntimeError(f"[{op}] expected a hidden and a cell state, got {len(hx)} tensors")
    return hx


@composite("lstm.input")
def lstm(
    input: fl.Tensor,
    hx: list[fl.Tensor],
    params: list[fl.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    h, c = _states("lstm", hx)
    options = (has_biases, num_layers, dropout, train, bidirectional)
    return _padded("lstm", LSTM, input, h, c, batch_first, params, *options)


@composite("lstm.data")
def lstm_data(
    data: fl.Tensor,
    batch_sizes: fl.Tensor,
    hx: list[fl.Tensor],
    params: list[fl.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    h, c = _states("lstm", hx)
    options = (has_biases, num_layers, dropout, train, bidirectional)
    return _network("lstm", LSTM, data, h, c, params, *options, batch_sizes.tolist())


@composite("gru.input")
def gru(
    input: fl.Tensor,
    hx: fl.Tensor,
    params: list[fl.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[fl.Tensor, fl.Tensor]:
    options = (has_biases, num_layers, dropout, train, bidirectional)
    return _padded("gru", GRU, input, hx, None, batch_first, params, *options)[:2]


@composite("gru.data")
def gru_data(
    data: fl.Tensor,
    batch_sizes: fl.Tensor,
    hx: fl.Tensor,
    params: list[fl.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[fl.Tensor, fl.Tensor]:
    options = (has_biases, num_layers, dropout, train, bidirectional)
    return _network("gru", GRU, data, hx, None, params, *options, batch_sizes.tolist())[:2]


@composite("rnn_tanh.input")
def rnn_tanh(
    input: fl.Tensor,
    hx: fl.Tensor,
    params: list[fl.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[fl.Tensor, fl.Tensor]:
    options = (has_biases, num_layers, dropout, train, bidirectional)
    return _padded("rnn_tanh", TANH, input, hx, None, batch_first, params, *options)[:2]


@composite("rnn_tanh.data")
def rnn_tanh_data(
    data: fl.Tensor,
    batch_sizes: fl.Tensor,
    hx: fl.Tensor,
    params: list[fl.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[fl.Tensor, fl.Tensor]:
    options = (has_biases, num_layers, dropout, train, bidirectional)
    return _network("rnn_tanh", TANH, data, hx, None, params, *options, batch_sizes.tolist())[:2]


@composite("rnn_relu.input")
def rnn_relu(
    input: fl.Tensor,
    hx: fl.Tensor,
    params: list[fl.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[fl.Tensor, fl.Tensor]:
    options = (has_biases, num_layers, dropout, train, bidirectional)
    return _padded("rnn_relu", RELU, input, hx, None, batch_first, params, *options)[:2]


@composite("rnn_relu.data")
def rnn_relu_data(
    data: fl.Tensor,
    batch_sizes: fl.Tensor,
    hx: fl.Tensor,
    params: list[fl.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[fl.Tensor, fl.Tensor]:
    options = (has_biases, num_layers, dropout, train, bidirectional)
    return _network("rnn_relu", RELU, data, hx, None, params, *options, batch_sizes.tolist())[:2]


# ---------------------------------------------------------------- packed sequences


def _places(batch_sizes: Any, batch: int) -> Any:
    """Where packed rows lie in (time, batch) flattened."""
    active = fl.arange(batch, device=batch_sizes.device).unsqueeze(0) < batch_sizes.unsqueeze(1)
    return active.flatten().nonzero().squeeze(1)


@composite("_pack_padded_sequence", module="")
def pack_padded_sequence(input: fl.Tensor, lengths: fl.Tensor, batch_first: bool) -> tuple[fl.Tensor, fl.Tensor]:
    op = "pack_padded_sequence"
    if batch_first:
        input = input.transpose(0, 1)
    steps, batch = input.shape[:2]
    if lengths.dim() != 1 or lengths.dtype != fl.int64 or lengths.device.type != "cpu":
        raise RuntimeError(
            f"[{op}] expected lengths as an int64 tensor of 1 dimension on the CPU, got {tuple(lengths.shape)} "
            f"{lengths.dtype} on {lengths.device}"
        )
    if lengths.shape[0] != batch:
        raise RuntimeError(f"[{op}] expected {batch} lengths, one for each sample, got {lengths.shape[0]}")
    sizes = lengths.tolist()
    if not sizes:
        raise RuntimeError(f"[{op}] expected at least one sample, got none")
    if sizes != sorted(sizes, reverse=True):
        raise RuntimeError(
            f"[{op}] expected lengths in decreasing order, got {sizes}; pass enforce_sorted=False to have them sorted"
        )
    if sizes[-1] <= 0:
        raise RuntimeError(f"[{op}] expected lengths > 0, got {sizes[-1]}")
    if sizes[0] > steps:
        raise RuntimeError(f"[{op}] expected lengths of at most {steps} steps, got {sizes[0]}")
    batch_sizes = (lengths.unsqueeze(0) > fl.arange(sizes[0], device=lengths.device).unsqueeze(1)).sum(1)
    places = _places(batch_sizes, batch).to(input.device)
    return input[: sizes[0]].flatten(0, 1).index_select(0, places), batch_sizes


@composite("_pad_packed_sequence", module="")
def pad_packed_sequence(
    data: fl.Tensor, batch_sizes: fl.Tensor, batch_first: bool, padding_value: Scalar, total_length: int
) -> tuple[fl.Tensor, fl.Tensor]:
    op = "pad_packed_sequence"
    if batch_sizes.dim() != 1 or batch_sizes.numel() == 0:
        raise RuntimeError(f"[{op}] expected batch_sizes of 1 dimension, got {tuple(batch_sizes.shape)}")
    longest, batch = batch_sizes.shape[0], int(batch_sizes[0])
    if 0 < total_length < longest:
        raise RuntimeError(f"[{op}] expected total_length of at least {longest}, got {total_length}")
    steps = max(total_length, longest)
    rest = data.shape[1:]
    out = fl.full((steps * batch, *rest), padding_value, dtype=data.dtype, device=data.device)
    out = out.index_copy(0, _places(batch_sizes, batch).to(data.device), data).unflatten(0, (steps, batch))
    lengths = (fl.arange(batch, device=batch_sizes.device).unsqueeze(0) < batch_sizes.unsqueeze(1)).sum(0)
    return out.transpose(0, 1) if batch_first else out, lengths


# ---------------------------------------------------------------- what passes know of these operators

tag("meta_layout", "_rnn_layer _rnn_layer_backward")
tag("recurrent", "_rnn_layer")
tag("mixed_devices", "_pad_packed_sequence")
autocast("first", "gru", on="cpu")
autocast("lower", "lstm rnn_relu rnn_tanh")
autocast("lower", "gru gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell", on="accelerator")
