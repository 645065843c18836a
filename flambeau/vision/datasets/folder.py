"""Datasets laid out as one folder for each class."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from flambeau.vision.datasets.vision import VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def has_file_allowed_extension(filename: str, extensions: str | tuple[str, ...]) -> bool:
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename: str) -> bool:
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def pil_loader(path: str) -> Any:
    from PIL import Image

    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


default_loader = pil_loader


def find_classes(directory: Any) -> tuple[list[str], dict[str, int]]:
    """Names of the folders in a folder, and their numbers."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"[find_classes] expected a folder for each class in {directory}, got none")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(
    directory: Any,
    class_to_idx: dict[str, int] | None = None,
    extensions: Any = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """Paths of the files with the numbers of their classes."""
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("[make_dataset] expected extensions or is_valid_file, got both or neither")
    accept = is_valid_file or (lambda path: has_file_allowed_extension(path, extensions))
    samples, empty = [], []
    for name, index in sorted((class_to_idx or find_classes(directory)[1]).items()):
        present = [
            os.path.join(folder, file)
            for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True))
            for file in sorted(files)
            if accept(os.path.join(folder, file))
        ]
        samples += [(path, index) for path in present]
        if not present:
            empty.append(name)
    if empty and not allow_empty:
        raise FileNotFoundError(f"[make_dataset] expected files for every class, got none for {', '.join(empty)}")
    return samples


class DatasetFolder(VisionDataset):
    """Files in folders named after their classes, read by a function."""

    def __init__(
        self,
        root: str | os.PathLike,
        loader: Callable[[str], Any],
        extensions: tuple[str, ...] | None = None,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.targets = [index for _, index in self.samples]

    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._transformed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images in folders named after their classes."""

    def __init__(
        self,
        root: str | os.PathLike,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples
