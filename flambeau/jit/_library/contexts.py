"""Context managers that scripts can enter."""

import threading
from typing import Any

import flambeau

aten = flambeau.ops.aten


class no_grad:
    def __init__(self) -> None:
        self.prev = False

    def __enter__(self) -> None:
        self.prev = aten.is_grad_enabled()
        aten.set_grad_enabled(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        aten.set_grad_enabled(self.prev)


class enable_grad:
    def __init__(self) -> None:
        self.prev = False

    def __enter__(self) -> None:
        self.prev = aten.is_grad_enabled()
        aten.set_grad_enabled(True)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        aten.set_grad_enabled(self.prev)


class inference_mode:
    def __init__(self) -> None:
        self.prev = False

    def __enter__(self) -> None:
        self.prev = aten.is_grad_enabled()
        aten.set_grad_enabled(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        aten.set_grad_enabled(self.prev)


class set_grad_enabled:
    def __init__(self, mode: bool) -> None:
        self.prev = aten.is_grad_enabled()
        aten.set_grad_enabled(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        aten.set_grad_enabled(self.prev)


class record_function:
    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class strict_fusion:
    def __init__(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class autocast:
    """What enters it runs in mixed precision: the machine sees to that, which knows the class by its name."""

    def __init__(
        self, device_type: str, dtype: int | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        self.fast_dtype = aten.get_autocast_dtype(device_type) if dtype is None else dtype
        self._enabled = enabled
        self.device = device_type

    def __enter__(self) -> "autocast":
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class cpu_autocast:
    def __init__(self, enabled: bool = True, dtype: int = 15, cache_enabled: bool = True) -> None:
        self.fast_dtype = dtype
        self._enabled = enabled
        self.device = "cpu"

    def __enter__(self) -> "cpu_autocast":
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class cuda_autocast:
    def __init__(self, enabled: bool = True, dtype: int = 5, cache_enabled: bool = True) -> None:
        self.fast_dtype = dtype
        self._enabled = enabled
        self.device = "cuda"

    def __enter__(self) -> "cuda_autocast":
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


_entered = threading.local()


def enter_autocast(context: Any) -> None:
    """Switch mixed precision on or off as an `autocast` of a script says."""
    from flambeau.jit._values import dtype_of

    manager = flambeau.autocast(context.device, dtype_of(context.fast_dtype), context._enabled)
    manager.__enter__()
    _entered.__dict__.setdefault("managers", []).append(manager)


def exit_autocast() -> None:
    _entered.managers.pop().__exit__(None, None, None)
