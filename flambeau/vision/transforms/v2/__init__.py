"""The second version of the transforms: of images together with their videos, masks and boxes, in any nesting.

`transform(image, {"boxes": boxes, "masks": masks})` gives all of them, moved in the same way. What is no image, video, mask
or box is passed through; of plain tensors, the first is the image where there is no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau
import flambeau.vision.transforms.v2.functional as functional
from flambeau import Tensor, nn
from flambeau.utils._pytree import tree_flatten, tree_unflatten
from flambeau.vision import tv_tensors
from flambeau.vision.transforms import autoaugment
from flambeau.vision.transforms import transforms as first
from flambeau.vision.transforms.autoaugment import AutoAugmentPolicy
from flambeau.vision.transforms.functional import InterpolationMode, _is_pillow
from flambeau.vision.transforms.transforms import _chance, _integer, _uniform

F = functional


def query_size(flat_inputs: list[Any]) -> tuple[int, int]:
    """(height, width) that the inputs share."""
    kinds = (tv_tensors.Image, tv_tensors.Video, tv_tensors.Mask, tv_tensors.BoundingBoxes)
    sizes = {tuple(F.get_size(x)) for x in flat_inputs if isinstance(x, kinds) or F.is_pure_tensor(x) or _is_pillow(x)}
    if len(sizes) != 1:
        raise ValueError(f"[transforms] expected inputs of one size, got {sorted(sizes) or 'none'}")
    return sizes.pop()  # type: ignore[return-value]


class Transform(nn.Module):
    """Base: `make_params(flat_inputs)` draws numbers once for all inputs, `transform(inpt, params)` is called for each."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        raise NotImplementedError

    def _chosen(self, flat_inputs: list[Any]) -> list[bool]:
        images = any(isinstance(x, (tv_tensors.Image, tv_tensors.Video)) or _is_pillow(x) for x in flat_inputs)
        wanted, plain = [], not images
        for x in flat_inputs:
            if F.is_pure_tensor(x):
                wanted.append(plain)
                plain = False
            else:
                wanted.append(isinstance(x, tv_tensors.TVTensor) or _is_pillow(x))
        return wanted

    def forward(self, *inputs: Any) -> Any:
        flat, spec = tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        chosen = self._chosen(flat)
        params = self.make_params([x for x, wanted in zip(flat, chosen) if wanted])
        return tree_unflatten([self.transform(x, params) if w else x for x, w in zip(flat, chosen)], spec)

    def extra_repr(self) -> str:
        shown = {k: v for k, v in vars(self).items() if not k.startswith("_") and k != "training"}
        return ", ".join(f"{k}={v}" for k, v in shown.items() if isinstance(v, (bool, str, int, float, tuple, list)))


class Identity(Transform):
    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return inpt


# ---------------------------------------------------------------- combinations


