"""Functions of the top-level module that are not operators: questions about tensors and dtypes."""

from __future__ import annotations

import flambeau as fl
from flambeau import _C
from flambeau._C import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "broadcast_shapes", "is_complex", "is_conj", "is_floating_point", "is_inference", "is_neg", "is_nonzero",
    "is_same_size", "is_signed", "is_storage", "numel", "result_type", "typename",
]  # fmt: skip


def is_storage(obj: Any, /) -> bool:
    from flambeau.storage import TypedStorage, UntypedStorage

    return isinstance(obj, (TypedStorage, UntypedStorage))


def typename(obj: Any, /) -> str:
    """The full name of an object's type; for a tensor that of its legacy class."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") else obj.__class__
    module = getattr(kind, "__module__", None)
    return kind.__qualname__ if module in (None, "builtins") else f"{module}.{kind.__qualname__}"


def _asks(name: str) -> Any:
    """A function of one tensor that calls its method."""

    def ask(input: Tensor) -> Any:
        if not isinstance(input, Tensor) and not hasattr(input, "__torch_function__"):
            raise TypeError(f"[{name}] expected a Tensor, got {type(input).__name__}")
        if _C._has_torch_function_unary(input):
            from flambeau.overrides import handle_torch_function

            return handle_torch_function(ask, (input,), input)
        return getattr(input, name)()

    ask.__name__ = ask.__qualname__ = name
    return ask


numel = _asks("numel")
is_floating_point = _asks("is_floating_point")
is_complex = _asks("is_complex")
is_signed = _asks("is_signed")
is_nonzero = _asks("is_nonzero")
is_inference = _asks("is_inference")
is_conj = _asks("is_conj")
is_neg = _asks("is_neg")


def is_same_size(input: Tensor, other: Tensor) -> bool:
    return input.is_same_size(other)


def result_type(tensor1: Any, tensor2: Any) -> Any:
    """The dtype of arithmetic between two operands, each a tensor or a number."""
    return _C._result_type(tensor1, tensor2)


def broadcast_shapes(*shapes: Any) -> Any:
    """The shape that tensors of these shapes broadcast to."""
    result: list[int] = []
    for position, shape in enumerate(shapes):
        sizes = [shape] if isinstance(shape, int) else [int(s) for s in shape]
        if any(s < 0 for s in sizes):
            raise ValueError(f"[broadcast_shapes] expected sizes that are not negative, got {tuple(sizes)}")
        result = [1] * (len(sizes) - len(result)) + result
        for d in range(-1, -len(sizes) - 1, -1):
            if sizes[d] == 1 or sizes[d] == result[d]:
                continue
            if result[d] != 1:
                raise RuntimeError(
                    f"[broadcast_shapes] expected shapes that broadcast together, got {tuple(sizes)} at position "
                    f"{position} after shapes that broadcast to {tuple(result)}"
                )
            result[d] = sizes[d]
    return fl.Size(result)
