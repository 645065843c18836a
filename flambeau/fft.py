"""Discrete Fourier transforms. The functions are operators, installed from the op records in `flambeau/ops/fft`."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flambeau._C.fft import *  # noqa: F403
