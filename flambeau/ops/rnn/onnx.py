"""Recurrent layers in ONNX: one node for each layer, in one or both directions.

ONNX orders the gates otherwise (input, output, forget, cell for an LSTM; update, reset, hidden for a GRU), and keeps the
two directions in a dimension of its own.
"""

from __future__ import annotations

from typing import Any

from flambeau.ops.rules import onnx

_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _reordered(g: Any, weight: Any, kind: str) -> Any:
    """Blocks of rows in ONNX's order of gates."""
    order = _GATES[kind]
    if len(order) == 1:
        return weight
    blocks = g.op(
        "Split", weight, g.ints([int(weight.shape[0]) // len(order)] * len(order)), outputs=len(order), axis=0
    )
    return g.op("Concat", *(blocks[i] for i in order), axis=0)


def _stacked(g: Any, values: list[Any]) -> Any:
    parts = [g.unsqueeze(value, 0) for value in values]
    return parts[0] if len(parts) == 1 else g.op("Concat", *parts, axis=0)


def _layer(g: Any, x: Any, kind: str, weights: list[list[Any]], states: list[Any], extra: dict[str, Any]) -> Any:
    """One layer; weights by direction."""
    directions = len(weights)
    hidden = int(weights[0][1].shape[1])
    w = _stacked(g, [_reordered(g, one[0], kind) for one in weights])
    r = _stacked(g, [_reordered(g, one[1], kind) for one in weights])
    b = None
    if len(weights[0]) > 2:
        biases = [g.op("Concat", _reordered(g, one[2], kind), _reordered(g, one[3], kind), axis=0) for one in weights]
        b = _stacked(g, biases)
    outputs = g.op(
        kind, x, w, r, b, None, *states, outputs=3 if kind == "LSTM" else 2, hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward", **extra,
    )  # fmt: skip
    merged = g.op("Transpose", outputs[0], perm=[0, 2, 1, 3])
    return g.op("Reshape", merged, g.ints([0, 0, directions * hidden])), outputs[1:]


def _recurrent(
    g: Any, kind: str, input: Any, hx: list[Any], params: Any, has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool, extra: dict[str, Any],
) -> Any:  # fmt: skip
    if train and dropout:
        raise g.unsupported("dropout between layers")
    directions, each = (2 if bidirectional else 1), (4 if has_biases else 2)
    if len(params) != num_layers * directions * each:
        raise g.unsupported("projections")
    x = g.op("Transpose", input, perm=[1, 0, 2]) if batch_first else input
    finals: list[list[Any]] = [[] for _ in hx]
    for layer in range(num_layers):
        first = layer * directions
        weights = [list(params[(first + d) * each : (first + d + 1) * each]) for d in range(directions)]
        states = [g.op("Slice", h, g.ints(first), g.ints(first + directions), g.ints(0)) for h in hx]
        x, last = _layer(g, x, kind, weights, states, extra)
        for held, value in zip(finals, last):
            held.append(value)
    out = g.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x
    return (out, *(held[0] if len(held) == 1 else g.op("Concat", *held, axis=0) for held in finals))


@onnx("lstm.input")
def lstm(
    g: Any, input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    return _recurrent(
        g, "LSTM", input, list(hx), params, has_biases, num_layers, dropout, train, bidirectional, batch_first, {}
    )


@onnx("gru.input")
def gru(
    g: Any, input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    extra = {"linear_before_reset": 1}
    return _recurrent(
        g, "GRU", input, [hx], params, has_biases, num_layers, dropout, train, bidirectional, batch_first, extra
    )


def _plain(activation: str) -> Any:
    def rule(
        g: Any, input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        extra = {"activations": [activation] * (2 if bidirectional else 1)}
        return _recurrent(
            g, "RNN", input, [hx], params, has_biases, num_layers, dropout, train, bidirectional, batch_first, extra
        )

    return rule


onnx("rnn_tanh.input")(_plain("Tanh"))
onnx("rnn_relu.input")(_plain("Relu"))