class Compose(Transform):
    """Several transforms, one after another."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        super().__init__()
        if not isinstance(transforms, Sequence) or not transforms:
            raise TypeError("[Compose] expected a sequence of at least one transform")
        self.transforms = transforms

    def forward(self, *inputs: Any) -> Any:
        several = len(inputs) > 1
        for transform in self.transforms:
            outputs = transform(*inputs)
            inputs = outputs if several else (outputs,)
        return outputs

    def extra_repr(self) -> str:
        return "\n".join(f"    {t}" for t in self.transforms)


class RandomApply(Compose):
    """All of the transforms with probability p, else none."""

    def __init__(self, transforms: Sequence[Callable[..., Any]], p: float = 0.5) -> None:
        super().__init__(transforms)
        self.p = p

    def forward(self, *inputs: Any) -> Any:
        if not _chance(self.p):
            return inputs if len(inputs) > 1 else inputs[0]
        return super().forward(*inputs)


class RandomChoice(Compose):
    """One of the transforms, by its probability."""

    def __init__(self, transforms: Sequence[Callable[..., Any]], p: list[float] | None = None) -> None:
        super().__init__(transforms)
        self.p = [1 / len(transforms)] * len(transforms) if p is None else [x / sum(p) for x in p]

    def forward(self, *inputs: Any) -> Any:
        return self.transforms[int(flambeau.multinomial(flambeau.tensor(self.p), 1))](*inputs)


class RandomOrder(Compose):
    """All of the transforms in a random order."""

    def forward(self, *inputs: Any) -> Any:
        order = flambeau.randperm(len(self.transforms)).tolist()
        return Compose([self.transforms[i] for i in order])(*inputs)


class Lambda(Transform):
    """A function of the inputs of some types."""

    def __init__(self, lambd: Callable[[Any], Any], *types: type) -> None:
        super().__init__()
        self.lambd, self.types = lambd, types or (object,)

    def forward(self, *inputs: Any) -> Any:
        flat, spec = tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        return tree_unflatten([self.lambd(x) if isinstance(x, self.types) else x for x in flat], spec)


# ---------------------------------------------------------------- transforms that are a function with settings


class _Settings(Transform):
    """A function of `functional` with the arguments of the constructor, which `names` lists with their defaults."""

    function: str
    names: tuple[tuple[Any, ...], ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        values = dict(zip((name for name, *_ in self.names), args))
        unknown = set(kwargs) - {name for name, *_ in self.names}
        if unknown or len(args) > len(self.names):
            raise TypeError(f"[{type(self).__name__}] expected arguments among {[n for n, *_ in self.names]}, got {sorted(unknown)}")  # fmt: skip
        values.update(kwargs)
        for name, *default in self.names:
            if name not in values and not default:
                raise TypeError(f"[{type(self).__name__}] expected a value for {name}")
            setattr(self, name, values[name] if name in values else default[0])

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return getattr(F, self.function)(inpt, *(getattr(self, name) for name, *_ in self.names if name != "p"))


class _Sometimes(_Settings):
    """The same with probability p."""

    names = (("p", 0.5),)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"apply": _chance(self.p)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return super().transform(inpt, params) if params["apply"] else inpt


_SMOOTH, _NEAR = ("interpolation", InterpolationMode.BILINEAR), ("interpolation", InterpolationMode.NEAREST)


def _defined(base: type, name: str, function: str, *names: tuple[Any, ...]) -> Any:
    """A class of transforms over a function."""
    return type(name, (base,), {"function": function, "names": names or base.names, "__module__": __name__})


Resize = _defined(_Settings, "Resize", "resize", ("size",), _SMOOTH, ("max_size", None), ("antialias", True))
CenterCrop = _defined(_Settings, "CenterCrop", "center_crop", ("size",))
Pad = _defined(_Settings, "Pad", "pad", ("padding",), ("fill", 0), ("padding_mode", "constant"))
Normalize = _defined(_Settings, "Normalize", "normalize", ("mean",), ("std",), ("inplace", False))
Grayscale = _defined(_Settings, "Grayscale", "rgb_to_grayscale", ("num_output_channels", 1))
RGB = _defined(_Settings, "RGB", "grayscale_to_rgb")
GaussianNoise = _defined(_Settings, "GaussianNoise", "gaussian_noise", ("mean", 0.0), ("sigma", 0.1), ("clip", True))
RandomHorizontalFlip = _defined(_Sometimes, "RandomHorizontalFlip", "horizontal_flip")
RandomVerticalFlip = _defined(_Sometimes, "RandomVerticalFlip", "vertical_flip")
RandomInvert = _defined(_Sometimes, "RandomInvert", "invert")
RandomAutocontrast = _defined(_Sometimes, "RandomAutocontrast", "autocontrast")
RandomEqualize = _defined(_Sometimes, "RandomEqualize", "equalize")
RandomPosterize = _defined(_Sometimes, "RandomPosterize", "posterize", ("bits",), ("p", 0.5))
RandomSolarize = _defined(_Sometimes, "RandomSolarize", "solarize", ("threshold",), ("p", 0.5))
RandomAdjustSharpness = _defined(_Sometimes, "RandomAdjustSharpness", "adjust_sharpness", ("sharpness_factor",), ("p", 0.5))  # fmt: skip


class RandomGrayscale(_Sometimes):
    """Without colour with probability p, with as many channels as before."""

    names = (("p", 0.1),)

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if not params["apply"] or isinstance(inpt, (tv_tensors.Mask, tv_tensors.BoundingBoxes)):
            return inpt
        return F.rgb_to_grayscale(inpt, F.get_num_channels(inpt))


# ---------------------------------------------------------------- random geometry


class RandomCrop(Transform):
    """A part of a fixed size, after padding."""

    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant"
    ) -> None:
        super().__init__()
        self.size = (size, size) if isinstance(size, int) else (size[0], size[-1])
        self.padding, self.pad_if_needed, self.fill, self.padding_mode = padding, pad_if_needed, fill, padding_mode

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        sides = [0] * 4
        if self.padding is not None:
            own = [self.padding] if isinstance(self.padding, int) else list(self.padding)
            sides = own * (4 // len(own))
        if self.pad_if_needed:
            across = max(0, self.size[1] - width - sides[0] - sides[2])
            down = max(0, self.size[0] - height - sides[1] - sides[3])
            sides = [sides[0] + across, sides[1] + down, sides[2] + across, sides[3] + down]
        height, width = height + sides[1] + sides[3], width + sides[0] + sides[2]
        if height < self.size[0] or width < self.size[1]:
            raise ValueError(f"[RandomCrop] expected an image of at least {self.size}, got {(height, width)}")
        place = (_integer(height - self.size[0] + 1), _integer(width - self.size[1] + 1))
        return {"padding": sides if any(sides) else None, "place": place}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if params["padding"] is not None:
            inpt = F.pad(inpt, params["padding"], self.fill, self.padding_mode)
        return F.crop(inpt, *params["place"], *self.size)


class RandomResizedCrop(Transform):
    """A part of random size and shape, resized."""

    def __init__(
        self,
        size: Any,
        scale: Any = (0.08, 1.0),
        ratio: Any = (3 / 4, 4 / 3),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.size = (size, size) if isinstance(size, int) else (size[0], size[-1])
        self.scale, self.ratio, self.interpolation, self.antialias = scale, ratio, interpolation, antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        canvas = flambeau.empty(1, *query_size(flat_inputs), device="meta")
        return {"place": first.RandomResizedCrop.get_params(canvas, self.scale, self.ratio)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.resized_crop(inpt, *params["place"], list(self.size), self.interpolation, self.antialias)  # type: ignore[call-arg]


class RandomRotation(Transform):
    """By a random angle."""

    def __init__(
        self,
        degrees: Any,
        interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Any = None,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        self.degrees = (-degrees, degrees) if isinstance(degrees, (int, float)) else tuple(degrees)
        self.interpolation, self.expand, self.center, self.fill = interpolation, expand, center, fill

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"angle": _uniform(*self.degrees)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.rotate(inpt, params["angle"], self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(Transform):
    """By a random angle, shift, scale and shear."""

    def __init__(
        self,
        degrees: Any,
        translate: Any = None,
        scale: Any = None,
        shear: Any = None,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = 0,
        center: Any = None,
    ) -> None:
        super().__init__()
        self.degrees = (-degrees, degrees) if isinstance(degrees, (int, float)) else tuple(degrees)
        self.translate, self.scale = translate, scale
        self.shear = (-shear, shear) if isinstance(shear, (int, float)) else shear
        self.interpolation, self.fill, self.center = interpolation, fill, center

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        shift = [0, 0]
        if self.translate is not None:
            shift = [round(_uniform(-part * n, part * n)) for part, n in zip(self.translate, (width, height))]
        shear = [0.0, 0.0]
        if self.shear is not None:
            shear[0] = _uniform(self.shear[0], self.shear[1])
            shear[1] = _uniform(self.shear[2], self.shear[3]) if len(self.shear) == 4 else 0.0  # type: ignore[misc]
        scale = 1.0 if self.scale is None else _uniform(*self.scale)
        return {"angle": _uniform(*self.degrees), "translate": shift, "scale": scale, "shear": shear}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.affine(inpt, **params, interpolation=self.interpolation, fill=self.fill, center=self.center)


class RandomPerspective(Transform):
    """Corners moved inwards by random parts of the size, with probability p."""

    def __init__(self, distortion_scale: float = 0.5, p: float = 0.5, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = 0) -> None:  # fmt: skip
        super().__init__()
        self.distortion_scale, self.p, self.interpolation, self.fill = distortion_scale, p, interpolation, fill

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        if not _chance(self.p):
            return {}
        height, width = query_size(flat_inputs)
        starts, ends = first.RandomPerspective.get_params(width, height, self.distortion_scale)
        return {"startpoints": starts, "endpoints": ends}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.perspective(inpt, **params, interpolation=self.interpolation, fill=self.fill) if params else inpt


class RandomZoomOut(Transform):
    """The image somewhere in a larger one, with probability p."""

    def __init__(self, fill: Any = 0, side_range: Any = (1.0, 4.0), p: float = 0.5) -> None:
        super().__init__()
        self.fill, self.side_range, self.p = fill, side_range, p

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        if not _chance(self.p):
            return {}
        height, width = query_size(flat_inputs)
        factor = _uniform(*self.side_range)
        high, wide = int(height * factor), int(width * factor)
        left, top = int((wide - width) * _uniform(0, 1)), int((high - height) * _uniform(0, 1))
        return {"padding": [left, top, wide - width - left, high - height - top]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.pad(inpt, params["padding"], self.fill) if params else inpt


class ScaleJitter(Transform):
    """Resized by a random factor of a target size, keeping the shape."""

    def __init__(self, target_size: tuple[int, int], scale_range: Any = (0.1, 2.0), interpolation: Any = InterpolationMode.BILINEAR, antialias: bool | None = True) -> None:  # fmt: skip
        super().__init__()
        self.target_size, self.scale_range = target_size, scale_range
        self.interpolation, self.antialias = interpolation, antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        ratio = min(self.target_size[0] / height, self.target_size[1] / width) * _uniform(*self.scale_range)
        return {"size": [int(height * ratio), int(width * ratio)]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.resize(inpt, params["size"], self.interpolation, antialias=self.antialias)


class RandomShortestSize(Transform):
    """Resized so that the shorter side is one of several sizes."""

    def __init__(self, min_size: Any, max_size: int | None = None, interpolation: Any = InterpolationMode.BILINEAR, antialias: bool | None = True) -> None:  # fmt: skip
        super().__init__()
        self.min_size = [min_size] if isinstance(min_size, int) else list(min_size)
        self.max_size, self.interpolation, self.antialias = max_size, interpolation, antialias

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        height, width = query_size(flat_inputs)
        ratio = self.min_size[_integer(len(self.min_size))] / min(height, width)
        if self.max_size is not None:
            ratio = min(ratio, self.max_size / max(height, width))
        return {"size": [int(height * ratio), int(width * ratio)]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.resize(inpt, params["size"], self.interpolation, antialias=self.antialias)


# ---------------------------------------------------------------- random colours


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in a random order."""

    def __init__(self, brightness: Any = None, contrast: Any = None, saturation: Any = None, hue: Any = None) -> None:
        super().__init__()
        jitter = first.ColorJitter(brightness or 0, contrast or 0, saturation or 0, hue or 0)
        self._ranges = {name: getattr(jitter, name) for name in ("brightness", "contrast", "saturation", "hue")}

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        factors = {name: _uniform(*r) for name, r in self._ranges.items() if r is not None}
        names = list(factors)
        return {"steps": [(names[i], factors[names[i]]) for i in flambeau.randperm(len(names)).tolist()]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        for name, factor in params["steps"]:
            inpt = getattr(F, f"adjust_{name}")(inpt, factor)
        return inpt


class GaussianBlur(Transform):
    """Blurred by a random width."""

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
        self.sigma = (sigma, sigma) if isinstance(sigma, (int, float)) else tuple(sigma)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"sigma": [_uniform(*self.sigma)] * 2}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.gaussian_blur(inpt, self.kernel_size, params["sigma"])


