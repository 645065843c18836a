"""grouped_mm against one product for each group."""

import pytest

import flambeau as fl

grouped_mm = fl.nn.functional.grouped_mm


def ends(*values):
    return fl.tensor(values, dtype=fl.int32)


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16])
def test_rows_columns_and_sums_of_groups(dtype):
    fl.manual_seed(0)
    a, b = fl.randn(7, 5).to(dtype), fl.randn(3, 5, 4).to(dtype)
    expected = fl.cat([a[:2] @ b[0], a[2:2] @ b[1], a[2:6] @ b[2], fl.zeros(1, 4, dtype=dtype)])
    assert fl.equal(grouped_mm(a, b, offs=ends(2, 2, 6)), expected)
    stack, wide = fl.randn(2, 3, 5).to(dtype), fl.randn(5, 6).to(dtype)
    expected = fl.cat([stack[0] @ wide[:, :4], stack[1] @ wide[:, 4:]], 1)
    assert fl.equal(grouped_mm(stack, wide, offs=ends(4, 6)), expected)
    expected = fl.stack([a[:, :2] @ wide[:2], a[:, 2:] @ wide[2:]])
    assert fl.equal(grouped_mm(a, wide, offs=ends(2, 5)), expected)
    assert fl.equal(grouped_mm(stack, b[:2]), fl.bmm(stack, b[:2]))


def test_derivatives():
    a, b = fl.randn(4, 3).requires_grad_(), fl.randn(2, 3, 2).requires_grad_()
    grouped_mm(a, b, offs=ends(1, 4)).sum().backward()
    assert fl.allclose(a.grad, fl.stack([b[0].sum(1), *[b[1].sum(1)] * 3]).detach())
    assert fl.allclose(b.grad[0], a[0].detach()[:, None].expand(3, 2))


def test_meta():
    a = fl.empty(4, 3, device="meta")
    assert grouped_mm(a, fl.empty(2, 3, 5, device="meta"), offs=ends(1, 4).to("meta")).shape == (4, 5)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"offs": ends(1, 4).long()},
        {"offs": ends(4)},
        {"offs": ends(4, 2)},
        {"offs": ends(1, 9)},
        {"offs": ends(-1, 4)},
    ],
)
def test_errors(wrong):
    with pytest.raises(RuntimeError):
        grouped_mm(fl.ones(4, 3), fl.ones(2, 3, 5), **wrong)
