"""The transforms as modules, with the random ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import flambeau
from flambeau import nn
from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms.functional import InterpolationMode

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "FiveCrop", "GaussianBlur", "Grayscale",
    "InterpolationMode", "Lambda", "LinearTransformation", "Normalize", "PILToTensor", "Pad", "RandomAdjustSharpness",
    "RandomAffine", "RandomApply", "RandomAutocontrast", "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing",
    "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomPerspective", "RandomPosterize", "RandomResizedCrop",
    "RandomRotation", "RandomSolarize", "RandomVerticalFlip", "Resize", "TenCrop", "ToPILImage", "ToTensor",
]  # fmt: skip


def _uniform(low: float, high: float) -> float:
    return float(flambeau.empty(1).uniform_(float(low), float(high)))


def _integer(high: int) -> int:
    """One of 0 … high - 1."""
    return int(flambeau.randint(0, high, (1,)))


def _chance(p: float) -> bool:
    return float(flambeau.rand(1)) < p


def _pair(size: Any, message: str) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if not isinstance(size, Sequence) or len(size) not in (1, 2):
        raise ValueError(message)
    return (size[0], size[-1])


class _Shown(nn.Module):
    """Prints the arguments that it was made with."""

    _shown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = ((name, getattr(self, name)) for name in self._shown)
        values = (f"{name}={value.value if isinstance(value, Enum) else value}" for name, value in shown)
        return f"{type(self).__name__}({', '.join(values)})"


# ---------------------------------------------------------------------------------------------- combinations


class Compose:
    """Several transforms, one after another."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        inside = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({inside}\n)"


class Lambda:
    """A function as a transform."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"[Lambda] expected a function, got {type(lambd).__name__}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RandomApply(nn.Module):
    """All of the transforms, or none of them."""

    def __init__(self, transforms: Sequence[Any], p: float = 0.5) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, img: Any) -> Any:
        if _chance(self.p):
            for transform in self.transforms:
                img = transform(img)
        return img


class RandomOrder(Compose):
    """All transforms, in random order."""

    def __call__(self, img: Any) -> Any:
        for i in flambeau.randperm(len(self.transforms)).tolist():
            img = self.transforms[i](img)
        return img


class RandomChoice(Compose):
    """One of the transforms."""

    def __init__(self, transforms: Sequence[Any], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        self.p = p

    def __call__(self, img: Any) -> Any:
        chances = flambeau.tensor(self.p or [1.0] * len(self.transforms))
        return self.transforms[int(flambeau.multinomial(chances, 1))](img)


# ---------------------------------------------------------------------------------------------- conversion


class ToTensor:
    """A Pillow image or an array (H, W, C) of bytes as a tensor (C, H, W) of fractions."""

    def __call__(self, pic: Any) -> flambeau.Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor:
    """A Pillow image as a tensor (C, H, W) with the same values."""

    def __call__(self, pic: Any) -> flambeau.Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToPILImage:
    """A tensor (C, H, W) or an array (H, W, C) as a Pillow image."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)


