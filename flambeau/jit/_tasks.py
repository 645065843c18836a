"""Tasks of programs: what `fork` starts runs on a thread of its own, with the modes of the one that forked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flambeau import _C, jit

MOST = 32  # threads that run at the same time; tasks beyond them run where they are forked

_slots = threading.BoundedSemaphore(MOST)


def forked(function: Callable[[], Any]) -> Any:
    """A future with the result of a function without arguments."""
    if jit._tracing or _C._len_torch_function_stack() or _C._len_torch_dispatch_stack() or not _slots.acquire(False):
        return jit.fork(function)
    from flambeau.futures import Future

    future: Any = Future()
    grad, inference = _C.is_grad_enabled(), _C.is_inference_mode_enabled()

    def run() -> None:
        try:
            _C._set_inference_mode(inference)
            _C._set_grad_enabled(grad)
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
        finally:
            _slots.release()

    threading.Thread(target=run, daemon=True, name="torchscript-task").start()
    return future
