"""Operations are counted by their formulas, backward included."""

import flambeau as fl
from flambeau import nn
from flambeau.utils.flop_counter import FlopCounterMode, flop_registry


def count(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_products():
    assert count(lambda: fl.ones(2, 3, 4) @ fl.ones(2, 4, 5)) == 2 * 2 * 3 * 4 * 5
    assert count(lambda: fl.addmm(fl.ones(3), fl.ones(2, 4), fl.ones(4, 3))) == 2 * 2 * 4 * 3
    layer, x = nn.Linear(5, 7), fl.ones(3, 5, requires_grad=True)
    assert count(lambda: layer(x)) == 2 * 3 * 5 * 7
    assert count(lambda: layer(x).sum().backward()) == 3 * 2 * 3 * 5 * 7


def test_convolutions():
    layer, x = nn.Conv2d(3, 8, 3, padding=1, stride=2), fl.ones(2, 3, 16, 16, requires_grad=True)
    forward = 2 * 2 * 64 * 8 * 3 * 9
    assert count(lambda: layer(x)) == forward and count(lambda: layer(x).sum().backward()) == 3 * forward
    transposed = nn.ConvTranspose2d(3, 8, 4, stride=2, padding=1)
    assert count(lambda: transposed(x)) == 2 * 2 * 256 * 3 * 8 * 16


def test_attention_and_the_table(capsys):
    q = fl.ones(2, 4, 6, 8)
    with FlopCounterMode() as counter:
        nn.functional.scaled_dot_product_attention(q, q, q)
    assert counter.get_total_flops() == 2 * 2 * 4 * 6 * 6 * 16
    assert "100.00%" in capsys.readouterr().out


def test_counts_of_modules():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with FlopCounterMode(display=False) as counter:
        model(fl.ones(2, 3)).sum().backward()
        fl.ones(2, 2) @ fl.ones(2, 2)
    counts = counter.get_flop_counts()
    assert counts["Sequential"] == {fl.ops.aten.addmm: 64, fl.ops.aten.mm: 80}
    assert counts["Sequential.0"] == {fl.ops.aten.addmm: 48, fl.ops.aten.mm: 48}
    assert counts["Sequential.2"] == {fl.ops.aten.addmm: 16, fl.ops.aten.mm: 32}
    assert counts["Global"] == {fl.ops.aten.addmm: 64, fl.ops.aten.mm: 96}
    table = counter.get_table()
    assert "Sequential.2" in table and "Sequential.2" not in counter.get_table(depth=1)


def test_module_tracker():
    from flambeau.utils.module_tracker import ModuleTracker

    seen = []

    class Inner(nn.Module):
        def forward(self, x):
            seen.append((sorted(tracker.parents), tracker.is_bw))
            return x * 2

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x)

    with ModuleTracker() as tracker:
        Outer()(fl.ones(1))
        assert tracker.parents == {"Global"}
    assert seen == [(["Global", "Outer", "Outer.inner"], False)]


def test_formulas_are_found_by_operator():
    aten = fl.ops.aten
    assert aten.mm in flop_registry and aten.sin not in flop_registry
    assert callable(flop_registry[aten.convolution]) and len(list(flop_registry)) == len(flop_registry)
