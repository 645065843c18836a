"""What backends of one's own are made with: compilers of forward and backward instead of one of the captured graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["aot_autograd", "device_from_inputs", "dtype_from_inputs"]


def aot_autograd(**options: Any) -> Callable[..., Any]:
    """A backend from the arguments of `aot_module_simplified`: `fw_compiler`, and `bw_compiler` if another."""
    if "fw_compiler" not in options:
        raise TypeError("[aot_autograd] expected fw_compiler, got none")

    def backend(gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        from flambeau._functorch.aot_autograd import aot_module_simplified

        return aot_module_simplified(gm, example_inputs, **options)

    return backend


def device_from_inputs(example_inputs: Sequence[Any]) -> Any:
    """The device of the first tensor among the inputs."""
    return next((x.device for x in example_inputs if hasattr(x, "device")), None)


def dtype_from_inputs(example_inputs: Sequence[Any]) -> Any:
    """The dtype of the first tensor among the inputs."""
    return next((x.dtype for x in example_inputs if hasattr(x, "dtype")), None)
