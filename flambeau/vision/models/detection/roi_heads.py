"""Heads over proposals: classes and boxes, and masks where wanted."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.vision.models.detection import _utils
from flambeau.vision.ops import boxes as box_ops
from flambeau.vision.ops.regions import roi_align


def fastrcnn_loss(class_logits: Tensor, box_regression: Tensor, labels: Any, regression_targets: Any) -> Any:
    """Cross entropy of the classes, and the smooth distance of the boxes of the right class."""
    label, targets = flambeau.cat(labels, dim=0), flambeau.cat(regression_targets, dim=0)
    classification = F.cross_entropy(class_logits, label)
    positive = flambeau.where(label > 0)[0]
    codes = box_regression.reshape(class_logits.shape[0], box_regression.size(-1) // 4, 4)
    distance = F.smooth_l1_loss(codes[positive, label[positive]], targets[positive], beta=1 / 9, reduction="sum")
    return classification, distance / label.numel()


def maskrcnn_loss(mask_logits: Tensor, proposals: Any, gt_masks: Any, gt_labels: Any, mask_matched_idxs: Any) -> Tensor:
    """Cross entropy between the mask of the right class and the ground truth within the box."""
    size = mask_logits.shape[-1]
    labels = flambeau.cat([label[idxs] for label, idxs in zip(gt_labels, mask_matched_idxs)], dim=0)
    targets = []
    for masks, boxes, matched in zip(gt_masks, proposals, mask_matched_idxs):
        rows = flambeau.cat([matched.to(boxes)[:, None], boxes], dim=1)
        targets.append(roi_align(masks[:, None].to(rows), rows, (size, size), 1.0)[:, 0])
    target = flambeau.cat(targets, dim=0)
    if target.numel() == 0:
        return mask_logits.sum() * 0
    own = mask_logits[flambeau.arange(labels.shape[0], device=labels.device), labels]
    return F.binary_cross_entropy_with_logits(own, target)


def paste_masks_in_image(masks: Tensor, boxes: Tensor, img_shape: tuple[int, int], padding: int = 1) -> Tensor:
    """Masks (n, 1, M, M), resized to their boxes and put into images."""
    size = masks.shape[-1]
    scale = float(size + 2 * padding) / size
    padded = F.pad(masks, (padding,) * 4)
    half = (boxes[:, 2:] - boxes[:, :2]) * 0.5 * scale
    center = (boxes[:, 2:] + boxes[:, :2]) * 0.5
    corners = flambeau.cat((center - half, center + half), dim=1).to(flambeau.int64).tolist()
    height, width = img_shape
    images = masks.new_zeros(len(corners), 1, height, width)
    for i, (mask, (left, top, right, bottom)) in enumerate(zip(padded, corners)):
        wide, high = max(right - left + 1, 1), max(bottom - top + 1, 1)
        resized = F.interpolate(mask[None], size=(high, wide), mode="bilinear", align_corners=False)[0, 0]
        x0, x1, y0, y1 = max(left, 0), min(right + 1, width), max(top, 0), min(bottom + 1, height)
        images[i, 0, y0:y1, x0:x1] = resized[y0 - top : y1 - top, x0 - left : x1 - left]
    return images


class RoIHeads(nn.Module):
    """Detections of each image or, in training, losses."""

    def __init__(
        self,
        box_roi_pool: nn.Module,
        box_head: nn.Module,
        box_predictor: nn.Module,
        fg_iou_thresh: float,
        bg_iou_thresh: float,
        batch_size_per_image: int,
        positive_fraction: float,
        bbox_reg_weights: tuple[float, float, float, float] | None,
        score_thresh: float,
        nms_thresh: float,
        detections_per_img: int,
        mask_roi_pool: nn.Module | None = None,
        mask_head: nn.Module | None = None,
        mask_predictor: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.box_similarity = box_ops.box_iou
        self.proposal_matcher = _utils.Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=False)
        self.fg_bg_sampler = _utils.BalancedPositiveNegativeSampler(batch_size_per_image, positive_fraction)
        self.box_coder = _utils.BoxCoder(bbox_reg_weights or (10.0, 10.0, 5.0, 5.0))
        self.box_roi_pool, self.box_head, self.box_predictor = box_roi_pool, box_head, box_predictor
        self.score_thresh, self.nms_thresh, self.detections_per_img = score_thresh, nms_thresh, detections_per_img
        self.mask_roi_pool, self.mask_head, self.mask_predictor = mask_roi_pool, mask_head, mask_predictor

    def has_mask(self) -> bool:
        return None not in (self.mask_roi_pool, self.mask_head, self.mask_predictor)

    def _assigned(self, proposals: Tensor, boxes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The ground truth of each proposal, and its label: 0 for background, -1 to ignore."""
        if boxes.numel() == 0:
            nothing = flambeau.zeros(proposals.shape[0], dtype=flambeau.int64, device=proposals.device)
            return nothing, nothing
        matches = self.proposal_matcher(self.box_similarity(boxes, proposals))
        label = labels[matches.clamp(min=0)].to(flambeau.int64)
        label[matches == self.proposal_matcher.BELOW_LOW_THRESHOLD] = 0
        label[matches == self.proposal_matcher.BETWEEN_THRESHOLDS] = -1
        return matches.clamp(min=0), label

    def select_training_samples(self, proposals: list[Tensor], targets: Any) -> tuple[Any, Any, Any, Any]:
        """A sample of the proposals and of the ground truth itself, with labels and box codes."""
        truths = [target["boxes"].to(proposals[0].dtype) for target in targets]
        proposals = [flambeau.cat((own, truth)) for own, truth in zip(proposals, truths)]
        pairs = [self._assigned(p, b, target["labels"]) for p, b, target in zip(proposals, truths, targets)]
        positive, negative = self.fg_bg_sampler([label for _, label in pairs])
        matched, labels, boxes = [], [], []
        for i, (one, two) in enumerate(zip(positive, negative)):
            sample = flambeau.where(one | two)[0]
            proposals[i] = proposals[i][sample]
            matched.append(pairs[i][0][sample])
            labels.append(pairs[i][1][sample])
            truth = truths[i] if truths[i].numel() else flambeau.zeros((1, 4), dtype=truths[i].dtype, device=truths[i].device)  # fmt: skip
            boxes.append(truth[matched[i]])
        return proposals, matched, labels, self.box_coder.encode(boxes, proposals)

    def postprocess_detections(
        self, class_logits: Tensor, box_regression: Tensor, proposals: list[Tensor], image_shapes: Any
    ) -> list[dict[str, Tensor]]:
        """Boxes of every class but the background, above the threshold and without overlaps."""
        classes = class_logits.shape[-1]
        counts = [len(p) for p in proposals]
        decoded = self.box_coder.decode(box_regression, proposals)
        scores = F.softmax(class_logits, -1)
        results = []
        for boxes, score, shape in zip(decoded.split(counts, 0), scores.split(counts, 0), image_shapes):
            boxes = box_ops.clip_boxes_to_image(boxes, shape)
            labels = flambeau.arange(classes, device=boxes.device).view(1, -1).expand_as(score)
            boxes, score, labels = boxes[:, 1:].reshape(-1, 4), score[:, 1:].flatten(), labels[:, 1:].flatten()
            keep = flambeau.where(score > self.score_thresh)[0]
            boxes, score, labels = boxes[keep], score[keep], labels[keep]
            keep = box_ops.remove_small_boxes(boxes, min_size=1e-2)
            best = _utils.keep_best(boxes[keep], score[keep], labels[keep], self.nms_thresh, self.detections_per_img)
            results.append({name: best[name] for name in ("boxes", "labels", "scores")})
        return results

    def _masks(self, features: Any, boxes: list[Tensor], image_shapes: Any) -> Tensor:
        return self.mask_predictor(self.mask_head(self.mask_roi_pool(features, boxes, image_shapes)))  # type: ignore[misc]

    def forward(
        self, features: dict[str, Tensor], proposals: list[Tensor], image_shapes: Any, targets: Any = None
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        if self.training:
            _utils.check_targets("RoIHeads", targets)
            proposals, matched, labels, codes = self.select_training_samples(proposals, targets)
        pooled = self.box_head(self.box_roi_pool(features, proposals, image_shapes))
        class_logits, box_regression = self.box_predictor(pooled)
        losses: dict[str, Tensor] = {}
        result: list[dict[str, Tensor]] = []
        if self.training:
            names = ("loss_classifier", "loss_box_reg")
            losses.update(zip(names, fastrcnn_loss(class_logits, box_regression, labels, codes)))
        else:
            result = self.postprocess_detections(class_logits, box_regression, proposals, image_shapes)
        if not self.has_mask():
            return result, losses
        if self.training:
            positive = [flambeau.where(label > 0)[0] for label in labels]
            boxes = [p[keep] for p, keep in zip(proposals, positive)]
            own = [m[keep] for m, keep in zip(matched, positive)]
            logits = self._masks(features, boxes, image_shapes)
            truth = ([t["masks"] for t in targets], [t["labels"] for t in targets])
            losses["loss_mask"] = maskrcnn_loss(logits, boxes, *truth, own)
        else:
            logits = self._masks(features, [r["boxes"] for r in result], image_shapes)
            label = flambeau.cat([r["labels"] for r in result])
            rows = flambeau.arange(logits.shape[0], device=logits.device)
            masks = logits.sigmoid()[rows, label][:, None]
            for detections, own_masks in zip(result, masks.split([len(r["labels"]) for r in result], 0)):
                detections["masks"] = own_masks
        return result, losses
