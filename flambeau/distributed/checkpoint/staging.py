"""Copies of a state that training does not change, for saves in the background."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau.distributed.tensor._api import DTensor

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions", "copy_of"]


def copy_of(value: Any) -> Any:
    """A copy in host memory."""
    if isinstance(value, DTensor):
        return DTensor(value._local_tensor.detach().cpu().clone(), value._spec)
    if isinstance(value, flambeau.Tensor):  # also one in shards
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {key: copy_of(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copy_of(item) for item in value)
    return value


@dataclass
class StagingOptions:
    """How a state is copied. Copies are made on the calling thread, into ordinary memory, whatever the options say."""

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class AsyncStager:
    """What copies the state before a save in the background; programs may write their own."""

    _synchronize_after_execute = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        return self._synchronize_after_execute

    def stage(self, state_dict: dict[str, Any]) -> Any:
        raise NotImplementedError(f"[{type(self).__name__}] expected `stage` in the subclass, got none")

    def synchronize_staging(self) -> None: ...

    def close(self) -> None: ...


class DefaultStager(AsyncStager):
    """Copies the state at once."""

    def __init__(self, config: StagingOptions | None = None) -> None:
        self.config = config or StagingOptions()

    def stage(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any] | Future[dict[str, Any]]:
        return copy_of(state_dict)


class BlockingAsyncStager(DefaultStager):
    """The older name of a stager that copies on the calling thread."""

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        super().__init__()
