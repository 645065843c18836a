"""Images of different sizes as one batch, and results in the sizes that the images had."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

__all__ = ["GeneralizedRCNNTransform", "ImageList"]


class ImageList:
    """A batch of padded images, and the size of each without padding."""

    def __init__(self, tensors: Tensor, image_sizes: list[tuple[int, int]]) -> None:
        self.tensors, self.image_sizes = tensors, image_sizes

    def to(self, device: Any) -> ImageList:
        return ImageList(self.tensors.to(device), self.image_sizes)


def resize_boxes(boxes: Tensor, original_size: Any, new_size: Any) -> Tensor:
    down, across = (float(new) / float(old) for new, old in zip(new_size, original_size))
    return boxes * flambeau.tensor([across, down, across, down], dtype=boxes.dtype, device=boxes.device)


class GeneralizedRCNNTransform(nn.Module):
    """Normalises, resizes so that the shorter side is min_size and the longer at most max_size, and pads to a batch."""

    def __init__(
        self,
        min_size: Any,
        max_size: int,
        image_mean: list[float],
        image_std: list[float],
        size_divisible: int = 32,
        fixed_size: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.min_size = tuple(min_size) if isinstance(min_size, (list, tuple)) else (min_size,)
        self.max_size, self.image_mean, self.image_std = max_size, image_mean, image_std
        self.size_divisible, self.fixed_size = size_divisible, fixed_size
        self._skip_resize = options.pop("_skip_resize", False)

    def forward(self, images: list[Tensor], targets: Any = None) -> tuple[ImageList, Any]:
        targets = None if targets is None else [dict(target) for target in targets]
        prepared = []
        for i, image in enumerate(images):
            if image.dim() != 3:
                raise ValueError(
                    f"[GeneralizedRCNNTransform] expected images of shape (C, H, W), got {tuple(image.shape)}"
                )
            image, target = self.resize(self.normalize(image), targets[i] if targets else None)
            prepared.append(image)
            if targets:
                targets[i] = target
        return ImageList(self.batch_images(prepared), [tuple(image.shape[-2:]) for image in prepared]), targets  # type: ignore[misc]

    def normalize(self, image: Tensor) -> Tensor:
        if not image.is_floating_point():
            raise TypeError(f"[GeneralizedRCNNTransform] expected images of a floating dtype, got {image.dtype}")
        mean, std = (flambeau.as_tensor(x, dtype=image.dtype, device=image.device) for x in (self.image_mean, self.image_std))  # fmt: skip
        return (image - mean[:, None, None]) / std[:, None, None]

    def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
        if self._skip_resize and self.training:
            return image, target
        old = tuple(image.shape[-2:])
        if self.training:
            size = self.min_size[int(flambeau.empty(1).uniform_(0.0, float(len(self.min_size))).item())]
        else:
            size = self.min_size[-1]
        how: dict[str, Any] = {"size": None, "scale_factor": None, "recompute_scale_factor": None}
        if self.fixed_size is not None:
            how["size"] = [self.fixed_size[1], self.fixed_size[0]]
        else:
            how["scale_factor"] = min(size / min(old), self.max_size / max(old))
            how["recompute_scale_factor"] = True
        image = F.interpolate(image[None], mode="bilinear", align_corners=False, **how)[0]
        if target is None:
            return image, None
        target["boxes"] = resize_boxes(target["boxes"], old, image.shape[-2:])
        if "masks" in target:
            target["masks"] = F.interpolate(target["masks"][:, None].float(), **how)[:, 0].byte()
        return image, target

    def batch_images(self, images: list[Tensor], size_divisible: int | None = None) -> Tensor:
        step = size_divisible or self.size_divisible
        height, width = (math.ceil(max(image.shape[d] for image in images) / step) * step for d in (1, 2))
        batch = images[0].new_zeros(len(images), images[0].shape[0], height, width)
        for i, image in enumerate(images):
            batch[i, :, : image.shape[1], : image.shape[2]].copy_(image)
        return batch

    def postprocess(self, result: list[dict[str, Tensor]], image_shapes: Any, original_image_sizes: Any) -> Any:
        """Boxes and masks in the sizes of the images as they came."""
        if self.training:
            return result
        for detections, size, original in zip(result, image_shapes, original_image_sizes):
            detections["boxes"] = resize_boxes(detections["boxes"], size, original)
            if "masks" in detections:
                from flambeau.vision.models.detection.roi_heads import paste_masks_in_image

                detections["masks"] = paste_masks_in_image(detections["masks"], detections["boxes"], original)
        return result
