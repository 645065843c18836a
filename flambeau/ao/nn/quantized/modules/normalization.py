"""Normalisations on quantized tensors: computed from the values and rounded to the grid of the result."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ao.nn.quantized.modules.base import OnGrid
from flambeau.ao.quantized_tensor import Grid, QuantizedTensor
from flambeau.nn.modules.module import Module

__all__ = ["BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm"]


class _Normalization(OnGrid):
    """A float normalisation, whose parameters and buffers it takes over, with the grid of its results."""

    relu = False
    _FLOAT_MODULE: Any = None

    def compute(self, values: Any) -> Any:
        return self._FLOAT_MODULE.forward(self, values)

    def forward(self, input: Any) -> QuantizedTensor:
        values = self.compute(input.dequantize())
        values = values.relu() if self.relu else values
        return Grid(input.dtype, self.scale, self.zero_point).quantize(values)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        layer = mod[0] if isinstance(mod, fl.nn.Sequential) else mod
        return cls.from_reference(layer, float(scale.item()), int(zero_point.item()))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        layer = cls.__new__(cls)
        Module.__init__(layer)
        own = ("qconfig", "_forward_hooks", "_forward_pre_hooks", "_modules")
        layer.__dict__.update((name, value) for name, value in mod.__dict__.items() if name not in own)
        layer.scale, layer.zero_point, layer.training = float(scale), int(zero_point), False
        if "BatchNorm" in cls._FLOAT_MODULE.__name__:
            layer.grid_shape = (1,)
        return layer

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        name = self._FLOAT_MODULE.__name__
        settings = {part: getattr(self, part) for part in ("weight", "bias", "eps", "scale", "zero_point")}
        for part in ("weight", "bias"):
            settings[part] = None if settings[part] is None else settings[part].detach()
        if "BatchNorm" in name:
            function = f"batch_norm{name[-2:]}{'_relu' if self.relu else ''}"
            return forms.BatchNorm(
                _function=getattr(forms.quantized, function), running_mean=self.running_mean,
                running_var=self.running_var, **settings,
            )  # fmt: skip
        if "InstanceNorm" in name:
            return forms.InstanceNorm(**settings)
        if name == "LayerNorm":
            return forms.LayerNorm(normalized_shape=list(self.normalized_shape), **settings)
        return forms.GroupNorm(num_groups=self.num_groups, **settings)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"


def _batch_norm(self: Any, values: Any) -> Any:
    """By the running statistics, whatever the mode of the module."""
    return fl.nn.functional.batch_norm(
        values, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
    )


def _with_float(name: str, kind: Any, doc: str, sizes: int = 1) -> Any:
    """The quantized form of a float normalisation, which it is a subclass of.

    Constructed with `sizes` arguments, then weight, bias, scale and zero point (not those of batch norms), then other settings.
    """
    is_batch = "BatchNorm" in name

    def __init__(
        self: Any, *args: Any, weight: Any = None, bias: Any = None, scale: float = 1.0, zero_point: int = 0, **kwargs: Any
    ) -> None:  # fmt: skip
        before: Any = args
        after: Any = ()
        if not is_batch and len(args) > sizes:
            before, named, after = args[:sizes], args[sizes : sizes + 4], args[sizes + 4 :]
            parts: list[Any] = [*named, *(weight, bias, scale, zero_point)[len(named) :]]
            weight, bias, scale, zero_point = parts
        kind.__init__(self, *before, *after, **kwargs)
        if not is_batch:
            self.weight, self.bias = (
                None if part is None else fl.nn.Parameter(part.detach(), requires_grad=False) for part in (weight, bias)
            )
        self.scale, self.zero_point = float(scale), int(zero_point)

    body = {
        "__init__": __init__, "__doc__": doc, "_FLOAT_MODULE": kind, "extra_repr": kind.extra_repr, "__module__": __name__,
        "__qualname__": name, **({"compute": _batch_norm} if is_batch else {}),
    }  # fmt: skip
    return type(name, (_Normalization, kind), body)


LayerNorm = _with_float("LayerNorm", fl.nn.LayerNorm, "Layer normalisation.")
GroupNorm = _with_float("GroupNorm", fl.nn.GroupNorm, "Group normalisation.", 2)
InstanceNorm1d = _with_float("InstanceNorm1d", fl.nn.InstanceNorm1d, "Instance normalisation of sequences.")
InstanceNorm2d = _with_float("InstanceNorm2d", fl.nn.InstanceNorm2d, "Instance normalisation of images.")
InstanceNorm3d = _with_float("InstanceNorm3d", fl.nn.InstanceNorm3d, "Instance normalisation of volumes.")
BatchNorm2d = _with_float("BatchNorm2d", fl.nn.BatchNorm2d, "Batch normalisation of images.")
BatchNorm3d = _with_float("BatchNorm3d", fl.nn.BatchNorm3d, "Batch normalisation of volumes.")