class ConvertImageDtype(nn.Module):
    """Another dtype, with values in that dtype's range."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: flambeau.Tensor) -> flambeau.Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(_Shown):
    """(x - mean) / std for each channel."""

    _shown = ("mean", "std")

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: flambeau.Tensor) -> flambeau.Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)


class LinearTransformation(nn.Module):
    """The flattened tensor less a mean, times a matrix."""

    def __init__(self, transformation_matrix: flambeau.Tensor, mean_vector: flambeau.Tensor) -> None:
        super().__init__()
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def forward(self, tensor: flambeau.Tensor) -> flambeau.Tensor:
        flat = tensor.reshape(-1, self.transformation_matrix.shape[0]) - self.mean_vector
        return (flat @ self.transformation_matrix).reshape(tensor.shape)


# ---------------------------------------------------------------------------------------------- geometry


class Resize(_Shown):
    """A new size, or a new length of the shorter side."""

    _shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(
        self, size: Any, interpolation: Any = InterpolationMode.BILINEAR, max_size: Any = None, antialias: Any = True
    ) -> None:
        super().__init__()
        if not isinstance(size, (int, Sequence)):
            raise TypeError(f"[Resize] expected one or two numbers, got {size!r}")
        if isinstance(size, Sequence) and len(size) not in (1, 2):
            raise ValueError(f"[Resize] expected one or two numbers, got {size!r}")
        self.size, self.interpolation, self.max_size, self.antialias = size, F._mode(interpolation), max_size, antialias

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(_Shown):
    """The middle of the image."""

    _shown = ("size",)

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = _pair(size, f"[CenterCrop] expected one or two numbers, got {size!r}")

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(_Shown):
    """Pixels around the image."""

    _shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(_Shown):
    """A part of the given size from anywhere in the image, which may be padded before."""

    _shown = ("size", "padding")

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        _, height, width = F.get_dimensions(img)
        new_height, new_width = output_size
        if height < new_height or width < new_width:
            raise ValueError(f"[RandomCrop] expected an image of at least {output_size}, got {(height, width)}")
        if (height, width) == (new_height, new_width):
            return 0, 0, height, width
        return _integer(height - new_height + 1), _integer(width - new_width + 1), new_height, new_width

    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant"
    ) -> None:
        super().__init__()
        self.size = _pair(size, f"[RandomCrop] expected one or two numbers, got {size!r}")
        self.padding, self.pad_if_needed, self.fill, self.padding_mode = padding, pad_if_needed, fill, padding_mode

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, height, width = F.get_dimensions(img)
        if self.pad_if_needed and width < self.size[1]:
            img = F.pad(img, [self.size[1] - width, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and height < self.size[0]:
            img = F.pad(img, [0, self.size[0] - height], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class RandomResizedCrop(_Shown):
    """A part of random area and shape, resized."""

    _shown = ("size", "scale", "ratio", "interpolation", "antialias")

    def __init__(
        self,
        size: Any,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.size = _pair(size, f"[RandomResizedCrop] expected one or two numbers, got {size!r}")
        self.scale, self.ratio = scale, ratio
        self.interpolation, self.antialias = F._mode(interpolation), antialias

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
        _, height, width = F.get_dimensions(img)
        for _ in range(10):
            area = height * width * _uniform(*scale)
            shape = math.exp(_uniform(math.log(ratio[0]), math.log(ratio[1])))
            w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < w <= width and 0 < h <= height:
                return _integer(height - h + 1), _integer(width - w + 1), h, w
        # Nothing fitted: the middle, in the nearest shape allowed.
        w, h = width, height
        if width / height < min(ratio):
            h = round(w / min(ratio))
        elif width / height > max(ratio):
            w = round(h * max(ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img: Any) -> Any:
        place = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *place, self.size, self.interpolation, self.antialias)


class RandomHorizontalFlip(_Shown):
    """Left and right exchanged, sometimes."""

    _shown = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return F.hflip(img) if _chance(self.p) else img


class RandomVerticalFlip(RandomHorizontalFlip):
    """Top and bottom exchanged, sometimes."""

    def forward(self, img: Any) -> Any:
        return F.vflip(img) if _chance(self.p) else img


def _range(value: Any, name: str) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"[{name}] expected a number of at least zero, got {value}")
        return -value, value
    return value[0], value[1]


class RandomRotation(_Shown):
    """Rotation by a random angle."""

    _shown = ("degrees", "interpolation", "expand", "fill")

    def __init__(
        self, degrees: Any, interpolation: Any = InterpolationMode.NEAREST, expand: bool = False, center: Any = None,
        fill: Any = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.degrees = _range(degrees, "RandomRotation")
        self.interpolation, self.expand, self.center, self.fill = F._mode(interpolation), expand, center, fill

    @staticmethod
    def get_params(degrees: Sequence[float]) -> float:
        return _uniform(*degrees)

    def forward(self, img: Any) -> Any:
        return F.rotate(img, self.get_params(self.degrees), self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(_Shown):
    """Random rotation, translation, scale and shear."""

    _shown = ("degrees", "translate", "scale", "shear")

    def __init__(
        self, degrees: Any, translate: Any = None, scale: Any = None, shear: Any = None,
        interpolation: Any = InterpolationMode.NEAREST, fill: Any = 0, center: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.degrees, self.translate, self.scale = _range(degrees, "RandomAffine"), translate, scale
        self.shear = _range(shear, "RandomAffine") if isinstance(shear, (int, float)) else shear
        self.interpolation, self.fill, self.center = F._mode(interpolation), fill, center

    def forward(self, img: Any) -> Any:
        _, height, width = F.get_dimensions(img)
        move = [0, 0]
        if self.translate is not None:
            move = [round(_uniform(-t * n, t * n)) for t, n in zip(self.translate, (width, height))]
        scale = 1.0 if self.scale is None else _uniform(*self.scale)
        shear = [0.0, 0.0]
        if self.shear is not None:
            shear[0] = _uniform(self.shear[0], self.shear[1])
            shear[1] = _uniform(self.shear[2], self.shear[3]) if len(self.shear) == 4 else 0.0  # type: ignore[misc]
        return F.affine(img, _uniform(*self.degrees), move, scale, shear, self.interpolation, self.fill, self.center)


class FiveCrop(_Shown):
    """The four corners and the centre."""

    _shown = ("size",)

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = _pair(size, f"[FiveCrop] expected one or two numbers, got {size!r}")

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.five_crop(img, self.size)


class TenCrop(FiveCrop):
    """The same, and the same of the flipped image."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__(size)
        self.vertical_flip = vertical_flip

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.ten_crop(img, self.size, self.vertical_flip)


