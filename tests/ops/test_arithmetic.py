"""Arithmetic with numbers for operands."""

import pytest

import flambeau as fl


@pytest.mark.parametrize("name, of", [("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"), ("floor_divide", "//")])
def test_the_first_operand_may_be_a_number(name, of):
    op = getattr(fl, name)
    for dtype in (fl.int32, fl.float16, fl.float32):
        other = fl.tensor([1, 2, 4], dtype=dtype)
        for number in (3, 2.5):
            got, expected = op(number, other), eval(f"number {of} other")
            assert got.dtype == expected.dtype and fl.equal(got, expected)
    both = op(7, 2)
    assert both.shape == () and both == eval(f"7 {of} 2") and both.dtype == (fl.float32 if name == "div" else fl.int64)
    x = fl.tensor([1.0, 2.0], requires_grad=True)
    op(3.0, x).sum().backward()
    assert fl.isfinite(x.grad).all()
