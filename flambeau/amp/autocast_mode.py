"""Autocast: contexts in which operators choose their precision, and the switches beneath them.

The state belongs to the thread. It and the conversions are native (`csrc/autograd/autocast.cpp`); which operator runs in
which precision stands on the op records.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import flambeau as fl
from flambeau import _C
from flambeau.amp import rules

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

# Devices that programs may ask about and that this library does not have: switches without effect.
_ABSENT = ("xpu", "mps", "hpu", "ipu", "mtia", "maia")
_DTYPES = {"cpu": (fl.bfloat16, fl.float16), "mps": (fl.bfloat16, fl.float16), "xpu": (fl.bfloat16, fl.float16)}
_absent: dict[tuple[str, str], Any] = {}


# ---------------------------------------------------------------- switches


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for a type of device."""
    return device_type in _ABSENT or device_type in ("cpu", "cuda") or fl.device(device_type).type == device_type


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on in this thread; for CUDA when no device is named.

    >>> with flambeau.autocast("cpu"):
    ...     flambeau.is_autocast_enabled("cpu")
    True
    """
    device_type = "cuda" if device_type is None else device_type
    return bool(_absent.get((device_type, "on"))) if device_type in _ABSENT else _C._is_autocast_enabled(device_type)


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch autocast on or off for a kind of device.

    >>> flambeau.set_autocast_enabled("cpu", False)
    """
    if isinstance(device_type, bool):
        enabled, device_type = device_type, "cuda"
    if enabled is None:
        raise TypeError("[set_autocast_enabled] expected a device and a bool, got no bool")
    if device_type in _ABSENT:
        _absent[device_type, "on"] = enabled
        return
    if enabled:
        rules.install(device_type)
    _C._set_autocast_enabled(device_type, enabled)


def get_autocast_dtype(device_type: str) -> fl.dtype:
    """The lower precision that autocast uses on a type of device.

    >>> flambeau.get_autocast_dtype("cpu")
    torch.bfloat16
    """
    return (
        _absent.get((device_type, "dtype"), fl.bfloat16)
        if device_type in _ABSENT
        else _C._get_autocast_dtype(device_type)
    )


def set_autocast_dtype(device_type: str, dtype: fl.dtype) -> None:
    """The dtype that autocast uses for a kind of device.

    >>> flambeau.set_autocast_dtype("cpu", flambeau.bfloat16)
    """
    if device_type in _ABSENT:
        _absent[device_type, "dtype"] = dtype
    else:
        _C._set_autocast_dtype(device_type, dtype)


is_autocast_cache_enabled = _C._is_autocast_cache_enabled
set_autocast_cache_enabled = _C._set_autocast_cache_enabled
autocast_increment_nesting = _C._autocast_increment_nesting
autocast_decrement_nesting = _C._autocast_decrement_nesting
clear_autocast_cache = _C._clear_autocast_cache


def _for_device(function: Any, device_type: str, name: str, example: str) -> Any:
    """An older name: a function for one type of device."""
    call = functools.partial(function, device_type)
    call.__doc__ = f"`{function.__name__}` for {device_type!r}.\n\n>>> flambeau.{name}{example}"
    return call


is_autocast_cpu_enabled: Any = _for_device(is_autocast_enabled, "cpu", "is_autocast_cpu_enabled", "()\nFalse")
is_autocast_ipu_enabled: Any = _for_device(is_autocast_enabled, "ipu", "is_autocast_ipu_enabled", "()\nFalse")
is_autocast_xla_enabled: Any = _for_device(is_autocast_enabled, "xla", "is_autocast_xla_enabled", "()\nFalse")
set_autocast_cpu_enabled: Any = _for_device(set_autocast_enabled, "cpu", "set_autocast_cpu_enabled", "(False)")
set_autocast_ipu_enabled: Any = _for_device(set_autocast_enabled, "ipu", "set_autocast_ipu_enabled", "(False)")
set_autocast_xla_enabled: Any = _for_device(set_autocast_enabled, "xla", "set_autocast_xla_enabled", "(False)")
get_autocast_cpu_dtype: Any = _for_device(get_autocast_dtype, "cpu", "get_autocast_cpu_dtype", "()\ntorch.bfloat16")
get_autocast_gpu_dtype: Any = _for_device(get_autocast_dtype, "cuda", "get_autocast_gpu_dtype", "()\ntorch.float16")
get_autocast_ipu_dtype: Any = _for_device(get_autocast_dtype, "ipu", "get_autocast_ipu_dtype", "()\ntorch.bfloat16")
get_autocast_xla_dtype: Any = _for_device(get_autocast_dtype, "xla", "get_autocast_xla_dtype", "()\ntorch.bfloat16")
set_autocast_cpu_dtype: Any = _for_device(set_autocast_dtype, "cpu", "set_autocast_cpu_dtype", "(flambeau.bfloat16)")
set_autocast_gpu_dtype: Any = _for_device(set_autocast_dtype, "cuda", "set_autocast_gpu_dtype", "(flambeau.float16)")
set_autocast_ipu_dtype: Any = _for_device(set_autocast_dtype, "ipu", "set_autocast_ipu_dtype", "(flambeau.bfloat16)")
set_autocast_xla_dtype: Any = _for_device(set_autocast_dtype, "xla", "set_autocast_xla_dtype", "(flambeau.bfloat16)")