# ---------------------------------------------------------------------------------------------- colours


class ColorJitter(_Shown):
    """Brightness, contrast, saturation and hue changed at random, in random order."""

    _shown = ("brightness", "contrast", "saturation", "hue")

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        super().__init__()
        self.brightness = self._factor(brightness, "brightness")
        self.contrast = self._factor(contrast, "contrast")
        self.saturation = self._factor(saturation, "saturation")
        self.hue = self._factor(hue, "hue", center=0.0, low=-0.5, high=0.5, clip=False)

    @staticmethod
    def _factor(
        value: Any, name: str, center: float = 1.0, low: float = 0.0, high: float = math.inf, clip: bool = True
    ) -> tuple[float, float] | None:
        if isinstance(value, (int, float)):
            if value < 0:
                raise ValueError(f"[ColorJitter] expected {name} of at least zero, got {value}")
            pair = (max(center - value, 0.0) if clip else center - value, center + value)
        else:
            pair = (float(value[0]), float(value[1]))
        if not low <= pair[0] <= pair[1] <= high:
            raise ValueError(f"[ColorJitter] expected {name} within {low} and {high}, got {value}")
        return None if pair == (center, center) else pair

    def forward(self, img: Any) -> Any:
        changes = (
            (F.adjust_brightness, self.brightness),
            (F.adjust_contrast, self.contrast),
            (F.adjust_saturation, self.saturation),
            (F.adjust_hue, self.hue),
        )
        for i in flambeau.randperm(4).tolist():
            change, factors = changes[i]
            if factors is not None:
                img = change(img, _uniform(*factors))
        return img


class Grayscale(_Shown):
    """One channel of luma, or three equal ones."""

    _shown = ("num_output_channels",)

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)


class RandomGrayscale(_Shown):
    """No colours, sometimes; the number of channels stays."""

    _shown = ("p",)

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, F.get_dimensions(img)[0]) if _chance(self.p) else img


