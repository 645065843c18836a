"""Under the name that programs import it by."""

from flambeau.vision.models.segmentation import *  # noqa: F403
from flambeau.vision.models.segmentation import ASPP, DeepLabHead, DeepLabV3  # noqa: F401
