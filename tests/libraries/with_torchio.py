"""Transforms of a volume and its labels."""

import torch
import torchio

subject = torchio.Subject(
    image=torchio.ScalarImage(tensor=torch.rand(1, 12, 12, 12)),
    label=torchio.LabelMap(tensor=torch.ones(1, 12, 12, 12)),
)
transform = torchio.Compose(
    [torchio.RandomFlip(), torchio.RandomNoise(), torchio.ZNormalization(), torchio.CropOrPad(8)]
)
assert transform(subject).image.shape == (1, 8, 8, 8)
