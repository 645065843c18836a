"""Augmentation policies: AutoAugment, RandAugment, TrivialAugmentWide and AugMix."""

from __future__ import annotations

import enum
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms.functional import InterpolationMode

__all__ = ["AugMix", "AutoAugment", "AutoAugmentPolicy", "RandAugment", "TrivialAugmentWide"]


class AutoAugmentPolicy(enum.Enum):
    IMAGENET, CIFAR10, SVHN = "imagenet", "cifar10", "svhn"


def _apply(img: Any, name: str, magnitude: float, interpolation: Any, fill: Any) -> Any:
    """One operation of a policy."""
    import math

    shear = math.degrees(math.atan(magnitude)) if name.startswith("Shear") else 0.0
    move = {"interpolation": interpolation, "fill": fill}
    functions = {
        "Identity": lambda: img,
        "ShearX": lambda: F.affine(img, 0.0, [0, 0], 1.0, [shear, 0.0], center=[0, 0], **move),
        "ShearY": lambda: F.affine(img, 0.0, [0, 0], 1.0, [0.0, shear], center=[0, 0], **move),
        "TranslateX": lambda: F.affine(img, 0.0, [int(magnitude), 0], 1.0, [0.0, 0.0], **move),
        "TranslateY": lambda: F.affine(img, 0.0, [0, int(magnitude)], 1.0, [0.0, 0.0], **move),
        "Rotate": lambda: F.rotate(img, magnitude, **move),
        "Brightness": lambda: F.adjust_brightness(img, 1.0 + magnitude),
        "Color": lambda: F.adjust_saturation(img, 1.0 + magnitude),
        "Contrast": lambda: F.adjust_contrast(img, 1.0 + magnitude),
        "Sharpness": lambda: F.adjust_sharpness(img, 1.0 + magnitude),
        "Posterize": lambda: F.posterize(img, int(magnitude)),
        "Solarize": lambda: F.solarize(img, magnitude),
        "AutoContrast": lambda: F.autocontrast(img),
        "Equalize": lambda: F.equalize(img),
        "Invert": lambda: F.invert(img),
    }
    if name not in functions:
        raise ValueError(f"[autoaugment] expected one of {', '.join(functions)}, got {name!r}")
    return functions[name]()


def _space(bins: int, height: int, width: int, wide: bool = False) -> dict[str, tuple[Tensor, bool]]:
    """Magnitudes of each operation, and whether they have a sign."""
    shear, turn, color = (0.99, 135.0, 0.99) if wide else (0.3, 30.0, 0.9)
    shift = (32.0, 32.0) if wide else (150.0 / 331.0 * width, 150.0 / 331.0 * height)
    steps = flambeau.arange(bins)
    bits = 8 - (steps / ((bins - 1) / (6 if wide else 4))).round().int()

    def line(top: float) -> Tensor:
        return flambeau.linspace(0.0, top, bins)

    signed = {"ShearX": shear, "ShearY": shear, "TranslateX": shift[0], "TranslateY": shift[1], "Rotate": turn,
              "Brightness": color, "Color": color, "Contrast": color, "Sharpness": color}  # fmt: skip
    return {
        "Identity": (flambeau.tensor(0.0), False),
        **{name: (line(top), True) for name, top in signed.items()},
        "Posterize": (bits, False),
        "Solarize": (flambeau.linspace(255.0, 0.0, bins), False),
        "AutoContrast": (flambeau.tensor(0.0), False),
        "Equalize": (flambeau.tensor(0.0), False),
    }


def _chosen(magnitudes: Tensor, signed: bool, index: int) -> float:
    value = float(magnitudes[index]) if magnitudes.ndim > 0 else 0.0
    return -value if signed and int(flambeau.randint(2, (1,))) else value


