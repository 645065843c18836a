"""Recurrent networks, losses of sequences and tables of vectors on the device against the CPU, with gradients."""

import copy

import pytest

import flambeau as fl
import flambeau.nn.functional as F

NETWORKS = {
    "tanh": lambda: fl.nn.RNN(3, 5),
    "relu": lambda: fl.nn.RNN(3, 5, nonlinearity="relu", bias=False),
    "lstm": lambda: fl.nn.LSTM(3, 5, num_layers=2, bidirectional=True),
    "projected": lambda: fl.nn.LSTM(3, 5, proj_size=2, bidirectional=True),
    "gru": lambda: fl.nn.GRU(3, 5, num_layers=2, bidirectional=True),
    "batch first": lambda: fl.nn.GRU(3, 5, batch_first=True),
}


def outcome(network, x, device):
    network, x = copy.deepcopy(network).to(device), x.detach().to(device).requires_grad_()
    output, state = network(x)
    states = state if isinstance(state, tuple) else (state,)
    loss = output.square().sum() + sum((s * s).sum() for s in states)
    loss.backward()
    return [t.detach().cpu() for t in (output, *states, x.grad, *(p.grad for p in network.parameters()))]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    fl.manual_seed(0)
    network, x = NETWORKS[name](), fl.randn(4, 6, 3)
    for got, want in zip(outcome(network, x, "cuda"), outcome(network, x, "cpu")):
        fl.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def close_to_float(got, want):
    """Results of 16 bits beside those of single precision, by their norm."""
    got, want = got.float(), want.float()
    assert (got - want).norm() <= 0.03 * want.norm() + 1e-3, (got, want)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_16_bits(name, packed):
    """What backward needs is kept in 16 bits, and gradients of gates take the place of the gates."""
    fl.manual_seed(0)
    network, x = NETWORKS[name](), fl.randn(4, 6, 3)
    results = []
    for device, dtype in (("cpu", fl.float32), ("cuda", fl.bfloat16)):
        there, data = copy.deepcopy(network).to(device, dtype), x.detach().to(device, dtype).requires_grad_()
        lengths = fl.tensor([6, 3, 4, 1] if network.batch_first else [4, 2, 4, 1, 3, 3])
        pack = fl.nn.utils.rnn.pack_padded_sequence
        given = pack(data, lengths, network.batch_first, False) if packed else data
        output = there(given)[0]
        output = fl.nn.utils.rnn.pad_packed_sequence(output, network.batch_first)[0] if packed else output
        for _ in range(2):  # what is kept is there for a second one
            for t in (data, *there.parameters()):
                t.grad = None
            output.square().sum().backward(retain_graph=True)
        results.append([t.detach().cpu() for t in (output, data.grad, *(p.grad for p in there.parameters()))])
    for got, want in zip(*results[::-1]):
        close_to_float(got, want)


@pytest.mark.parametrize("name", NETWORKS)
def test_packed_sequences(name):
    fl.manual_seed(0)
    network, x = NETWORKS[name](), fl.randn(4, 3, 3)
    results = []
    for device in ("cpu", "cuda"):
        there, data = copy.deepcopy(network).to(device), x.detach().to(device).requires_grad_()
        packed = fl.nn.utils.rnn.pack_padded_sequence(data, fl.tensor([2, 4, 1]), enforce_sorted=False)
        output, _ = there(packed)
        padded, lengths = fl.nn.utils.rnn.pad_packed_sequence(output)
        padded.square().sum().backward()
        results.append([padded.detach().cpu(), lengths, data.grad.cpu()])
    for got, want in zip(*results):
        fl.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_derivatives_of_derivatives():
    fl.manual_seed(0)
    network, x = fl.nn.GRU(3, 4), fl.randn(3, 2, 3)
    found = []
    for device in ("cpu", "cuda"):
        there, data = copy.deepcopy(network).to(device), x.detach().to(device).requires_grad_()
        (grad,) = fl.autograd.grad(there(data)[0].sum(), data, create_graph=True)
        grad.square().sum().backward()
        found.append(data.grad.cpu())
    fl.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_compiled_networks():
    fl.manual_seed(0)
    network, x = fl.nn.LSTM(3, 5).cuda(), fl.randn(4, 6, 3).cuda()
    fl.testing.assert_close(fl.compile(network)(x)[0], network(x)[0], rtol=1e-4, atol=1e-4)


def test_reduced_precision():
    fl.manual_seed(0)
    network, x = fl.nn.LSTM(3, 5).bfloat16(), fl.randn(4, 6, 3).bfloat16()
    want = network(x)[0]
    fl.testing.assert_close(copy.deepcopy(network).cuda()(x.cuda())[0].cpu(), want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_of_alignments(reduction):
    fl.manual_seed(0)
    scores, targets = fl.randn(6, 3, 5), fl.tensor([[1, 1, 2], [3, 4, 1], [2, 3, 2]])
    found = []
    for device in ("cpu", "cuda"):
        x = scores.detach().to(device).requires_grad_()
        loss = F.ctc_loss(x.log_softmax(-1), targets.to(device), [6, 5, 6], [3, 0, 2], reduction=reduction)
        loss.sum().backward()
        found.append((loss.detach().cpu(), x.grad.cpu()))
    for got, want in zip(found[1], found[0]):
        fl.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
def test_ctc_of_many_states(dtype):
    """More states than threads, labels that come again, samples of no length, one that is impossible."""
    fl.manual_seed(0)
    scores, targets = fl.randn(700, 5, 6, dtype=dtype), fl.randint(1, 6, (5, 300))
    lengths = [700, 650, 0, 700, 20], [300, 200, 0, 0, 300]
    found = []
    for device in ("cpu", "cuda"):
        x = scores.detach().clone().to(device).requires_grad_()
        loss = F.ctc_loss(x.log_softmax(-1), targets.to(device), *lengths, reduction="none", zero_infinity=True)
        loss.sum().backward()
        found.append((loss.detach().cpu(), x.grad.cpu()))
    for got, want in zip(found[1], found[0]):
        fl.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode):
    fl.manual_seed(0)
    bag = fl.nn.EmbeddingBag(7, 3, mode=mode, max_norm=1.0, padding_idx=2)
    indices, offsets = fl.tensor([1, 2, 4, 5, 4, 2]), fl.tensor([0, 3, 3])
    found = []
    for device in ("cpu", "cuda"):
        there = copy.deepcopy(bag).to(device)
        out = there(indices.to(device), offsets.to(device))
        out.square().sum().backward()
        found.append((out.detach().cpu(), there.weight.detach().cpu(), there.weight.grad.cpu()))
    for got, want in zip(found[1], found[0]):
        fl.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
