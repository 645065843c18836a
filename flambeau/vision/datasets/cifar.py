"""CIFAR-10 and CIFAR-100 from their pickled batches, read without running any code that a pickle may ask for."""

from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
from collections.abc import Callable
from typing import Any

from flambeau.vision.datasets.vision import VisionDataset, image_from_array


class _ArraysOnly(pickle.Unpickler):
    """Reads plain values and NumPy arrays, nothing else."""

    _ALLOWED = frozenset(
        [("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")]
        + [(f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")]
        + [(f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")]
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"[CIFAR] expected arrays and plain values, got {module}.{name}")
        return super().find_class(module, name)


def _read(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        return _ArraysOnly(file, encoding="latin1").load()


class CIFAR10(VisionDataset):
    """Images of 32x32 in ten classes."""

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_files: tuple[str, ...] = tuple(f"data_batch_{i}" for i in range(1, 6))
    test_files: tuple[str, ...] = ("test_batch",)
    meta_file, meta_key, label_key = "batches.meta", "label_names", "labels"

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
        folder = os.path.join(str(self.root), self.base_folder)
        if download and not os.path.isdir(folder):
            self.download()
        if not os.path.isdir(folder):
            raise RuntimeError(f"[{type(self).__name__}] expected the folder {folder}, got none there")
        import numpy as np

        batches = [_read(os.path.join(folder, name)) for name in (self.train_files if train else self.test_files)]
        self.data = np.concatenate([b["data"] for b in batches]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.targets = [int(label) for b in batches for label in b[self.label_key]]
        self.classes = list(_read(os.path.join(folder, self.meta_file))[self.meta_key])
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def download(self) -> None:
        from flambeau.hub import download_url_to_file

        os.makedirs(str(self.root), exist_ok=True)
        archive = os.path.join(str(self.root), os.path.basename(self.url))
        download_url_to_file(self.url, archive)
        with open(archive, "rb") as file:
            digest = hashlib.file_digest(file, "md5").hexdigest()
        if digest != self.tgz_md5:
            raise RuntimeError(f"[{type(self).__name__}] expected a file with the hash {self.tgz_md5}, got {digest}")
        with tarfile.open(archive) as file:
            file.extractall(str(self.root), filter="data")

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._transformed(image_from_array(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)


class CIFAR100(CIFAR10):
    """The same in a hundred classes."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_files, test_files = ("train",), ("test",)
    meta_file, meta_key, label_key = "meta", "fine_label_names", "fine_labels"
