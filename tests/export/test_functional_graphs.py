"""Graphs of `run_decompositions` have no writes and compute what the program computes, views of what is written included."""

import random

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.export import Dim, export
from flambeau.export.graph_signature import OutputKind

VIEWS = [
    lambda t, k: t.select(k % t.ndim, 0) if t.ndim else t.unsqueeze(0),
    lambda t, k: t[..., 1:] if t.ndim and t.shape[-1] > 1 else t.unsqueeze(-1),
    lambda t, k: t[::2] if t.ndim and t.shape[0] > 2 else t.detach(),
    lambda t, k: t.t() if t.ndim == 2 else t.unsqueeze(-1),
    lambda t, k: t.reshape(-1) if t.is_contiguous() else t.unsqueeze(0),
    lambda t, k: t.transpose(0, -1) if t.ndim else t.view(1),
    lambda t, k: t.split(1, 0)[-1] if t.ndim else t.view(1),
    lambda t, k: t.chunk(2, -1)[k % 2] if t.ndim and t.shape[-1] > 1 else t.unsqueeze(0),
    lambda t, k: t.unbind(0)[0] if t.ndim else t.unsqueeze(0),
    lambda t, k: t.diagonal() if t.ndim == 2 else t.squeeze(),
    lambda t, k: t.permute(*reversed(range(t.ndim))),
    lambda t, k: t.narrow(0, 0, 1) if t.ndim else t.view(1, 1),
]
WRITES = [
    lambda t, o: t.add_(1),
    lambda t, o: t.mul_(o.sum()),
    lambda t, o: t.copy_(o.sum() * 2),
    lambda t, o: t.zero_(),
    lambda t, o: t.fill_(3.0),
    lambda t, o: t.clamp_(max=0.5),
    lambda t, o: t.masked_fill_(t > 0, -1.0),
]


class Drawn(nn.Module):
    """Views and writes on an input, a buffer and a tensor made inside."""

    def __init__(self, seed):
        super().__init__()
        self.register_buffer("state", fl.arange(12.0).reshape(3, 4) / 7)
        draw, count, self.steps = random.Random(seed), 3, []
        for _ in range(10):
            is_view = draw.random() < 0.6
            self.steps.append(
                (is_view, draw.choice(VIEWS if is_view else WRITES), draw.randrange(count), draw.randrange(count))
            )
            count += is_view

    def forward(self, x):
        tensors = [x, self.state, x * 2]
        for is_view, function, at, other in self.steps:
            if is_view:
                tensors.append(function(tensors[at], other))
            else:
                function(tensors[at], tensors[other])
        return [t * 1 for t in tensors]


def writes(graph):
    return [n.name for n in graph.nodes if hasattr(n.target, "_schema") and n.target._schema.name.endswith("_")]


@pytest.mark.parametrize("seed", range(60))
def test_views_follow_writes(seed):
    program = export(Drawn(seed), (fl.arange(12.0).reshape(3, 4) - 5,)).run_decompositions()
    assert not writes(program.graph)
    expected, actual = Drawn(seed), program.module()
    x, y = (fl.arange(12.0).reshape(3, 4) - 4 for _ in range(2))
    for one, other in zip(expected(x), actual(y)):
        assert fl.equal(one, other)
    assert fl.equal(x, y) and fl.equal(expected.state, actual.state)


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", fl.zeros(2, 8, 3))

    def forward(self, x):
        self.keys[:, : x.shape[1]].copy_(x)
        head = self.keys.view(2, 4, 6)[:, 0]
        head.mul_(2)
        return self.keys.sum(0)


def test_sizes_that_vary():
    program = export(Cache(), (fl.ones(2, 3, 3),), dynamic_shapes=({1: Dim("length", min=2, max=8)},))
    decomposed = program.run_decompositions()
    assert not writes(decomposed.graph)
    assert list(decomposed.graph_signature.buffers_to_mutate.values()) == ["keys"]
    for length in (2, 5, 8):
        assert fl.equal(decomposed.module()(fl.ones(2, length, 3)), Cache()(fl.ones(2, length, 3)))


def test_statistics_of_training_are_outputs():
    model = nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3)).train()
    signature = export(model, (fl.randn(2, 2, 4),)).run_decompositions().graph_signature
    assert [spec.kind for spec in signature.output_specs] == [OutputKind.BUFFER_MUTATION] * 3 + [OutputKind.USER_OUTPUT]
    assert sorted(signature.buffers_to_mutate.values()) == [
        "1.num_batches_tracked", "1.running_mean", "1.running_var",
    ]  # fmt: skip


def test_an_operator_of_the_user_writes_to_copies():
    @fl.library.custom_op("functional_graphs::add_to", mutates_args=("x",))
    def add_to(x: fl.Tensor, y: fl.Tensor) -> None:
        x.add_(y)

    class Model(nn.Module):
        def forward(self, x):
            z = x.clone()
            add_to(z[0], x[1])
            return z

    x = fl.arange(6.0).reshape(2, 3)
    program = export(Model(), (x,))
    assert "functional_graphs.add_to.default" in {str(node.target) for node in program.graph.nodes}
    for each in (program, program.run_decompositions()):
        assert fl.equal(each.module()(x), Model()(x))
