"""What detectors without proposals share: transform, backbone, head over feature maps, anchors, losses or detections."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.vision.models.detection import _utils
from flambeau.vision.models.detection.transform import GeneralizedRCNNTransform
from flambeau.vision.ops import Conv2dNormActivation
from flambeau.vision.ops import boxes as box_ops

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class SingleStageDetector(nn.Module):
    """Subclasses say `compute_loss(targets, outputs, anchors, counts)` and `postprocess_detections(...)`."""

    backbone: nn.Module
    head: nn.Module
    anchor_generator: nn.Module
    transform: GeneralizedRCNNTransform

    def compute_loss(self, targets: Any, outputs: Any, anchors: Any, counts: list[int]) -> dict[str, Tensor]:
        raise NotImplementedError

    def postprocess_detections(
        self, outputs: Any, anchors: Any, shapes: Any, counts: list[int]
    ) -> list[dict[str, Tensor]]:
        raise NotImplementedError

    def forward(self, images: list[Tensor], targets: Any = None) -> Any:
        if self.training:
            _utils.check_targets(type(self).__name__, targets)
        sizes = [tuple(image.shape[-2:]) for image in images]
        batch, targets = self.transform(images, targets)
        features = self.backbone(batch.tensors)
        if isinstance(features, Tensor):
            features = OrderedDict([("0", features)])
        maps = list(features.values())
        outputs, anchors = self.head(maps), self.anchor_generator(batch, maps)
        per_place = self.anchor_generator.num_anchors_per_location()
        counts = [m.shape[2] * m.shape[3] * n for m, n in zip(maps, per_place)]
        if self.training:
            return self.compute_loss(targets, outputs, anchors, counts)
        detections = self.postprocess_detections(outputs, anchors, batch.image_sizes, counts)
        return self.transform.postprocess(detections, batch.image_sizes, sizes)

    def best_of_levels(self, scores: list[Tensor], decode: Any, shape: Any) -> dict[str, Tensor]:
        """Detections of one image: of every level those above the threshold, the best of them, then suppression.

        scores: (anchors, classes) of each level; decode(level, anchors) gives boxes.
        """
        boxes, values, labels = [], [], []
        for level, score in enumerate(scores):
            classes = score.shape[-1]
            flat = score.flatten()
            keep = flat > self.score_thresh
            flat, places = flat[keep], flambeau.where(keep)[0]
            flat, order = flat.topk(min(self.topk_candidates, places.numel()))
            places = places[order]
            boxes.append(box_ops.clip_boxes_to_image(decode(level, places // classes), shape))
            values.append(flat)
            labels.append(places % classes)
        joined = (flambeau.cat(boxes), flambeau.cat(values), flambeau.cat(labels))
        return _utils.keep_best(*joined, self.nms_thresh, self.detections_per_img)


def tower(in_channels: int, norm_layer: Any, depth: int = 4) -> nn.Sequential:
    """Convolutions of a head."""
    return nn.Sequential(*(Conv2dNormActivation(in_channels, in_channels, norm_layer=norm_layer) for _ in range(depth)))


def initialize(module: nn.Module, std: float = 0.01) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=std)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0)