class _FirstVersion(Transform):
    """A transform of the first version, on images and videos alone."""

    def __init__(self, transform: Any) -> None:
        super().__init__()
        self._first = transform

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if isinstance(inpt, (tv_tensors.Mask, tv_tensors.BoundingBoxes)):
            return inpt
        return F._like(self._first(F._plain(inpt)), inpt)


class _Policy(_FirstVersion):
    """A policy moves images by amounts that nothing else learns, so masks and boxes are refused."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if isinstance(inpt, (tv_tensors.Mask, tv_tensors.BoundingBoxes)):
            raise TypeError(f"[{type(self).__name__}] expected images and videos alone, got {type(inpt).__name__}")
        return super().transform(inpt, params)


def _of_first(name: str, kind: Any, base: type = _FirstVersion) -> Any:
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        _FirstVersion.__init__(self, kind(*args, **kwargs))

    return type(name, (base,), {"__init__": initialize, "__module__": __name__, "__doc__": kind.__doc__})


RandomErasing = _of_first("RandomErasing", first.RandomErasing)
LinearTransformation = _of_first("LinearTransformation", first.LinearTransformation)
FiveCrop = _of_first("FiveCrop", first.FiveCrop)
TenCrop = _of_first("TenCrop", first.TenCrop)
AutoAugment = _of_first("AutoAugment", autoaugment.AutoAugment, _Policy)
RandAugment = _of_first("RandAugment", autoaugment.RandAugment, _Policy)
TrivialAugmentWide = _of_first("TrivialAugmentWide", autoaugment.TrivialAugmentWide, _Policy)
AugMix = _of_first("AugMix", autoaugment.AugMix, _Policy)


# ---------------------------------------------------------------- batches


class _Mixing(Transform):
    """Mixes a batch of images (N, C, H, W) with itself, and the labels (N,) with them, which become probabilities."""

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: Any = "default") -> None:
        super().__init__()
        self.alpha, self.num_classes = alpha, num_classes
        self._dirichlet = flambeau.tensor([float(alpha), float(alpha)])

    def mix(self, images: Tensor, share: float) -> tuple[Tensor, float]:
        raise NotImplementedError

    def forward(self, *inputs: Any) -> Any:
        flat, spec = tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        images = next((i for i, x in enumerate(flat) if isinstance(x, Tensor) and x.dim() == 4), None)
        labels = next((i for i, x in enumerate(flat) if isinstance(x, Tensor) and x.dim() <= 2 and x.dim() > 0), None)
        if images is None or labels is None:
            raise ValueError(f"[{type(self).__name__}] expected a batch of images (N, C, H, W) and labels (N,)")
        label = F._plain(flat[labels])
        if label.dim() == 1:
            if self.num_classes is None:
                raise ValueError(f"[{type(self).__name__}] expected num_classes for labels that are numbers of classes")
            label = flambeau.nn.functional.one_hot(label, self.num_classes)
        share = float(flambeau._sample_dirichlet(self._dirichlet)[0])
        mixed, share = self.mix(F._plain(flat[images]), share)
        label = label.to(flambeau.float32)
        flat[images] = F._like(mixed, flat[images])
        flat[labels] = label.roll(1, 0).mul(1.0 - share).add_(label.mul(share))
        return tree_unflatten(flat, spec)


class MixUp(_Mixing):
    """Each image is mixed with the one before it."""

    def mix(self, images: Tensor, share: float) -> tuple[Tensor, float]:
        return images.roll(1, 0).mul(1.0 - share).add_(images.mul(share)), share


class CutMix(_Mixing):
    """Each image has a part of the one before it in a random place."""

    def mix(self, images: Tensor, share: float) -> tuple[Tensor, float]:
        height, width = images.shape[-2:]
        x, y = _integer(width), _integer(height)
        half = 0.5 * math.sqrt(1.0 - share)
        half_wide, half_high = int(half * width), int(half * height)
        left, top = max(x - half_wide, 0), max(y - half_high, 0)
        right, bottom = min(x + half_wide, width), min(y + half_high, height)
        mixed = images.clone()
        mixed[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
        return mixed, 1.0 - (right - left) * (bottom - top) / (width * height)


# ---------------------------------------------------------------- kinds and dtypes


class ToImage(Transform):
    """An `Image` of a tensor, a Pillow image or an array (H, W, C), with the same values."""

    def _chosen(self, flat_inputs: list[Any]) -> list[bool]:
        arrays = [hasattr(x, "__array_interface__") and not isinstance(x, Tensor) for x in flat_inputs]
        own = super()._chosen(flat_inputs)
        kinds = (tv_tensors.Mask, tv_tensors.BoundingBoxes, tv_tensors.Video)
        return [(o or a) and not isinstance(x, kinds) for o, a, x in zip(own, arrays, flat_inputs)]

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.to_image(inpt)


class PILToTensor(Transform):
    """A tensor of a Pillow image, with the same values."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.pil_to_tensor(inpt) if _is_pillow(inpt) else inpt


