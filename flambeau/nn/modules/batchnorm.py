"""Batch normalisation, its lazy form, and the state that batch and instance normalisation share."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.normalization import register_affine, reset_affine
from flambeau.nn.parameter import UninitializedBuffer, UninitializedParameter

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d",
    "SyncBatchNorm",
]  # fmt: skip


class _NormBase(Module):
    """Parameters, running statistics and their place in state dicts."""

    _version = 2
    num_features: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        register_affine(self, num_features, affine, affine and bias, device, dtype)
        running = track_running_stats
        self.register_buffer("running_mean", fl.zeros(num_features, device=device, dtype=dtype) if running else None)
        self.register_buffer("running_var", fl.ones(num_features, device=device, dtype=dtype) if running else None)
        count = fl.tensor(0, dtype=fl.int64, device=device) if running else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the batches seen: mean 0, variance 1."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Forget the batches seen and set weight to 1, bias to 0."""
        self.reset_running_stats()
        reset_affine(self)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # State dicts of the first version had no count of batches.
        version = local_metadata.get("version")
        key = f"{prefix}num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            count = self.num_batches_tracked
            known = count is not None and count.device.type != "meta"
            state_dict[key] = count if known else fl.tensor(0, dtype=fl.int64)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    """Normalisation of each channel over the batch; by the running statistics in evaluation."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = self.momentum
        training = self.training
        mean, var = self.running_mean, self.running_var
        if training:
            if self.track_running_stats:
                if (count := self.num_batches_tracked) is not None:
                    count.add_(1)
                    if momentum is None:  # cumulative average
                        momentum = 1.0 / float(count)
            else:
                mean = var = None
        return F.batch_norm(
            input,
            mean,
            var,
            self.weight,
            self.bias,
            training or (mean is None and var is None),
            0.0 if momentum is None else momentum,
            self.eps,
        )


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Takes num_features from the first input."""

    weight: UninitializedParameter
    bias: UninitializedParameter

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=bias)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = fl.tensor(0, dtype=fl.int64, device=device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        if self.affine:
            self.weight.materialize((self.num_features,))
            if self.bias is not None:
                self.bias.materialize((self.num_features,))
        if self.track_running_stats:
            self.running_mean.materialize((self.num_features,))
            self.running_var.materialize((self.num_features,))
        self.reset_parameters()


def _check_dims(module: Module, input: Tensor, *allowed: int) -> None:
    if input.dim() not in allowed:
        wanted = " or ".join(str(dims) for dims in allowed)
        raise ValueError(f"[{type(module).__name__}] expected an input of {wanted} dimensions, got {input.dim()}")


class BatchNorm1d(_BatchNorm):
    """Each channel scaled to mean 0 and variance 1 over the batch, times weight plus bias.

    - num_features: channels C; eps: added to the variance; momentum: share of new running statistics (None: their mean).
    - affine: learn weight and bias; track_running_stats: keep statistics for evaluation; device, dtype.

    The input is (N, C) or (N, C, L).

    >>> nn.BatchNorm1d(1, affine=False)(flambeau.tensor([[1.0], [3.0]]))
    tensor([[-1.0000],
            [ 1.0000]])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 2 and input.dim() != 3:
            _check_dims(self, input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Each channel scaled to mean 0 and variance 1 over batch and positions, times weight plus bias.

    - num_features: channels C; eps, momentum, affine, track_running_stats, device, dtype: as for BatchNorm1d.

    The input is (N, C, H, W).

    >>> nn.BatchNorm2d(3)(flambeau.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 4:
            _check_dims(self, input, 4)


class BatchNorm3d(_BatchNorm):
    """Each channel scaled to mean 0 and variance 1 over batch and positions, times weight plus bias.

    - num_features: channels C; eps, momentum, affine, track_running_stats, device, dtype: as for BatchNorm1d.

    The input is (N, C, D, H, W).

    >>> nn.BatchNorm3d(3)(flambeau.randn(2, 3, 2, 4, 4)).shape
    torch.Size([2, 3, 2, 4, 4])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 5:
            _check_dims(self, input, 5)


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """BatchNorm1d that learns num_features from its first input.

    - eps, momentum, affine, track_running_stats, device, dtype: as for BatchNorm1d.

    >>> nn.LazyBatchNorm1d()(flambeau.randn(2, 3)).shape
    torch.Size([2, 3])
    """

    cls_to_become = BatchNorm1d
    _check_input_dim = BatchNorm1d._check_input_dim


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """BatchNorm2d that learns num_features from its first input.

    - eps, momentum, affine, track_running_stats, device, dtype: as for BatchNorm1d.

    >>> nn.LazyBatchNorm2d()(flambeau.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    cls_to_become = BatchNorm2d
    _check_input_dim = BatchNorm2d._check_input_dim


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """BatchNorm3d that learns num_features from its first input.

    - eps, momentum, affine, track_running_stats, device, dtype: as for BatchNorm1d.

    >>> nn.LazyBatchNorm3d()(flambeau.randn(2, 3, 2, 4, 4)).shape
    torch.Size([2, 3, 2, 4, 4])
    """

    cls_to_become = BatchNorm3d
    _check_input_dim = BatchNorm3d._check_input_dim


class SyncBatchNorm(_BatchNorm):
    """Batch norm whose statistics are those of all processes of a group.

    - num_features, eps, momentum, affine, track_running_stats, device, dtype: as for BatchNorm1d.
    - process_group: the processes, all when not given.

    `convert_sync_batchnorm(model)` puts it in place of every BatchNorm. Without a process group it is one.

    >>> nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))
    Sequential(
      (0): SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    )
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"[SyncBatchNorm] expected an input of at least 2 dimensions, got {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        import sys

        distributed = sys.modules.get("flambeau.distributed")  # a program that has groups has loaded it
        uses_batch = self.training or self.running_mean is None
        if distributed is None or not distributed.is_initialized() or not uses_batch:
            return super().forward(input)
        group = self.process_group if self.process_group is not None else distributed.group.WORLD
        if group.size() == 1:
            return super().forward(input)
        from flambeau.distributed._sync_batch_norm import sync_batch_norm

        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        tracked = self.training and self.track_running_stats
        mean, variance = (self.running_mean, self.running_var) if tracked else (None, None)
        return sync_batch_norm(input, self.weight, self.bias, mean, variance, self.eps, momentum, group)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replace every BatchNorm within a module by a SyncBatchNorm of the same state."""
        converted = module
        if isinstance(module, _BatchNorm):
            converted = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group, bias=module.bias is not None,
            )  # fmt: skip
            if module.affine:
                with fl.no_grad():
                    converted.weight = module.weight
                    if module.bias is not None:
                        converted.bias = module.bias
            converted.running_mean = module.running_mean
            converted.running_var = module.running_var
            converted.num_batches_tracked = module.num_batches_tracked
            converted.training = module.training
            if hasattr(module, "qconfig"):
                converted.qconfig = module.qconfig
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted
