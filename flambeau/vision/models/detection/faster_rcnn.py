"""Faster and Mask R-CNN: proposals, then heads over them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.vision.models import mobilenetv3, resnet
from flambeau.vision.models._utils import _initialize
from flambeau.vision.models._weights import variants
from flambeau.vision.models.detection import _utils
from flambeau.vision.models.detection.anchor_utils import AnchorGenerator
from flambeau.vision.models.detection.backbone_utils import (
    _checked_layers,
    mobilenet_extractor,
    resnet_fpn_extractor,
)
from flambeau.vision.models.detection.roi_heads import RoIHeads
from flambeau.vision.models.detection.rpn import RegionProposalNetwork, RPNHead
from flambeau.vision.models.detection.transform import GeneralizedRCNNTransform
from flambeau.vision.ops import Conv2dNormActivation, FrozenBatchNorm2d, MultiScaleRoIAlign

__all__ = ["FastRCNNPredictor", "FasterRCNN", "MaskRCNN", "MaskRCNNPredictor"]


class GeneralizedRCNN(nn.Module):
    """Losses in training mode, else a dict of boxes, labels and scores for each image."""

    def __init__(self, backbone: nn.Module, rpn: nn.Module, roi_heads: nn.Module, transform: nn.Module) -> None:
        super().__init__()
        self.transform, self.backbone, self.rpn, self.roi_heads = transform, backbone, rpn, roi_heads

    def forward(self, images: list[Tensor], targets: Any = None) -> Any:
        if self.training:
            _utils.check_targets(type(self).__name__, targets)
        sizes = [tuple(image.shape[-2:]) for image in images]
        batch, targets = self.transform(images, targets)
        features = self.backbone(batch.tensors)
        if isinstance(features, Tensor):
            features = OrderedDict([("0", features)])
        proposals, proposal_losses = self.rpn(batch, features, targets)
        detections, losses = self.roi_heads(features, proposals, batch.image_sizes, targets)
        if self.training:
            return {**losses, **proposal_losses}
        return self.transform.postprocess(detections, batch.image_sizes, sizes)


class TwoMLPHead(nn.Module):
    """Two layers over pooled features."""

    def __init__(self, in_channels: int, representation_size: int) -> None:
        super().__init__()
        self.fc6 = nn.Linear(in_channels, representation_size)
        self.fc7 = nn.Linear(representation_size, representation_size)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc7(F.relu(self.fc6(x.flatten(start_dim=1)))))


class FastRCNNConvFCHead(nn.Sequential):
    """Convolutions, then linear layers, over pooled features."""

    def __init__(
        self, input_size: tuple[int, int, int], conv_layers: list[int], fc_layers: list[int], norm_layer: Any = None
    ) -> None:
        channels, height, width = input_size
        blocks: list[nn.Module] = []
        for out in conv_layers:
            blocks.append(Conv2dNormActivation(channels, out, norm_layer=norm_layer))
            channels = out
        blocks.append(nn.Flatten())
        channels *= height * width
        for out in fc_layers:
            blocks += [nn.Linear(channels, out), nn.ReLU(inplace=True)]
            channels = out
        super().__init__(*blocks)
        _initialize(self)


class FastRCNNPredictor(nn.Module):
    """Class scores and a box code for each class."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(in_channels, num_classes)
        self.bbox_pred = nn.Linear(in_channels, num_classes * 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.flatten(start_dim=1)
        return self.cls_score(x), self.bbox_pred(x)


def _default_anchors() -> AnchorGenerator:
    return AnchorGenerator(((32,), (64,), (128,), (256,), (512,)), ((0.5, 1.0, 2.0),) * 5)


class FasterRCNN(GeneralizedRCNN):
    """backbone: a module with `out_channels` that returns a feature map or a dict of them."""

    def __init__(
        self,
        backbone: Any,
        num_classes: int | None = None,
        min_size: Any = 800,
        max_size: int = 1333,
        image_mean: list[float] | None = None,
        image_std: list[float] | None = None,
        rpn_anchor_generator: nn.Module | None = None,
        rpn_head: nn.Module | None = None,
        rpn_pre_nms_top_n_train: int = 2000,
        rpn_pre_nms_top_n_test: int = 1000,
        rpn_post_nms_top_n_train: int = 2000,
        rpn_post_nms_top_n_test: int = 1000,
        rpn_nms_thresh: float = 0.7,
        rpn_fg_iou_thresh: float = 0.7,
        rpn_bg_iou_thresh: float = 0.3,
        rpn_batch_size_per_image: int = 256,
        rpn_positive_fraction: float = 0.5,
        rpn_score_thresh: float = 0.0,
        box_roi_pool: nn.Module | None = None,
        box_head: nn.Module | None = None,
        box_predictor: nn.Module | None = None,
        box_score_thresh: float = 0.05,
        box_nms_thresh: float = 0.5,
        box_detections_per_img: int = 100,
        box_fg_iou_thresh: float = 0.5,
        box_bg_iou_thresh: float = 0.5,
        box_batch_size_per_image: int = 512,
        box_positive_fraction: float = 0.25,
        bbox_reg_weights: tuple[float, float, float, float] | None = None,
        **options: Any,
    ) -> None:
        if not hasattr(backbone, "out_channels"):
            raise ValueError(
                "[FasterRCNN] expected a backbone with an attribute out_channels, the width of its features"
            )
        if (num_classes is None) == (box_predictor is None):
            raise ValueError("[FasterRCNN] expected num_classes or box_predictor, and not both")
        width = backbone.out_channels
        anchors = rpn_anchor_generator or _default_anchors()
        head = rpn_head or RPNHead(width, anchors.num_anchors_per_location()[0])
        rpn = RegionProposalNetwork(
            anchors, head, rpn_fg_iou_thresh, rpn_bg_iou_thresh, rpn_batch_size_per_image, rpn_positive_fraction,
            {"training": rpn_pre_nms_top_n_train, "testing": rpn_pre_nms_top_n_test},
            {"training": rpn_post_nms_top_n_train, "testing": rpn_post_nms_top_n_test}, rpn_nms_thresh, rpn_score_thresh,
        )  # fmt: skip
        pool = box_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], output_size=7, sampling_ratio=2)
        box_head = box_head or TwoMLPHead(width * pool.output_size[0] ** 2, 1024)
        heads = RoIHeads(
            pool, box_head, box_predictor or FastRCNNPredictor(1024, num_classes or 0), box_fg_iou_thresh,
            box_bg_iou_thresh, box_batch_size_per_image, box_positive_fraction, bbox_reg_weights, box_score_thresh,
            box_nms_thresh, box_detections_per_img,
        )  # fmt: skip
        mean, std = image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225]
        super().__init__(backbone, rpn, heads, GeneralizedRCNNTransform(min_size, max_size, mean, std, **options))