class ToTensor(Transform):
    """A tensor of a Pillow image, with values from 0 to 1."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.to_tensor(inpt) if _is_pillow(inpt) else inpt


class ToPILImage(Transform):
    def __init__(self, mode: str | None = None) -> None:
        super().__init__()
        self.mode = mode

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if isinstance(inpt, (tv_tensors.Mask, tv_tensors.BoundingBoxes)) or not isinstance(inpt, Tensor):
            return inpt
        return F.to_pil_image(F._plain(inpt), self.mode)


class ToPureTensor(Transform):
    """Plain tensors of all kinds."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F._plain(inpt)


class ToDtype(Transform):
    """Another dtype, or one for each kind by a dict; with scale, images keep their meaning as colours."""

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if isinstance(self.dtype, dict):
            dtype = self.dtype.get(type(inpt), self.dtype.get("others"))
        else:
            dtype = None if isinstance(inpt, (tv_tensors.Mask, tv_tensors.BoundingBoxes)) else self.dtype
        return inpt if dtype is None or not isinstance(inpt, Tensor) else F.to_dtype(inpt, dtype, self.scale)


class ConvertImageDtype(ToDtype):
    """Another dtype of images, in the range of that dtype."""

    def __init__(self, dtype: Any = flambeau.float32) -> None:
        super().__init__(dtype, scale=True)


