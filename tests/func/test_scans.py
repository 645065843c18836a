"""Scans: running values of functions over the elements of tensors."""

import pytest

import flambeau as fl
from flambeau._higher_order_ops import associative_scan, scan


def recurrence(a, b):
    return a[0] * b[0], b[0] * a[1] + b[1]


def one_by_one(function, xs, reverse):
    """Trees of tensors with the dimension first, combined in turn."""
    count = xs[0].shape[0]
    order = range(count)[::-1] if reverse else range(count)
    rows = []
    for i in order:
        row = tuple(x[i] for x in xs)
        rows.append(function(rows[-1], row) if rows else row)
    if reverse:
        rows.reverse()
    return [fl.stack(list(column)) for column in zip(*rows)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
def test_associative_scan_of_a_tree(count, reverse):
    a = fl.linspace(0.5, 1.5, count * 6).reshape(2, count, 3)
    b = a * 0.3 - 0.2
    made = associative_scan(recurrence, (a, b), 1, reverse=reverse, combine_mode="generic")
    wanted = one_by_one(recurrence, [a.movedim(1, 0), b.movedim(1, 0)], reverse)
    for x, y in zip(made, wanted):
        assert fl.allclose(x.movedim(1, 0), y)


def test_associative_scan_has_gradients_and_compiles():
    def total(x):
        return associative_scan(lambda a, b: a * b, x, 0).sum()

    x = fl.tensor([1.0, 2.0, 3.0], requires_grad=True)
    total(x).backward()
    assert x.grad.tolist() == [9.0, 4.0, 2.0]
    assert fl.compile(total, backend="eager", fullgraph=True)(x.detach()).item() == 9.0


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse):
    xs = fl.arange(5.0)
    last, results = scan(lambda c, x: (c + x["x"], {"y": c * x["x"]}), fl.tensor(0.0), {"x": xs}, reverse=reverse)
    assert last.item() == 10.0
    assert results["y"].tolist() == ([0.0, 9.0, 14.0, 12.0, 0.0] if reverse else [0.0, 0.0, 2.0, 9.0, 24.0])


def test_bad_arguments():
    with pytest.raises(ValueError):
        associative_scan(lambda a, b: a + b, fl.ones(3), 0, combine_mode="other")
    with pytest.raises(RuntimeError):
        scan(lambda c, x: (c, x), fl.tensor(0.0), fl.ones(0))
