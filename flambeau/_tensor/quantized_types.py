"""Quantized dtypes and ways to quantize; `quantized_tensor` has the tensors."""

from __future__ import annotations

from typing import Any

__all__ = [
    "per_channel_affine", "per_channel_affine_float_qparams", "per_channel_symmetric", "per_tensor_affine",
    "per_tensor_symmetric", "qint8", "qint32", "qscheme", "quint2x4", "quint4x2", "quint8",
]  # fmt: skip


class qscheme:
    """A way to place the grid of quantized numbers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class QuantizedType(qscheme):
    """A dtype of quantized numbers."""

    is_floating_point = is_complex = False
    is_signed = True

    def __init__(self, name: str, itemsize: int) -> None:
        super().__init__(name)
        self.itemsize = itemsize
        self.stored_as = "uint8" if name[1] == "u" else f"int{8 * itemsize}"
        self.storage_name = (
            f"Q{'UI' if name[1] == 'u' else 'I'}{name.partition('i')[2]}Storage"  # as checkpoints have it
        )

    def to_complex(self) -> Any:
        raise RuntimeError(f"[to_complex] expected a floating point dtype, got {self}")


qint8, quint8, qint32 = QuantizedType("qint8", 1), QuantizedType("quint8", 1), QuantizedType("qint32", 4)
# Two integers of four bits in a byte, and four of two bits.
quint4x2, quint2x4 = QuantizedType("quint4x2", 1), QuantizedType("quint2x4", 1)
per_tensor_affine = qscheme("per_tensor_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_affine = qscheme("per_channel_affine")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")


def float_or_quantized(dtype: Any) -> Any:
    """The dtype of weights that was asked for: qint8 or float16."""
    from flambeau import float16

    if dtype is None:
        return qint8
    if dtype is not qint8 and dtype is not float16:
        raise RuntimeError(f"[quantize_dynamic] expected dtype torch.qint8 or torch.float16, got {dtype}")
    return dtype
