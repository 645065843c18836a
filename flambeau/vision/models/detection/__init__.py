"""Detection: boxes with classes, and masks where wanted.

Models take a list of images (C, H, W) with values from 0 to 1. In training mode they take targets too, a dict with "boxes"
(x1, y1, x2, y2), "labels" and perhaps "masks" for each image, and return a dict of losses; else a dict with "boxes", "labels"
and "scores" for each image.
"""

from flambeau.vision.models.detection import faster_rcnn, fcos, retinanet, ssd
from flambeau.vision.models.detection.faster_rcnn import *  # noqa: F403
from flambeau.vision.models.detection.fcos import *  # noqa: F403
from flambeau.vision.models.detection.retinanet import *  # noqa: F403
from flambeau.vision.models.detection.ssd import *  # noqa: F403

__all__ = [*faster_rcnn.__all__, *fcos.__all__, *retinanet.__all__, *ssd.__all__]
