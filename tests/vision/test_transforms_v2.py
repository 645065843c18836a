"""The second version of transforms: images, masks and boxes move together."""

import json

import numpy as np
import pytest

import flambeau as fl
from flambeau.vision import datasets, tv_tensors, utils
from flambeau.vision.transforms import v2

F = v2.functional


def scene():
    """A square of ones in an image and a mask, and the box around it."""
    image = fl.zeros(3, 20, 30)
    image[:, 5:11, 4:16] = 1
    boxes = tv_tensors.BoundingBoxes([[4.0, 5, 16, 11]], format="XYXY", canvas_size=(20, 30))
    return tv_tensors.Image(image), tv_tensors.Mask(image[0].to(fl.uint8)), boxes


GEOMETRY = {
    "horizontal_flip": (), "vertical_flip": (), "resize": ([40, 60],), "crop": (2, 1, 16, 24), "pad": ([3, 2],),
    "center_crop": ([18, 28],), "rotate": (90.0, v2.InterpolationMode.NEAREST, True), "affine": (0.0, [3, 2], 1.0, [0.0, 0.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", GEOMETRY)
def test_the_box_stays_around_the_square(name):
    image, mask, boxes = (getattr(F, name)(x, *GEOMETRY[name]) for x in scene())
    assert type(image) is tv_tensors.Image and type(mask) is tv_tensors.Mask
    assert tuple(image.shape[-2:]) == tuple(mask.shape[-2:]) == boxes.canvas_size
    rows, columns = fl.where(mask.as_subclass(fl.Tensor) != 0)
    around = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    fl.testing.assert_close(boxes[0], fl.tensor([float(x) for x in around]), rtol=0, atol=1e-3)


def test_kinds_survive_copies_only():
    _, _, boxes = scene()
    assert type(boxes + 1) is fl.Tensor
    moved = boxes.to(fl.float64)
    assert type(moved) is tv_tensors.BoundingBoxes and moved.canvas_size == (20, 30)
    with tv_tensors.set_return_type("TVTensor"):
        assert type(boxes + 1) is tv_tensors.BoundingBoxes
    assert type(boxes * 2) is fl.Tensor


def test_a_pipeline_takes_nested_inputs():
    image, mask, boxes = scene()
    fl.manual_seed(0)
    pipeline = v2.Compose([
        v2.RandomResizedCrop(16, scale=(0.5, 1.0)), v2.RandomHorizontalFlip(1.0), v2.ColorJitter(0.2, 0.2),
        v2.RandomPerspective(p=1.0), v2.RandomZoomOut(p=1.0, side_range=(1.0, 1.5)), v2.Resize((12, 12)),
        v2.SanitizeBoundingBoxes(), v2.ToDtype(fl.float16, scale=True), v2.ToPureTensor(),
    ])  # fmt: skip
    out, target = pipeline(image, {"boxes": boxes, "mask": mask, "labels": fl.tensor([7]), "name": "scene"})
    assert out.shape == (3, 12, 12) and out.dtype is fl.float16 and type(out) is fl.Tensor
    assert target["mask"].shape == (12, 12) and target["name"] == "scene"
    assert len(target["boxes"]) == len(target["labels"])


@pytest.mark.parametrize("policy", [v2.RandAugment, v2.AutoAugment, v2.TrivialAugmentWide, v2.AugMix])
def test_policies_change_images_and_refuse_boxes(policy):
    fl.manual_seed(1)
    image = fl.randint(0, 256, (3, 16, 16), dtype=fl.uint8)
    results = [policy()(image) for _ in range(6)]
    assert all(r.shape == image.shape and r.dtype is fl.uint8 for r in results)
    assert any(not r.equal(image) for r in results)
    with pytest.raises(TypeError, match="images and videos alone, got BoundingBoxes"):
        policy()(image, scene()[2])


@pytest.mark.parametrize("mix", [v2.MixUp, v2.CutMix])
def test_mixed_batches_have_mixed_labels(mix):
    images, labels = mix(num_classes=3)(fl.rand(4, 3, 8, 8), fl.tensor([0, 1, 2, 0]))
    assert images.shape == (4, 3, 8, 8) and labels.shape == (4, 3)
    fl.testing.assert_close(labels.sum(1), fl.ones(4))
    with pytest.raises(ValueError, match="num_classes"):
        mix()(images, fl.tensor([0, 1, 2, 0]))


def test_drawings():
    pytest.importorskip("PIL")
    image = fl.zeros(3, 20, 30, dtype=fl.uint8)
    boxed = utils.draw_bounding_boxes(image, fl.tensor([[4, 5, 16, 11]]), labels=["a"], colors="red")
    assert boxed[:, 5, 4:17].tolist() == [[255] * 13, [0] * 13, [0] * 13]
    masks = fl.zeros(1, 20, 30, dtype=fl.bool)
    masks[0, 2:4] = True
    assert utils.draw_segmentation_masks(image, masks, alpha=1.0, colors="blue")[2].sum().item() == 2 * 30 * 255
    points = utils.draw_keypoints(image.float() / 255, fl.tensor([[[5, 5], [20, 10]]]), [(0, 1)])
    assert points.dtype is fl.float32 and points[0, 5, 5] == 1
    with pytest.raises(ValueError, match="x1 <= x2"):
        utils.draw_bounding_boxes(image, fl.tensor([[9, 5, 4, 11]]))


def test_annotated_images_are_read(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    pixels = image_module.fromarray(np.zeros((4, 6, 3), np.uint8))
    pixels.save(tmp_path / "a.jpg")
    annotations = {"images": [{"id": 3, "file_name": "a.jpg"}], "annotations": [{"image_id": 3, "bbox": [0, 0, 1, 1]}]}
    (tmp_path / "a.json").write_text(json.dumps(annotations))
    coco = datasets.CocoDetection(tmp_path, tmp_path / "a.json", transform=F.to_image)
    assert len(coco) == 1 and coco[0][0].shape == (3, 4, 6) and coco[0][1][0]["bbox"] == [0, 0, 1, 1]
    folder = tmp_path / "VOCdevkit" / "VOC2012"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    pixels.save(folder / "JPEGImages" / "b.jpg")
    (folder / "ImageSets" / "Main" / "train.txt").write_text("b\n")
    (folder / "Annotations" / "b.xml").write_text("<annotation><object><name>cat</name></object></annotation>")
    voc = datasets.VOCDetection(tmp_path)
    assert voc[0][1] == {"annotation": {"object": [{"name": "cat"}]}}
