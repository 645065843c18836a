"""A small YOLO, made here, finds boxes and gives losses with gradients."""

import torch
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import DEFAULT_CFG

model = DetectionModel("yolov8n.yaml", nc=3, verbose=False)
model.args = DEFAULT_CFG
images = torch.rand(2, 3, 64, 64)
batch = {
    "img": images,
    "cls": torch.tensor([[0.0], [1.0]]),
    "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.4]] * 2),
    "batch_idx": torch.tensor([0.0, 1.0]),
}
loss, parts = model.train()(batch)
loss.sum().backward()
assert torch.isfinite(loss).all() and len(parts) == 3
assert model.eval()(images)[0].shape[:2] == (2, 7)
assert model.fuse(verbose=False)(images)[0].shape[:2] == (2, 7)
