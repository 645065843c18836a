"""Activations on quantized tensors: computed from the values and rounded to the grid of the result."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.nn.quantized.modules.base import OnGrid
from flambeau.ao.quantized_tensor import QuantizedTensor

__all__ = ["ELU", "Dropout", "Hardswish", "LeakyReLU", "MaxPool2d", "PReLU", "ReLU6", "Sigmoid", "Softmax"]


class _Activation(OnGrid):
    """A function of each value, and the grid of its results."""

    inplace = False

    def compute(self, x: Tensor) -> Tensor:
        raise TypeError(f"[{type(self).__name__}] expected an activation, got a base class")

    def forward(self, input: Any) -> QuantizedTensor:
        return self._quantized(self.compute(input.dequantize()), input.dtype)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        return cls.from_reference(mod, float(scale.item()), int(zero_point.item()))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(scale, zero_point)

    script_settings: tuple[str, ...] = ()  # attributes beside the grid that the form for scripts has

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        settings = {name: getattr(self, name) for name in ("scale", "zero_point", *self.script_settings)}
        if self.script_settings:
            return getattr(forms, type(self).__name__)(**settings)
        return forms.OnGrid(_function=getattr(forms.quantized, type(self).__name__.lower()), **settings)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def extra_repr(self) -> str:
        return ""


class Hardswish(_Activation):
    """Hardswish."""

    def __init__(self, scale: float, zero_point: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__(scale, zero_point)

    def compute(self, x: Tensor) -> Tensor:
        return fl.nn.functional.hardswish(x)


class ELU(_Activation):
    """ELU."""

    grid_is_saved = False
    script_settings = ("alpha",)

    def __init__(self, scale: float, zero_point: int, alpha: float = 1.0) -> None:
        super().__init__(scale, zero_point)
        self.alpha = alpha

    def compute(self, x: Tensor) -> Tensor:
        return fl.nn.functional.elu(x, self.alpha)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> ELU:
        return cls(scale, zero_point, mod.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class LeakyReLU(_Activation):
    """Leaky relu."""

    script_settings = ("negative_slope",)

    def __init__(
        self, scale: float, zero_point: int, negative_slope: float = 1e-2, inplace: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(scale, zero_point)
        self.negative_slope = negative_slope

    def compute(self, x: Tensor) -> Tensor:
        return fl.nn.functional.leaky_relu(x, self.negative_slope)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> LeakyReLU:
        return cls(scale, zero_point, mod.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class Sigmoid(_Activation):
    """Sigmoid."""

    grid_is_saved = False

    def __init__(self, output_scale: float, output_zero_point: int) -> None:
        super().__init__(output_scale, output_zero_point)

    @property
    def output_scale(self) -> float:
        return self.scale

    @property
    def output_zero_point(self) -> int:
        return self.zero_point

    def compute(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def _get_name(self) -> str:
        return "Sigmoid"


class PReLU(_Activation):
    """PReLU; its weight is quantized too."""

    grid_is_saved = False
    script_settings = ("weight",)

    def __init__(self, output_scale: float, output_zero_point: int, num_parameters: int = 1) -> None:
        super().__init__(output_scale, output_zero_point)
        self.num_parameters = num_parameters
        self.set_weight(fl.quantize_per_tensor(fl.randn(num_parameters), 1.0, 0, fl.quint8))

    def set_weight(self, w: QuantizedTensor) -> None:
        self.weight = w

    def compute(self, x: Tensor) -> Tensor:
        return fl.nn.functional.prelu(x, self.weight.dequantize())

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> PReLU:
        layer = super().from_float(mod)
        observer = mod.qconfig.weight()
        observer(mod.weight.detach().float())
        if observer.dtype is not fl.quint8:
            import warnings

            warnings.warn(f"[PReLU] expected an observer of quint8 for the weight, got {observer.dtype}", stacklevel=2)
        from flambeau.ao.nn.quantized.modules.base import quantized_weight

        layer.set_weight(quantized_weight(mod.weight, observer))
        return layer

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> PReLU:
        return cls(scale, zero_point, mod.num_parameters)


class Softmax(_Activation):
    """Softmax."""

    grid_is_saved = False
    script_settings = ("dim",)

    def __init__(self, dim: int | None = None, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__(scale, zero_point)
        self.dim = dim

    def compute(self, x: Tensor) -> Tensor:
        return x.softmax(1 if self.dim is None and x.dim() not in (0, 1, 3) else self.dim or 0)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Softmax:
        return cls(mod.dim, scale, zero_point)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class ReLU6(fl.nn.ReLU):
    """Relu up to six, on the grid of the input."""

    def forward(self, input: Any) -> QuantizedTensor:
        return input._grid.quantize(input.dequantize().clamp(0.0, 6.0))

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        return forms.ReLU6()

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> ReLU6:
        return ReLU6(mod.inplace)


class Dropout(fl.nn.Dropout):
    """Nothing: dropout belongs to training."""

    def forward(self, input: Any) -> Any:
        return input

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        return forms.Identity()

    def _get_name(self) -> str:
        return "QuantizedDropout"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Dropout:
        return cls(mod.p, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Dropout:
        return cls(mod.p, mod.inplace)


class MaxPool2d(fl.nn.MaxPool2d):
    """The greatest of a window, which lies on the same grid."""


def __getattr__(name: str) -> Any:
    if name == "MultiheadAttention":  # made of the layers of this package
        from flambeau.ao.nn.quantized.modules import attention

        return attention.MultiheadAttention
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
