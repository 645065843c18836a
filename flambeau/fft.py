"""Discrete Fourier transforms. The functions are operators, installed from the op records in `flambeau/ops/fft`."""
