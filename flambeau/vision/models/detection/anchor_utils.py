"""Anchors: boxes of fixed sizes and shapes at every place of the feature maps."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.vision.models.detection.transform import ImageList

__all__ = ["AnchorGenerator", "DefaultBoxGenerator"]


class AnchorGenerator(nn.Module):
    """sizes and aspect_ratios: a tuple for each feature map; the ratios are of height to width."""

    def __init__(self, sizes: Any = ((128, 256, 512),), aspect_ratios: Any = ((0.5, 1.0, 2.0),)) -> None:
        super().__init__()
        if not isinstance(sizes[0], (list, tuple)):
            sizes = tuple((size,) for size in sizes)
        if not isinstance(aspect_ratios[0], (list, tuple)):
            aspect_ratios = (aspect_ratios,) * len(sizes)
        self.sizes, self.aspect_ratios = sizes, aspect_ratios
        self.cell_anchors = [self.generate_anchors(s, a) for s, a in zip(sizes, aspect_ratios)]

    def generate_anchors(self, scales: Any, aspect_ratios: Any, dtype: Any = None, device: Any = None) -> Tensor:
        scales = flambeau.as_tensor(scales, dtype=dtype or flambeau.float32, device=device)
        ratios = flambeau.sqrt(flambeau.as_tensor(aspect_ratios, dtype=dtype or flambeau.float32, device=device))
        width, height = (((1 / ratios)[:, None] * scales).view(-1), (ratios[:, None] * scales).view(-1))
        return (flambeau.stack([-width, -height, width, height], dim=1) / 2).round()

    def num_anchors_per_location(self) -> list[int]:
        return [len(s) * len(a) for s, a in zip(self.sizes, self.aspect_ratios)]

    def forward(self, image_list: ImageList, feature_maps: list[Tensor]) -> list[Tensor]:
        """All anchors of each image."""
        if len(feature_maps) != len(self.cell_anchors):
            raise ValueError(
                f"[AnchorGenerator] expected {len(self.cell_anchors)} feature maps, one for each tuple of sizes, got {len(feature_maps)}"
            )
        size, first = image_list.tensors.shape[-2:], feature_maps[0]
        levels = []
        for features, cell in zip(feature_maps, self.cell_anchors):
            axes = [
                flambeau.arange(n, dtype=flambeau.int32, device=first.device) * (whole // n)
                for n, whole in zip(features.shape[-2:], size)
            ]
            y, x = (axis.reshape(-1) for axis in flambeau.meshgrid(*axes, indexing="ij"))
            shifts = flambeau.stack((x, y, x, y), dim=1).view(-1, 1, 4)
            levels.append((shifts + cell.to(first).view(1, -1, 4)).reshape(-1, 4))
        return [flambeau.cat(levels) for _ in image_list.image_sizes]


class DefaultBoxGenerator(nn.Module):
    """Boxes of SSD: for each feature map one of its scale, one between it and the next, and those of other ratios."""

    def __init__(
        self,
        aspect_ratios: list[list[int]],
        min_ratio: float = 0.15,
        max_ratio: float = 0.9,
        scales: list[float] | None = None,
        steps: list[int] | None = None,
        clip: bool = True,
    ) -> None:
        super().__init__()
        if steps is not None and len(aspect_ratios) != len(steps):
            raise ValueError(f"[DefaultBoxGenerator] expected {len(aspect_ratios)} steps, got {len(steps)}")
        self.aspect_ratios, self.steps, self.clip = aspect_ratios, steps, clip
        count = len(aspect_ratios)
        if scales is None:
            span = max_ratio - min_ratio
            scales = (
                [min_ratio + span * k / (count - 1.0) for k in range(count)] if count > 1 else [min_ratio, max_ratio]
            )
            scales = [*scales, 1.0] if count > 1 else scales
        self.scales = scales
        self._wh_pairs = [self._pairs(k) for k in range(count)]

    def _pairs(self, k: int) -> Tensor:
        scale, between = self.scales[k], math.sqrt(self.scales[k] * self.scales[k + 1])
        pairs = [[scale, scale], [between, between]]
        for ratio in self.aspect_ratios[k]:
            width, height = scale * math.sqrt(ratio), scale / math.sqrt(ratio)
            pairs += [[width, height], [height, width]]
        return flambeau.as_tensor(pairs, dtype=flambeau.float32)

    def num_anchors_per_location(self) -> list[int]:
        return [2 + 2 * len(ratios) for ratios in self.aspect_ratios]

    def forward(self, image_list: ImageList, feature_maps: list[Tensor]) -> list[Tensor]:
        size, first = image_list.tensors.shape[-2:], feature_maps[0]
        levels = []
        for k, features in enumerate(feature_maps):
            height, width = features.shape[-2:]
            rows, columns = (size[0] / self.steps[k], size[1] / self.steps[k]) if self.steps else (height, width)
            x = (flambeau.arange(width, dtype=first.dtype, device=first.device) + 0.5) / columns
            y = (flambeau.arange(height, dtype=first.dtype, device=first.device) + 0.5) / rows
            y, x = (axis.reshape(-1) for axis in flambeau.meshgrid(y, x, indexing="ij"))
            pairs = self._wh_pairs[k].to(first)
            pairs = pairs.clamp(0, 1) if self.clip else pairs
            places = flambeau.stack((x, y), dim=-1)[:, None].expand(-1, len(pairs), 2)
            levels.append(flambeau.cat((places, pairs.expand(len(places), -1, 2)), dim=-1).reshape(-1, 4))
        boxes = flambeau.cat(levels)
        whole = flambeau.tensor([size[1], size[0]], dtype=boxes.dtype, device=boxes.device)
        corners = flambeau.cat(
            ((boxes[:, :2] - 0.5 * boxes[:, 2:]) * whole, (boxes[:, :2] + 0.5 * boxes[:, 2:]) * whole), -1
        )
        return [corners for _ in image_list.image_sizes]
