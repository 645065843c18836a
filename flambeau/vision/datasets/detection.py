"""Detection and segmentation datasets in local files: Pascal VOC and COCO."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from flambeau.vision.datasets.vision import VisionDataset


def _image(path: str, mode: str = "RGB") -> Any:
    from PIL import Image

    return Image.open(path).convert(mode) if mode else Image.open(path)


class _VOC(VisionDataset):
    """root holds VOCdevkit/VOC<year>."""

    _lists, _targets, _ending = "", "", ""

    def __init__(
        self,
        root: Any,
        year: str = "2012",
        image_set: str = "train",
        download: bool = False,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        transforms: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(root, transforms, transform, target_transform)
        folder = os.path.join(root, "VOCdevkit", f"VOC{year}")
        if download:
            raise RuntimeError(f"[{type(self).__name__}] expected files in {folder}, downloading is not written")
        listing = os.path.join(folder, "ImageSets", self._lists, f"{image_set}.txt")
        if not os.path.isfile(listing):
            raise RuntimeError(f"[{type(self).__name__}] expected a file {listing}, got none")
        with open(listing) as file:
            names = [line.split()[0] for line in file if line.strip()]
        self.images = [os.path.join(folder, "JPEGImages", f"{name}.jpg") for name in names]
        self.targets = [os.path.join(folder, self._targets, name + self._ending) for name in names]

    def __len__(self) -> int:
        return len(self.images)

    def _target(self, path: str) -> Any:
        raise NotImplementedError

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._transformed(_image(self.images[index]), self._target(self.targets[index]))


class VOCSegmentation(_VOC):
    """The target is an image of classes."""

    _lists, _targets, _ending = "Segmentation", "SegmentationClass", ".png"

    @property
    def masks(self) -> list[str]:
        return self.targets

    def _target(self, path: str) -> Any:
        return _image(path, "")


class VOCDetection(_VOC):
    """The target is the annotation file as a dict."""

    _lists, _targets, _ending = "Main", "Annotations", ".xml"

    @property
    def annotations(self) -> list[str]:
        return self.targets

    def _target(self, path: str) -> Any:
        root = ElementTree.parse(path).getroot()
        return {root.tag: _as_dict(root)}


def _as_dict(element: Any) -> Any:
    """Text, or children by tag; objects are always a list."""
    children = list(element)
    if not children:
        return (element.text or "").strip()
    result: dict[str, Any] = {}
    for child in children:
        value = _as_dict(child)
        if child.tag == "object":
            result.setdefault("object", []).append(value)
        elif child.tag in result:
            result[child.tag] = [*result[child.tag], value] if isinstance(result[child.tag], list) else [result[child.tag], value]  # fmt: skip
        else:
            result[child.tag] = value
    return result


class CocoDetection(VisionDataset):
    """root holds images, annFile their annotations; the target is the list of annotations of an image."""

    def __init__(
        self,
        root: Any,
        annFile: str,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        transforms: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(root, transforms, transform, target_transform)
        with open(annFile) as file:
            content = json.load(file)
        self._files = {image["id"]: image["file_name"] for image in content["images"]}
        self._annotations: dict[int, list[Any]] = {}
        for annotation in content.get("annotations", ()):
            self._annotations.setdefault(annotation["image_id"], []).append(annotation)
        self.categories = {category["id"]: category for category in content.get("categories", ())}
        self.ids = sorted(self._files)

    def _load_image(self, id: int) -> Any:
        return _image(os.path.join(str(self.root), self._files[id]))

    def _load_target(self, id: int) -> list[Any]:
        return self._annotations.get(id, [])

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not isinstance(index, int):
            raise ValueError(f"[CocoDetection] expected an integer index, got {type(index).__name__}")
        return self._transformed(self._load_image(self.ids[index]), self._load_target(self.ids[index]))

    def __len__(self) -> int:
        return len(self.ids)


class CocoCaptions(CocoDetection):
    """The target is the list of captions of an image."""

    def _load_target(self, id: int) -> list[str]:
        return [annotation["caption"] for annotation in super()._load_target(id)]
