"""Assert statements about data, where all of a program is to be one graph."""

import pytest

import flambeau as fl

# pytest takes assert statements of test files apart.
SOURCE = """
def checked(x):
    assert x[0] == 3, "the first is not 3"
    return x + 1

def checked_number(x):
    assert x.max().item() > 0
    return x + 1
"""
NAMES: dict = {}
exec(SOURCE, NAMES)


def test_an_assert_statement_stays_in_the_graph():
    compiled = fl.compile(NAMES["checked"], backend="eager", fullgraph=True)
    assert compiled(fl.tensor([3.0, 1.0])).tolist() == [4.0, 2.0]
    with pytest.raises((AssertionError, RuntimeError), match="the first is not 3"):
        compiled(fl.tensor([1.0, 1.0]))


def test_exported_assertions_are_checked():
    class Checked(fl.nn.Module):
        def forward(self, x):
            return NAMES["checked_number"](x)

    module = fl.export.export(Checked(), (fl.zeros(4, dtype=fl.int32) + 1,)).module()
    assert module(fl.ones(4, dtype=fl.int32)).tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        module(-fl.ones(4, dtype=fl.int32))


def test_numbers_are_converted_as_they_are_read():
    def read(x):
        return x * int(x[0]), x * float(x[0].to(fl.int64))

    compiled = fl.compile(read, backend="eager", fullgraph=True)
    first, second = compiled(fl.tensor([2.5, 1.0]))
    assert first.tolist() == second.tolist() == [5.0, 2.0]


def test_distributions_are_made_in_one_graph():
    def likelihood(x):
        return fl.distributions.Normal(x, fl.tensor(1.0)).log_prob(x)

    x = fl.randn(3)
    assert fl.allclose(fl.compile(likelihood, backend="eager", fullgraph=True)(x), likelihood(x))
