"""Operators that give a tensor another geometry in place: the history of views and of their bases stays right."""

import pytest

import flambeau as fl
from flambeau.autograd import gradcheck, gradgradcheck


def line():
    return fl.arange(6, dtype=fl.float64).sub(2.5).requires_grad_()


def square():
    return fl.arange(9, dtype=fl.float64).sub(3.5).reshape(3, 3).requires_grad_()


def transposed_view(x):
    y = (x * x).view(2, 3)
    y.t_()
    return y * y


def transposed_square_view(w):
    y = (w * w)[:]
    y.t_()
    return y * w


def write_after_transposing(w):
    y = w * w
    z = y[:]
    z.transpose_(0, 1)
    z.mul_(w)
    return y * w, z * z


def write_after_transposing_the_base(w):
    y = w * w
    z = y[:]
    y.t_()
    z.mul_(w)
    return y * w


def window(x):
    return (x * x).as_strided_([2, 2], [1, 2], 1) ** 2


def window_on_a_view(x):
    y = x * x
    z = y[1:5]
    z.as_strided_([2, 2], [1, 1], 1)
    return z * z, y * y


def window_that_begins_later(x):
    y = (x * x)[1:] * 1
    return y.as_strided_([2, 2], [1, 1], 1) ** 2


def unsqueezed_view(x):
    y = x * x
    z = y[1:5]
    z.unsqueeze_(0)
    z.mul_(3)
    return y * z.sum()


LINES = [transposed_view, window, window_on_a_view, window_that_begins_later, unsqueezed_view]
SQUARES = [transposed_square_view, write_after_transposing, write_after_transposing_the_base]


@pytest.mark.parametrize("function, make", [(f, line) for f in LINES] + [(f, square) for f in SQUARES])
def test_gradients(function, make):
    assert gradcheck(function, make())
    assert gradgradcheck(function, make())


SAVING = [lambda t: t * t, lambda t: t.sin(), lambda t: t**3]
RESHAPING = {
    "transpose_": (0, 1),
    "t_": (),
    "swapaxes_": (0, 1),
    "squeeze_": (),
    "unsqueeze_": (0,),
    "as_strided_": ((3, 1), (1, 3)),
}


@pytest.mark.parametrize("save", SAVING)
@pytest.mark.parametrize("name", RESHAPING)
def test_what_backward_needs_must_not_be_laid_out_anew(save, name):
    """The elements that were kept would be read in another order."""
    x = fl.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    t = x * 1
    y = save(t)
    before = t._version
    getattr(t, name)(*RESHAPING[name])
    assert t._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
