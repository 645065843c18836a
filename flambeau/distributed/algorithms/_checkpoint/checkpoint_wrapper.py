"""`checkpoint_wrapper`: a module whose activations are computed again in backward, under unchanged names in state dicts."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from flambeau import nn
from flambeau.autograd.graph import save_on_cpu
from flambeau.utils.checkpoint import checkpoint

__all__ = [
    "ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper", "apply_activation_checkpointing",
    "checkpoint_wrapper", "offload_wrapper",
]  # fmt: skip

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = _CHECKPOINT_WRAPPED_MODULE + "."


class CheckpointImpl(enum.Enum):
    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class ActivationWrapper(nn.Module):
    """Stands for a module, under whose names parameters are found."""

    def __init__(self, mod: nn.Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(self._without_prefix)
        self.register_load_state_dict_pre_hook(self._with_prefix)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"[{type(self).__name__}] expected a class with a forward")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_CHECKPOINT_WRAPPED_MODULE), name)

    def __getitem__(self, key: int) -> Any:
        return self._checkpoint_wrapped_module[key]  # type: ignore[index]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), parameter

    @staticmethod
    def _without_prefix(module: Any, state: Any, prefix: str, metadata: Any) -> None:
        for key in list(state):
            if key.startswith(f"{prefix}{_CHECKPOINT_PREFIX}"):
                state[prefix + key[len(prefix) + len(_CHECKPOINT_PREFIX) :]] = state.pop(key)

    @staticmethod
    def _with_prefix(module: Any, state: Any, prefix: str, *_: Any) -> None:
        for key in list(state):
            if key.startswith(prefix) and not key.startswith(f"{prefix}{_CHECKPOINT_PREFIX}"):
                state[f"{prefix}{_CHECKPOINT_PREFIX}{key[len(prefix) :]}"] = state.pop(key)


class CheckpointWrapper(ActivationWrapper):
    """Calls its module through `utils.checkpoint`."""

    def __init__(
        self,
        mod: nn.Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        reentrant = checkpoint_impl == CheckpointImpl.REENTRANT
        self.checkpoint_fn = partial(checkpoint_fn or partial(checkpoint, use_reentrant=reentrant), **options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        module = self._checkpoint_wrapped_module
        if self.checkpoint_impl != CheckpointImpl.REENTRANT or not kwargs:
            return self.checkpoint_fn(module, *args, **kwargs)
        # Reentrant checkpoints follow gradients through positional arguments alone.
        names, count = list(kwargs), len(args)

        def call(*flat: Any) -> Any:
            return module(*flat[:count], **dict(zip(names, flat[count:])))

        return self.checkpoint_fn(call, *args, *kwargs.values())


class OffloadWrapper(ActivationWrapper):
    """Calls its module with activations kept in the memory of the host until backward."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def offload_wrapper(module: nn.Module) -> nn.Module:
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: nn.Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Any = None,
    **checkpoint_fn_kwargs: Any,
) -> nn.Module:
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: nn.Module,
    checkpoint_wrapper_fn: Callable[[nn.Module], nn.Module] = checkpoint_wrapper,
    check_fn: Callable[[nn.Module], bool] = lambda _: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Wraps the submodules that `check_fn` chooses, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            chosen = check_fn(child) if auto_wrap_policy is None else auto_wrap_policy(child, False, 0)
            if chosen and not isinstance(child, ActivationWrapper) and not isinstance(parent, ActivationWrapper):
                setattr(parent, name, checkpoint_wrapper_fn(child))
