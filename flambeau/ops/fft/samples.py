"""Samples of Fourier transforms."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, samples


@samples("_fft_c2c")
def fft_c2c(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(fl.complex(make.real(2, 3), make.real(2, 3)), [0, 1], 0.5, True)


@samples("_fft_r2c")
def fft_r2c(make: Make) -> Iterator[Call]:
    yield call(make.real(2, 5), [1], 0.5, True, True)


@samples("_fft_c2r")
def fft_c2r(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(fl.complex(make.real(2, 3), make.real(2, 3)), [1], 0.5, True, 4)
    yield call(fl.complex(make.real(2, 3), make.real(2, 3)), [0, 1], 0.5, False, 5)
    yield call(fl.complex(make.real(4, 3), make.real(4, 3)), [0, 1], 1.0, False, 4)


@samples("_overlap_add")
def overlap_add(make: Make) -> Iterator[Call]:
    yield call(make(1, 3, 4), 2)


@samples("stft")
def stft(make: Make) -> Iterator[Call]:
    yield call(make.real(8), 4, return_complex=True)
    yield call(make.real(2, 8), 4, 2, window=make.real(4, low=0.4), return_complex=True)


@samples("istft")
def istft(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(fl.complex(make.real(3, 5), make.real(3, 5)), 4, window=make.real(4, low=0.4))
