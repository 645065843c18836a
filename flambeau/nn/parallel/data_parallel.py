"""`DataParallel` without a GPU: the module itself, under the name `module`."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Calls its module; with no GPU there is nothing to spread the batch over.

    >>> nn.DataParallel(nn.ReLU())(flambeau.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        if device_ids:
            raise AssertionError(f"[DataParallel] expected no device_ids without GPUs, got {device_ids}")
        self.module, self.dim = module, dim
        self.device_ids: list[int] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """The module called with the inputs."""
    if device_ids and len(device_ids) > 1:
        raise NotImplementedError(f"[data_parallel] expected at most one device, got {device_ids}")
    arguments = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return module(*arguments, **(module_kwargs or {}))
