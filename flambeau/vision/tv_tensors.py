"""Tensors that say what they hold: images, videos, masks and boxes, so that transforms treat each in its own way.

They behave as tensors. What operators compute of them are plain tensors, except `clone`, `to`, `detach`, `requires_grad_` and
what is done in place; `wrap` gives a result the kind of another, and `set_return_type("TVTensor")` does it everywhere.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau import Tensor

__all__ = [
    "BoundingBoxFormat", "BoundingBoxes", "Image", "Mask", "TVTensor", "Video", "set_return_type", "wrap",
]  # fmt: skip

_PRESERVING = (Tensor.clone, Tensor.to, Tensor.detach, Tensor.requires_grad_)
_state = {"wraps": False}


@contextlib.contextmanager
def _returning(before: bool) -> Iterator[None]:
    try:
        yield
    finally:
        _state["wraps"] = before


def set_return_type(return_type: str) -> Any:
    """Whether operators return plain tensors ("Tensor") or keep the kind ("TVTensor"), from now on or in a `with` block."""
    kinds = {"tensor": False, "tvtensor": True}
    if return_type.lower() not in kinds:
        raise ValueError(f"[set_return_type] expected 'Tensor' or 'TVTensor', got {return_type!r}")
    before, _state["wraps"] = _state["wraps"], kinds[return_type.lower()]
    return _returning(before)


class TVTensor(Tensor):
    """What all kinds share."""

    def __new__(cls, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool | None = None) -> Any:
        return cls._make(data, dtype, device, requires_grad)

    @classmethod
    def _make(cls, data: Any, dtype: Any, device: Any, requires_grad: bool | None) -> Any:
        if requires_grad is None:
            requires_grad = data.requires_grad if isinstance(data, Tensor) else False
        plain = data.as_subclass(Tensor) if isinstance(data, Tensor) else data
        return flambeau.as_tensor(plain, dtype=dtype, device=device).as_subclass(cls).requires_grad_(requires_grad)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all(issubclass(cls, kind) or issubclass(kind, (TVTensor, flambeau.nn.Parameter)) for kind in types):
            return NotImplemented
        with flambeau._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        own = args[0] if args and isinstance(args[0], cls) else None
        if own is not None and isinstance(result, Tensor):
            if _state["wraps"] or func in _PRESERVING:
                return wrap(result.as_subclass(Tensor), like=own) if not isinstance(result, cls) else _as(result, own)
            if name.endswith("_") and not name.endswith("__"):
                return _as(result, own)
        return _plain(result)

    def _facts(self) -> dict[str, Any]:
        """What is known beside the elements."""
        return {}

    def __repr__(self, **options: Any) -> str:
        shown = "".join(f", {name}={value}" for name, value in self._facts().items())
        return repr(self.as_subclass(Tensor)).replace("tensor(", f"{type(self).__name__}(", 1)[:-1] + shown + ")"

    def __deepcopy__(self, memo: Any) -> Any:
        return wrap(self.detach().clone().as_subclass(Tensor).requires_grad_(self.requires_grad), like=self)


def _plain(result: Any) -> Any:
    if isinstance(result, TVTensor):
        return result.as_subclass(Tensor)
    if isinstance(result, (list, tuple)) and not hasattr(result, "_fields"):
        return type(result)(map(_plain, result))
    return result


def _as(result: Any, like: TVTensor) -> Any:
    """The same memory, known as `like` is."""
    for name, value in like._facts().items():
        setattr(result, name, value)
    return result


class Image(TVTensor):
    """(..., C, H, W)."""

    def __new__(cls, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool | None = None) -> Any:
        if type(data).__module__.startswith("PIL."):
            from flambeau.vision.transforms.functional import pil_to_tensor

            data = pil_to_tensor(data)
        image = cls._make(data, dtype, device, requires_grad)
        if image.dim() < 2:
            raise ValueError(f"[Image] expected at least two dimensions, got shape {tuple(image.shape)}")
        return image.as_subclass(Tensor).unsqueeze(0).as_subclass(cls) if image.dim() == 2 else image


class Video(TVTensor):
    """(..., T, C, H, W)."""

    def __new__(cls, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool | None = None) -> Any:
        video = cls._make(data, dtype, device, requires_grad)
        if video.dim() < 4:
            raise ValueError(f"[Video] expected at least four dimensions, got shape {tuple(video.shape)}")
        return video


class Mask(TVTensor):
    """(..., H, W): segments or instances."""

    def __new__(cls, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool | None = None) -> Any:
        if type(data).__module__.startswith("PIL."):
            from flambeau.vision.transforms.functional import pil_to_tensor

            data = pil_to_tensor(data)
        return cls._make(data, dtype, device, requires_grad)


class BoundingBoxFormat(enum.Enum):
    """Corners, corner and size, or centre and size."""

    XYXY, XYWH, CXCYWH = "XYXY", "XYWH", "CXCYWH"


class BoundingBoxes(TVTensor):
    """(boxes, 4) in an image of canvas_size (height, width)."""

    format: BoundingBoxFormat
    canvas_size: tuple[int, int]

    def __new__(
        cls,
        data: Any,
        *,
        format: BoundingBoxFormat | str,
        canvas_size: tuple[int, int],
        clamping_mode: Any = "soft",
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> Any:
        boxes = cls._make(data, dtype, device, requires_grad)
        if boxes.dim() not in (1, 2):
            raise ValueError(f"[BoundingBoxes] expected shape (boxes, 4), got {tuple(boxes.shape)}")
        if boxes.dim() == 1:
            boxes = boxes.as_subclass(Tensor).unsqueeze(0).as_subclass(cls)
        boxes.format = BoundingBoxFormat[format.upper()] if isinstance(format, str) else format
        boxes.canvas_size, boxes.clamping_mode = tuple(canvas_size), clamping_mode
        return boxes

    def _facts(self) -> dict[str, Any]:
        return {name: getattr(self, name, None) for name in ("format", "canvas_size", "clamping_mode")}


def wrap(wrappee: Tensor, *, like: TVTensor, **facts: Any) -> Any:
    """A tensor as the kind of tensor that another is; facts such as `canvas_size` may differ."""
    result = wrappee.as_subclass(type(like))
    for name, value in {**like._facts(), **facts}.items():
        setattr(result, name, value)
    return result
