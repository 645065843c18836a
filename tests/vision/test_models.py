"""Models: names, shapes, training by one step, boxes."""

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
