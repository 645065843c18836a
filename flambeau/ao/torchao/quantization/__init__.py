"""quantize_: linear layers with weights in eight or four bits, in one line.

    quantize_(model, Int4WeightOnlyConfig(group_size=32))

Layers are replaced in place by ones that hold integers and their scales; compiled and packaged programs run them on kernels
for such weights. `pt2e` has quantization of exported programs.
"""

from __future__ import annotations

from flambeau.ao.torchao.quantization.configs import *  # noqa: F403
from flambeau.ao.torchao.quantization.configs import __all__ as _configurations
from flambeau.ao.torchao.quantization.granularity import *  # noqa: F403
from flambeau.ao.torchao.quantization.granularity import __all__ as _granularities
from flambeau.ao.torchao.quantization.layers import QuantizedLinear, QuantizedWeight, quantize_

__all__ = ["QuantizedLinear", "QuantizedWeight", "quantize_", *_configurations, *_granularities]
