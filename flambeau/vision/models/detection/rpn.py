"""Region proposal network: which anchors hold an object, and how their boxes are moved."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.vision.models.detection import _utils
from flambeau.vision.models.detection.transform import ImageList
from flambeau.vision.ops import Conv2dNormActivation
from flambeau.vision.ops import boxes as box_ops


class RPNHead(nn.Module):
    """An objectness score and a box code for every anchor."""

    def __init__(self, in_channels: int, num_anchors: int, conv_depth: int = 1) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            *(Conv2dNormActivation(in_channels, in_channels, kernel_size=3, norm_layer=None) for _ in range(conv_depth))
        )
        self.cls_logits = nn.Conv2d(in_channels, num_anchors, kernel_size=1, stride=1)
        self.bbox_pred = nn.Conv2d(in_channels, num_anchors * 4, kernel_size=1, stride=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
                if layer.bias is not None:
                    nn.init.constant_(layer.bias, 0)

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        features = [self.conv(feature) for feature in x]
        return [self.cls_logits(f) for f in features], [self.bbox_pred(f) for f in features]


def permute_and_flatten(layer: Tensor, values: int) -> Tensor:
    """(N, anchors * values, H, W) as (N, H * W * anchors, values)."""
    n, _, height, width = layer.shape
    return layer.view(n, -1, values, height, width).permute(0, 3, 4, 1, 2).reshape(n, -1, values)


class RegionProposalNetwork(nn.Module):
    """Proposals for each image and, in training, the losses of objectness and boxes."""

    def __init__(
        self,
        anchor_generator: nn.Module,
        head: nn.Module,
        fg_iou_thresh: float,
        bg_iou_thresh: float,
        batch_size_per_image: int,
        positive_fraction: float,
        pre_nms_top_n: dict[str, int],
        post_nms_top_n: dict[str, int],
        nms_thresh: float,
        score_thresh: float = 0.0,
    ) -> None:
        super().__init__()
        self.anchor_generator, self.head = anchor_generator, head
        self.box_coder = _utils.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self.box_similarity = box_ops.box_iou
        self.proposal_matcher = _utils.Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True)
        self.fg_bg_sampler = _utils.BalancedPositiveNegativeSampler(batch_size_per_image, positive_fraction)
        self._pre_nms_top_n, self._post_nms_top_n = pre_nms_top_n, post_nms_top_n
        self.nms_thresh, self.score_thresh, self.min_size = nms_thresh, score_thresh, 1e-3

    def pre_nms_top_n(self) -> int:
        return self._pre_nms_top_n["training" if self.training else "testing"]

    def post_nms_top_n(self) -> int:
        return self._post_nms_top_n["training" if self.training else "testing"]

    def assign_targets_to_anchors(self, anchors: list[Tensor], targets: Any) -> tuple[list[Tensor], list[Tensor]]:
        """Labels 1, 0 and -1 (ignored), and the box of each anchor."""
        labels, matched_boxes = [], []
        for own, target in zip(anchors, targets):
            truth = target["boxes"]
            if truth.numel() == 0:
                matched_boxes.append(flambeau.zeros_like(own))
                labels.append(flambeau.zeros(own.shape[0], dtype=flambeau.float32, device=own.device))
                continue
            matches = self.proposal_matcher(self.box_similarity(truth, own))
            matched_boxes.append(truth[matches.clamp(min=0)])
            label = (matches >= 0).to(flambeau.float32)
            label[matches == self.proposal_matcher.BETWEEN_THRESHOLDS] = -1.0
            labels.append(label)
        return labels, matched_boxes

    def filter_proposals(
        self, proposals: Tensor, objectness: Tensor, image_shapes: Any, num_anchors_per_level: list[int]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The best of each level, without small and overlapping ones."""
        images = proposals.shape[0]
        scores = objectness.detach().reshape(images, -1)
        levels = flambeau.cat(
            [flambeau.full((n,), i, dtype=flambeau.int64, device=scores.device) for i, n in enumerate(num_anchors_per_level)]
        )  # fmt: skip
        chosen, offset = [], 0
        for part in scores.split(num_anchors_per_level, 1):
            _, best = part.topk(min(self.pre_nms_top_n(), part.shape[1]), dim=1)
            chosen.append(best + offset)
            offset += part.shape[1]
        index = flambeau.cat(chosen, dim=1)
        rows = flambeau.arange(images, device=scores.device)[:, None]
        probabilities, proposals = flambeau.sigmoid(scores[rows, index]), proposals[rows, index]
        final_boxes, final_scores = [], []
        for boxes, score, level, shape in zip(proposals, probabilities, levels[index], image_shapes):
            boxes = box_ops.clip_boxes_to_image(boxes, shape)
            for test in (
                lambda b, s: box_ops.remove_small_boxes(b, self.min_size),
                lambda b, s: flambeau.where(s >= self.score_thresh)[0],
            ):
                keep = test(boxes, score)  # type: ignore[no-untyped-call]
                boxes, score, level = boxes[keep], score[keep], level[keep]
            keep = box_ops.batched_nms(boxes, score, level, self.nms_thresh)[: self.post_nms_top_n()]
            final_boxes.append(boxes[keep])
            final_scores.append(score[keep])
        return final_boxes, final_scores

    def compute_loss(
        self, objectness: Tensor, pred_bbox_deltas: Tensor, labels: list[Tensor], regression_targets: Any
    ) -> tuple[Tensor, Tensor]:
        positive, negative = (flambeau.where(flambeau.cat(m))[0] for m in self.fg_bg_sampler(labels))
        sampled = flambeau.cat([positive, negative])
        all_labels, targets = flambeau.cat(labels), flambeau.cat(list(regression_targets))
        box_loss = F.smooth_l1_loss(pred_bbox_deltas[positive], targets[positive], beta=1 / 9, reduction="sum")
        objectness_loss = F.binary_cross_entropy_with_logits(objectness.flatten()[sampled], all_labels[sampled])
        return objectness_loss, box_loss / sampled.numel()

    def forward(
        self, images: ImageList, features: dict[str, Tensor], targets: Any = None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        maps = list(features.values())
        objectness, deltas = self.head(maps)
        anchors = self.anchor_generator(images, maps)
        counts = [o.shape[1] * o.shape[2] * o.shape[3] for o in objectness]
        scores = flambeau.cat([permute_and_flatten(o, 1) for o in objectness], dim=1).flatten(0, -2)
        codes = flambeau.cat([permute_and_flatten(d, 4) for d in deltas], dim=1).reshape(-1, 4)
        proposals = self.box_coder.decode(codes.detach(), anchors).view(len(anchors), -1, 4)
        boxes, _ = self.filter_proposals(proposals, scores, images.image_sizes, counts)
        if not self.training:
            return boxes, {}
        if targets is None:
            raise ValueError("[RegionProposalNetwork] expected targets in training mode, got None")
        labels, matched = self.assign_targets_to_anchors(anchors, targets)
        losses = self.compute_loss(scores, codes, labels, self.box_coder.encode(matched, anchors))
        return boxes, {"loss_objectness": losses[0], "loss_rpn_box_reg": losses[1]}
