"""Transforms by properties that any correct one has."""

import numpy as np
import pytest

import flambeau as fl
from flambeau.vision import transforms as T
from flambeau.vision.transforms import functional as F

IMAGE = fl.arange(3 * 6 * 8, dtype=fl.uint8).reshape(3, 6, 8)


def test_a_training_pipeline_runs():
    pipeline = T.Compose(
        [
            T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomRotation(10),
            T.RandomCrop(20, padding=2), T.GaussianBlur(3), T.ConvertImageDtype(fl.float32), T.RandomErasing(p=1.0),
            T.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ]
    )  # fmt: skip
    out = pipeline(fl.randint(0, 256, (3, 40, 50), dtype=fl.uint8))
    assert out.shape == (3, 20, 20) and out.dtype == fl.float32 and bool(out.isfinite().all())


def test_to_tensor_takes_arrays():
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    out = T.ToTensor()(array)
    assert out.shape == (3, 2, 4) and out.dtype == fl.float32
    np.testing.assert_allclose(out.numpy(), array.transpose(2, 0, 1) / 255, rtol=1e-6)
    assert T.ToTensor()(np.ones((2, 4), np.float32)).shape == (1, 2, 4)
    with pytest.raises(TypeError):
        T.ToTensor()([1, 2])


def test_flips_and_crops_move_pixels():
    assert F.hflip(IMAGE)[0, 0].tolist() == IMAGE[0, 0].tolist()[::-1]
    assert fl.equal(F.vflip(F.vflip(IMAGE)), IMAGE)
    assert fl.equal(F.crop(IMAGE, 1, 2, 3, 4), IMAGE[:, 1:4, 2:6])
    assert fl.equal(F.center_crop(IMAGE, 4), IMAGE[:, 1:5, 2:6])
    assert F.crop(IMAGE, -1, -1, 3, 3)[:, 0].sum() == 0
    assert len(F.ten_crop(IMAGE, 4)) == 10


def test_rotation_by_a_right_angle_is_exact():
    square = IMAGE[:, :, :6]
    assert fl.equal(F.rotate(square, 90), square.rot90(1, (-2, -1)))
    assert F.rotate(IMAGE, 90, expand=True).shape == (3, 8, 6)


def test_normalize_and_its_errors():
    x = fl.rand(3, 4, 4)
    y = F.normalize(x, (0.1, 0.2, 0.3), (0.5, 0.5, 2.0))
    np.testing.assert_allclose(y[2].numpy(), (x[2].numpy() - 0.3) / 2, rtol=1e-5)
    with pytest.raises(TypeError):
        F.normalize(IMAGE, (0.0,), (1.0,))
    with pytest.raises(ValueError):
        F.normalize(x, (0.0,), (0.0,))


def test_resizing_keeps_a_constant_image():
    x = fl.full((3, 10, 12), 0.25)
    for mode in ("BILINEAR", "BICUBIC", "NEAREST"):
        out = F.resize(x, [5, 17], F.InterpolationMode[mode])
        assert out.shape == (3, 5, 17)
        np.testing.assert_allclose(out.numpy(), 0.25, atol=1e-6)
    assert F.resize(x, 5).shape == (3, 5, 6)


def test_random_choices_follow_the_seed():
    crop = T.RandomCrop(3)
    fl.manual_seed(3)
    first = crop(IMAGE)
    fl.manual_seed(3)
    assert fl.equal(crop(IMAGE), first)
    assert fl.equal(T.RandomHorizontalFlip(p=0.0)(IMAGE), IMAGE)
    with pytest.raises(ValueError):
        T.RandomCrop(30)(IMAGE)


def test_hue_turns_around():
    x = fl.rand(3, 5, 5)
    np.testing.assert_allclose(F.adjust_hue(F.adjust_hue(x, 0.3), -0.3).numpy(), x.numpy(), atol=1e-5)
    np.testing.assert_allclose(F.adjust_hue(x, 0.0).numpy(), x.numpy(), atol=1e-6)


def test_printing():
    text = repr(T.Compose([T.Resize(3), T.Normalize((0.5,), (0.5,))]))
    assert "Resize(size=3" in text and "Normalize(mean=(0.5,), std=(0.5,))" in text


def test_the_second_version():
    from flambeau.vision.transforms import v2

    pipeline = v2.Compose(
        [v2.ToImage(), v2.ToDtype(fl.float32, scale=True), v2.Resize(4), v2.Normalize((0.5,), (0.5,))]
    )
    out, label = pipeline(np.full((8, 8, 3), 255, np.uint8), 3)
    assert out.shape == (3, 4, 4) and label == 3
    np.testing.assert_allclose(out.numpy(), 1.0, atol=1e-6)
    assert fl.equal(v2.functional.horizontal_flip(IMAGE), F.hflip(IMAGE))
