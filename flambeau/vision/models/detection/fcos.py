"""FCOS: a box for every place inside an object, weighted by how central the place is."""

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
from flambeau.vision.models.detection.single_stage import MEAN, STD, SingleStageDetector
from flambeau.vision.models.detection.transform import GeneralizedRCNNTransform
from flambeau.vision.ops import generalized_box_iou_loss, sigmoid_focal_loss
from flambeau.vision.ops.feature_pyramid_network import LastLevelP6P7

__all__ = ["FCOS"]


def _tower(in_channels: int, depth: int, norm_layer: Any) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Conv2d(in_channels, in_channels, 3, 1, 1), norm_layer(in_channels), nn.ReLU()]
    tower = nn.Sequential(*layers)
    for layer in tower:
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.constant_(layer.bias, 0)  # type: ignore[arg-type]
    return tower


class FCOSClassificationHead(nn.Module):
    """Class scores of every place."""

    def __init__(
        self,
        in_channels: int,
        num_anchors: int,
        num_classes: int,
        num_convs: int = 4,
        prior_probability: float = 0.01,
        norm_layer: Any = None,
    ) -> None:
        super().__init__()
        self.num_classes, self.num_anchors = num_classes, num_anchors
        self.conv = _tower(in_channels, num_convs, norm_layer or partial(nn.GroupNorm, 32))
        self.cls_logits = nn.Conv2d(in_channels, num_anchors * num_classes, kernel_size=3, stride=1, padding=1)
        nn.init.normal_(self.cls_logits.weight, std=0.01)
        nn.init.constant_(self.cls_logits.bias, -math.log((1 - prior_probability) / prior_probability))  # type: ignore[arg-type]

    def forward(self, x: list[Tensor]) -> Tensor:
        return flambeau.cat([permute_and_flatten(self.cls_logits(self.conv(f)), self.num_classes) for f in x], dim=1)


class FCOSRegressionHead(nn.Module):
    """Distances to the four sides, and how central a place is."""

    def __init__(self, in_channels: int, num_anchors: int, num_convs: int = 4, norm_layer: Any = None) -> None:
        super().__init__()
        self.conv = _tower(in_channels, num_convs, norm_layer or partial(nn.GroupNorm, 32))
        self.bbox_reg = nn.Conv2d(in_channels, num_anchors * 4, kernel_size=3, stride=1, padding=1)
        self.bbox_ctrness = nn.Conv2d(in_channels, num_anchors * 1, kernel_size=3, stride=1, padding=1)
        for layer in (self.bbox_reg, self.bbox_ctrness):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, x: list[Tensor]) -> tuple[Tensor, Tensor]:
        features = [self.conv(f) for f in x]
        boxes = [permute_and_flatten(F.relu(self.bbox_reg(f)), 4) for f in features]
        central = [permute_and_flatten(self.bbox_ctrness(f), 1) for f in features]
        return flambeau.cat(boxes, dim=1), flambeau.cat(central, dim=1)


class FCOSHead(nn.Module):
    def __init__(self, in_channels: int, num_anchors: int, num_classes: int, num_convs: int = 4) -> None:
        super().__init__()
        self.box_coder = _utils.BoxLinearCoder(normalize_by_size=True)
        self.classification_head = FCOSClassificationHead(in_channels, num_anchors, num_classes, num_convs)
        self.regression_head = FCOSRegressionHead(in_channels, num_anchors, num_convs)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        boxes, central = self.regression_head(x)
        return {"cls_logits": self.classification_head(x), "bbox_regression": boxes, "bbox_ctrness": central}

    def compute_loss(self, targets: Any, head_outputs: Any, anchors: Any, matched_idxs: Any) -> dict[str, Tensor]:
        logits, codes, central = (head_outputs[k] for k in ("cls_logits", "bbox_regression", "bbox_ctrness"))
        own, classes, boxes = flambeau.stack(anchors), [], []
        for target, matches in zip(targets, matched_idxs):
            if len(target["labels"]) == 0:
                label = target["labels"].new_full((len(matches),), -1)
                box = target["boxes"].new_zeros((len(matches), 4))
            else:
                label = target["labels"][matches.clip(min=0)]
                box = target["boxes"][matches.clip(min=0)]
            label = label.clone()
            label[matches < 0] = -1
            classes.append(label)
            boxes.append(box)
        label, box = flambeau.stack(classes), flambeau.stack(boxes)
        positive = label >= 0
        count = max(1, int(positive.sum()))
        wanted = flambeau.zeros_like(logits)
        wanted[positive, label[positive]] = 1.0
        classification = sigmoid_focal_loss(logits, wanted, reduction="sum")
        decoded = self.box_coder.decode(codes, own)
        regression = generalized_box_iou_loss(decoded[positive], box[positive], reduction="sum")
        sides = self.box_coder.encode(own, box)
        across, down = sides[..., [0, 2]], sides[..., [1, 3]]
        ratio = [s.min(dim=-1)[0] / s.max(dim=-1)[0] for s in (across, down)]
        centrality = flambeau.sqrt(ratio[0] * ratio[1])
        centered = F.binary_cross_entropy_with_logits(
            central.squeeze(dim=2)[positive], centrality[positive], reduction="sum"
        )
        return {
            "classification": classification / count,
            "bbox_regression": regression / count,
            "bbox_ctrness": centered / count,
        }


