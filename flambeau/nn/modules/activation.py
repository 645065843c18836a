"""Activation functions as modules. Forward calls one operator; options live in attributes. Attention is in
attention.py, where MultiheadAttention is written, and can be found here as well."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fl
from flambeau import Tensor, _ops
from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
    "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid",
    "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class Threshold(Module):
    """x where it is above a threshold, a value elsewhere.

    - threshold: elements up to it are replaced; value: what replaces them; inplace: overwrite the input.

    >>> nn.Threshold(0.5, -9.0)(flambeau.tensor([0.1, 0.9]))
    tensor([-9.0000,  0.9000])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}{', inplace=True' if self.inplace else ''}"


class _InPlace(Module):
    """An activation with the one option of overwriting its input."""

    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """x where it is positive, 0 elsewhere.

    - inplace: overwrite the input.

    >>> nn.ReLU()(flambeau.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return fl.relu_(input) if self.inplace else fl.relu(input)


class SiLU(_InPlace):
    """`x * sigmoid(x)`, also called swish.

    - inplace: overwrite the input.

    >>> nn.SiLU()(flambeau.tensor([-1.0, 2.0]))
    tensor([-0.2689,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return _ops.silu_(input) if self.inplace else _ops.silu(input)


class Mish(_InPlace):
    """`x * tanh(softplus(x))`.

    - inplace: overwrite the input.

    >>> nn.Mish()(flambeau.tensor([-1.0, 2.0]))
    tensor([-0.3034,  1.9440])
    """

    def forward(self, input: Tensor) -> Tensor:
        return _ops.mish_(input) if self.inplace else _ops.mish(input)


class SELU(_InPlace):
    """elu with constants that keep mean 0 and variance 1 from layer to layer.

    - inplace: overwrite the input.

    >>> nn.SELU()(flambeau.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """

    def forward(self, input: Tensor) -> Tensor:
        return fl.selu_(input) if self.inplace else fl.selu(input)


class Hardsigmoid(_InPlace):
    """Straight line in place of the sigmoid, `relu6(x + 3) / 6`.

    - inplace: overwrite the input.

    >>> nn.Hardsigmoid()(flambeau.tensor([0.0, 1.0]))
    tensor([0.5000, 0.6667])
    """

    def forward(self, input: Tensor) -> Tensor:
        return _ops.hardsigmoid_(input) if self.inplace else _ops.hardsigmoid(input)

    def extra_repr(self) -> str:
        return ""


class Hardswish(_InPlace):
    """`x * relu6(x + 3) / 6`.

    - inplace: overwrite the input.

    >>> nn.Hardswish()(flambeau.tensor([1.0, 4.0]))
    tensor([0.6667, 4.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return _ops.hardswish_(input) if self.inplace else _ops.hardswish(input)

    def extra_repr(self) -> str:
        return ""


class Hardtanh(Module):
    """x within [min_val, max_val], the bounds elsewhere.

    - min_val, max_val: the bounds; inplace: overwrite the input.

    >>> nn.Hardtanh()(flambeau.tensor([-3.0, 0.5]))
    tensor([-1.0000,  0.5000])
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        if min_value is not None:
            warnings.warn("Hardtanh's min_value is deprecated; use min_val", FutureWarning, stacklevel=2)
            min_val = min_value
        if max_value is not None:
            warnings.warn("Hardtanh's max_value is deprecated; use max_val", FutureWarning, stacklevel=2)
            max_val = max_value
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace
        if not max_val > min_val:
            raise AssertionError(f"[Hardtanh] expected max_val > min_val, got {max_val} and {min_val}")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{', inplace=True' if self.inplace else ''}"


class ReLU6(Hardtanh):
    """relu that stops at 6.

    - inplace: overwrite the input.

    >>> nn.ReLU6()(flambeau.tensor([-1.0, 8.0]))
    tensor([0., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class RReLU(Module):
    """leaky relu whose slope is drawn from [lower, upper] for each element in training, and is the middle otherwise.

    - lower, upper: bounds of the slope; inplace: overwrite the input.

    >>> nn.RReLU(0.1, 0.3).eval()(flambeau.tensor([-1.0, 2.0]))
    tensor([-0.2000,  2.0000])
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{', inplace=True' if self.inplace else ''}"


class _Alpha(Module):
    """An activation with a shape `alpha` and the option of overwriting its input."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{', inplace=True' if self.inplace else ''}"


class ELU(_Alpha):
    """x where it is positive, `alpha * (exp(x) - 1)` elsewhere.

    - alpha: the limit for large negative x is -alpha; inplace: overwrite the input.

    >>> nn.ELU()(flambeau.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Alpha):
    """x where it is positive, `alpha * (exp(x / alpha) - 1)` elsewhere.

    - alpha: the limit for large negative x is -alpha; inplace: overwrite the input.

    >>> nn.CELU(2.0)(flambeau.tensor([-1.0, 2.0]))
    tensor([-0.7869,  2.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(Module):
    """x where it is positive, `negative_slope * x` elsewhere.

    - negative_slope: factor of negative elements; inplace: overwrite the input.

    >>> nn.LeakyReLU(0.1)(flambeau.tensor([-1.0, 2.0]))
    tensor([-0.1000,  2.0000])
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        slope = self.negative_slope
        return _ops.leaky_relu_(input, slope) if self.inplace else _ops.leaky_relu(input, slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{', inplace=True' if self.inplace else ''}"


class PReLU(Module):
    """x where it is positive, `weight * x` elsewhere, with a weight that is learned.

    - num_parameters: 1, or one for each channel; init: first value of the weight; device, dtype.

    >>> nn.PReLU()(flambeau.tensor([-1.0, 2.0])).detach()
    tensor([-0.2500,  2.0000])
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(fl.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every slope to its initial value."""
        with fl.no_grad():
            self.weight.fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Sigmoid(Module):
    """Logistic function, `1 / (1 + exp(-x))`.

    >>> nn.Sigmoid()(flambeau.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        return fl.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent of each element.

    >>> nn.Tanh()(flambeau.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return fl.tanh(input)


class LogSigmoid(Module):
    """Logarithm of the sigmoid, without overflow.

    >>> nn.LogSigmoid()(flambeau.tensor([-100.0, 0.0]))
    tensor([-100.0000,   -0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """`x / (1 + abs(x))`.

    >>> nn.Softsign()(flambeau.tensor([-1.0, 3.0]))
    tensor([-0.5000,  0.7500])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """`x - tanh(x)`.

    >>> nn.Tanhshrink()(flambeau.tensor([0.0, 2.0]))
    tensor([0.0000, 1.0360])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class GLU(Module):
    """First half of the input times the sigmoid of the second half.

    - dim: the dimension that is halved.

    >>> nn.GLU()(flambeau.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GELU(Module):
    """Gaussian error linear unit, `x * P(N < x)` for a standard normal N.

    - approximate: "none" for the exact function, "tanh" for the approximation.

    >>> nn.GELU()(flambeau.tensor([-1.0, 2.0]))
    tensor([-0.1587,  1.9545])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class _Lambda(Module):
    """A shrinkage by `lambd`."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Lambda):
    """0 where the absolute value is at most lambd, x elsewhere.

    - lambd: half the width of the gap.

    >>> nn.Hardshrink()(flambeau.tensor([0.3, 0.6]))
    tensor([0.0000, 0.6000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Lambda):
    """x moved by lambd towards zero, 0 where it would cross.

    - lambd: how far.

    >>> nn.Softshrink()(flambeau.tensor([-1.0, 0.3]))
    tensor([-0.5000,  0.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Softplus(Module):
    """Smooth relu, `log(1 + exp(beta * x)) / beta`.

    - beta: how sharp the bend is; threshold: above it the result is x.

    >>> nn.Softplus()(flambeau.tensor([-1.0, 0.0]))
    tensor([0.3133, 0.6931])
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class _AlongDimension(Module):
    """A function of all elements along one dimension."""

    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(_AlongDimension):
    """softmax of the negative input.

    - dim: the dimension that adds up to one.

    >>> nn.Softmin(dim=0)(flambeau.tensor([0.0, 1.0]))
    tensor([0.7311, 0.2689])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax(_AlongDimension):
    """Positive numbers that add up to one, `exp(x) / sum(exp(x))`.

    - dim: the dimension that adds up to one.

    Cross entropy takes logits, not the result of this layer.

    >>> nn.Softmax(dim=0)(flambeau.tensor([0.0, 1.0, 2.0]))
    tensor([0.0900, 0.2447, 0.6652])
    """

    def forward(self, input: Tensor) -> Tensor:
        return fl.softmax(input, self.dim) if self.dim is not None else F.softmax(input, None, _stacklevel=5)


class LogSoftmax(_AlongDimension):
    """Logarithm of the softmax.

    - dim: the dimension whose probabilities add up to one.

    >>> nn.LogSoftmax(dim=0)(flambeau.tensor([0.0, 1.0]))
    tensor([-1.3133, -0.3133])
    """

    def forward(self, input: Tensor) -> Tensor:
        return fl.log_softmax(input, self.dim) if self.dim is not None else F.log_softmax(input, None, _stacklevel=5)


class Softmax2d(Module):
    """softmax over the channels of each position.

    The input is (N, C, H, W) or (C, H, W).

    >>> nn.Softmax2d()(flambeau.zeros(1, 2, 1, 1)).flatten()
    tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"[Softmax2d] expected 3 or 4 dimensions, got {input.dim()}")
        return fl.softmax(input, -3)


def __getattr__(name: str) -> Any:
    if name != "MultiheadAttention":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flambeau.nn.modules.attention import MultiheadAttention

    return MultiheadAttention
