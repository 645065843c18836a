"""What all image datasets share, and one of random images."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.utils.data import Dataset


def image_from_array(array: Any, mode: str | None = None) -> Any:
    """A Pillow image where Pillow is installed, else the array, which `ToTensor` takes too."""
    try:
        from PIL import Image
    except ImportError:
        return array
    return Image.fromarray(array) if mode is None else Image.fromarray(array).convert(mode)


class VisionDataset(Dataset):
    """A folder, and transforms of images and targets."""

    def __init__(
        self,
        root: str | os.PathLike | None = None,
        transforms: Callable[..., Any] | None = None,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
    ) -> None:
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("[VisionDataset] expected transforms or transform and target_transform, got both")
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transforms, self.transform, self.target_transform = transforms, transform, target_transform

    def _transformed(self, image: Any, target: Any) -> tuple[Any, Any]:
        if self.transforms is not None:
            return self.transforms(image, target)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"Dataset {type(self).__name__}\n    Number of datapoints: {len(self)}\n    Root location: {self.root}"


class FakeData(VisionDataset):
    """Random images, the same for the same index."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(None, transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes, self.random_offset = size, image_size, num_classes, random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"[FakeData] expected an index below {len(self)}, got {index}")
        generator = flambeau.Generator()
        generator.manual_seed(index + self.random_offset)
        image = flambeau.rand(self.image_size, generator=generator).mul(255).to(flambeau.uint8)
        target = int(flambeau.randint(0, self.num_classes, (1,), generator=generator))
        return self._transformed(image_from_array(image.permute(1, 2, 0).contiguous().numpy()), target)

    def __len__(self) -> int:
        return self.size