class FCOS(SingleStageDetector):
    """backbone: a module with `out_channels` that returns feature maps."""

    def __init__(
        self,
        backbone: Any,
        num_classes: int,
        min_size: int = 800,
        max_size: int = 1333,
        image_mean: list[float] | None = None,
        image_std: list[float] | None = None,
        anchor_generator: Any = None,
        head: nn.Module | None = None,
        center_sampling_radius: float = 1.5,
        score_thresh: float = 0.2,
        nms_thresh: float = 0.6,
        detections_per_img: int = 100,
        topk_candidates: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        # One anchor at each place, as large as a step on its map.
        self.anchor_generator = anchor_generator or AnchorGenerator(((8,), (16,), (32,), (64,), (128,)), ((1.0,),) * 5)
        anchors = self.anchor_generator.num_anchors_per_location()[0]
        self.head = head or FCOSHead(backbone.out_channels, anchors, num_classes)
        self.box_coder = _utils.BoxLinearCoder(normalize_by_size=True)
        self.transform = GeneralizedRCNNTransform(min_size, max_size, image_mean or MEAN, image_std or STD, **options)
        self.center_sampling_radius, self.score_thresh, self.nms_thresh = (
            center_sampling_radius,
            score_thresh,
            nms_thresh,
        )
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def _matches(self, own: Tensor, boxes: Tensor, counts: list[int]) -> Tensor:
        """The smallest ground truth that a place lies in near the centre, and that fits the level; else -1."""
        if boxes.numel() == 0:
            return flambeau.full((len(own),), -1, dtype=flambeau.int64, device=own.device)
        center, truth_center = (own[:, :2] + own[:, 2:]) / 2, (boxes[:, :2] + boxes[:, 2:]) / 2
        size = own[:, 2] - own[:, 0]
        near = (center[:, None] - truth_center[None]).abs().max(dim=2).values < self.center_sampling_radius * size[:, None]  # fmt: skip
        x, y = center.unsqueeze(dim=2).unbind(dim=1)
        left, top, right, bottom = boxes.unsqueeze(dim=0).unbind(dim=2)
        sides = flambeau.stack([x - left, y - top, right - x, bottom - y], dim=2)
        near &= sides.min(dim=2).values > 0
        lower, upper = size * 4, size * 8
        lower[: counts[0]] = 0
        upper[-counts[-1] :] = float("inf")
        farthest = sides.max(dim=2).values
        near &= (farthest > lower[:, None]) & (farthest < upper[:, None])
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        value, match = (near.to(flambeau.float32) * (1e8 - areas[None])).max(dim=1)
        return flambeau.where(value < 1e-5, flambeau.full_like(match, -1), match)

    def compute_loss(self, targets: Any, outputs: Any, anchors: Any, counts: list[int]) -> dict[str, Tensor]:
        matches = [self._matches(own, target["boxes"], counts) for own, target in zip(anchors, targets)]
        return self.head.compute_loss(targets, outputs, anchors, matches)

    def postprocess_detections(
        self, outputs: Any, anchors: Any, shapes: Any, counts: list[int]
    ) -> list[dict[str, Tensor]]:
        detections = []
        for i, shape in enumerate(shapes):
            central = flambeau.sigmoid(outputs["bbox_ctrness"][i])
            scores = flambeau.sqrt(flambeau.sigmoid(outputs["cls_logits"][i]) * central).split(counts)
            codes, own = outputs["bbox_regression"][i].split(counts), anchors[i].split(counts)

            def decode(level: int, places: Tensor, codes: Any = codes, own: Any = own) -> Tensor:
                return self.box_coder.decode(codes[level][places], own[level][places])

            detections.append(self.best_of_levels(scores, decode, shape))  # type: ignore[arg-type]
        return detections


def _make(
    row: Any,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    trained: bool = False,
    **options: Any,
) -> FCOS:
    extra = LastLevelP6P7(256, 256)
    backbone = resnet50_pyramid(
        weights_backbone, trained, trainable_backbone_layers, False, returned_layers=[2, 3, 4], extra_blocks=extra
    )
    return FCOS(backbone, 91 if num_classes is None else num_classes, **options)


__all__ += variants(globals(), _make, tells=True, fcos_resnet50_fpn=None)
