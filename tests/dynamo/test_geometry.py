"""Methods that change the sizes and strides of a tensor in place: compiled functions leave what plain Python leaves."""

import pytest

import flambeau as fl
from flambeau._inductor.compile_fx import compile_fx
from flambeau.fx.experimental.proxy_tensor import make_fx


def squeezed(x):
    x.squeeze_()
    return x * 2


def unsqueezed(x):
    x.unsqueeze_(0)
    return x + 1


def transposed(x):
    kept = x.clone()
    x.t_()
    x.add_(1)
    return kept.t() * 2 + x


def between(x):
    y = x * 2
    flat = y.view(-1)
    y.t_()
    y.add_(1)
    flat.mul_(2)
    return y


def of_a_view(x):
    y = x[1:]
    y.transpose_(0, 1)
    y.mul_(3)
    return y * 1


@pytest.mark.parametrize("function", [squeezed, unsqueezed, transposed, between, of_a_view])
@pytest.mark.parametrize("shape", [(2, 3), (3, 1)])
def test_geometry_is_as_in_plain_python(function, shape):
    given, wanted = (fl.arange(float(shape[0] * shape[1])).view(shape) for _ in range(2))
    result, expected = fl.compile(function)(given), function(wanted)
    fl.testing.assert_close(result, expected)
    assert given.shape == wanted.shape
    assert given.stride() == wanted.stride()
    fl.testing.assert_close(given, wanted)


def turned(x):
    y = x.sin()
    y.unsqueeze_(0)
    y.t_()
    return y.mul_(2)


def restored(x):
    y = x.sin()
    z = y.unsqueeze_(0)
    before = y + 1
    y.squeeze_(0)
    y.add_(1)
    return y, z, before


def through_views(x):
    y = x.sin().expand(2, 3).clone()
    row = y[0]
    y.transpose_(0, 1)
    y[1].mul_(5)
    y.swapaxes_(0, 1)
    y.as_strided_((3, 2), (1, 3))
    return y, row, y * 2


def by_overloads(x):
    grid = fl.ops.aten.empty([2, 3])
    fl.ops.aten.copy_(grid, fl.ops.aten.unsqueeze_(fl.ops.aten.linspace(-8, 8, 2), -1))
    grid[..., 0].fill_(2)
    return grid + x


@pytest.mark.parametrize("program", [turned, restored, through_views, by_overloads])
def test_views_in_place_of_tensors_made_inside(program):
    def leaves(function, x):
        results = function(x)
        return list(results) if isinstance(results, (list, tuple)) else [results]

    x, y = (fl.arange(3.0).requires_grad_() for _ in range(2))
    compiled = fl.compile(program, fullgraph=True)
    got, expected = leaves(compiled, x), leaves(program, y)
    for a, b in zip(got, expected):
        fl.testing.assert_close(a, b, rtol=1e-6, atol=1e-6, check_stride=True)
    sum(t.sum() for t in got).backward()
    sum(t.sum() for t in expected).backward()
    assert fl.equal(x.grad, y.grad)
    x = x.detach()
    for a, b in zip(compile_fx(make_fx(program)(x), [x])(x), leaves(program, x)):
        assert fl.equal(a, b) and a.stride() == b.stride()


def test_views_in_place_of_arguments_are_seen_by_the_caller():
    compiled = fl.compile(lambda x: x.unsqueeze_(0) * 2)
    for _ in range(2):
        x = fl.arange(3.0)
        assert compiled(x).shape == x.shape == (1, 3)


def test_a_tensor_that_is_handed_back_follows_its_geometry_across_a_break():
    def program(x):
        x = x * 1
        same = x.flatten()
        x[x > 0] = 0.1
        x.unsqueeze_(-1)
        x.t_()
        return x, same

    x, same = fl.compile(program)(fl.tensor([1.0, -2.0]))
    assert x.shape == same.shape == (1, 2)
    same.zero_()
    assert x.tolist() == [[0.0, 0.0]]
