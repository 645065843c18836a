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
from flambeau.vision.ops.feature_pyramid_network import FeaturePyramidNetwork  # noqa: F401
from flambeau.vision.ops.losses import (  # noqa: F401
    complete_box_iou_loss,
    distance_box_iou_loss,
    generalized_box_iou_loss,
    sigmoid_focal_loss,
)
from flambeau.vision.ops.misc import (  # noqa: F401
    MLP,
    Conv2dNormActivation,
    Conv3dNormActivation,
    FrozenBatchNorm2d,
    Permute,
    SqueezeExcitation,
)
from flambeau.vision.ops.regions import (  # noqa: F401
    DeformConv2d,
    MultiScaleRoIAlign,
    PSRoIAlign,
    PSRoIPool,
    RoIAlign,
    RoIPool,
    deform_conv2d,
    ps_roi_align,
    ps_roi_pool,
    roi_align,
    roi_pool,
)
from flambeau.vision.ops.stochastic_depth import StochasticDepth, drop_block2d, stochastic_depth  # noqa: F401
