"""Results of selections of boxes whose sizes the data decides, for graphs that hold such sizes as symbols."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import unbacked


@unbacked("torchvision::nms")
def nms(make: Any, dets: Any, scores: Any, iou_threshold: float) -> Any:
    return make.tensor((make.size(0, dets.geometry.sizes[0]),), fl.int64)
