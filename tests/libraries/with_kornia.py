"""Filters, colours, augmentation and geometry, with gradients."""

import kornia
import torch

image = torch.rand(2, 3, 32, 32, requires_grad=True)
blurred = kornia.filters.gaussian_blur2d(image, (5, 5), (1.5, 1.5))
edges = kornia.filters.sobel(kornia.color.rgb_to_grayscale(blurred))
edges.mean().backward()
assert image.grad.abs().sum() > 0
augment = kornia.augmentation.AugmentationSequential(
    kornia.augmentation.RandomHorizontalFlip(p=1.0),
    kornia.augmentation.RandomAffine(10.0),
    kornia.augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1),
)
assert augment(image.detach()).shape == image.shape
turn = kornia.geometry.transform.rotate(image.detach(), torch.tensor([90.0, 180.0]))
torch.testing.assert_close(turn[1], image.detach()[1].flip(1, 2), rtol=1e-3, atol=1e-3)
points = torch.rand(1, 8, 2)
homography = kornia.geometry.find_homography_dlt(points, points * 2 + 1)
torch.testing.assert_close(kornia.geometry.transform_points(homography, points), points * 2 + 1, rtol=1e-3, atol=1e-3)
