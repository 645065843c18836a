"""Initialisation: functions that fill a tensor in place with values from a distribution, without recording gradients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor

__all__ = [
    "calculate_gain", "uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "eye_", "dirac_",
    "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "sparse_",
    "uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "xavier_normal", "kaiming_uniform",
    "kaiming_normal", "orthogonal", "sparse",
]  # fmt: skip

_GAINS = {"sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75}
_LINEAR = frozenset(
    ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
)


def _no_grad_uniform_(tensor: Tensor, a: float, b: float, generator: fl.Generator | None = None) -> Tensor:
    with fl.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def _no_grad_normal_(tensor: Tensor, mean: float, std: float, generator: fl.Generator | None = None) -> Tensor:
    with fl.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def _no_grad_trunc_normal_(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: fl.Generator | None = None
) -> Tensor:
    """Uniform numbers between the distribution's values at the ends, sent through its inverse."""

    def below(x: float) -> float:
        return (1.0 + math.erf((x - mean) / (std * math.sqrt(2.0)))) / 2.0

    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"[trunc_normal_] expected a mean within two standard deviations of [{a}, {b}], got {mean}; "
            "the distribution of the values may be off",
            stacklevel=2,
        )
    with fl.no_grad():
        tensor.uniform_(2 * below(a) - 1, 2 * below(b) - 1, generator=generator)
        return tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(min=a, max=b)


def _no_grad_fill_(tensor: Tensor, val: float) -> Tensor:
    with fl.no_grad():
        return tensor.fill_(val)


def _no_grad_zero_(tensor: Tensor) -> Tensor:
    with fl.no_grad():
        return tensor.zero_()


