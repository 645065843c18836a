"""A runner trains a model of its registry, and writes a checkpoint."""

import pathlib
import tempfile

import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner


class Line(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, y, mode):
        return {"loss": (self.layer(x) - y).square().mean()}


data = [(torch.randn(2), torch.ones(1)) for _ in range(16)]
with tempfile.TemporaryDirectory() as folder:
    runner = Runner(
        model=Line(),
        work_dir=folder,
        train_dataloader={
            "dataset": data,
            "sampler": {"type": "DefaultSampler", "shuffle": True},
            "batch_size": 4,
            "collate_fn": {"type": "default_collate"},
        },
        train_cfg={"by_epoch": True, "max_epochs": 2},
        optim_wrapper={"optimizer": {"type": "Adam", "lr": 0.01}},
        default_hooks={"checkpoint": {"type": "CheckpointHook", "interval": 1}},
    )
    runner.train()
    assert (pathlib.Path(folder) / "epoch_2.pth").exists()
