"""How results of operators lie in memory where it is not as their operands do: programs view them without asking."""

import pytest

import flambeau as fl


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x.softmax(1),
        lambda x: x.log_softmax(0),
        lambda x: x.masked_fill(x > 0, 1.0),
        lambda x: fl.nn.functional.logsigmoid(x),
        lambda x: x.scatter(1, fl.zeros(x.shape, dtype=fl.int64), 1.0),
        lambda x: x.scatter_add(1, fl.zeros(x.shape, dtype=fl.int64), x),
        lambda x: x.index_add(1, fl.tensor([0]), x[:, :1]),
        lambda x: x.index_copy(1, fl.tensor([0]), x[:, :1]),
        lambda x: x.topk(2, 0).values,
    ],
)
def test_results_that_may_be_viewed_whatever_the_operand_is(op):
    x = fl.arange(24.0).reshape(4, 6).t()
    assert op(x).is_contiguous() and fl.equal(op(x), op(x.contiguous()))


def test_sorting_keeps_the_layout():
    x = fl.arange(24.0).reshape(4, 6).flip(1).t()
    for dim in (0, 1):
        values, indices = x.sort(dim)
        want = x.contiguous().sort(dim)
        assert values.stride() == indices.stride() == x.stride()
        assert fl.equal(values, want.values) and fl.equal(indices, want.indices)
    assert fl.ones(5, 1).sort(0).values.stride() == (1, 1)
