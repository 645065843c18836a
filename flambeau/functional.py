"""Functions of the top-level module that are not operators: questions about tensors and dtypes."""

from __future__ import annotations

import flambeau as fl
from flambeau import _C
from flambeau._C import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "broadcast_shapes", "from_file", "get_device", "get_device_module", "gradient", "is_complex", "is_conj",
    "is_distributed", "is_floating_point", "is_inference", "is_neg", "is_nonzero",
    "is_same_size", "is_signed", "is_storage", "numel", "result_type",
    "typename", "unravel_index",
]  # fmt: skip


def is_storage(obj: Any, /) -> bool:
    """Whether an object is a storage.

    >>> flambeau.is_storage(flambeau.ones(1).untyped_storage())
    True
    """
    from flambeau.storage import TypedStorage, UntypedStorage

    return isinstance(obj, (TypedStorage, UntypedStorage))


def typename(obj: Any, /) -> str:
    """The full name of an object's type; for a tensor that of its legacy class.

    >>> flambeau.typename(flambeau.ones(1))
    'torch.FloatTensor'
    """
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") else obj.__class__
    module = getattr(kind, "__module__", None)
    if module is not None and (module == "flambeau" or module.startswith("flambeau.")):
        module = "torch" + module[len("flambeau") :]  # the name under which programs know it
    return kind.__qualname__ if module in (None, "builtins") else f"{module}.{kind.__qualname__}"


def _assert(condition: Any, message: str) -> None:
    """An assert statement that tracers record."""
    if type(condition) is not Tensor and _C._has_torch_function((condition,)):
        from flambeau.overrides import handle_torch_function

        return handle_torch_function(_assert, (condition,), condition, message)
    assert condition, message


def _assert_async(input: Tensor, assert_msg: str | None = None) -> None:
    """An assert statement about a tensor of one element."""
    if not bool(input):
        stated = "Expected Tensor with single nonzero value, but got zero" if assert_msg is None else assert_msg
        raise RuntimeError(f"[_assert_async] expected a value other than zero, got zero: {stated}")


def _asks(name: str, about: str, example: str, answer: str) -> Any:
    """A function of one tensor that calls its method."""

    def ask(input: Tensor) -> Any:
        if not isinstance(input, Tensor) and not hasattr(input, "__torch_function__"):
            raise TypeError(f"[{name}] expected a Tensor, got {type(input).__name__}")
        if _C._has_torch_function_unary(input):
            from flambeau.overrides import handle_torch_function

            return handle_torch_function(ask, (input,), input)
        return getattr(input, name)()

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = f"{about}\n\n>>> flambeau.{name}(flambeau.{example})\n{answer}\n"
    return ask


