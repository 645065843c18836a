"""Mask R-CNN, under the name that programs import it by."""

from flambeau.vision.models.detection.faster_rcnn import *  # noqa: F403
from flambeau.vision.models.detection.faster_rcnn import MaskRCNN, MaskRCNNHeads, MaskRCNNPredictor  # noqa: F401
