"""What PyTorch keeps under `ao`: quantization in eager mode, and the modules that it makes."""

from __future__ import annotations

from flambeau._compat import absent

__getattr__ = absent.names_of(__name__)
