"""Recurrent layers against their equations written out, and what packing promises."""

import math

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence, unpad_sequence


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_lstm_of_one_unit_by_hand():
    cell = nn.LSTMCell(1, 1)
    with fl.no_grad():
        for weight in cell.parameters():
            weight.fill_(0.5)
    h, c = cell(fl.tensor([[1.0]]), (fl.tensor([[2.0]]), fl.tensor([[3.0]])))
    gate = 0.5 * 1 + 0.5 + 0.5 * 2 + 0.5
    wanted = sigmoid(gate) * 3 + sigmoid(gate) * math.tanh(gate)
    assert c.item() == pytest.approx(wanted, rel=1e-6)
    assert h.item() == pytest.approx(sigmoid(gate) * math.tanh(wanted), rel=1e-6)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_layer_is_its_cell_repeated(kind, batch_first):
    layer, cell = getattr(nn, kind)(3, 5, batch_first=batch_first), getattr(nn, f"{kind}Cell")(3, 5)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
    x = fl.randn(7, 9, 3)
    out, last = layer(x.transpose(0, 1) if batch_first else x)
    state, outputs = None, []
    for step in x:
        state = cell(step, state)
        outputs.append(state[0] if kind == "LSTM" else state)
    out = out.transpose(0, 1) if batch_first else out
    assert fl.allclose(out, fl.stack(outputs), atol=1e-6)
    assert fl.allclose((last[0] if kind == "LSTM" else last)[0], outputs[-1], atol=1e-6)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
def test_gradients_are_those_of_differences(kind, options):
    layer = getattr(nn, kind)(2, 3, **options).double()
    weights = dict(layer.named_parameters())
    x = fl.randn(3, 2, 2, dtype=fl.float64, requires_grad=True)

    def run(x, *values):
        return fl.func.functional_call(layer, dict(zip(weights, values)), (x,))[0]

    assert fl.autograd.gradcheck(run, (x, *weights.values()))


def test_second_derivatives():
    layer = nn.LSTM(2, 2).double()
    x = fl.randn(2, 1, 2, dtype=fl.float64, requires_grad=True)
    assert fl.autograd.gradgradcheck(lambda x: layer(x)[0], (x,))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_packed_sequences_give_what_each_gives_alone(kind):
    layer = getattr(nn, kind)(3, 4, 2, bidirectional=True)
    sequences = [fl.randn(n, 3) for n in (2, 5, 3)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    out, lengths = pad_packed_sequence(layer(packed)[0], batch_first=True)
    assert lengths.tolist() == [2, 5, 3]
    for row, sequence in enumerate(sequences):
        alone, _ = layer(sequence)
        assert fl.allclose(out[row, : len(sequence)], alone, atol=1e-6)
        assert not out[row, len(sequence) :].any()


def test_reduced_precision_and_meta():
    layer = nn.GRU(3, 4).bfloat16()
    assert layer(fl.randn(2, 2, 3, dtype=fl.bfloat16))[0].dtype == fl.bfloat16
    assert nn.LSTM(3, 4, device="meta")(fl.empty(2, 2, 3, device="meta"))[0].shape == (2, 2, 4)


def test_packing_and_padding():
    padded = pad_sequence([fl.tensor([1, 2]), fl.tensor([3, 4, 5])], batch_first=True)
    assert padded.tolist() == [[1, 2, 0], [3, 4, 5]]
    left = pad_sequence([fl.tensor([1]), fl.tensor([3, 4])], batch_first=True, padding_value=9, padding_side="left")
    assert left.tolist() == [[9, 1], [3, 4]]
    packed = pack_padded_sequence(padded, [2, 3], batch_first=True, enforce_sorted=False)
    assert packed.data.tolist() == [3, 1, 4, 2, 5]
    assert packed.batch_sizes.tolist() == [2, 2, 1]
    back, lengths = pad_packed_sequence(packed, batch_first=True, total_length=4)
    assert back.tolist() == [[1, 2, 0, 0], [3, 4, 5, 0]]
    assert [s.tolist() for s in unpad_sequence(back, lengths, batch_first=True)] == [[1, 2], [3, 4, 5]]
    with pytest.raises(RuntimeError, match="decreasing order"):
        pack_padded_sequence(padded, [2, 3], batch_first=True)
