"""RetinaNet: a focal loss over all anchors of a pyramid."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.vision.models._weights import variants
from flambeau.vision.models.detection import _utils
from flambeau.vision.models.detection.anchor_utils import AnchorGenerator
from flambeau.vision.models.detection.faster_rcnn import resnet50_pyramid
from flambeau.vision.models.detection.rpn import permute_and_flatten
from flambeau.vision.models.detection.single_stage import MEAN, STD, SingleStageDetector, initialize, tower
from flambeau.vision.models.detection.transform import GeneralizedRCNNTransform
from flambeau.vision.ops import boxes as box_ops
from flambeau.vision.ops import generalized_box_iou_loss, sigmoid_focal_loss
from flambeau.vision.ops.feature_pyramid_network import LastLevelP6P7

__all__ = ["RetinaNet"]


def _default_anchors() -> AnchorGenerator:
    sizes = tuple((x, int(x * 2 ** (1.0 / 3)), int(x * 2 ** (2.0 / 3))) for x in (32, 64, 128, 256, 512))
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))


class RetinaNetClassificationHead(nn.Module):
    """Class scores of every anchor."""

    def __init__(
        self, in_channels: int, num_anchors: int, num_classes: int, prior_probability: float = 0.01, norm_layer: Any = None
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv = tower(in_channels, norm_layer)
        self.cls_logits = nn.Conv2d(in_channels, num_anchors * num_classes, kernel_size=3, stride=1, padding=1)
        initialize(self)
        nn.init.constant_(self.cls_logits.bias, -math.log((1 - prior_probability) / prior_probability))  # type: ignore[arg-type]
        self.num_classes, self.num_anchors = num_classes, num_anchors

    def compute_loss(self, targets: Any, head_outputs: Any, matched_idxs: list[Tensor]) -> Tensor:
        losses = []
        for target, logits, matches in zip(targets, head_outputs["cls_logits"], matched_idxs):
            positive = matches >= 0
            wanted = flambeau.zeros_like(logits)
            wanted[positive, target["labels"][matches[positive]]] = 1.0
            counted = matches != _utils.Matcher.BETWEEN_THRESHOLDS
            loss = sigmoid_focal_loss(logits[counted], wanted[counted], reduction="sum")
            losses.append(loss / max(1, int(positive.sum())))
        return sum(losses[1:], losses[0]) / len(targets)

    def forward(self, x: list[Tensor]) -> Tensor:
        return flambeau.cat([permute_and_flatten(self.cls_logits(self.conv(f)), self.num_classes) for f in x], dim=1)


class RetinaNetRegressionHead(nn.Module):
    """Box codes of every anchor."""

    def __init__(self, in_channels: int, num_anchors: int, norm_layer: Any = None) -> None:
        super().__init__()
        self.conv = tower(in_channels, norm_layer)
        self.bbox_reg = nn.Conv2d(in_channels, num_anchors * 4, kernel_size=3, stride=1, padding=1)
        initialize(self)
        self.box_coder = _utils.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self._loss_type = "l1"

    def compute_loss(self, targets: Any, head_outputs: Any, anchors: Any, matched_idxs: list[Tensor]) -> Tensor:
        losses = []
        for target, codes, own, matches in zip(targets, head_outputs["bbox_regression"], anchors, matched_idxs):
            positive = flambeau.where(matches >= 0)[0]
            boxes, codes, own = target["boxes"][matches[positive]], codes[positive], own[positive]
            if self._loss_type == "l1":
                loss = F.l1_loss(codes, self.box_coder.encode_single(boxes, own), reduction="sum")
            else:
                loss = generalized_box_iou_loss(
                    self.box_coder.decode_single(codes, own), boxes, reduction="sum", eps=1e-7
                )
            losses.append(loss / max(1, positive.numel()))
        return sum(losses[1:], losses[0]) / max(1, len(targets))

    def forward(self, x: list[Tensor]) -> Tensor:
        return flambeau.cat([permute_and_flatten(self.bbox_reg(self.conv(f)), 4) for f in x], dim=1)


class RetinaNetHead(nn.Module):
    def __init__(self, in_channels: int, num_anchors: int, num_classes: int, norm_layer: Any = None) -> None:
        super().__init__()
        self.classification_head = RetinaNetClassificationHead(in_channels, num_anchors, num_classes, norm_layer=norm_layer)  # fmt: skip
        self.regression_head = RetinaNetRegressionHead(in_channels, num_anchors, norm_layer=norm_layer)

    def compute_loss(self, targets: Any, head_outputs: Any, anchors: Any, matched_idxs: Any) -> dict[str, Tensor]:
        return {
            "classification": self.classification_head.compute_loss(targets, head_outputs, matched_idxs),
            "bbox_regression": self.regression_head.compute_loss(targets, head_outputs, anchors, matched_idxs),
        }

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        return {"cls_logits": self.classification_head(x), "bbox_regression": self.regression_head(x)}


class RetinaNet(SingleStageDetector):
    """backbone: a module with `out_channels` that returns feature maps."""

    def __init__(
        self,
        backbone: Any,
        num_classes: int,
        min_size: Any = 800,
        max_size: int = 1333,
        image_mean: list[float] | None = None,
        image_std: list[float] | None = None,
        anchor_generator: nn.Module | None = None,
        head: nn.Module | None = None,
        proposal_matcher: Any = None,
        score_thresh: float = 0.05,
        nms_thresh: float = 0.5,
        detections_per_img: int = 300,
        fg_iou_thresh: float = 0.5,
        bg_iou_thresh: float = 0.4,
        topk_candidates: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.anchor_generator = anchor_generator or _default_anchors()
        anchors = self.anchor_generator.num_anchors_per_location()[0]
        self.head = head or RetinaNetHead(backbone.out_channels, anchors, num_classes)
        self.proposal_matcher = proposal_matcher or _utils.Matcher(fg_iou_thresh, bg_iou_thresh, True)
        self.box_coder = _utils.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self.transform = GeneralizedRCNNTransform(min_size, max_size, image_mean or MEAN, image_std or STD, **options)
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def compute_loss(self, targets: Any, outputs: Any, anchors: Any, counts: list[int]) -> dict[str, Tensor]:
        matches = []
        for own, target in zip(anchors, targets):
            if target["boxes"].numel() == 0:
                matches.append(flambeau.full((len(own),), -1, dtype=flambeau.int64, device=own.device))
            else:
                matches.append(self.proposal_matcher(box_ops.box_iou(target["boxes"], own)))
        return self.head.compute_loss(targets, outputs, anchors, matches)

    def postprocess_detections(
        self, outputs: Any, anchors: Any, shapes: Any, counts: list[int]
    ) -> list[dict[str, Tensor]]:
        detections = []
        for i, shape in enumerate(shapes):
            scores = flambeau.sigmoid(outputs["cls_logits"][i]).split(counts)
            codes, own = outputs["bbox_regression"][i].split(counts), anchors[i].split(counts)

            def decode(level: int, places: Tensor, codes: Any = codes, own: Any = own) -> Tensor:
                return self.box_coder.decode_single(codes[level][places], own[level][places])

            detections.append(self.best_of_levels(scores, decode, shape))  # type: ignore[arg-type]
        return detections


def _make(
    second: bool,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    trained: bool = False,
    **options: Any,
) -> RetinaNet:
    extra = LastLevelP6P7(2048 if second else 256, 256)
    backbone = resnet50_pyramid(
        weights_backbone, trained, trainable_backbone_layers, second, returned_layers=[2, 3, 4], extra_blocks=extra
    )
    classes = 91 if num_classes is None else num_classes
    if second:
        anchors = _default_anchors()
        head = RetinaNetHead(256, anchors.num_anchors_per_location()[0], classes, partial(nn.GroupNorm, 32))
        head.regression_head._loss_type = "giou"
        options = {"anchor_generator": anchors, "head": head, **options}
    return RetinaNet(backbone, classes, **options)


__all__ += variants(globals(), _make, tells=True, retinanet_resnet50_fpn=False, retinanet_resnet50_fpn_v2=True)
