"""Instance normalisation: each channel of each sample by its own statistics."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.nn import functional as F
from flambeau.nn.modules.batchnorm import _check_dims, _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]  # fmt: skip


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def _get_no_batch_dim(self) -> int:
        """The number of dimensions of an input without a batch."""
        raise NotImplementedError

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = input.dim() == self._get_no_batch_dim()
        channels = input.size(0 if single else 1)
        if channels != self.num_features:
            name = type(self).__name__
            if self.affine:
                raise ValueError(
                    f"[{name}] expected {self.num_features} channels, got {channels}: expected input's size at dim={0 if single else 1} "
                    f"to match num_features ({self.num_features}), but got: {channels}."
                )
            import warnings

            warnings.warn(
                f"[{name}] expected {self.num_features} channels, got {channels}; without affine parameters num_features is not used",
                stacklevel=2,
            )
        if single:
            return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return self._apply_instance_norm(input)

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
        # The first version kept running statistics unasked; such state dicts are refused with the cure.
        if local_metadata.get("version") is None and not self.track_running_stats:
            stale = [prefix + name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            if stale:
                error_msgs.append(
                    f"[{type(self).__name__}] expected no running statistics with track_running_stats=False, got "
                    f"{', '.join(stale)}; remove them from the state dict, or use track_running_stats=True"
                )
                for key in stale:
                    state_dict.pop(key)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sample scaled to mean 0 and variance 1.

    - num_features: channels C; eps, momentum; affine: learn weight and bias; track_running_stats; device, dtype.

    The input is (N, C, L) or (C, L).

    >>> nn.InstanceNorm1d(1)(flambeau.tensor([[[1.0, 3.0]]])).round(decimals=3)
    tensor([[[-1.,  1.]]])
    """

    def _get_no_batch_dim(self) -> int:
        return 2

    def _check_input_dim(self, input: Tensor) -> None:
        _check_dims(self, input, 2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each sample scaled to mean 0 and variance 1.

    - num_features: channels C; eps, momentum, affine, track_running_stats, device, dtype.

    >>> nn.InstanceNorm2d(3)(flambeau.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    def _get_no_batch_dim(self) -> int:
        return 3

    def _check_input_dim(self, input: Tensor) -> None:
        _check_dims(self, input, 3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each sample scaled to mean 0 and variance 1.

    - num_features: channels C; eps, momentum, affine, track_running_stats, device, dtype.

    >>> nn.InstanceNorm3d(3)(flambeau.randn(2, 3, 2, 4, 4)).shape
    torch.Size([2, 3, 2, 4, 4])
    """

    def _get_no_batch_dim(self) -> int:
        return 4

    def _check_input_dim(self, input: Tensor) -> None:
        _check_dims(self, input, 4, 5)


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm1d that learns num_features from its first input.

    - eps, momentum, affine, track_running_stats, device, dtype: as for InstanceNorm1d.

    >>> nn.LazyInstanceNorm1d()(flambeau.randn(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    cls_to_become = InstanceNorm1d
    _get_no_batch_dim = InstanceNorm1d._get_no_batch_dim
    _check_input_dim = InstanceNorm1d._check_input_dim


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm2d that learns num_features from its first input.

    - eps, momentum, affine, track_running_stats, device, dtype: as for InstanceNorm1d.

    >>> nn.LazyInstanceNorm2d()(flambeau.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    cls_to_become = InstanceNorm2d
    _get_no_batch_dim = InstanceNorm2d._get_no_batch_dim
    _check_input_dim = InstanceNorm2d._check_input_dim


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm3d that learns num_features from its first input.

    - eps, momentum, affine, track_running_stats, device, dtype: as for InstanceNorm1d.

    >>> nn.LazyInstanceNorm3d()(flambeau.randn(2, 3, 2, 4, 4)).shape
    torch.Size([2, 3, 2, 4, 4])
    """

    cls_to_become = InstanceNorm3d
    _get_no_batch_dim = InstanceNorm3d._get_no_batch_dim
    _check_input_dim = InstanceNorm3d._check_input_dim
