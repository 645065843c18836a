"""Pooling of boxes and deformable convolution, as functions and layers over the operators of `ops.torchvision`.

Boxes are rows (image, x1, y1, x2, y2), or a list with the boxes (x1, y1, x2, y2) of each image.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau import Tensor, nn

__all__ = [
    "DeformConv2d", "MultiScaleRoIAlign", "PSRoIAlign", "PSRoIPool", "RoIAlign", "RoIPool", "deform_conv2d",
    "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool",
]  # fmt: skip


def _pair(value: Any) -> tuple[Any, Any]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


def convert_boxes_to_roi_format(boxes: list[Tensor]) -> Tensor:
    """Boxes of each image as one tensor, with the number of the image in front."""
    joined = flambeau.cat(list(boxes), dim=0)
    images = [flambeau.full_like(box[:, :1], i) for i, box in enumerate(boxes)]
    return flambeau.cat([flambeau.cat(images, dim=0), joined], dim=1)


def _rows(op: str, boxes: Any) -> Tensor:
    if isinstance(boxes, Tensor):
        if boxes.dim() != 2 or boxes.shape[1] != 5:
            raise ValueError(f"[{op}] expected boxes of shape (boxes, 5), got {tuple(boxes.shape)}")
        return boxes
    if not all(box.dim() == 2 and box.shape[1] == 4 for box in boxes):
        raise ValueError(f"[{op}] expected boxes of shape (boxes, 4) for each image")
    return convert_boxes_to_roi_format(boxes)


def roi_align(
    input: Tensor,
    boxes: Any,
    output_size: Any,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """The mean of interpolated samples in every bin of every box."""
    rows, size = _rows("roi_align", boxes), _pair(output_size)
    return flambeau.ops.torchvision.roi_align(input, rows, spatial_scale, *size, sampling_ratio, aligned)


def roi_pool(input: Tensor, boxes: Any, output_size: Any, spatial_scale: float = 1.0) -> Tensor:
    """The maximum of the pixels in every bin of every box."""
    return flambeau.ops.torchvision.roi_pool(input, _rows("roi_pool", boxes), spatial_scale, *_pair(output_size))[0]


def ps_roi_align(
    input: Tensor, boxes: Any, output_size: Any, spatial_scale: float = 1.0, sampling_ratio: int = -1
) -> Tensor:
    """`roi_align` in which every bin has channels of its own."""
    rows, size = _rows("ps_roi_align", boxes), _pair(output_size)
    return flambeau.ops.torchvision.ps_roi_align(input, rows, spatial_scale, *size, sampling_ratio)[0]


def ps_roi_pool(input: Tensor, boxes: Any, output_size: Any, spatial_scale: float = 1.0) -> Tensor:
    """The mean of the pixels in every bin of every box, where every bin has channels of its own."""
    return flambeau.ops.torchvision.ps_roi_pool(input, _rows("ps_roi_pool", boxes), spatial_scale, *_pair(output_size))[0]  # fmt: skip


class _Pool(nn.Module):
    """A pooling function with its settings."""

    function: Any
    settings: tuple[str, ...] = ()

    def __init__(self, output_size: Any, spatial_scale: float, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        values = {"sampling_ratio": -1, "aligned": False, **dict(zip(self.settings, args)), **kwargs}
        for name in self.settings:
            setattr(self, name, values[name])

    def forward(self, input: Tensor, rois: Any) -> Tensor:
        options = {name: getattr(self, name) for name in self.settings}
        return type(self).function(input, rois, self.output_size, self.spatial_scale, **options)

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={getattr(self, k)}" for k in ("output_size", "spatial_scale", *self.settings))
        return f"{type(self).__name__}({shown})"


class RoIAlign(_Pool):
    function, settings = staticmethod(roi_align), ("sampling_ratio", "aligned")


class RoIPool(_Pool):
    function = staticmethod(roi_pool)


class PSRoIAlign(_Pool):
    function, settings = staticmethod(ps_roi_align), ("sampling_ratio",)


class PSRoIPool(_Pool):
    function = staticmethod(ps_roi_pool)


class MultiScaleRoIAlign(nn.Module):
    """`roi_align` of each box from the feature map whose scale fits its size."""

    def __init__(
        self,
        featmap_names: list[str],
        output_size: Any,
        sampling_ratio: int,
        *,
        canonical_scale: int = 224,
        canonical_level: int = 4,
    ) -> None:
        super().__init__()
        self.featmap_names, self.output_size = featmap_names, _pair(output_size)
        self.sampling_ratio = sampling_ratio
        self.canonical_scale, self.canonical_level = canonical_scale, canonical_level
        self.scales: list[float] | None = None

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]) -> Tensor:
        maps = [value for name, value in x.items() if name in self.featmap_names]
        largest = [max(shape[d] for shape in image_shapes) for d in (0, 1)]
        scales = [2 ** float(round(math.log2(m.shape[-2] / largest[0]))) for m in maps]
        self.scales = scales
        rois = convert_boxes_to_roi_format(boxes)
        pool: dict[str, Any] = {"output_size": self.output_size, "sampling_ratio": self.sampling_ratio}
        if len(maps) == 1:
            return roi_align(maps[0], rois, spatial_scale=scales[0], **pool)
        lowest, highest = -math.log2(scales[0]), -math.log2(scales[-1])
        sides = flambeau.sqrt((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2]))
        level = flambeau.floor(self.canonical_level + flambeau.log2(sides / self.canonical_scale) + 1e-6)
        level = level.clamp(lowest, highest).to(flambeau.int64) - int(lowest)
        result = maps[0].new_zeros(len(rois), maps[0].shape[1], *self.output_size)
        for i, (features, scale) in enumerate(zip(maps, scales)):
            own = flambeau.where(level == i)[0]
            result[own] = roi_align(features, rois[own], spatial_scale=scale, **pool).to(result.dtype)
        return result

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(featmap_names={self.featmap_names}, output_size={self.output_size}, "
            f"sampling_ratio={self.sampling_ratio})"
        )


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution that reads every tap at a shifted place, and scales it by a mask."""
    groups = input.shape[1] // weight.shape[1]
    offset_groups = offset.shape[1] // (2 * weight.shape[-2] * weight.shape[-1])
    if offset_groups == 0:
        raise RuntimeError(
            f"[deform_conv2d] expected the shape of the offset at dimension 1 to be a multiple of 2 * {weight.shape[-2]} * "
            f"{weight.shape[-1]}, got {offset.shape[1]}"
        )
    return flambeau.ops.torchvision.deform_conv2d(
        input, weight, offset, input.new_zeros((input.shape[0], 1)) if mask is None else mask,
        input.new_zeros(weight.shape[0]) if bias is None else bias, *_pair(stride), *_pair(padding), *_pair(dilation),
        groups, offset_groups, mask is not None,
    )  # fmt: skip


class DeformConv2d(nn.Module):
    """`deform_conv2d` with a weight of its own; offset and mask are arguments of the call."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(f"[DeformConv2d] expected channels divisible by {groups} groups, got {in_channels} and {out_channels}")  # fmt: skip
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation = _pair(padding), _pair(dilation)
        self.weight = nn.Parameter(flambeau.empty(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = nn.Parameter(flambeau.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight[0].numel())
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        window = (self.stride, self.padding, self.dilation)
        return deform_conv2d(input, offset, self.weight, self.bias, *window, mask=mask)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