class _Augmentation(nn.Module):
    """Interpolation and fill colour of the geometric operations."""

    def __init__(self, interpolation: Any, fill: Any) -> None:
        super().__init__()
        self.interpolation, self.fill = interpolation, fill

    def run(self, img: Any, name: str, magnitude: float) -> Any:
        fill = self.fill
        if fill is not None and isinstance(img, Tensor):
            channels = F.get_dimensions(img)[0]
            fill = [float(fill)] * channels if isinstance(fill, (int, float)) else [float(f) for f in fill]
        return _apply(img, name, magnitude, self.interpolation, fill)

    def augment(self, img: Any) -> Any:
        raise NotImplementedError

    def forward(self, *inputs: Any) -> Any:
        """The image augmented; what comes beside it is passed through."""
        results = (self.augment(inputs[0]), *inputs[1:])
        return results[0] if len(results) == 1 else results


class RandAugment(_Augmentation):
    """`num_ops` random operations of one magnitude."""

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_ops, self.magnitude, self.num_magnitude_bins = num_ops, magnitude, num_magnitude_bins

    def augment(self, img: Any) -> Any:
        _, height, width = F.get_dimensions(img)
        space = _space(self.num_magnitude_bins, height, width)
        for _ in range(self.num_ops):
            name = list(space)[int(flambeau.randint(len(space), (1,)))]
            img = self.run(img, name, _chosen(*space[name], self.magnitude))
        return img


class TrivialAugmentWide(_Augmentation):
    """One random operation of a random magnitude."""

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Any = InterpolationMode.NEAREST, fill: Any = None
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = num_magnitude_bins

    def augment(self, img: Any) -> Any:
        space = _space(self.num_magnitude_bins, 0, 0, wide=True)
        name = list(space)[int(flambeau.randint(len(space), (1,)))]
        index = int(flambeau.randint(self.num_magnitude_bins, (1,)))
        return self.run(img, name, _chosen(*space[name], index))


# Pairs of (operation, probability, magnitude), from the paper; None where an operation has no magnitude.
_POLICIES = {
    "imagenet": "Posterize .4 8 Rotate .6 9|Solarize .6 5 AutoContrast .6 -|Equalize .8 - Equalize .6 -|Posterize .6 7 Posterize .6 6|"
    "Equalize .4 - Solarize .2 4|Equalize .4 - Rotate .8 8|Solarize .6 3 Equalize .6 -|Posterize .8 5 Equalize 1 -|Rotate .2 3 Solarize .6 8|"
    "Equalize .6 - Posterize .4 6|Rotate .8 8 Color .4 0|Rotate .4 9 Equalize .6 -|Equalize 0 - Equalize .8 -|Invert .6 - Equalize 1 -|"
    "Color .6 4 Contrast 1 8|Rotate .8 8 Color 1 2|Color .8 8 Solarize .8 7|Sharpness .4 7 Invert .6 -|ShearX .6 5 Equalize 1 -|Color .4 0 Equalize .6 -|"
    "Equalize .4 - Solarize .2 4|Solarize .6 5 AutoContrast .6 -|Invert .6 - Equalize 1 -|Color .6 4 Contrast 1 8|Equalize .8 - Equalize .6 -",
    "cifar10": "Invert .1 - Contrast .2 6|Rotate .7 2 TranslateX .3 9|Sharpness .8 1 Sharpness .9 3|ShearY .5 8 TranslateY .7 9|AutoContrast .5 - Equalize .9 -|"
    "ShearY .2 7 Posterize .3 7|Color .4 3 Brightness .6 7|Sharpness .3 9 Brightness .7 9|Equalize .6 - Equalize .5 -|Contrast .6 7 Sharpness .6 5|"
    "Color .7 7 TranslateX .5 8|Equalize .3 - AutoContrast .4 -|TranslateY .4 3 Sharpness .2 6|Brightness .9 6 Color .2 8|Solarize .5 2 Invert 0 -|"
    "Equalize .2 - AutoContrast .6 -|Equalize .2 - Equalize .6 -|Color .9 9 Equalize .6 -|AutoContrast .8 - Solarize .2 8|Brightness .1 3 Color .7 0|"
    "Solarize .4 5 AutoContrast .9 -|TranslateY .9 9 TranslateY .7 9|AutoContrast .9 - Solarize .8 3|Equalize .8 - Invert .1 -|TranslateY .7 9 AutoContrast .9 -",
    "svhn": "ShearX .9 4 Invert .2 -|ShearY .9 8 Invert .7 -|Equalize .6 - Solarize .6 6|Invert .9 - Equalize .6 -|Equalize .6 - Rotate .9 3|"
    "ShearX .9 4 AutoContrast .8 -|ShearY .9 8 Invert .4 -|ShearY .9 5 Solarize .2 6|Invert .9 - AutoContrast .8 -|Equalize .6 - Rotate .9 3|"
    "ShearX .9 4 Solarize .3 3|ShearY .8 8 Invert .7 -|Equalize .9 - TranslateY .6 6|Invert .9 - Equalize .6 -|Contrast .3 3 Rotate .8 4|"
    "Invert .8 - TranslateY 0 2|ShearY .7 6 Solarize .4 8|Invert .6 - Rotate .8 4|ShearY .3 7 TranslateX .9 3|ShearX .1 6 Invert .6 -|"
    "Solarize .7 2 TranslateY .6 7|ShearY .8 4 Invert .8 -|ShearX .7 9 TranslateY .8 3|ShearY .8 5 AutoContrast .7 -|ShearX .7 2 Invert .1 -",
}  # fmt: skip


