"""Random numbers of distributed tensors: one seed for all processes of a mesh."""

from __future__ import annotations

from typing import Any

import flambeau

__all__ = ["is_rng_supported_mesh", "manual_seed"]

_rng_tracker: Any = None  # a seed is drawn for each operator, so there is nothing to track


def is_rng_supported_mesh(device_mesh: Any) -> bool:
    return device_mesh.device_type in ("cpu", "cuda")


def manual_seed(seed: int, device_mesh: Any) -> None:
    """The same seed on every process; numbers of a distributed tensor do not depend on the mesh."""
    if not is_rng_supported_mesh(device_mesh):
        raise NotImplementedError(f"[manual_seed] expected a mesh of CPUs or GPUs, got {device_mesh.device_type}")
    if device_mesh.get_coordinate() is None:
        raise RuntimeError("[manual_seed] manual_seed requires the current rank to be a part of the device mesh")
    flambeau.manual_seed(seed)
