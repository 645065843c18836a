"""Models: `resnet18()` and the others by function, or `get_model("resnet18")`."""

from flambeau.vision.models import alexnet as _alexnet
from flambeau.vision.models import densenet, mobilenetv2, mobilenetv3, resnet, squeezenet, vgg, vision_transformer
from flambeau.vision.models._weights import WeightsEnum, get_model, get_model_weights, get_weight, list_models  # noqa: F401
from flambeau.vision.models.alexnet import *  # noqa: F403
from flambeau.vision.models.densenet import *  # noqa: F403
from flambeau.vision.models.mobilenetv2 import *  # noqa: F403
from flambeau.vision.models.mobilenetv3 import *  # noqa: F403
from flambeau.vision.models.resnet import *  # noqa: F403
from flambeau.vision.models.squeezenet import *  # noqa: F403
from flambeau.vision.models.vgg import *  # noqa: F403
from flambeau.vision.models.vision_transformer import *  # noqa: F403

__all__ = [
    *_alexnet.__all__, *densenet.__all__, *mobilenetv2.__all__, *mobilenetv3.__all__, *resnet.__all__,
    *squeezenet.__all__, *vgg.__all__, *vision_transformer.__all__,
]  # fmt: skip
