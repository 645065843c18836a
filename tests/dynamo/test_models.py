"""Layers and models as users build them: one graph, and one artifact for all batch sizes."""

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import nn
from flambeau._dynamo.compile import Report, Settings
from flambeau.compiler import compile_with

BATCHES = (3, 1, 0, 7, 1024, 2)


class Nested(nn.Module):
    """Lists and dicts of modules and parameters, indexed and iterated."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 2), "b": nn.Linear(8, 3)})
        self.scales = nn.ParameterList([nn.Parameter(fl.ones(8)) for _ in range(2)])
        self.table = nn.ParameterDict({"k": nn.Parameter(fl.ones(8))})

    def forward(self, x, head="a"):
        for i, block in enumerate(self.blocks):
            x = F.relu(block(x)) * self.scales[i % 2]
        x = self.blocks[-1](x) + self.blocks[0](x) * self.table["k"]
        return [module(x) for _, module in self.heads.items()], self.heads[head](x), len(self.blocks[1:])


class Cached(nn.Module):
    """Attention over what a list that the caller keeps has collected."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, cache):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if cache:
            before_k, before_v = cache.pop()
            k, v = fl.cat([before_k, k], 1), fl.cat([before_v, v], 1)
        cache.append((k, v))
        return F.scaled_dot_product_attention(q, k, v)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x)


MODELS = {
    "lstm": (lambda: nn.LSTM(8, 16, num_layers=2, batch_first=True, bidirectional=True), (5, 8)),
    "gru": (lambda: nn.GRU(8, 16, batch_first=True), (5, 8)),
    "attention": (Attention, (5, 16)),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True), 2), (5, 16)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU()).eval(), (8,)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), (3, 8, 8)),
    "nested": (Nested, (8,)),
}  # fmt: skip


def compiled(function, backend="eager"):
    settings = Settings(backend)
    settings.report = Report()
    return compile_with(function, settings), settings.report


def close(a, b):
    a, b = fl.utils._pytree.tree_leaves(a), fl.utils._pytree.tree_leaves(b)
    return len(a) == len(b) and all(
        fl.allclose(x, y, rtol=1e-4, atol=1e-5) if isinstance(x, fl.Tensor) else x == y for x, y in zip(a, b)
    )


@pytest.mark.parametrize("name", MODELS)
def test_one_artifact_serves_all_batch_sizes(name):
    fl.manual_seed(0)
    make, shape = MODELS[name]
    model = make()
    fast, report = compiled(model)
    for batch in BATCHES:
        x = fl.randn(batch, *shape)
        assert close(model(x), fast(x))
    assert not report.breaks and not report.skips
    assert len(report.graphs) == 1


def test_a_cache_kept_by_the_caller_grows_without_new_captures():
    fl.manual_seed(0)
    model = Cached()
    fast, report = compiled(model)
    a = b = fl.randn(2, 1, 8)
    mine, theirs = [], []
    for _ in range(6):
        a, b = model(a, mine), fast(b, theirs)
    assert close(a, b) and close(mine, theirs)
    assert not report.breaks and len(report.graphs) == 2  # without and with a cache


def test_a_loop_that_fills_a_cache_is_one_graph():
    fl.manual_seed(0)
    model = Cached()

    def generate(x, steps):
        cache, outputs = [], []
        for _ in range(steps):
            x = model(x, cache)
            outputs.append(x)
        return fl.cat(outputs, 1), cache

    fast, report = compiled(generate)
    x = fl.randn(2, 1, 8)
    assert close(generate(x, 4), fast(x, 4))
    assert not report.breaks and len(report.graphs) == 1
