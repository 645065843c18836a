"""Samples of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ops.samples import Call, Constant, Make, call, samples

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}


def _weights(make: Make, gates: int, inputs: int = 2, hidden: int = 3) -> tuple[Any, ...]:
    """Of input and hidden state, with their biases."""
    return make(gates * hidden, inputs), make(gates * hidden, hidden), make(gates * hidden), make(gates * hidden)


def _cell(name: str, gates: int) -> Callable[[Make], Iterator[Call]]:
    def generate(make: Make) -> Iterator[Call]:
        state = [make(2, 3), make(2, 3)] if name == "lstm" else make(2, 3)
        yield call(make(2, 2), state, *_weights(make, gates))

    return generate


def _network(name: str, gates: int) -> Callable[[Make], Iterator[Call]]:
    def generate(make: Make) -> Iterator[Call]:
        state = [make(1, 2, 3), make(1, 2, 3)] if name == "lstm" else make(1, 2, 3)
        yield call(make(3, 2, 2), state, list(_weights(make, gates)), True, 1, 0.0, False, False, False)

    return generate


def _packed(name: str, gates: int) -> Callable[[Make], Iterator[Call]]:
    def generate(make: Make) -> Iterator[Call]:
        state = [make(1, 2, 3), make(1, 2, 3)] if name == "lstm" else make(1, 2, 3)
        sizes = make.index([2, 1])
        yield call(make(3, 2), sizes, state, list(_weights(make, gates)), True, 1, 0.0, False, False)

    return generate


for _name, _gates in GATES.items():
    samples(f"{_name}_cell")(_cell(_name, _gates))
    samples(f"{_name}.input")(_network(_name, _gates))
    samples(f"{_name}.data")(_packed(_name, _gates))


@samples("_rnn_layer")
def rnn_layer(make: Make) -> Iterator[Call]:
    yield call(make(3, 2, 2), make(2, 3), None, *_weights(make, 1), None, [], 0, False).then(lambda out: out[:2])
    yield call(make(3, 2, 2), make(2, 3), make(2, 3), *_weights(make, 4), None, [], 2, True).then(lambda out: out[:3])
    yield call(make(3, 2), make(2, 3), None, *_weights(make, 3), None, [2, 1], 3, False).then(lambda out: out[:2])


@samples("_rnn_layer_backward")
def rnn_layer_backward(make: Make) -> Iterator[Call]:
    import flambeau as fl

    x, h, (w_ih, w_hh, b_ih, b_hh) = make(3, 2, 2), make(2, 3), _weights(make, 3)
    out, hy, _, gates, saved = fl._ops._rnn_layer(x, h, None, w_ih, w_hh, b_ih, b_hh, None, [], 3, False)
    g0, g1, x, h, w_ih, w_hh, out, gates, saved = map(Constant, (out * 2, hy, x, h, w_ih, w_hh, out, gates, saved))
    mask = [True, True, False, True, True, True, True, False]
    yield call(g0, g1, None, x, h, None, w_ih, w_hh, None, [], 3, False, out, gates, saved, mask)


@samples("_pack_padded_sequence")
def pack(make: Make) -> Iterator[Call]:
    yield call(make(3, 2, 2), make.index([3, 1]).cpu(), False)


@samples("_pad_packed_sequence")
def unpack(make: Make) -> Iterator[Call]:
    yield call(make(4, 2), make.index([2, 1, 1]).cpu(), False, 0.0, 3)
