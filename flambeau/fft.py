"""Discrete Fourier transforms. The functions are operators, installed here from the op records in `flambeau/ops/fft.py`."""
