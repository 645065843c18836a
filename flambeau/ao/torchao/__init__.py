"""torchao's names: `quantize_` with its configurations, and quantization of exported programs.

Programs that import `torchao` get this package under the alias (`flambeau.as_torch`) where torchao itself is not installed.
"""

from __future__ import annotations

from flambeau.ao.torchao import quantization
from flambeau.ao.torchao.quantization import quantize_

__all__ = ["quantization", "quantize_"]

# Lower than any release: libraries that ask for a version before they use torchao want tensor classes that are not here.
__version__ = "0.0.1+flambeau"
