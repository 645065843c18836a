"""PowerSGD: gradients that are matrices are sent as products of two thin ones, with the error fed back into the next step.

Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization" (2019).
"""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._groups import _get_default_group
from flambeau.distributed.algorithms.ddp_comm_hooks.default_hooks import _averaged
from flambeau.futures import Future

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]


class PowerSGDState:
    """What the hook keeps between steps."""

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if start_powerSGD_iter <= 1 and (use_error_feedback or warm_start):
            raise ValueError(
                "[PowerSGDState] Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because "
                "PowerSGD can only be applied after the first two iterations in DDP."
            )
        self.process_group = process_group
        self.matrix_approximation_rank, self.start_powerSGD_iter = matrix_approximation_rank, start_powerSGD_iter
        self.min_compression_rate, self.use_error_feedback = min_compression_rate, use_error_feedback
        self.warm_start, self.orthogonalization_epsilon = warm_start, orthogonalization_epsilon
        self.compression_stats_logging_frequency = compression_stats_logging_frequency
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.generator = flambeau.Generator().manual_seed(random_seed)
        self.iter = 0
        self.error_dict: dict[int, Any] = {}
        self.p_memory_dict: dict[Any, Any] = {}
        self.q_memory_dict: dict[Any, Any] = {}
        self.total_numel_before_compression = self.total_numel_after_compression = 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        if bucket.is_last():
            self.iter += 1

    def compression_stats(self) -> tuple[float, int, int]:
        after = self.total_numel_after_compression
        rate = self.total_numel_before_compression / after if after else 0
        return rate, self.total_numel_before_compression, after


def _orthogonalize(matrix: Any, epsilon: float) -> None:
    """Columns become orthonormal, in place."""
    for column in range(matrix.shape[1]):
        own = matrix[:, column : column + 1]
        own.div_(own.norm() + epsilon if epsilon else own.norm().clamp_min(1e-30))
        rest = matrix[:, column + 1 :]
        if rest.numel():
            rest.sub_((own * rest).sum(0) * own)


def _compress(state: PowerSGDState, group: Any, key: Any, matrix: Any) -> None:
    """Replaces a matrix by the mean of its low-rank approximations over the group."""
    rows, columns = matrix.shape
    rank = min(rows, columns, state.matrix_approximation_rank)
    q = state.q_memory_dict.get(key) if state.warm_start else None
    if q is None:
        q = flambeau.randn(columns, rank, generator=state.generator, dtype=matrix.dtype).to(matrix.device)
        _orthogonalize(q, state.orthogonalization_epsilon)
    p = matrix @ q
    collectives.all_reduce(p, group=group)
    _orthogonalize(p, state.orthogonalization_epsilon)
    q = matrix.t() @ p
    collectives.all_reduce(q, group=group)
    q.div_(group.size())
    matrix.copy_(p @ q.t())
    state.q_memory_dict[key] = q
    state.total_numel_before_compression += rows * columns
    state.total_numel_after_compression += rank * (rows + columns)


def _result(value: Any) -> Any:
    future: Any = Future()
    future.set_result(value)
    return future


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:
    """Compresses the matrices of a bucket one by one; vectors are averaged as they are."""
    group = state.process_group if state.process_group is not None else _get_default_group()
    buffer = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return _averaged(group, buffer)
    index = bucket.index()
    if state.use_error_feedback and index in state.error_dict:
        buffer.add_(state.error_dict[index])
    before = buffer.clone() if state.use_error_feedback else None
    plain = []
    for place, gradient in enumerate(bucket.gradients()):
        matrix = gradient.view(gradient.shape[0], -1) if gradient.dim() > 1 else None
        if matrix is None or not _pays(state, matrix):
            plain.append(gradient)
        else:
            _compress(state, group, (index, place), matrix)
    if plain:
        flat = flambeau.cat([gradient.reshape(-1) for gradient in plain])
        flat.div_(group.size())
        collectives.all_reduce(flat, group=group)
        for gradient, part in zip(plain, flat.split([gradient.numel() for gradient in plain])):
            gradient.copy_(part.view(gradient.shape))
    if before is not None:
        error = before - buffer
        offset = 0
        for gradient in bucket.gradients():
            if any(gradient is one for one in plain):  # sent whole: nothing was lost
                error[offset : offset + gradient.numel()] = 0
            offset += gradient.numel()
        state.error_dict[index] = error
    state.maybe_increase_iter(bucket)
    return _result(buffer)


def _pays(state: PowerSGDState, matrix: Any) -> bool:
    rows, columns = matrix.shape
    rank = min(rows, columns, state.matrix_approximation_rank)
    return (rows + columns) * rank * state.min_compression_rate < rows * columns


def batched_powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:
    """Compresses a whole bucket as one square matrix."""
    group = state.process_group if state.process_group is not None else _get_default_group()
    buffer = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return _averaged(group, buffer)
    index = bucket.index()
    side = int(buffer.numel() ** 0.5)
    side += side * side < buffer.numel()
    padded = flambeau.nn.functional.pad(buffer, (0, side * side - buffer.numel()))
    if state.use_error_feedback and index in state.error_dict:
        padded.add_(state.error_dict[index])
    before = padded.clone()
    _compress(state, group, index, padded.view(side, side))
    if state.use_error_feedback:
        state.error_dict[index] = before - padded
    buffer.copy_(padded[: buffer.numel()])
    state.maybe_increase_iter(bucket)
    return _result(buffer)