numel = _asks("numel", "How many elements a tensor has.", "ones(2, 3)", "6")
is_floating_point = _asks("is_floating_point", "Whether a tensor holds floating-point numbers.", "tensor([1])", "False")
is_complex = _asks("is_complex", "Whether a tensor holds complex numbers.", "tensor([1j])", "True")
is_signed = _asks("is_signed", "Whether the dtype of a tensor has negative numbers.", "tensor([True])", "False")
is_nonzero = _asks("is_nonzero", "Whether the one element of a tensor is other than zero.", "tensor([0.0])", "False")
is_inference = _asks("is_inference", "Whether a tensor was made in inference mode.", "ones(1)", "False")
is_conj = _asks("is_conj", "Whether a tensor is conjugated only when it is read.", "ones(1)", "False")
is_neg = _asks("is_neg", "Whether a tensor is negated only when it is read.", "ones(1)", "False")
is_distributed = _asks("is_distributed", "Whether a tensor is distributed; plain ones are not.", "ones(1)", "False")
get_device = _asks("get_device", "The index of the device of a tensor; -1 on the CPU.", "ones(1)", "-1")


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape.

    >>> flambeau.is_same_size(flambeau.ones(2), flambeau.ones(2, 1))
    False
    """
    return input.is_same_size(other)


def result_type(tensor1: Any, tensor2: Any) -> Any:
    """The dtype of arithmetic between two operands, each a tensor or a number.

    >>> flambeau.result_type(flambeau.tensor([1]), 1.0)
    torch.float32
    """
    return _C._result_type(tensor1, tensor2)


def broadcast_shapes(*shapes: Any) -> Any:
    """The shape that tensors of these shapes broadcast to.

    >>> flambeau.broadcast_shapes((3, 1), (1, 4))
    torch.Size([3, 4])
    """
    if any(not isinstance(s, int) and hasattr(s, "env") for shape in shapes if isinstance(shape, tuple) for s in shape):
        from flambeau.ops.geometry import broadcast

        return broadcast(*(shape if isinstance(shape, (tuple, list)) else (shape,) for shape in shapes))
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


def get_device_module(device: Any = None) -> Any:
    """The module of a device's functions, such as `cpu`; without a device that of the accelerator, if there is one.

    >>> flambeau.get_device_module("cpu").is_available()
    True
    """
    kind = (fl.accelerator.current_accelerator() or fl.device("cpu") if device is None else fl.device(device)).type
    module = getattr(fl, kind, None)
    if module is None:
        raise RuntimeError(f"[get_device_module] expected a device with a module, got {device!r}")
    return module


def from_file(
    filename: str, shared: bool | None = None, size: int | None = 0, *, dtype: Any = None, layout: Any = None,
    device: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor over a file mapped into memory; with shared=True writes go to the file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes([1, 2, 3]))
    ...     file.flush()
    ...     flambeau.from_file(file.name, size=3, dtype=flambeau.uint8)
    tensor([1, 2, 3], dtype=torch.uint8)
    """
    import mmap
    import os

    dtype = fl.get_default_dtype() if dtype is None else dtype
    length = (size or 0) * dtype.itemsize
    with open(filename, "r+b" if shared else "rb") as file:
        have = os.fstat(file.fileno()).st_size
        if shared and have < length:
            file.truncate(length)
        elif have < length:
            raise RuntimeError(f"[from_file] expected a file of at least {length} bytes, got {have}")
        if length == 0:
            return fl.empty(0, dtype=dtype)
        mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
    return fl.frombuffer(mapped, dtype=dtype)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Coordinates, by dimension, of flat indices into a tensor of this shape.

    >>> flambeau.unravel_index(flambeau.tensor([5]), (2, 3))
    (tensor([1]), tensor([2]))
    """
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == fl.bool:
        raise TypeError(
            f"[unravel_index] expected integer indices, got {indices.dtype}: expected 'indices' to be integer dtype"
        )
    if not isinstance(shape, (int, fl.SymInt, list, tuple)):
        raise TypeError(
            f"[unravel_index] expected a shape of ints, got {type(shape).__name__}: expected 'shape' to be int or sequence "
            f"of ints, but got {type(shape)}"
        )
    sizes = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    for size in sizes:
        if not isinstance(size, (int, fl.SymInt)):
            raise TypeError(
                f"[unravel_index] expected a shape of ints, got {size!r}: expected 'shape' sequence to only contain ints, but "
                f"got {type(size)}"
            )
    if any(s < 0 for s in sizes):
        raise ValueError(
            f"[unravel_index] expected sizes that are not negative, got {sizes}: 'shape' cannot have negative values, "
            f"but got {sizes}"
        )
    coordinates: list[Tensor] = []
    rest = indices
    for size in reversed(sizes):
        coordinates.insert(0, rest % size)
        rest = rest // size
    return tuple(coordinates)


def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Estimates of the derivative along dimensions: central differences inside, one-sided at the ends.

    spacing is a number, one number for each dimension, or a tensor of coordinates for each dimension.

    >>> flambeau.gradient(flambeau.tensor([1.0, 4.0, 9.0, 16.0]))
    (tensor([3., 4., 6., 7.]),)
    """
    spacing = 1 if spacing is None else spacing
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [d + input.dim() if d < 0 else d for d in dims]
    if any(not 0 <= d < input.dim() for d in dims):
        raise IndexError(f"[gradient] expected dimensions of a tensor with {input.dim()}, got {dim}")
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"[gradient] expected each dimension once, got {dim}")
    if edge_order not in (1, 2):
        raise RuntimeError(f"[gradient] expected edge_order 1 or 2, got {edge_order}")
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError(
            f"[gradient] expected a spacing for each of {len(dims)} dimensions, got {len(steps)}: torch.gradient expected "
            "spacing to be unspecified, a scalar or a list as long as the number of dimensions"
        )
    if input.dtype == fl.uint8 or any(isinstance(s, Tensor) and s.dtype == fl.uint8 for s in steps):
        raise RuntimeError("[gradient] expected signed numbers, got uint8")
    return tuple(_gradient_along(input, d, step, edge_order) for d, step in zip(dims, steps, strict=True))


def _gradient_along(x: Tensor, d: int, step: Any, edge_order: int) -> Tensor:
    n = x.shape[d]
    if n < edge_order + 1:
        raise RuntimeError(f"[gradient] expected at least {edge_order + 1} elements along dimension {d}, got {n}")
    if isinstance(step, Tensor):
        if step.dim() != 1 or step.shape[0] != n:
            raise RuntimeError(f"[gradient] expected {n} coordinates for dimension {d}, got shape {tuple(step.shape)}")
        h = (step[1:] - step[:-1]).reshape([-1] + [1] * (x.dim() - 1 - d))
        x = x.to(fl.promote_types(x.dtype, h.dtype))  # differences are divided by what may be small
    else:
        dtype = x.dtype if x.is_floating_point() or x.is_complex() else fl.get_default_dtype()
        if isinstance(step, complex):
            dtype = fl.promote_types(dtype, fl.complex64)
        h = fl.full([n - 1] + [1] * (x.dim() - 1 - d), step, dtype=dtype, device=x.device)

    def at(a: int, b: int | None) -> Tensor:
        return fl._ops.slice(x, d, a, b)

    def gap(i: int) -> Tensor:
        return h[i % (n - 1)].unsqueeze(0)

    difference = (at(1, None) - at(0, n - 1)) / h
    parts = []
    if edge_order == 1:
        first, last = fl._ops.slice(difference, d, 0, 1), fl._ops.slice(difference, d, n - 2, n - 1)
    else:
        a, b = gap(0), gap(1)
        first = -(2 * a + b) / (a * (a + b)) * at(0, 1) + (a + b) / (a * b) * at(1, 2) - a / (b * (a + b)) * at(2, 3)
        a, b = gap(-2), gap(-1)
        last = b / (a * (a + b)) * at(n - 3, n - 2) - (b + a) / (a * b) * at(n - 2, n - 1)
        last = last + (2 * b + a) / (b * (a + b)) * at(n - 1, n)
    parts.append(first)
    if n > 2 and not isinstance(step, Tensor):
        parts.append((at(2, None) - at(0, n - 2)) / (2 * h[1:]))
    elif n > 2:
        left, right = h[:-1], h[1:]
        low, high = fl._ops.slice(difference, d, 0, n - 2), fl._ops.slice(difference, d, 1, n - 1)
        parts.append((low * right + high * left) / (left + right))
    parts.append(last)
    return fl.cat(parts, d)


def __getattr__(name: str) -> Any:
    """Operators that PyTorch wraps in Python are in its module of this name, too."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(fl, name)