class ClampBoundingBoxes(Transform):
    """Boxes within their canvas."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.clamp_bounding_boxes(inpt) if isinstance(inpt, tv_tensors.BoundingBoxes) else inpt


class ConvertBoundingBoxFormat(Transform):
    def __init__(self, format: Any) -> None:
        super().__init__()
        self.format = format

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        is_boxes = isinstance(inpt, tv_tensors.BoundingBoxes)
        return F.convert_bounding_box_format(inpt, new_format=self.format) if is_boxes else inpt


class SanitizeBoundingBoxes(Transform):
    """Drops boxes that are too small or not within the canvas, with their labels and masks, which are as many."""

    def __init__(self, min_size: float = 1.0, min_area: float = 1.0, labels_getter: Any = "default") -> None:
        super().__init__()
        self.min_size, self.min_area, self.labels_getter = min_size, min_area, labels_getter

    def forward(self, *inputs: Any) -> Any:
        flat, spec = tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        boxes = next((x for x in flat if isinstance(x, tv_tensors.BoundingBoxes)), None)
        if boxes is None:
            raise ValueError("[SanitizeBoundingBoxes] expected BoundingBoxes among the inputs, got none")
        _, valid = F.sanitize_bounding_boxes(boxes, min_size=self.min_size, min_area=self.min_area)

        def kept(x: Any) -> Any:
            labels = F.is_pure_tensor(x) and x.dim() == 1 and self.labels_getter is not None
            if isinstance(x, (tv_tensors.BoundingBoxes, tv_tensors.Mask)) or labels:
                return F._like(F._plain(x)[valid], x) if len(x) == len(valid) else x
            return x

        return tree_unflatten([kept(x) for x in flat], spec)


__all__ = [
    name for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, Transform) and not name.startswith("_")
] + ["AutoAugmentPolicy", "InterpolationMode", "functional", "query_size"]  # fmt: skip
