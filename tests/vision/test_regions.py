"""Operators over regions of images, by hand-computed results, and torchvision's own source on top of them."""

import subprocess
import sys

import pytest

import flambeau as fl

vision = fl.ops.torchvision


def test_nms_drops_boxes_that_overlap_a_better_one():
    boxes = fl.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]])
    assert vision.nms(boxes, fl.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]


def test_a_pooled_box_is_the_mean_or_maximum_of_its_pixels():
    image = fl.arange(16.0).reshape(1, 1, 4, 4)
    box = fl.tensor([[0.0, 0, 0, 4, 4]])
    assert vision.roi_align(image, box, 1.0, 2, 2, 2, True).flatten().tolist() == [2.5, 4.5, 10.5, 12.5]
    pooled, places = vision.roi_pool(image, box - fl.tensor([0.0, 0, 0, 1, 1]), 1.0, 2, 2)
    assert pooled.flatten().tolist() == places.flatten().tolist() == [5, 7, 13, 15]


def test_a_deformed_convolution_without_offsets_is_a_convolution():
    image, weight, bias = fl.randn(2, 4, 6, 7), fl.randn(6, 2, 3, 3), fl.randn(6)
    offset, mask = fl.zeros(2, 18, 6, 7), fl.ones(2, 9, 6, 7)
    result = vision.deform_conv2d(image, weight, offset, mask, bias, 1, 1, 1, 1, 1, 1, 2, 1, True)
    fl.testing.assert_close(result, fl.nn.functional.conv2d(image, weight, bias, padding=1, groups=2), rtol=1e-4, atol=1e-4)  # fmt: skip


def test_boxes_of_no_image_are_refused():
    with pytest.raises(RuntimeError, match="rois of images 0 to 0, got 3"):
        vision.roi_align(fl.ones(1, 1, 4, 4), fl.tensor([[3.0, 0, 0, 4, 4]]), 1.0, 2, 2, 2, True)


def test_an_installed_torchvision_runs_on_the_operators_here(tmp_path):
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("from torchvision import extension, own\n")
    (package / "extension.py").write_text("raise ImportError('compiled for another library')\n")
    (package / "own.py").write_text("import torch\nnms = torch.ops.torchvision.nms\n")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import flambeau.as_torch, torchvision;"
        "print(torchvision.__file__, torchvision.extension._has_ops(), torchvision.own.nms)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(package / "__init__.py"), "True", "torchvision.nms"], done.stderr


def test_bytes_of_an_image_survive_encoding(tmp_path):
    pytest.importorskip("PIL")
    from flambeau.vision import io

    image = fl.randint(0, 256, (3, 5, 7), dtype=fl.uint8)
    io.write_png(image, tmp_path / "image.png")
    assert io.read_image(tmp_path / "image.png").equal(image)
    assert io.decode_image(io.encode_jpeg(image), "GRAY").shape == (1, 5, 7)
    with pytest.raises(RuntimeError, match="known format"):
        io.decode_png(fl.arange(9, dtype=fl.uint8))
