"""Handwritten digits and their relatives, in the idx format, plain or gzipped."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.vision.datasets.vision import VisionDataset, image_from_array

# The third byte of an idx file says the type of its numbers, which are stored with the highest byte first.
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str | os.PathLike) -> flambeau.Tensor:
    """The tensor in an idx file."""
    import numpy as np

    with gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb") as file:
        data = file.read()
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        raise ValueError(f"[idx] expected a file in the idx format, got {os.fspath(path)}")
    rank = data[3]
    shape = struct.unpack(f">{rank}I", data[4 : 4 + 4 * rank])
    values = np.frombuffer(data, dtype=_TYPES[data[2]], offset=4 + 4 * rank)
    count = int(np.prod(shape)) if rank else 1
    if len(values) != count:
        raise ValueError(f"[idx] expected {count} numbers in {os.fspath(path)}, got {len(values)}")
    native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("=")))
    return flambeau.from_numpy(native.reshape(shape))


class MNIST(VisionDataset):
    """Images of 28x28 and their digits."""

    classes = tuple(
        f"{digit} - {name}" for digit, name in enumerate("zero one two three four five six seven eight nine".split())
    )
    mirrors = ("https://ossci-datasets.s3.amazonaws.com/mnist/",)
    files = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

    def __init__(
        self,
        root: str | os.PathLike,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        images, labels = (self._find(name) for name in (self.files[:2] if train else self.files[2:]))
        if images is None or labels is None:
            raise RuntimeError(f"[{type(self).__name__}] expected idx files in {self.raw_folder}, got none there")
        self.data, self.targets = read_idx(images), read_idx(labels).long()

    @property
    def raw_folder(self) -> str:
        return os.path.join(self.root, type(self).__name__, "raw")  # type: ignore[arg-type]

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.classes)}

    def _find(self, name: str) -> str | None:
        paths = [os.path.join(self.raw_folder, name + end) for end in ("", ".gz")]
        return next((path for path in paths if os.path.exists(path)), None)

    def download(self) -> None:
        from flambeau.hub import download_url_to_file

        os.makedirs(self.raw_folder, exist_ok=True)
        for name in self.files:
            if self._find(name) is None:
                download_url_to_file(f"{self.mirrors[0]}{name}.gz", os.path.join(self.raw_folder, f"{name}.gz"))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._transformed(image_from_array(self.data[index].numpy()), int(self.targets[index]))

    def __len__(self) -> int:
        return len(self.data)


class FashionMNIST(MNIST):
    """Images of clothes."""

    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip
    mirrors = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)


class KMNIST(MNIST):
    """Images of cursive Japanese characters."""

    classes = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
    mirrors = ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",)
