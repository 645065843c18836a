"""FloatTensor, LongTensor and the others: constructors and `isinstance` tests for tensors of one dtype on the CPU."""

from __future__ import annotations

from flambeau import _C
from flambeau._C import Tensor
from flambeau._tensor import legacy_new

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREFIXES = {
    _C.float64: "Double", _C.float32: "Float", _C.float16: "Half", _C.int64: "Long", _C.int32: "Int", _C.int16: "Short",
    _C.int8: "Char", _C.uint8: "Byte", _C.bool: "Bool", _C.bfloat16: "BFloat16", _C.complex64: "ComplexFloat",
    _C.complex128: "ComplexDouble",
}  # fmt: skip


class tensortype(type):
    """The class of these classes: they construct plain tensors and recognise them by dtype."""

    dtype: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return legacy_new(cls.dtype, *args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype == cls.dtype and instance.device.type == "cpu"

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"


def _make(dtype: Any, prefix: str) -> tensortype:
    members = {
        "dtype": dtype,
        "is_cuda": False,
        "is_xpu": False,
        "is_sparse": False,
        "layout": _C.strided,
        "__module__": "torch",
    }
    return tensortype(f"{prefix}Tensor", (), members)


CLASSES = {f"{prefix}Tensor": _make(dtype, prefix) for dtype, prefix in PREFIXES.items()}


def type_name(tensor: Tensor) -> str:
    """'torch.FloatTensor' for a float32 CPU tensor."""
    place = "" if tensor.device.type in ("cpu", "meta") else f"{tensor.device.type}."
    return f"torch.{place}{PREFIXES[tensor.dtype]}Tensor"


def dtype_of(kind: Any) -> Any:
    """The dtype that a dtype, a class of this module or its name stands for."""
    if isinstance(kind, _C.dtype):
        return kind
    if isinstance(kind, str):
        name = kind.rsplit(".", 1)[-1]
        if name == "Tensor":
            return _C.get_default_dtype()
        if name not in CLASSES or kind.startswith(("torch.cuda.", "flambeau.cuda.")):
            raise ValueError(f"[type] expected the name of a tensor type such as 'torch.FloatTensor', got {kind!r}")
        return CLASSES[name].dtype
    if kind is Tensor:
        return _C.get_default_dtype()
    if isinstance(kind, tensortype):
        return kind.dtype
    python = {float: _C.float64, int: _C.int64, bool: _C.bool, complex: _C.complex128}.get(kind)
    if python is None:
        raise TypeError(f"[type] expected a dtype or a tensor type, got {kind!r}")
    return python


def set_default_tensor_type(kind: Any, /) -> None:
    """Make floating-point tensors of this type by default.

    >>> flambeau.set_default_tensor_type(flambeau.FloatTensor)
    """
    import warnings

    warnings.warn(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
        "torch.set_default_device() as alternatives.",
        stacklevel=2,
    )
    _C.set_default_dtype(dtype_of(kind))