class MaskRCNNHeads(nn.Sequential):
    """Convolutions over pooled features."""

    def __init__(self, in_channels: int, layers: Any, dilation: int, norm_layer: Any = None) -> None:
        blocks = []
        for out in layers:
            blocks.append(
                Conv2dNormActivation(
                    in_channels, out, kernel_size=3, padding=dilation, dilation=dilation, norm_layer=norm_layer
                )
            )
            in_channels = out
        super().__init__(*blocks)
        _initialize(self)


class MaskRCNNPredictor(nn.Sequential):
    """A mask of twice the size for each class."""

    def __init__(self, in_channels: int, dim_reduced: int, num_classes: int) -> None:
        super().__init__(
            OrderedDict(
                conv5_mask=nn.ConvTranspose2d(in_channels, dim_reduced, 2, 2, 0),
                relu=nn.ReLU(inplace=True),
                mask_fcn_logits=nn.Conv2d(dim_reduced, num_classes, 1, 1, 0),
            )
        )
        for name, parameter in self.named_parameters():
            if "weight" in name:
                nn.init.kaiming_normal_(parameter, mode="fan_out", nonlinearity="relu")


class MaskRCNN(FasterRCNN):
    """Faster R-CNN with a mask for each detection."""

    def __init__(
        self,
        backbone: Any,
        num_classes: int | None = None,
        *args: Any,
        mask_roi_pool: nn.Module | None = None,
        mask_head: nn.Module | None = None,
        mask_predictor: nn.Module | None = None,
        **options: Any,
    ) -> None:
        if num_classes is not None and mask_predictor is not None:
            raise ValueError("[MaskRCNN] expected num_classes or mask_predictor, and not both")
        super().__init__(backbone, num_classes, *args, **options)
        heads: Any = self.roi_heads
        heads.mask_roi_pool = mask_roi_pool or MultiScaleRoIAlign(
            ["0", "1", "2", "3"], output_size=14, sampling_ratio=2
        )
        heads.mask_head = mask_head or MaskRCNNHeads(backbone.out_channels, (256, 256, 256, 256), 1)
        heads.mask_predictor = mask_predictor or MaskRCNNPredictor(256, 256, num_classes or 0)


