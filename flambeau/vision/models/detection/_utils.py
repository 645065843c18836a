"""What detectors share: codes of boxes, matching, sampling, focal classification targets."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.vision.ops import FrozenBatchNorm2d
from flambeau.vision.ops import boxes as box_ops


def _centers_and_sizes(boxes: Tensor) -> tuple[Tensor, Tensor]:
    sizes = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + 0.5 * sizes, sizes


class BoxCoder:
    """Boxes relative to others: shift of the centre by sizes, and logarithms of the ratios of sizes, each times a weight."""

    def __init__(
        self, weights: tuple[float, float, float, float], bbox_xform_clip: float = math.log(1000.0 / 16)
    ) -> None:
        self.weights, self.bbox_xform_clip = weights, bbox_xform_clip

    def encode(self, reference_boxes: list[Tensor], proposals: list[Tensor]) -> tuple[Tensor, ...]:
        targets = self.encode_single(flambeau.cat(reference_boxes, dim=0), flambeau.cat(proposals, dim=0))
        return targets.split([len(b) for b in reference_boxes], 0)  # type: ignore[return-value]

    def encode_single(self, reference_boxes: Tensor, proposals: Tensor) -> Tensor:
        weights = flambeau.as_tensor(self.weights, dtype=reference_boxes.dtype, device=reference_boxes.device)
        center, size = _centers_and_sizes(proposals)
        wanted_center, wanted_size = _centers_and_sizes(reference_boxes)
        return weights * flambeau.cat(((wanted_center - center) / size, flambeau.log(wanted_size / size)), dim=1)

    def decode(self, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
        """(boxes, classes, 4)."""
        count = sum(b.shape[0] for b in boxes)
        codes = rel_codes.reshape(count, -1) if count > 0 else rel_codes
        decoded = self.decode_single(codes, flambeau.cat(boxes, dim=0))
        return decoded.reshape(count, -1, 4) if count > 0 else decoded

    def decode_single(self, rel_codes: Tensor, boxes: Tensor) -> Tensor:
        center, size = _centers_and_sizes(boxes.to(rel_codes.dtype))
        codes = rel_codes.reshape(*rel_codes.shape[:-1], rel_codes.shape[-1] // 4, 4)
        codes = codes / flambeau.as_tensor(self.weights, dtype=codes.dtype, device=codes.device)
        center, size = center.unsqueeze(-2), size.unsqueeze(-2)
        new_center = codes[..., :2] * size + center
        half = 0.5 * flambeau.exp(codes[..., 2:].clamp(max=self.bbox_xform_clip)) * size
        return flambeau.cat((new_center - half, new_center + half), dim=-1).flatten(-2)


class BoxLinearCoder:
    """Boxes as distances of their sides from the centres of others."""

    def __init__(self, normalize_by_size: bool = True) -> None:
        self.normalize_by_size = normalize_by_size

    def _scale(self, boxes: Tensor) -> Any:
        sizes = boxes[..., 2:] - boxes[..., :2]
        return flambeau.cat((sizes, sizes), dim=-1) if self.normalize_by_size else 1.0

    def encode(self, reference_boxes: Tensor, proposals: Tensor) -> Tensor:
        center, _ = _centers_and_sizes(reference_boxes)
        sides = flambeau.cat((center - proposals[..., :2], proposals[..., 2:] - center), dim=-1)
        return sides / self._scale(reference_boxes)

    def decode(self, rel_codes: Tensor, boxes: Tensor) -> Tensor:
        boxes = boxes.to(dtype=rel_codes.dtype)
        center, _ = _centers_and_sizes(boxes)
        sides = rel_codes * self._scale(boxes)
        return flambeau.cat((center - sides[..., :2], center + sides[..., 2:]), dim=-1)


class Matcher:
    """The best ground truth of each prediction, -1 where the overlap is below the lower threshold and -2 in between."""

    BELOW_LOW_THRESHOLD, BETWEEN_THRESHOLDS = -1, -2

    def __init__(self, high_threshold: float, low_threshold: float, allow_low_quality_matches: bool = False) -> None:
        self.high_threshold, self.low_threshold = high_threshold, low_threshold
        self.allow_low_quality_matches = allow_low_quality_matches

    def __call__(self, match_quality_matrix: Tensor) -> Tensor:
        if match_quality_matrix.numel() == 0:
            raise ValueError("[Matcher] expected ground-truth boxes and proposals, got none of one of them")
        values, matches = match_quality_matrix.max(dim=0)
        best = matches.clone()
        matches[values < self.low_threshold] = self.BELOW_LOW_THRESHOLD
        between = (values >= self.low_threshold) & (values < self.high_threshold)
        matches[between] = self.BETWEEN_THRESHOLDS
        if self.allow_low_quality_matches:
            # The predictions that some ground truth overlaps most, ties included.
            highest, _ = match_quality_matrix.max(dim=1)
            _, predictions = flambeau.where(match_quality_matrix == highest[:, None])
            matches[predictions] = best[predictions]
        return matches


class SSDMatcher(Matcher):
    """Every ground truth gets the prediction that overlaps it most."""

    def __init__(self, threshold: float) -> None:
        super().__init__(threshold, threshold, allow_low_quality_matches=False)

    def __call__(self, match_quality_matrix: Tensor) -> Tensor:
        matches = super().__call__(match_quality_matrix)
        _, best = match_quality_matrix.max(dim=1)
        matches[best] = flambeau.arange(best.shape[0], dtype=flambeau.int64, device=best.device)
        return matches


class BalancedPositiveNegativeSampler:
    """Random masks of positives (labels above 0) and negatives (0), of which at most a share is positive."""

    def __init__(self, batch_size_per_image: int, positive_fraction: float) -> None:
        self.batch_size_per_image, self.positive_fraction = batch_size_per_image, positive_fraction

    def __call__(self, matched_idxs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        masks: tuple[list[Tensor], list[Tensor]] = ([], [])
        for labels in matched_idxs:
            positive, negative = flambeau.where(labels >= 1)[0], flambeau.where(labels == 0)[0]
            most = min(positive.numel(), int(self.batch_size_per_image * self.positive_fraction))
            counts = (most, min(negative.numel(), self.batch_size_per_image - most))
            for target, places, count in zip(masks, (positive, negative), counts):
                chosen = places[flambeau.randperm(places.numel(), device=places.device)[:count]]
                mask = flambeau.zeros_like(labels, dtype=flambeau.uint8)
                mask[chosen] = 1
                target.append(mask)
        return masks


def overwrite_eps(model: nn.Module, eps: float) -> None:
    """Old weights were trained with another eps."""
    for module in model.modules():
        if isinstance(module, FrozenBatchNorm2d):
            module.eps = eps


def check_targets(op: str, targets: Any) -> None:
    """Boxes of every image: (boxes, 4), with positive width and height."""
    if targets is None:
        raise AssertionError(f"[{op}] expected targets in training mode, got None")
    for i, target in enumerate(targets):
        boxes = target["boxes"]
        if not isinstance(boxes, Tensor) or boxes.dim() != 2 or boxes.shape[-1] != 4:
            raise AssertionError(
                f"[{op}] expected target boxes of shape (boxes, 4), got {getattr(boxes, 'shape', boxes)}"
            )
        flat = boxes[:, 2:] <= boxes[:, :2]
        if bool(flat.any()):
            shown = boxes[flambeau.where(flat.any(dim=1))[0][0]].tolist()
            raise AssertionError(f"[{op}] expected boxes with positive height and width, got {shown} for target {i}")


def keep_best(boxes: Tensor, scores: Tensor, labels: Tensor, threshold: float, count: int) -> dict[str, Tensor]:
    """Detections of one image after suppression within each class."""
    chosen = box_ops.batched_nms(boxes, scores, labels, threshold)[:count]
    return {"boxes": boxes[chosen], "scores": scores[chosen], "labels": labels[chosen]}
