"""Models: `resnet18()` and the others by function, or `get_model("resnet18")`.

Segmentation, detection and video models are in `models.segmentation`, `models.detection` and `models.video`.
"""

from importlib import import_module
from typing import Any

from flambeau.vision.models import alexnet as _alexnet
from flambeau.vision.models import (
    convnext,
    densenet,
    efficientnet,
    inception,
    mnasnet,
    mobilenetv2,
    mobilenetv3,
    regnet,
    resnet,
    shufflenetv2,
    squeezenet,
    swin_transformer,
    vgg,
    vision_transformer,
)
from flambeau.vision.models._weights import WeightsEnum, get_model_builder, get_model_weights, get_weight, list_models  # noqa: F401  # noqa: F401
from flambeau.vision.models._weights import get_model as get_model
from flambeau.vision.models.alexnet import *  # noqa: F403
from flambeau.vision.models.convnext import *  # noqa: F403
from flambeau.vision.models.densenet import *  # noqa: F403
from flambeau.vision.models.efficientnet import *  # noqa: F403
from flambeau.vision.models.inception import *  # noqa: F403
from flambeau.vision.models.mnasnet import *  # noqa: F403
from flambeau.vision.models.mobilenetv2 import *  # noqa: F403
from flambeau.vision.models.mobilenetv3 import *  # noqa: F403
from flambeau.vision.models.regnet import *  # noqa: F403
from flambeau.vision.models.resnet import *  # noqa: F403
from flambeau.vision.models.shufflenetv2 import *  # noqa: F403
from flambeau.vision.models.squeezenet import *  # noqa: F403
from flambeau.vision.models.swin_transformer import *  # noqa: F403
from flambeau.vision.models.vgg import *  # noqa: F403
from flambeau.vision.models.vision_transformer import *  # noqa: F403

_PACKAGES = ("detection", "segmentation", "video", "feature_extraction")

__all__ = [
    *_alexnet.__all__, *convnext.__all__, *densenet.__all__, *efficientnet.__all__, *inception.__all__, *mnasnet.__all__,
    *mobilenetv2.__all__, *mobilenetv3.__all__, *regnet.__all__, *resnet.__all__, *shufflenetv2.__all__,
    *squeezenet.__all__, *swin_transformer.__all__, *vgg.__all__, *vision_transformer.__all__,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