class AutoAugment(_Augmentation):
    """One random pair of operations of a learned policy."""

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.policy = policy
        self.policies = []
        for pair in _POLICIES[policy.value].split("|"):
            words = pair.split()
            rows = [words[i : i + 3] for i in (0, 3)]
            self.policies.append([(name, float(p), None if m == "-" else int(m)) for name, p, m in rows])

    def augment(self, img: Any) -> Any:
        _, height, width = F.get_dimensions(img)
        space = {**_space(10, height, width), "Invert": (flambeau.tensor(0.0), False)}
        for name, probability, index in self.policies[int(flambeau.randint(len(self.policies), (1,)))]:
            if float(flambeau.rand(1)) <= probability:
                img = self.run(img, name, _chosen(*space[name], index or 0))
        return img


class AugMix(_Augmentation):
    """A random mixture of several chains of operations with the image."""

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Any = InterpolationMode.BILINEAR,
        fill: Any = None,
    ) -> None:
        super().__init__(interpolation, fill)
        if not 1 <= severity <= 10:
            raise ValueError(f"[AugMix] expected a severity from 1 to 10, got {severity}")
        self.severity, self.mixture_width, self.chain_depth = severity, mixture_width, chain_depth
        self.alpha, self.all_ops = alpha, all_ops

    def augment(self, img: Any) -> Any:
        original = img if isinstance(img, Tensor) else F.pil_to_tensor(img)
        _, height, width = F.get_dimensions(original)
        space = _space(10, height, width)
        skipped = {"Identity"} if self.all_ops else {"Identity", "Brightness", "Color", "Contrast", "Sharpness"}
        names = [name for name in space if name not in skipped]
        alpha = flambeau.tensor([self.alpha] * 2)
        share = float(flambeau._sample_dirichlet(alpha)[0])
        weights = flambeau._sample_dirichlet(flambeau.tensor([self.alpha] * self.mixture_width)) * (1 - share)
        mixed = original.float() * share
        for weight in weights.tolist():
            chain: Any = original
            depth = self.chain_depth if self.chain_depth > 0 else int(flambeau.randint(1, 4, (1,)))
            for _ in range(depth):
                name = names[int(flambeau.randint(len(names), (1,)))]
                chain = self.run(chain, name, _chosen(*space[name], int(flambeau.randint(self.severity, (1,)))))
            mixed = mixed + weight * chain.float()
        result = mixed.to(original.dtype)
        return result if isinstance(img, Tensor) else F.to_pil_image(result)
