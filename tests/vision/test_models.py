"""Models: names, shapes, training by one step, boxes."""

import json
import zlib
from pathlib import Path

import pytest

import flambeau as fl
from flambeau.vision import models, ops


@pytest.mark.parametrize("name, count", [("resnet18", 122), ("mobilenet_v3_small", 244)])
def test_models_train(name, count):
    fl.manual_seed(0)
    model = models.get_model(name, num_classes=5)
    assert len(model.state_dict()) == count
    out = model(fl.randn(2, 3, 64, 64))
    assert out.shape == (2, 5)
    out.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_names_of_weights():
    assert models.ResNet50_Weights.DEFAULT.url.endswith("resnet50-11ad3fa6.pth")
    assert models.get_weight("ResNet18_Weights.IMAGENET1K_V1") is models.ResNet18_Weights.DEFAULT
    assert "resnet18" in models.list_models(include="resnet*")
    keys = list(models.resnet18().state_dict())
    assert {"conv1.weight", "layer2.0.downsample.1.running_mean", "fc.bias"} <= set(keys)


def test_features_from_the_middle():
    from flambeau.vision.models.feature_extraction import create_feature_extractor

    features = create_feature_extractor(models.resnet18(), {"layer1": "low", "layer3": "high"})
    out = features(fl.randn(1, 3, 64, 64))
    assert {k: tuple(v.shape) for k, v in out.items()} == {"low": (1, 64, 16, 16), "high": (1, 256, 4, 4)}


def test_boxes():
    boxes = fl.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    scores = fl.tensor([0.8, 0.9, 0.5])
    assert ops.nms(boxes, scores, 0.5).tolist() == [1, 2]
    assert ops.batched_nms(boxes, scores, fl.tensor([0, 1, 1]), 0.5).tolist() == [1, 0, 2]
    assert ops.box_iou(boxes, boxes)[0].tolist() == pytest.approx([1.0, 0.81, 0.0])
    back = ops.box_convert(ops.box_convert(boxes, "xyxy", "cxcywh"), "cxcywh", "xyxy")
    assert fl.allclose(back, boxes)


def test_state_dicts_have_the_names_and_shapes_of_torchvision():
    """Checksums of "name (shape)" lines, recorded from torchvision."""
    recorded = json.loads((Path(__file__).parent / "state_dicts.json").read_text())
    different = []
    for name, checksum in recorded.items():
        options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        place = "cpu" if name.startswith("ssd") else "meta"  # it runs its backbone to learn the widths
        with fl.device(place):
            state = models.get_model(name, **options).state_dict()
        text = "\n".join(f"{key} {tuple(value.shape)}" for key, value in sorted(state.items()))
        if zlib.crc32(text.encode()) != checksum:
            different.append(name)
    assert sorted(recorded) == models.list_models()
    assert different == []


@pytest.mark.parametrize("name", ["maskrcnn_resnet50_fpn", "retinanet_resnet50_fpn", "fcos_resnet50_fpn"])
def test_detectors_give_losses_and_detections(name):
    fl.manual_seed(0)
    model = models.get_model(name, num_classes=3, min_size=64, max_size=64)
    target = {
        "boxes": fl.tensor([[5.0, 5, 40, 50]]),
        "labels": fl.tensor([1]),
        "masks": fl.ones(1, 64, 64, dtype=fl.uint8),
    }
    losses = model([fl.rand(3, 64, 64)], [target])
    assert all(bool(loss.isfinite()) for loss in losses.values())
    sum(losses.values()).backward()
    assert model.backbone.body.conv1.weight.grad is not None
    detections = model.eval()([fl.rand(3, 48, 64), fl.rand(3, 64, 40)])
    assert len(detections) == 2
    assert {"boxes", "labels", "scores"} <= set(detections[0])
    with pytest.raises(AssertionError, match="positive height and width"):
        model.train()([fl.rand(3, 64, 64)], [{**target, "boxes": fl.tensor([[5.0, 5, 5, 9]])}])


def test_residual_blocks_begin_as_the_identity_where_asked():
    net = models.resnet18(num_classes=2, zero_init_residual=True)
    assert all(not block.bn2.weight.any() for block in (*net.layer1, *net.layer4))
    assert models.resnet18(num_classes=2).layer1[0].bn2.weight.all()
