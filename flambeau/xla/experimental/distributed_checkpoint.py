"""Checkpoints of training that goes on: planners, and a manager that keeps the latest ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import flambeau as fl
from flambeau.distributed import checkpoint

__all__ = ["CheckpointManager", "SPMDLoadPlanner", "SPMDSavePlanner", "prime_optimizer"]


class SPMDSavePlanner(checkpoint.DefaultSavePlanner):
    """Tensors over one device are saved whole."""


class SPMDLoadPlanner(checkpoint.DefaultLoadPlanner):
    """Tensors over one device are loaded whole."""


def prime_optimizer(optimizer: Any) -> Any:
    """Gives an optimizer its states without changing parameters, so that a checkpoint can be loaded into them."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        for p in group["params"]:
            if p.requires_grad:
                p.grad = fl.zeros_like(p)
    decays = [group.get("weight_decay") for group in optimizer.param_groups]
    for group, decay in zip(optimizer.param_groups, decays):
        if decay is not None:
            group["weight_decay"] = 0.0
    optimizer.step()
    optimizer.zero_grad()
    for group, rate, decay in zip(optimizer.param_groups, rates, decays):
        group["lr"] = rate
        if decay is not None:
            group["weight_decay"] = decay
    return optimizer


class CheckpointManager:
    """Checkpoints of steps in a folder, of which the latest `max_to_keep` stay."""

    def __init__(
        self, path: Any, save_interval: int, max_to_keep: int | None = 0, max_pending_async: int = 1, **options: Any
    ) -> None:
        if save_interval < 1:
            raise ValueError(f"[CheckpointManager] expected a save interval of at least 1, got {save_interval}")
        self.base_path, self.save_interval, self.max_to_keep = Path(os.fspath(path)), save_interval, max_to_keep or 0

    def _folder(self, step: int) -> Path:
        return self.base_path / str(step)

    def all_steps(self) -> list[int]:
        """The steps with a checkpoint, from the first on."""
        if not self.base_path.exists():
            return []
        return sorted(int(p.name) for p in self.base_path.iterdir() if p.name.isdigit() and (p / ".metadata").exists())

    def should_save(self, step: int) -> bool:
        return step % self.save_interval == 0

    def save(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """Whether a checkpoint was written, as it is at each interval."""
        if not (force or self.should_save(step)):
            return False
        folder = self._folder(step)
        if folder.exists():
            shutil.rmtree(folder)
        checkpoint.save(state_dict, checkpoint_id=str(folder), planner=SPMDSavePlanner(), no_dist=True)
        steps = self.all_steps()
        for old in steps[: max(len(steps) - self.max_to_keep, 0)] if self.max_to_keep else []:
            shutil.rmtree(self._folder(old))
        return True

    save_async = save

    def restore(self, step: int, state_dict: dict[str, Any]) -> None:
        """Loads the tensors of a checkpoint into those of the state."""
        if step not in self.all_steps():
            raise ValueError(f"[CheckpointManager.restore] expected one of the steps {self.all_steps()}, got {step}")
        checkpoint.load(state_dict, checkpoint_id=str(self._folder(step)), planner=SPMDLoadPlanner(), no_dist=True)

    def join(self) -> None:
        """Checkpoints are written when `save` returns."""

    def reached_preemption(self, step: int) -> bool:
        return False