def resnet50_pyramid(weights_backbone: Any, trained: bool, trainable: int | None, second: bool, **options: Any) -> Any:
    """A ResNet-50 with a pyramid. Statistics of trained weights are fixed, except in the second versions."""
    trained = trained or weights_backbone is not None
    norm: Callable[..., nn.Module] = FrozenBatchNorm2d if trained and not second else nn.BatchNorm2d
    layers = _checked_layers(trainable, trained, 5, 3)
    return resnet_fpn_extractor(resnet.resnet50(weights=weights_backbone, norm_layer=norm), layers, **options)


def _make(
    row: tuple[Any, bool],
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    trained: bool = False,
    **options: Any,
) -> FasterRCNN:
    kind, second = row
    classes = 91 if num_classes is None else num_classes
    norm = {"norm_layer": nn.BatchNorm2d} if second else {}
    backbone = resnet50_pyramid(weights_backbone, trained, trainable_backbone_layers, second, **norm)
    if second:
        options = {
            "rpn_anchor_generator": _default_anchors(),
            "rpn_head": RPNHead(256, 3, conv_depth=2),
            "box_head": FastRCNNConvFCHead((256, 7, 7), [256] * 4, [1024], norm_layer=nn.BatchNorm2d),
            **options,
        }
        if kind is MaskRCNN:
            options.setdefault("mask_head", MaskRCNNHeads(256, [256] * 4, 1, norm_layer=nn.BatchNorm2d))
    return kind(backbone, classes, **options)


def _make_mobile(
    row: dict[str, Any],
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    trained: bool = False,
    **options: Any,
) -> FasterRCNN:
    trained = trained or weights_backbone is not None
    layers = _checked_layers(trainable_backbone_layers, trained, 6, 3)
    norm: Any = FrozenBatchNorm2d if trained else nn.BatchNorm2d
    network = mobilenetv3.mobilenet_v3_large(weights=weights_backbone, norm_layer=norm)
    anchors = AnchorGenerator(((32, 64, 128, 256, 512),) * 3, ((0.5, 1.0, 2.0),) * 3)
    classes = 91 if num_classes is None else num_classes
    settings = {"rpn_score_thresh": 0.05, "rpn_anchor_generator": anchors, **row, **options}
    return FasterRCNN(mobilenet_extractor(network, True, layers), classes, **settings)


__all__ += variants(
    globals(),
    _make,
    tells=True,
    fasterrcnn_resnet50_fpn=(FasterRCNN, False),
    fasterrcnn_resnet50_fpn_v2=(FasterRCNN, True),
    maskrcnn_resnet50_fpn=(MaskRCNN, False),
    maskrcnn_resnet50_fpn_v2=(MaskRCNN, True),
)
__all__ += variants(
    globals(),
    _make_mobile,
    tells=True,
    fasterrcnn_mobilenet_v3_large_fpn={},
    fasterrcnn_mobilenet_v3_large_320_fpn={
        "min_size": 320, "max_size": 640, "rpn_pre_nms_top_n_test": 150, "rpn_post_nms_top_n_test": 150,
    },
)  # fmt: skip
