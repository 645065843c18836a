"""`Join`: training with unequal numbers of batches. A process that is through takes part in the collectives of the others
until all are through.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import flambeau
from flambeau.distributed import _collectives as collectives

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a process that is through does in place of an iteration, and at the end."""

    def main_hook(self) -> None:
        """Called once for each iteration of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once when all are through."""


class Joinable:
    """An object whose collectives can be shadowed."""

    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    def join_hook(self, **kwargs: Any) -> JoinHook:
        raise NotImplementedError

    @property
    def join_device(self) -> Any:
        raise NotImplementedError

    @property
    def join_process_group(self) -> Any:
        raise NotImplementedError


class _JoinConfig(NamedTuple):
    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        return _JoinConfig(False, False, False)


class Join:
    """A `with` block around a training loop; the block ends when the loops of all processes have ended."""

    def __init__(
        self, joinables: list[Any], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any
    ) -> None:
        if not joinables:
            raise ValueError("[Join] The join context manager requires at least one joinable")
        self._joinables, self._enable = joinables, enable
        self._throw = throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        for index, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, index == 0)
        groups = {id(joinable.join_process_group): joinable.join_process_group for joinable in joinables}
        if len(groups) != 1:
            raise ValueError("[Join] Using join context manager with multiple process groups")
        self._group = joinables[0].join_process_group
        self._device = joinables[0].join_device

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if not self._enable or kind is not None:
            self._release()
            return
        all_joined, is_last = False, True
        iterations = 0
        while not all_joined:
            left = self._count_active()
            if left == 0:
                all_joined = True
                continue
            if self._throw:
                self._notify_throw()
            is_last = False
            for hook in self._hooks:
                hook.main_hook()
            iterations += 1
            if iterations == 1000:
                warnings.warn(
                    "Detected uneven input skew of greater than 1000. This means that rank "
                    f"{self._group.rank()} has at least 1000 fewer inputs than other currently-active ranks.",
                    stacklevel=2,
                )
        for hook in self._hooks:
            hook.post_hook(is_last)
        self._release()

    def _release(self) -> None:
        for joinable in self._joinables:
            joinable._join_config = _JoinConfig.construct_disabled_join_config()

    def _count_active(self) -> int:
        count = flambeau.zeros(1, device=self._device)
        collectives.all_reduce(count, group=self._group)
        return int(count.item())

    def _notify_throw(self) -> None:
        ended = flambeau.zeros(1, device=self._device)
        collectives.all_reduce(ended, group=self._group)
        raise RuntimeError(f"[Join] Rank {self._group.rank()} exhausted all inputs.")

    @staticmethod
    def notify_join_context(joinable: Any) -> Any:
        """Tells the processes that are through that this one starts an iteration. Called by joinables."""
        config = getattr(joinable, "_join_config", None)
        if config is None or not config.is_first_joinable or not config.enable:
            return None
        group, device = joinable.join_process_group, joinable.join_device
        work = collectives.all_reduce(flambeau.ones(1, device=device), group=group, async_op=True)
        if config.throw_on_early_termination:
            zeros = flambeau.zeros(1, device=device)
            flags = flambeau.ones(1, device=device)
            work.wait()  # type: ignore[union-attr]
            if int(work.result()[0].item()) < group.size():  # type: ignore[union-attr]
                collectives.all_reduce(zeros, group=group)
                raise RuntimeError(
                    "[Join] Detected at least one rank that exhausted inputs. Throwing across all ranks."
                )
            del flags
        return work
