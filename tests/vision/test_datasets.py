"""Datasets read their local formats, safely."""

import gzip
import pickle
import struct

import numpy as np
import pytest

import flambeau as fl
from flambeau.vision import datasets, transforms, utils


def write_idx(path, array, zipped=False):
    codes = {"uint8": 8, "int32": 12, "float32": 13}
    head = struct.pack(f">HBB{array.ndim}I", 0, codes[array.dtype.name], array.ndim, *array.shape)
    data = head + array.astype(array.dtype.newbyteorder(">")).tobytes()
    with (gzip.open if zipped else open)(path, "wb") as file:
        file.write(data)


@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_reads_idx_files(tmp_path, zipped):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (4, 28, 28)).astype(np.uint8)
    labels = np.array([3, 1, 4, 1], np.uint8)
    end = ".gz" if zipped else ""
    write_idx(folder / f"train-images-idx3-ubyte{end}", images, zipped)
    write_idx(folder / f"train-labels-idx1-ubyte{end}", labels, zipped)
    data = datasets.MNIST(tmp_path, train=True, transform=transforms.ToTensor())
    image, label = data[2]
    assert len(data) == 4 and label == 4 and image.shape == (1, 28, 28)
    np.testing.assert_allclose(image.numpy()[0], images[2] / 255, rtol=1e-6)
    with pytest.raises(RuntimeError, match="idx files"):
        datasets.MNIST(tmp_path, train=False)


def test_idx_files_of_other_types_and_broken_ones(tmp_path):
    from flambeau.vision.datasets.mnist import read_idx

    array = np.arange(6, dtype=np.int32).reshape(2, 3) - 3
    write_idx(tmp_path / "a", array)
    assert read_idx(tmp_path / "a").tolist() == array.tolist()
    (tmp_path / "b").write_bytes(b"\0\0\x08\x02" + struct.pack(">II", 1000, 1000) + b"12")
    (tmp_path / "c").write_bytes(b"nonsense")
    for name in "bc":
        with pytest.raises(ValueError, match="idx"):
            read_idx(tmp_path / name)


def cifar(folder, payload):
    folder.mkdir(parents=True)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (folder / name).write_bytes(pickle.dumps(payload, protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}, protocol=2))


def test_cifar_reads_pickled_batches(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (3, 3072)).astype(np.uint8)
    cifar(tmp_path / "cifar-10-batches-py", {"data": rows, "labels": [1, 2, 9]})
    data = datasets.CIFAR10(tmp_path, train=True, transform=transforms.ToTensor())
    image, label = data[4]
    assert len(data) == 15 and label == 2 and data.classes[9] == "j"
    np.testing.assert_allclose(image.numpy(), rows[1].reshape(3, 32, 32) / 255, rtol=1e-6)
    assert len(datasets.CIFAR10(tmp_path, train=False)) == 3


class Evil:
    def __reduce__(self):
        return (print, ("code was run",))


def test_cifar_runs_no_code(tmp_path, capsys):
    cifar(tmp_path / "cifar-10-batches-py", {"data": Evil(), "labels": []})
    with pytest.raises(pickle.UnpicklingError, match="print"):
        datasets.CIFAR10(tmp_path)
    assert "code was run" not in capsys.readouterr().out


def test_image_folders(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, color in (("cat", (255, 0, 0)), ("dog", (0, 255, 0))):
        (tmp_path / name / "deeper").mkdir(parents=True)
        image.new("RGB", (5, 4), color).save(tmp_path / name / "a.png")
        image.new("RGB", (5, 4), color).save(tmp_path / name / "deeper" / "b.png")
        (tmp_path / name / "notes.txt").write_text("no image")
    data = datasets.ImageFolder(tmp_path, transform=transforms.ToTensor())
    assert data.classes == ["cat", "dog"] and len(data) == 4 and data.targets == [0, 0, 1, 1]
    x, label = data[3]
    assert label == 1 and x.shape == (3, 4, 5) and x[1].min() == 1


def test_fake_data_is_the_same_for_the_same_index():
    data = datasets.FakeData(3, (3, 8, 8), 4, transforms.ToTensor())
    assert fl.equal(data[1][0], data[1][0]) and len(data) == 3
    with pytest.raises(IndexError):
        data[3]


def test_images_are_saved(tmp_path):
    path = tmp_path / "grid.png"
    utils.save_image(fl.rand(5, 3, 8, 8), path, nrow=3)
    from flambeau.vision import io

    pytest.importorskip("PIL")
    assert io.read_image(path).shape == (3, 22, 32)


def test_png_without_pillow(tmp_path):
    image = pytest.importorskip("PIL.Image")
    array = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    utils._write_png(array, tmp_path / "own.png")
    np.testing.assert_array_equal(np.asarray(image.open(tmp_path / "own.png")), array)
