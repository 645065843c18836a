"""Tensors whose elements may be absent: data beside a mask that is True where an element is present.

The object is the data, seen as a subclass with a mask. Functions of single elements are applied to the data; operands with
masks must have the same one. Reductions leave absent elements out, and their result is absent where all were. Functions
that move elements move the mask alike. All others are refused. What stands at absent elements means nothing, and no
gradient comes out of them.
"""

from __future__ import annotations

import copy
import functools
import inspect
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ops import tags
from flambeau.overrides import DisableTorchFunctionSubclass

__all__ = ["MaskedTensor", "is_masked_tensor"]

_OPERATORS = "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()
_SPECIAL = frozenset(
    "__neg__ __abs__ __invert__ __pos__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__".split()
    + [f"__{prefix}{name}__" for name in _OPERATORS for prefix in ("", "r")]
)
_INPLACE_SPECIAL = frozenset(f"__i{name}__" for name in _OPERATORS)
# Of the object rather than of its elements.
_AS_DATA = frozenset(
    "__get__ __set__ backward size stride dim ndimension numel is_contiguous element_size register_hook retain_grad __len__ "
    "requires_grad_ storage_offset data_ptr is_floating_point is_complex is_signed get_device dense_dim nelement "
    "__hash__ __format__ is_same_size".split()
)


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether an object is a tensor with a mask."""
    return isinstance(obj, MaskedTensor)


def check_parts(data: Any, mask: Any) -> None:
    for name, value in (("data", data), ("mask", mask)):
        if not isinstance(value, Tensor) or isinstance(value, MaskedTensor):
            raise TypeError(f"[masked_tensor] expected a tensor, got {type(value).__name__}: {name} must be a Tensor")
    if mask.dtype != fl.bool:
        raise TypeError(f"[masked_tensor] expected a mask of dtype bool, got {mask.dtype}: mask must have dtype bool.")
    if data.dim() != mask.dim():
        raise ValueError(
            f"[masked_tensor] expected a mask of {data.dim()} dimensions, got {mask.dim()}: data.dim() must equal mask.dim()"
        )
    if data.shape != mask.shape:
        raise ValueError(
            f"[masked_tensor] expected a mask of shape {tuple(data.shape)}, got {tuple(mask.shape)}: data.size() must equal "
            "mask.size()"
        )


def masked_view(data: Tensor, mask: Tensor) -> MaskedTensor:
    """Data and mask as one object, the data with its history."""
    with DisableTorchFunctionSubclass():
        leaf = data.is_leaf and not data.requires_grad
        masked = Tensor._make_subclass(MaskedTensor, data) if leaf else data.as_subclass(MaskedTensor)
    masked._mask = mask
    return masked


def enter(data: Tensor, mask: Tensor) -> Tensor:
    """The data, with gradients that are zero where elements are absent, whatever is computed from what stands there."""
    return _Enter.apply(data, mask) if data.requires_grad else data.view_as(data)


class _Enter(fl.autograd.Function):
    @staticmethod
    def forward(ctx: Any, data: Tensor, mask: Tensor) -> Tensor:
        ctx.mask = mask
        return data.view_as(data)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.masked_fill(ctx.mask.logical_not(), 0), None


def _data(value: Any) -> Any:
    if isinstance(value, MaskedTensor):
        return value.get_data()
    if isinstance(value, (list, tuple)):
        return type(value)(_data(v) for v in value)
    return value


class MaskedTensor(Tensor):
    """A tensor some of whose elements are absent."""

    _mask: Tensor

    def __new__(cls, data: Tensor, mask: Tensor, requires_grad: bool = False) -> Any:
        from flambeau.masked.maskedtensor.creation import masked_tensor

        return masked_tensor(data, mask, requires_grad)

    def __init__(self, data: Tensor, mask: Tensor, requires_grad: bool = False) -> None:
        pass

    # -- parts

    def get_data(self) -> Tensor:
        """The data, whatever stands at absent elements."""
        with DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    def get_mask(self) -> Tensor:
        return self._mask

    def to_tensor(self, value: Any) -> Tensor:
        """A plain tensor with a value in place of absent elements."""
        return self.get_data().masked_fill(self._mask.logical_not(), value)

    @property
    def grad(self) -> Any:
        with DisableTorchFunctionSubclass():
            gradient = Tensor.grad.__get__(self)  # type: ignore[union-attr]
        return (
            gradient
            if gradient is None or isinstance(gradient, MaskedTensor)
            else masked_view(_data(gradient), self._mask)
        )

    @grad.setter
    def grad(self, value: Any) -> None:
        with DisableTorchFunctionSubclass():
            Tensor.grad.__set__(self, _data(value))  # type: ignore[union-attr]

    @property
    def T(self) -> MaskedTensor:  # type: ignore[override]
        return masked_view(self.get_data().T, self._mask.T)

    @property
    def mT(self) -> MaskedTensor:  # type: ignore[override]
        return masked_view(self.get_data().mT, self._mask.mT)

    # -- values

    def item(self) -> Any:
        if self.numel() == 1 and not bool(self._mask):
            raise ValueError("[item] expected an element that is present, got an absent one")
        return self.get_data().item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def tolist(self) -> Any:
        raise RuntimeError(
            "[tolist] expected a plain tensor, got a masked one: .tolist() is not supported; see to_tensor()"
        )

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "[numpy] expected a plain tensor, got a masked one: .numpy() is not supported; see to_tensor()"
        )

    def __deepcopy__(self, memo: Any) -> MaskedTensor:
        duplicate = masked_view(self.get_data().detach().clone(), copy.deepcopy(self._mask, memo))
        duplicate = duplicate.requires_grad_() if self.requires_grad else duplicate
        memo[id(self)] = duplicate
        return duplicate

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (self.get_data().detach(), self._mask, bool(self.requires_grad))

    def __repr__(self) -> str:
        data, mask = self.get_data().detach(), self._mask
        if not data.dim():
            return f"MaskedTensor({_element(data.item()) if mask else '--'}, {bool(mask)})"
        return f"MaskedTensor(\n  {_text(data.tolist(), mask.tolist(), '  ')}\n)"

    __str__ = __repr__

    # -- calls

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        own = cls.__dict__.get(name)
        if own is not None and callable(own) and args and isinstance(args[0], MaskedTensor) and name != "__init__":
            return own(*args, **kwargs)
        if name in _AS_DATA:
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        elementwise = tags.functions("pointwise", "elementwise")
        if name in elementwise or name in _SPECIAL or name in ("where", "type"):
            return _elementwise(func, args, kwargs)
        if name in _INPLACE_SPECIAL or (name.endswith("_") and name[:-1] in elementwise):
            return _inplace(func, args, kwargs)
        if (name in tags.functions("moves") or name == "__getitem__") and isinstance(args[0], MaskedTensor):
            return _paired(func(_data(args[0]), *args[1:], **kwargs), func(args[0]._mask, *args[1:], **kwargs))
        if name in tags.functions("joins"):
            return _joined(func, *args, **kwargs)
        parameters = [] if name == "median" else _parameters(name)
        if name == "all" or "keepdim" in parameters:
            return _reduced(name, *args, **kwargs)
        if parameters[1:2] == ["dim"]:
            return _normalized(name, *args, **kwargs)
        raise TypeError(f"[{name}] expected plain tensors, got a masked one: it is not implemented for MaskedTensor")


@functools.cache
def _parameters(name: str) -> list[str]:
    """The parameters of the function of that name in `flambeau.masked`, none if there is no such function."""
    from flambeau import masked

    return list(inspect.signature(getattr(masked, name)).parameters) if name in masked.__all__ else []


def _rebuild(data: Tensor, mask: Tensor, requires_grad: bool) -> MaskedTensor:
    masked = masked_view(data, mask)
    return masked.requires_grad_() if requires_grad else masked


def _paired(data: Any, mask: Any) -> Any:
    if isinstance(data, (tuple, list)):
        return type(data)(map(_paired, data, mask))
    return masked_view(data, mask)


def _common_mask(values: Any) -> Tensor:
    """The mask of operands, which must be the same where they have one."""
    masks = [value._mask for value in values if isinstance(value, MaskedTensor)]
    for other in masks[1:]:
        if other is not masks[0] and (other.shape != masks[0].shape or not fl.equal(other, masks[0])):
            raise ValueError(
                "[masked_tensor] expected operands with the same mask, got others: Input masks must match."
            )
    return masks[0]


def _elementwise(func: Any, args: Any, kwargs: Any) -> MaskedTensor:
    mask = _common_mask([*args, *kwargs.values()])
    result = func(*map(_data, args), **{k: _data(v) for k, v in kwargs.items()})
    return masked_view(result, mask.expand(result.shape) if mask.shape != result.shape else mask)


def _inplace(func: Any, args: Any, kwargs: Any) -> Any:
    if not isinstance(args[0], MaskedTensor):
        raise TypeError(f"[{func.__name__}] expected a masked tensor to write masked values to, got a plain one")
    _common_mask([*args, *kwargs.values()])
    with DisableTorchFunctionSubclass():
        func(args[0], *map(_data, args[1:]), **{k: _data(v) for k, v in kwargs.items()})
    return args[0]


def _joined(func: Any, tensors: Any, *args: Any, **kwargs: Any) -> MaskedTensor:
    masks = [t._mask if isinstance(t, MaskedTensor) else fl.ones_like(t, dtype=fl.bool) for t in tensors]
    return masked_view(func([_data(t) for t in tensors], *args, **kwargs), func(masks, *args, **kwargs))


def _reduced(name: str, input: MaskedTensor, *args: Any, **kwargs: Any) -> MaskedTensor:
    from flambeau import masked

    data, mask = input.get_data(), input._mask
    names = ("ord", "dim", "keepdim") if name == "norm" else ("dim", "keepdim")
    options = dict(zip(names, args)) | kwargs
    if "p" in options:
        options["ord"] = options.pop("p")
    dim, keepdim = options.get("dim"), options.get("keepdim", False)
    dims = sorted(masked._dims(data, dim), reverse=True)
    counted, present = mask, (data != 0) | mask.logical_not()
    for d in dims:
        counted, present = counted.any(d, keepdim), present.all(d, keepdim)
    if name == "all":
        return masked_view(present, counted)
    if dim is None:
        options.pop("dim", None)
    return masked_view(getattr(masked, name)(data, **options, mask=mask), counted)


def _normalized(name: str, input: MaskedTensor, dim: int, *args: Any, **kwargs: Any) -> MaskedTensor:
    from flambeau import masked

    dtype = kwargs.get("dtype", args[-1] if args and isinstance(args[-1], type(fl.float32)) else None)
    return masked_view(getattr(masked, name)(input.get_data(), dim, dtype=dtype, mask=input._mask), input._mask)


# ---------------------------------------------------------------------------------------------- text


def _element(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _text(data: Any, mask: Any, indent: str) -> str:
    if not data or not isinstance(data[0], list):
        return f"[{', '.join(_element(v) if m else '      --' for v, m in zip(data, mask))}]"
    inner = indent + "  "
    rows = ",\n".join(inner + _text(d, m, inner) for d, m in zip(data, mask))
    return f"[\n{rows}\n{indent}]"