class RandomInvert(RandomHorizontalFlip):
    def forward(self, img: Any) -> Any:
        return F.invert(img) if _chance(self.p) else img


class RandomAutocontrast(RandomHorizontalFlip):
    def forward(self, img: Any) -> Any:
        return F.autocontrast(img) if _chance(self.p) else img


class RandomPosterize(_Shown):
    _shown = ("bits", "p")

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__()
        self.bits, self.p = bits, p

    def forward(self, img: Any) -> Any:
        return F.posterize(img, self.bits) if _chance(self.p) else img


class RandomSolarize(_Shown):
    _shown = ("threshold", "p")

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__()
        self.threshold, self.p = threshold, p

    def forward(self, img: Any) -> Any:
        return F.solarize(img, self.threshold) if _chance(self.p) else img


class GaussianBlur(_Shown):
    """Blur with a random width of the bell."""

    _shown = ("kernel_size", "sigma")

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = _pair(kernel_size, f"[GaussianBlur] expected one or two numbers, got {kernel_size!r}")
        if any(size <= 0 or size % 2 == 0 for size in self.kernel_size):
            raise ValueError(f"[GaussianBlur] expected odd sizes, got {kernel_size!r}")
        self.sigma = (sigma, sigma) if isinstance(sigma, (int, float)) else sigma

    def forward(self, img: Any) -> Any:
        spread = _uniform(*self.sigma)
        return F.gaussian_blur(img, self.kernel_size, [spread, spread])


class RandomErasing(nn.Module):
    """A random rectangle overwritten with a number, a colour or noise."""

    def __init__(
        self, p: float = 0.5, scale: Sequence[float] = (0.02, 0.33), ratio: Sequence[float] = (0.3, 3.3), value: Any = 0,
        inplace: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.p, self.scale, self.ratio, self.value, self.inplace = p, scale, ratio, value, inplace

    def forward(self, img: flambeau.Tensor) -> flambeau.Tensor:
        if not _chance(self.p):
            return img
        channels, height, width = img.shape[-3:]
        for _ in range(10):
            area = height * width * _uniform(*self.scale)
            shape = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            h, w = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if h < height and w < width:
                if self.value == "random":
                    value = flambeau.randn(channels, h, w)
                else:
                    colors = [self.value] if isinstance(self.value, (int, float)) else list(self.value)
                    value = flambeau.tensor(colors).view(-1, 1, 1)
                return F.erase(img, _integer(height - h + 1), _integer(width - w + 1), h, w, value, self.inplace)
        return img


class RandomAdjustSharpness(nn.Module):
    """Sharper or softer, sometimes."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__()
        self.sharpness_factor, self.p = sharpness_factor, p

    def forward(self, img: Any) -> Any:
        if not _chance(self.p):
            return img
        return F.adjust_sharpness(img, self.sharpness_factor)


class RandomEqualize(RandomHorizontalFlip):
    def forward(self, img: Any) -> Any:
        return F.equalize(img) if _chance(self.p) else img


class RandomPerspective(_Shown):
    """Corners moved inwards by random parts of the size, sometimes."""

    _shown = ("p",)

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = InterpolationMode.BILINEAR,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        self.distortion_scale, self.p, self.interpolation, self.fill = distortion_scale, p, interpolation, fill

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float) -> tuple[list[list[int]], list[list[int]]]:
        across, down = (int(distortion_scale * (n // 2)) for n in (width, height))
        ends = []
        for right, bottom in ((0, 0), (1, 0), (1, 1), (0, 1)):
            dx, dy = _integer(across + 1), _integer(down + 1)
            ends.append([width - 1 - dx if right else dx, height - 1 - dy if bottom else dy])
        return [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], ends

    def forward(self, img: Any) -> Any:
        if not _chance(self.p):
            return img
        _, height, width = F.get_dimensions(img)
        starts, ends = self.get_params(width, height, self.distortion_scale)
        return F.perspective(img, starts, ends, self.interpolation, self.fill)
