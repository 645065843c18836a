"""Operations on boxes and layers that vision models share."""

from flambeau.vision.ops.boxes import (  # noqa: F401
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    nms,
    remove_small_boxes,
)
from flambeau.vision.ops.losses import sigmoid_focal_loss  # noqa: F401
from flambeau.vision.ops.misc import (  # noqa: F401
    MLP,
    Conv2dNormActivation,
    FrozenBatchNorm2d,
    Permute,
    SqueezeExcitation,
)
from flambeau.vision.ops.stochastic_depth import StochasticDepth, drop_block2d, stochastic_depth  # noqa: F401
