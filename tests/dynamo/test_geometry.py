"""Methods that change the sizes and strides of a tensor in place: compiled functions leave what plain Python leaves."""

import pytest

import flambeau as fl


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
