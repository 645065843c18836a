"""Layers and functions of `nn` compute in scripts what they compute in Python."""

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

STEPS, IMAGES = torch.randn(5, 2, 4), torch.randn(2, 4, 8, 8)
CASES = {
    "gru in two directions": (nn.GRU(4, 6, 2, bidirectional=True), STEPS),
    "gru of one sequence": (nn.GRU(4, 6, batch_first=True), STEPS[:, 0]),
    "lstm": (nn.LSTM(4, 6), STEPS),
    "rnn": (nn.RNN(4, 6, nonlinearity="relu"), STEPS),
    "gru cell": (nn.GRUCell(4, 6), STEPS[0]),
    "rnn cell of one vector": (nn.RNNCell(4, 6, nonlinearity="relu"), STEPS[0, 0]),
    "attention": (nn.MultiheadAttention(4, 2), STEPS, STEPS, STEPS),
    "attention without bias": (nn.MultiheadAttention(4, 2, bias=False, batch_first=True), STEPS, STEPS, STEPS),
    "attention with more keys": (nn.MultiheadAttention(4, 2, vdim=3, add_bias_kv=True, add_zero_attn=True), STEPS, STEPS, torch.randn(5, 2, 3)),
    "attention on a part": (nn.MultiheadAttention(4, 2), STEPS, STEPS, STEPS, torch.tensor([[False] * 4 + [True]] * 2)),
    "transformer": (nn.Transformer(4, 2, 1, 1, 8, batch_first=True), STEPS, STEPS),
    "circular convolution": (nn.Conv2d(4, 3, 3, padding=1, padding_mode="circular"), IMAGES),
    "convolution of the same size": (nn.Conv2d(4, 3, 3, padding="same"), IMAGES),
    "transposed convolution": (nn.ConvTranspose2d(4, 3, 3, stride=2), IMAGES),
    "pooling with indices": (nn.MaxPool2d(2, return_indices=True), IMAGES),
    "embedding": (nn.Embedding(5, 3, padding_idx=1, max_norm=1.0), torch.tensor([0, 1])),
    "smooth loss": (nn.SmoothL1Loss(beta=0.5), IMAGES, IMAGES.sigmoid()),
    "loss of logits": (nn.BCEWithLogitsLoss(reduction="sum"), IMAGES, IMAGES.sigmoid()),
    "divergence": (nn.KLDivLoss(reduction="batchmean"), IMAGES, IMAGES.sigmoid()),
}  # fmt: skip


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for part in value if part is not None for leaf in leaves(part)]


@pytest.mark.parametrize("name", CASES)
def test_layers_compute_what_they_compute_in_python(name):
    module, *inputs = CASES[name]
    module.eval()
    actual, expected = leaves(torch.jit.script(module)(*inputs)), leaves(module(*inputs))
    torch.testing.assert_close(actual, expected)


def functions(x: torch.Tensor, y: torch.Tensor):
    pointwise = F.gelu(input=x, approximate="tanh") + F.softplus(input=x, beta=2) + F.softshrink(x, lambd=0.3)
    pointwise = pointwise + F.relu(x, inplace=False) + F.threshold(x, 0.1, 20.0) + F.dropout(x, training=False)
    rows = F.linear(x, y[0, 0]) + F.rms_norm(x, [8])
    return pointwise, rows, F.pad(x, [1, 1]), F.avg_pool2d(x, kernel_size=2), F.glu(x), F.pixel_shuffle(x, 2)


def test_functions_take_the_arguments_that_they_have_in_python():
    torch.testing.assert_close(torch.jit.script(functions)(IMAGES, IMAGES), functions(IMAGES, IMAGES))


def older_losses(x: torch.Tensor, y: torch.Tensor):
    return F.mse_loss(x, y, reduce=False), F.l1_loss(x, y, size_average=False), F.smooth_l1_loss(x, y, reduce=True)


@pytest.mark.filterwarnings("ignore:size_average")
def test_losses_honour_the_older_names_of_reduction():
    targets = IMAGES.abs()
    torch.testing.assert_close(torch.jit.script(older_losses)(IMAGES, targets), older_losses(IMAGES, targets))


def test_a_function_that_is_an_operator_stays_that_operator():
    graph = torch.jit.script(functions).inlined_graph
    assert {"aten::linear", "aten::gelu", "aten::softplus"} <= {node.kind() for node in graph.nodes()}