# ---------------------------------------------------------------- contexts


def autocast_decorator(autocast_instance: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs within an autocast context."""

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    decorate_autocast.__script_unsupported = "@autocast() decorator is not supported in script mode"
    return decorate_autocast


class autocast:
    """A context, or decorator, in which operators on a type of device run in the precision that suits them.

    Matrix products and convolutions run in `dtype`, what needs the range or the precision in float32, and the rest in
    the dtype of their arguments. Contexts may be nested, also to switch autocast off for a part.
    """

    def __init__(
        self,
        device_type: str,
        dtype: fl.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"[autocast] expected a str for device_type, got {type(device_type).__name__}")
        self.device = device_type
        if not is_autocast_available(device_type):
            raise RuntimeError(f"[autocast] expected a device_type with autocast, got {device_type!r}")
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        if enabled and device_type == "cuda" and not fl.cuda.is_available():
            warnings.warn(
                "[autocast] expected a CUDA device for device_type='cuda', but CUDA is not available; it is disabled",
                stacklevel=2,
            )
            enabled = False
        supported = _DTYPES.get(device_type, ())
        if enabled and supported and self.fast_dtype not in supported:
            names = ", ".join(map(str, supported))
            warnings.warn(
                f"In {device_type.upper()} autocast, but the target dtype is not supported. Disabling autocast. "
                f"{device_type.upper()} Autocast only supports dtype of {names} currently.",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._before: list[tuple[bool, fl.dtype, bool]] = []

    @property
    def prev(self) -> bool:
        return self._before[-1][0]

    def __enter__(self) -> autocast:
        self._before.append(
            (is_autocast_enabled(self.device), get_autocast_dtype(self.device), is_autocast_cache_enabled())
        )
        set_autocast_enabled(self.device, self._enabled)
        set_autocast_dtype(self.device, self.fast_dtype)
        autocast_increment_nesting()
        set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, *error: object) -> Literal[False]:
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        enabled, dtype, cache_enabled = self._before.pop()
        set_autocast_enabled(self.device, enabled)
        set_autocast_dtype(self.device, dtype)
        set_autocast_cache_enabled(cache_enabled)
        return False

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        return autocast_decorator(self, func)


def _enter_autocast(*args: Any) -> autocast:
    """Enter a context by a function call, for programs that are written by programs."""
    context = autocast(*args)
    context.__enter__()
    return context


def _exit_autocast(context: autocast) -> None:
    context.__exit__(None, None, None)


# ---------------------------------------------------------------- own autograd functions


def _cast(value: Any, device_type: str, dtype: fl.dtype) -> Any:
    """Floating point tensors of a device in another dtype, within any containers."""
    if isinstance(value, fl.Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype != fl.float64
        return value.to(dtype) if eligible else value
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_cast(v, device_type, dtype) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: fl.dtype | None = None
) -> Callable[..., Any]:
    """Decorator of the forward of an autograd function: says how it behaves under autocast.

    With `cast_inputs`, inputs are converted and autocast is off inside; otherwise it stays as it is. Backward, decorated
    with `custom_bwd`, runs as forward did.
    """
    if not isinstance(device_type, str):
        raise ValueError(f"[autocast] expected a str for device_type, got {type(device_type).__name__}")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._dtype = get_autocast_dtype(device_type)
        if cast_inputs is None:
            ctx._fwd_used_autocast = is_autocast_enabled(device_type)
            return fwd(*args, **kwargs)
        within = is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = False
        if not within:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorator of the backward of an autograd function: it runs under autocast if forward did."""
    if not isinstance(device_type, str):
        raise ValueError(f"[autocast] expected a str for device_type, got {type(device_type).__name__}")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type=device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd
