"""Selective checkpointing: which operators of a checkpointed part keep their results and which run again."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from flambeau._C import Tensor
from flambeau.utils import _pytree
from flambeau.utils._python_dispatch import TorchDispatchMode

__all__ = ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]


class CheckpointPolicy(enum.Enum):
    """What happens to the result of an operator. "Prefer" leaves the choice to a compiler; eager mode follows it."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


_SAVES = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, CheckpointPolicy.MUST_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """Given to policies: whether the part runs for the first time."""

    def __init__(self, *, is_recompute: bool) -> None:
        self.is_recompute = is_recompute


class _Kept:
    """A result, and the version its tensors had."""

    def __init__(self, value: Any, allow_mutation: bool) -> None:
        self._allow = allow_mutation
        self._value = _pytree.tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, value)
        self._versions = [x._version for x in _pytree.tree_leaves(value) if isinstance(x, Tensor)]

    def value(self) -> Any:
        tensors = [x for x in _pytree.tree_leaves(self._value) if isinstance(x, Tensor)]
        if not self._allow and [x._version for x in tensors] != self._versions:
            raise RuntimeError(
                "[checkpoint] expected saved results to be left alone, got one that was written in place: Tensor "
                "cached during selective activation checkpoint has been mutated"
            )
        return _pytree.tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, self._value)


def _policy(chosen: Any) -> CheckpointPolicy:
    if isinstance(chosen, bool):
        return CheckpointPolicy.MUST_SAVE if chosen else CheckpointPolicy.PREFER_RECOMPUTE
    return chosen


class _Keep(TorchDispatchMode):
    """The first run: keeps what the policy wants to keep."""

    def __init__(self, policy: Callable[..., Any], saved: dict[Any, list[_Kept]], allow_mutation: bool) -> None:
        self._choose, self._kept, self._allow = policy, saved, allow_mutation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        chosen = _policy(self._choose(SelectiveCheckpointContext(is_recompute=False), func, *args, **kwargs))
        out = func(*args, **kwargs)
        if chosen in _SAVES:
            self._kept[func].append(_Kept(out, self._allow))
        return out


class _GiveBack(TorchDispatchMode):
    """The second run: results that were kept are not computed again."""

    def __init__(self, policy: Callable[..., Any], saved: dict[Any, list[_Kept]], allow_mutation: bool) -> None:
        self._choose, self._kept, self._allow = policy, saved, allow_mutation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        chosen = _policy(self._choose(SelectiveCheckpointContext(is_recompute=True), func, *args, **kwargs))
        if chosen not in _SAVES:
            return func(*args, **kwargs)
        if func in self._kept and not self._kept[func]:
            raise RuntimeError(
                "[checkpoint] expected one backward through a selectively checkpointed part, got another: Trying to backward an extra "
                "time; its saved results are used up by the first."
            )
        if func not in self._kept:
            raise RuntimeError(
                f"[checkpoint] expected {func} to have been saved by the first run, got nothing: the part computed "
                "something else the second time, or backward runs a second time"
            )
        return self._kept[func].pop(0).value()


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """For `context_fn` of checkpoint: a list of operators to save, or a function that says for each what to do."""
    if isinstance(policy_fn_or_list, list):
        listed = set()
        for op in policy_fn_or_list:
            if hasattr(op, "overloads"):
                raise ValueError(
                    f"[checkpoint] expected overloads such as torch.ops.aten.mm.default, got the packet {op}: update the OpOverloadPacket "
                    "to a specific OpOverload"
                )
            if not hasattr(op, "overloadpacket"):
                raise ValueError(
                    f"[checkpoint] expected operators, got {type(op).__name__}: Expected op in `op_list` to be an OpOverload"
                )
            listed.add(op)

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in listed else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError(
            f"[checkpoint] expected a policy, got {type(policy_fn_or_list).__name__}: policy_fn_or_list must be either a function or a "
            "list of ops."
        )
    saved: dict[Any, list[_Kept]] = defaultdict(list)
    return _Keep(policy, saved, allow_cache_entry_mutation), _GiveBack(policy, saved, allow_cache_entry_mutation)
