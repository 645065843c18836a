"""Compiled loops over trigonometric functions take arguments of every size."""

from __future__ import annotations

import pytest

import flambeau as fl

PROGRAMS = {
    "pointwise": lambda x: (x * 2).sin() + x.cos(),
    "nested": lambda x: (x.sin().sign() * 1e25).cos(),
    "tangent": lambda x: x.tan() * 0.5,
    "summed": lambda x: x.sin().sum(),
    "rows": lambda x: x.cos().sum(-1),
    "columns": lambda x: x.cos().sum(0),
    "largest": lambda x: x.sin().amax(-1),
    "normalized": lambda x: (x.sin() - x.sin().mean(-1, keepdim=True)) * x.cos(),
    "of a maximum": lambda x: (x.amax(-1) * 1e10).sin(),
    "in place": lambda x: x.clone().sin_().mul_(2),
}


@pytest.mark.parametrize("dtype", [fl.float32, fl.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_agrees_with_eager_beyond_the_vectorised_range(name: str, dtype: fl.dtype) -> None:
    program = PROGRAMS[name]
    fl.manual_seed(0)
    x = fl.randn(7, 1501, dtype=dtype)
    large = x.clone()
    large[2, 3], large[3, 1400], large[6] = 3e25, -1e30, large[6] * 1e22
    compiled = fl.compile(program)
    for argument in (x, large):
        fl.testing.assert_close(compiled(argument), program(argument), rtol=1e-4, atol=1e-4)


def test_an_input_that_is_overwritten_is_checked_before_it_is_written() -> None:
    compiled = fl.compile(lambda x: x.sin_())
    x = fl.full((4096,), 1e30)
    compiled(x)
    fl.testing.assert_close(x, fl.full((4096,), 1e30).sin())
