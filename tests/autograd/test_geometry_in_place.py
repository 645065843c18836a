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
