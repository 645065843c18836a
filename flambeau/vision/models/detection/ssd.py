"""SSD: default boxes on feature maps of falling size, with the hardest negatives in the loss."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.vision.models import vgg
from flambeau.vision.models._weights import variants
from flambeau.vision.models.detection import _utils
from flambeau.vision.models.detection.anchor_utils import DefaultBoxGenerator
from flambeau.vision.models.detection.backbone_utils import _checked_layers
from flambeau.vision.models.detection.rpn import permute_and_flatten
from flambeau.vision.models.detection.single_stage import SingleStageDetector
from flambeau.vision.models.detection.transform import GeneralizedRCNNTransform
from flambeau.vision.ops import boxes as box_ops

__all__ = ["SSD"]


def _xavier(module: nn.Module) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0.0)


class SSDScoringHead(nn.Module):
    """A convolution for each feature map."""

    def __init__(self, module_list: nn.ModuleList, num_columns: int) -> None:
        super().__init__()
        self.module_list, self.num_columns = module_list, num_columns

    def forward(self, x: list[Tensor]) -> Tensor:
        maps = [permute_and_flatten(m(f), self.num_columns) for m, f in zip(self.module_list, x)]
        return flambeau.cat(maps, dim=1)


class _Head(SSDScoringHead):
    def __init__(self, in_channels: list[int], num_anchors: list[int], columns: int) -> None:
        convs = nn.ModuleList(
            nn.Conv2d(width, columns * n, kernel_size=3, padding=1) for width, n in zip(in_channels, num_anchors)
        )
        _xavier(convs)
        super().__init__(convs, columns)


class SSDHead(nn.Module):
    def __init__(self, in_channels: list[int], num_anchors: list[int], num_classes: int) -> None:
        super().__init__()
        self.classification_head = _Head(in_channels, num_anchors, num_classes)
        self.regression_head = _Head(in_channels, num_anchors, 4)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        return {"bbox_regression": self.regression_head(x), "cls_logits": self.classification_head(x)}


class SSD(SingleStageDetector):
    """size: (width, height) to which images are resized."""

    def __init__(
        self,
        backbone: nn.Module,
        anchor_generator: DefaultBoxGenerator,
        size: tuple[int, int],
        num_classes: int,
        image_mean: list[float] | None = None,
        image_std: list[float] | None = None,
        head: nn.Module | None = None,
        score_thresh: float = 0.01,
        nms_thresh: float = 0.45,
        detections_per_img: int = 200,
        iou_thresh: float = 0.5,
        topk_candidates: int = 400,
        positive_fraction: float = 0.25,
        **options: Any,
    ) -> None:
        super().__init__()
        self.backbone, self.anchor_generator = backbone, anchor_generator
        self.box_coder = _utils.BoxCoder(weights=(10.0, 10.0, 5.0, 5.0))
        if head is None:
            widths = [m.shape[1] for m in self._maps_of_zeros(size)]
            head = SSDHead(widths, anchor_generator.num_anchors_per_location(), num_classes)
        self.head = head
        self.proposal_matcher = _utils.SSDMatcher(iou_thresh)
        mean, std = image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225]
        self.transform = GeneralizedRCNNTransform(
            min(size), max(size), mean, std, size_divisible=1, fixed_size=size, **options
        )
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates
        self.neg_to_pos_ratio = (1.0 - positive_fraction) / positive_fraction

    def _maps_of_zeros(self, size: tuple[int, int]) -> list[Tensor]:
        training = self.backbone.training
        self.backbone.eval()
        with flambeau.no_grad():
            maps = self.backbone(flambeau.zeros((1, 3, size[1], size[0])))
        self.backbone.train(training)
        return list(maps.values())

    def compute_loss(self, targets: Any, outputs: Any, anchors: Any, counts: list[int]) -> dict[str, Tensor]:
        logits, codes = outputs["cls_logits"], outputs["bbox_regression"]
        positives, distance, labels = 0, [], []
        for target, score, code, own in zip(targets, logits, codes, anchors):
            if target["boxes"].numel() == 0:
                matches = flambeau.full((len(own),), -1, dtype=flambeau.int64, device=own.device)
            else:
                matches = self.proposal_matcher(box_ops.box_iou(target["boxes"], own))
            positive = flambeau.where(matches >= 0)[0]
            wanted = self.box_coder.encode_single(target["boxes"][matches[positive]], own[positive])
            distance.append(F.smooth_l1_loss(code[positive], wanted, reduction="sum"))
            label = flambeau.zeros(len(score), dtype=target["labels"].dtype, device=own.device)
            label[positive] = target["labels"][matches[positive]]
            labels.append(label)
            positives += positive.numel()
        label = flambeau.stack(labels)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), label.view(-1), reduction="none").view(label.shape)
        foreground = label > 0
        count = (self.neg_to_pos_ratio * foreground.sum(1, keepdim=True)).to(flambeau.int64)
        negative = loss.clone()
        negative[foreground] = -float("inf")
        # The rank of each negative by its loss; those up to the count are kept.
        _, order = negative.sort(1, descending=True)
        background = order.sort(1)[1] < count
        total = max(1, positives)
        return {
            "bbox_regression": flambeau.stack(distance).sum() / total,
            "classification": (loss[foreground].sum() + loss[background].sum()) / total,
        }

    def postprocess_detections(
        self, outputs: Any, anchors: Any, shapes: Any, counts: list[int]
    ) -> list[dict[str, Tensor]]:
        scores = F.softmax(outputs["cls_logits"], dim=-1)
        detections = []
        for codes, score, own, shape in zip(outputs["bbox_regression"], scores, anchors, shapes):
            boxes = box_ops.clip_boxes_to_image(self.box_coder.decode_single(codes, own), shape)
            selected: tuple[list[Tensor], ...] = ([], [], [])
            for label in range(1, score.shape[-1]):
                places = flambeau.where(score[:, label] > self.score_thresh)[0]
                best, order = score[places, label].topk(min(self.topk_candidates, places.numel()))
                for part, value in zip(selected, (boxes[places[order]], best, flambeau.full_like(best, label, dtype=flambeau.int64))):  # fmt: skip
                    part.append(value)
            joined = [flambeau.cat(part) for part in selected]
            detections.append(_utils.keep_best(*joined, self.nms_thresh, self.detections_per_img))  # type: ignore[arg-type, call-arg]
        return detections


class SSDFeatureExtractorVGG(nn.Module):
    """VGG up to its fourth pooling, its fifth stage with dilated layers, and four or five extra stages."""

    def __init__(self, backbone: nn.Sequential, highres: bool) -> None:
        super().__init__()
        _, _, third, fourth, _ = (i for i, layer in enumerate(backbone) if isinstance(layer, nn.MaxPool2d))
        backbone[third].ceil_mode = True
        self.scale_weight = nn.Parameter(flambeau.ones(512) * 20)
        self.features = nn.Sequential(*backbone[:fourth])

        def stage(inside: int, middle: int, out: int, **options: Any) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inside, middle, kernel_size=1),
                nn.ReLU(inplace=True),
                nn.Conv2d(middle, out, **options),
                nn.ReLU(inplace=True),
            )

        extra = nn.ModuleList([
            stage(1024, 256, 512, kernel_size=3, padding=1, stride=2),
            stage(512, 128, 256, kernel_size=3, padding=1, stride=2),
            stage(256, 128, 256, kernel_size=3),
            stage(256, 128, 256, kernel_size=3),
        ])  # fmt: skip
        if highres:
            extra.append(stage(256, 128, 256, kernel_size=4))
        _xavier(extra)
        fully = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1, ceil_mode=False),
            nn.Conv2d(512, 1024, kernel_size=3, padding=6, dilation=6),
            nn.ReLU(inplace=True),
            nn.Conv2d(1024, 1024, kernel_size=1),
            nn.ReLU(inplace=True),
        )
        _xavier(fully)
        extra.insert(0, nn.Sequential(*backbone[fourth:-1], fully))
        self.extra = extra

    def forward(self, x: Tensor) -> OrderedDict[str, Tensor]:
        x = self.features(x)
        maps = [self.scale_weight.view(1, -1, 1, 1) * F.normalize(x)]
        for block in self.extra:
            x = block(x)
            maps.append(x)
        return OrderedDict((str(i), m) for i, m in enumerate(maps))


def _make(
    row: Any,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    trained: bool = False,
    **options: Any,
) -> SSD:
    layers = _checked_layers(trainable_backbone_layers, trained or weights_backbone is not None, 5, 4)
    features = vgg.vgg16(weights=weights_backbone).features
    stages = [0, *(i for i, layer in enumerate(features) if isinstance(layer, nn.MaxPool2d))][:-1]
    frozen = len(features) if layers == 0 else stages[len(stages) - layers]
    for layer in features[:frozen]:
        for parameter in layer.parameters():
            parameter.requires_grad_(False)
    anchors = DefaultBoxGenerator(
        [[2], [2, 3], [2, 3], [2, 3], [2], [2]],
        scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
        steps=[8, 16, 32, 64, 100, 300],
    )
    # The weights of the first version were trained on pixels from 0 to 255 without a standard deviation.
    defaults = {"image_mean": [0.48235, 0.45882, 0.40784], "image_std": [1.0 / 255.0] * 3}
    backbone = SSDFeatureExtractorVGG(features, False)
    return SSD(backbone, anchors, (300, 300), 91 if num_classes is None else num_classes, **{**defaults, **options})


__all__ += variants(globals(), _make, tells=True, ssd300_vgg16=None)
