"""Samples of convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ops.samples import Call, Make, call, samples


def _space(n: Any) -> Any:
    return [4, 3, 3][:n]


def _kernel(n: Any) -> Any:
    return [2, 3, 2][:n]


def _convolutions(n: Any, transposed: Any) -> Callable[[Make], Iterator[Call]]:
    def generate(make: Make) -> Iterator[Call]:
        if transposed:
            yield call(make(1, 2, *_space(n)), make(2, 3, *_kernel(n)), make(3), stride=2, output_padding=1)
            yield call(make(2, 2, *_space(n)), make(2, 1, *_kernel(n)), groups=2, padding=1)
        else:
            yield call(make(2, 2, *_space(n)), make(3, 2, *_kernel(n)), make(3), stride=2, padding=1)
            yield call(make(1, 2, *_space(n)), make(2, 1, *_kernel(n)), groups=2, padding=2, dilation=2)
            yield call(make(2, *_space(n)), make(1, 2, *_kernel(n)))

    return generate


def _named_padding(n: Any) -> Callable[[Make], Iterator[Call]]:
    def generate(make: Make) -> Iterator[Call]:
        yield call(make(1, 2, *_space(n)), make(2, 2, *_kernel(n)), padding="same")
        yield call(make(1, 2, *_space(n)), make(2, 2, *_kernel(n)), make(2), padding="valid")

    return generate


for _n in (1, 2, 3):
    samples(f"conv{_n}d")(_convolutions(_n, False))
    samples(f"conv_transpose{_n}d")(_convolutions(_n, True))
    samples(f"conv{_n}d.padding")(_named_padding(_n))


@samples("convolution", "_convolution")
def convolution(make: Make) -> Iterator[Call]:
    yield call(make(2, 2, 5), make(3, 2, 3), make(3), [2], [1], [1], False, [0], 1)
    yield call(make(1, 2, 3, 3), make(2, 2, 2, 2), None, [1, 2], [0, 1], [1, 1], True, [0, 1], 1)


@samples("_convolution_backward")
def convolution_backward(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 3), make(2, 2, 5), make(3, 2, 3), [2], [1], [1], False, [0], 1, [True, True, True])
    yield call(make(2, 3, 3), make(2, 2, 5), make(3, 2, 3), [2], [1], [1], False, [0], 1, [True, False, False])


samples.without(
    "compiled networks call it where no derivative is wanted, in single precision; tests/inductor/test_epilogue.py",
    "_convolution_finished",
    "_convolution_packed",
    "_convolution_prepack",
    "_convolution_prepacked",
)


@samples("conv_tbc")
def conv_tbc(make: Make) -> Iterator[Call]:
    yield call(make(4, 1, 2), make(2, 2, 3), make(3), 1)


@samples("_im2col")
def im2col(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 3, 4), [2, 2], [1, 1], [0, 1], [1, 2])


@samples("_col2im")
def col2im(make: Make) -> Iterator[Call]:
    yield call(make(1, 4, 6), [3, 4], [2, 2], [1, 1], [0, 0], [1, 1])


@samples("nn_unfold")
def unfold(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 3, 4), 2, padding=1, stride=2)


@samples("nn_fold")
def fold(make: Make) -> Iterator[Call]:
    yield call(make(1, 4, 6), [3, 4], 2)