def calculate_gain(nonlinearity: str, param: int | float | None = None) -> float:
    """Factor by which an activation shrinks deviations.

    - nonlinearity: its name; param: the slope of a leaky relu.

    >>> nn.init.calculate_gain("relu")
    1.4142135623730951
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"[calculate_gain] expected a number for negative_slope, got {param!r}")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(
            f"[calculate_gain] expected one of {', '.join(sorted(_LINEAR | set(_GAINS)))}, leaky_relu, got {nonlinearity!r}"
        )
    return _GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: fl.Generator | None = None) -> Tensor:
    """Fill with uniform numbers from [a, b].

    - tensor: filled in place; a, b: the range; generator.

    >>> nn.init.uniform_(flambeau.empty(3), 2.0, 2.0)
    tensor([2., 2., 2.])
    """
    return _no_grad_uniform_(tensor, a, b, generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: fl.Generator | None = None) -> Tensor:
    """Fill with normal numbers.

    - tensor: filled in place; mean, std; generator.

    >>> nn.init.normal_(flambeau.empty(3), 1.0, 0.0)
    tensor([1., 1., 1.])
    """
    return _no_grad_normal_(tensor, mean, std, generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: fl.Generator | None = None,
) -> Tensor:
    """Fill with normal numbers that are drawn again outside of [a, b].

    - tensor: filled in place; mean, std; a, b: the bounds; generator.

    >>> bool((nn.init.trunc_normal_(flambeau.empty(100)).abs() <= 2).all())
    True
    """
    return _no_grad_trunc_normal_(tensor, mean, std, a, b, generator)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number.

    - tensor: filled in place; val: the number.

    >>> nn.init.constant_(flambeau.empty(2), 0.3)
    tensor([0.3000, 0.3000])
    """
    return _no_grad_fill_(tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones.

    - tensor: filled in place.

    >>> nn.init.ones_(flambeau.empty(2))
    tensor([1., 1.])
    """
    return _no_grad_fill_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    - tensor: filled in place.

    >>> nn.init.zeros_(flambeau.empty(2))
    tensor([0., 0.])
    """
    return _no_grad_zero_(tensor)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity.

    - tensor: two dimensions, filled in place.

    >>> nn.init.eye_(flambeau.empty(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor.dim() != 2:
        raise ValueError(f"[eye_] expected 2 dimensions, got {tensor.dim()}")
    with fl.no_grad():
        tensor.zero_().diagonal().fill_(1)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that channels pass unchanged.

    - tensor: three to five dimensions, filled in place; groups.

    >>> nn.init.dirac_(flambeau.empty(1, 1, 3))
    tensor([[[0., 1., 0.]]])
    """
    sizes = tensor.shape
    if len(sizes) not in (3, 4, 5):
        raise ValueError(f"[dirac_] expected 3, 4 or 5 dimensions, got {len(sizes)}")
    if sizes[0] % groups:
        raise ValueError(f"[dirac_] expected output channels divisible by {groups} groups, got {sizes[0]}")
    per_group = sizes[0] // groups
    middle = tuple(size // 2 for size in sizes[2:])
    with fl.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, sizes[1])):
                tensor[(group * per_group + channel, channel, *middle)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError(f"[init] expected at least 2 dimensions to count fan in and fan out, got {tensor.dim()}")
    field = 1
    for size in tensor.shape[2:]:
        field *= size
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    wanted = mode.lower()
    if wanted not in ("fan_in", "fan_out"):
        raise ValueError(f"[init] expected mode 'fan_in' or 'fan_out', got '{mode}'")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_out if wanted == "fan_out" else fan_in


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: fl.Generator | None = None) -> Tensor:
    """Fill uniformly from +-gain * sqrt(6 / (fan_in + fan_out)).

    - tensor: at least two dimensions, filled in place; gain; generator.

    >>> bool((nn.init.xavier_uniform_(flambeau.empty(3, 3)).abs() <= 1).all())
    True
    """
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    bound = math.sqrt(3.0) * std
    return _no_grad_uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: fl.Generator | None = None) -> Tensor:
    """Fill with normal numbers of deviation gain * sqrt(2 / (fan_in + fan_out)).

    - tensor: at least two dimensions, filled in place; gain; generator.

    >>> nn.init.xavier_normal_(flambeau.empty(3, 3)).shape
    torch.Size([3, 3])
    """
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return _no_grad_normal_(tensor, 0.0, std, generator)


def _kaiming_std(name: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    """Standard deviation gain / sqrt(fan); None where there is nothing to fill."""
    if 0 in tensor.shape:
        warnings.warn(f"[{name}] expected elements to initialise, got none", stacklevel=3)
        return None
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: fl.Generator | None = None,
) -> Tensor:
    """Fill uniformly from +-gain * sqrt(3 / fan).

    - tensor: at least two dimensions, filled in place; a: slope of the leaky relu after it.
    - mode: "fan_in" keeps variances forward, "fan_out" backward; nonlinearity; generator.

    >>> nn.init.kaiming_uniform_(flambeau.empty(3, 3)).shape
    torch.Size([3, 3])
    """
    std = _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return _no_grad_uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: fl.Generator | None = None,
) -> Tensor:
    """Fill with normal numbers of deviation gain / sqrt(fan).

    - tensor: at least two dimensions, filled in place; a: slope of the leaky relu after it.
    - mode: "fan_in" keeps variances forward, "fan_out" backward; nonlinearity; generator.

    >>> nn.init.kaiming_normal_(flambeau.empty(3, 3)).shape
    torch.Size([3, 3])
    """
    std = _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity)
    return tensor if std is None else _no_grad_normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: fl.Generator | None = None) -> Tensor:
    """Fill with an orthogonal matrix.

    - tensor: at least two dimensions, filled in place; gain; generator.

    >>> (lambda w: (w @ w.T).round(decimals=3).diag())(nn.init.orthogonal_(flambeau.empty(2, 2)))
    tensor([1., 1.])
    """
    if tensor.dim() < 2:
        raise ValueError(f"[orthogonal_] expected at least 2 dimensions, got {tensor.dim()}")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with fl.no_grad():
        sample = fl.empty((rows, columns), dtype=tensor.dtype, device=tensor.device).normal_(0, 1, generator=generator)
        q, r = fl.linalg.qr(sample.t() if rows < columns else sample)
        q = q * r.diagonal().sign()  # makes the decomposition unique, hence the draw uniform
        tensor.view_as(tensor).copy_((q.t() if rows < columns else q).reshape(tensor.shape))
        return tensor.mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: fl.Generator | None = None) -> Tensor:
    """Fill with normal numbers and, in each column, a share of zeros.

    - tensor: two dimensions, filled in place; sparsity: the share; std; generator.

    >>> int((nn.init.sparse_(flambeau.empty(4, 2), 0.5) == 0).sum())
    4
    """
    if tensor.dim() != 2:
        raise ValueError(f"[sparse_] expected 2 dimensions, got {tensor.dim()}")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with fl.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[fl.randperm(rows)[:zeros], column] = 0
    return tensor


def _make_deprecate(meth: Callable[..., Any]) -> Callable[..., Any]:
    """The function under its old name, without the underscore."""
    new = meth.__name__
    old = new[:-1]

    def deprecated(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"nn.init.{old} is deprecated; use nn.init.{new}", FutureWarning, stacklevel=2)
        return meth(*args, **kwargs)

    deprecated.__name__ = old
    deprecated.__doc__ = f"Deprecated name of `{new}`."
    return deprecated


uniform = _make_deprecate(uniform_)
normal = _make_deprecate(normal_)
constant = _make_deprecate(constant_)
eye = _make_deprecate(eye_)
dirac = _make_deprecate(dirac_)
xavier_uniform = _make_deprecate(xavier_uniform_)
xavier_normal = _make_deprecate(xavier_normal_)
kaiming_uniform = _make_deprecate(kaiming_uniform_)
kaiming_normal = _make_deprecate(kaiming_normal_)
orthogonal = _make_deprecate(orthogonal_)
sparse = _make_deprecate(sparse_)
