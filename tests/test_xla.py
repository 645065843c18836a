"""XLA through jaxlib, where it is installed: recorded graphs as StableHLO against eager mode."""

import sys

import pytest

pytest.importorskip("jaxlib", reason="jaxlib is not installed")

import flambeau as fl
from flambeau import xla
from flambeau.lazy import metrics
from flambeau.xla.core import xla_model as xm
from flambeau.xla.stablehlo import exported_program_to_stablehlo

F = fl.nn.functional

PROGRAMS = {
    "arithmetic": lambda x: (x * 2 - x.t().contiguous().t() / 3).clamp(-1, 1),
    "functions": lambda x: F.gelu(x) + x.sigmoid() * x.tanh() + x.abs().sqrt() + x.exp().log1p(),
    "integers": lambda x: (x * 10).to(fl.int32) // 3 % 4,
    "reductions": lambda x: (x.sum(), x.mean(1), x.amax(0), (x > 0).any(), x.std()),
    "products": lambda x: (x @ x.t(), F.linear(x, x, x[:, 0])),
    "views": lambda x: (x[1:, ::2] + 1, x.t()[2], x.reshape(2, 3, 8)[:, 1]),
    "indexing": lambda x: (x.gather(1, (x > 0).to(fl.int64)), x.scatter_add(1, (x > 0).to(fl.int64), x)),
    "order": lambda x: (x.sort(1, descending=True), x.topk(3, 0), (x > 0).sort(dim=1, stable=True), x.median(1)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.reshape(1, 2, 6, 4)] * 3, is_causal=True),
    "normalization": lambda x: (F.softmax(x, 1), F.layer_norm(x, (8,)), x.cumsum(1)),
}


def flat(value):
    return [t for v in value for t in flat(v)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_as_stablehlo(name):
    x = fl.randn(6, 8)
    before = metrics.counter_value("HostGraphs") or 0
    for got, want in zip(flat(PROGRAMS[name](x.to("xla"))), flat(PROGRAMS[name](x))):
        assert got.device.type == "xla" and got.dtype is want.dtype
        fl.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert (metrics.counter_value("HostGraphs") or 0) == before


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_training(optimizer):
    def losses(device):
        fl.manual_seed(0)
        model = fl.nn.Sequential(fl.nn.Linear(8, 16), fl.nn.GELU(), fl.nn.LayerNorm(16), fl.nn.Linear(16, 4)).to(device)
        chosen = getattr(fl.optim, optimizer)(model.parameters(), lr=0.01)
        x, y = fl.randn(8, 8).to(device), fl.randint(0, 4, (8,)).to(device)
        history = []
        for step in range(3):
            chosen.param_groups[0]["lr"] = 0.01 / (step + 1)
            chosen.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            xm.optimizer_step(chosen, barrier=True)
            history.append(loss.item())
        return history

    assert losses("xla") == pytest.approx(losses("cpu"), abs=1e-4)


def test_operators_without_stablehlo_run_on_the_cpu_and_are_counted():
    before = metrics.counter_value("HostGraphs") or 0
    x = fl.linalg.inv(fl.eye(3, device=xm.xla_device()) * 2)
    xm.mark_step()
    assert metrics.counter_value("HostGraphs") == before + 1 and x.diagonal().tolist() == [0.5, 0.5, 0.5]


RANDOM = {
    "rand": lambda d: fl.rand(7, 5, device=d),
    "randn": lambda d: fl.randn(70, device=d),
    "wide": lambda d: fl.randn(9, device=d, dtype=fl.float64),
    "randint": lambda d: fl.randint(0, 9, (20,), device=d),
    "long": lambda d: fl.randint(-(2**62), 2**62, (6,), device=d),
    "dropout": lambda d: F.dropout(fl.ones(40, device=d), 0.3),
    "in place": lambda d: fl.empty(11, device=d).uniform_(-1, 2),
    "two": lambda d: fl.rand(4, device=d) + fl.empty(4, device=d).exponential_(),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_drawn_on_xla_as_the_cpu_draws_them(name):
    host = metrics.counter_value("HostGraphs") or 0
    fl.manual_seed(4)
    want = [RANDOM[name]("cpu") for _ in range(2)]
    fl.manual_seed(4)
    for value in want:
        fl.testing.assert_close(RANDOM[name]("xla").cpu(), value)  # the second time from the same program
    assert (metrics.counter_value("HostGraphs") or 0) == host


def test_exported_programs_as_stablehlo():
    model = fl.nn.Sequential(fl.nn.Linear(4, 8), fl.nn.ReLU(), fl.nn.Linear(8, 2))
    x = fl.randn(3, 4)
    module = exported_program_to_stablehlo(fl.export.export(model, (x,)))
    assert "stablehlo.dot_general" in module.get_stablehlo_text()
    fl.testing.assert_close(module(x), model(x).detach())


def test_plugins_are_opened_by_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="PJRT"):
        xla.load(str(tmp_path / "none.so"))


def test_memory_that_others_look_at_stays_where_it_is():
    x = fl.ones(4, device="xla")
    xla.sync()
    address, seen = x.data_ptr(), x.detach().view(2, 2)
    for i in range(4):
        x.add_(1)
        xla.sync()
        assert x.data_ptr() == address
        assert seen.tolist() == [[i + 2, i + 2]] * 2


def test_values_written_in_place_go_on_without_copies():
    x, y = fl.ones(4).to("xla"), fl.zeros(2, 2).to("xla")
    window = y[1]
    for i in range(6):
        x.mul_(2)
        window += i
        xla.sync()
        assert x.tolist() == [2.0 ** (i + 1)] * 4
    assert y.tolist() == [[0, 0], [15, 15]]


def test_a_step_searches_for_no_module(monkeypatch):
    class Finder:
        def find_spec(self, name, path=None, target=None):
            searched.append(name)

    searched = []
    x = fl.ones(4, device="xla")
    for _ in range(3):
        monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
        searched.clear()
        y = (x * 2).relu()
        xla.sync()
        assert y.shape == (4,)
    assert not searched
