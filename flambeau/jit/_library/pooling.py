"""Pooling with other results or sizes in the language of scripts: with the indices of the maxima, and sizes that are the input's."""

import flambeau
import flambeau as torch
from flambeau import Tensor
from flambeau.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3

aten = flambeau.ops.aten

__all__ = [
    "adaptive_avg_pool2d__1", "adaptive_avg_pool3d__1", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices",
]  # fmt: skip


def _output_size(size: list[int | None], current: list[int]) -> list[int]:
    result: list[int] = []
    for i in range(len(size)):
        wanted = size[i]
        if wanted is not None:
            result.append(wanted)
        else:
            result.append(current[len(current) - len(size) + i])
    return result


def adaptive_avg_pool2d__1(input: Tensor, output_size: BroadcastingList2[int | None]) -> Tensor:
    return aten.adaptive_avg_pool2d(input, _output_size(output_size, input.size()))  # type: ignore[arg-type]


def adaptive_avg_pool3d__1(input: Tensor, output_size: BroadcastingList3[int | None]) -> Tensor:
    return aten.adaptive_avg_pool3d(input, _output_size(output_size, input.size()))  # type: ignore[arg-type]


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    padding: BroadcastingList1[int] = 0,
    dilation: BroadcastingList1[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return aten.max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    dilation: BroadcastingList2[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return aten.max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    padding: BroadcastingList3[int] = 0,
    dilation: BroadcastingList3[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = True,
) -> tuple[Tensor, Tensor]:
    if stride is None:
        stride = torch.jit.annotate(list[int], [])
    return aten.max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: BroadcastingList1[int], return_indices: bool = True
) -> tuple[Tensor, Tensor]:
    return aten.adaptive_max_pool1d(input, output_size)


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: BroadcastingList2[int | None], return_indices: bool = True
) -> tuple[Tensor, Tensor]:
    return aten.adaptive_max_pool2d(input, _output_size(output_size, input.size()))  # type: ignore[arg-type]


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: BroadcastingList3[int | None], return_indices: bool = True
) -> tuple[Tensor, Tensor]:
    return aten.adaptive_max_pool3d(input, _output_size(output_size, input.size()))  # type: ignore[arg-type]
