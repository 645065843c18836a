"""Libraries of quantized kernels: none."""

from flambeau._compat.settings import fix

engine = "none"
supported_engines = ["none"]
fix(__name__, "engine supported_engines", "there is no library of quantized kernels to choose")
