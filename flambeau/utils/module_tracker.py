"""Which modules run: the names of those whose forward is active, or through which gradients pass."""

from __future__ import annotations

import weakref
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.utils._pytree import tree_flatten

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Inside a `with` block, `parents` holds the names of the active modules, and "Global".

    The outermost module goes by its class, those inside of it by the path from there. `is_bw` tells whether backward
    is running.
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._handles: list[Any] = []
        self._ends = False  # whether the end of this backward is waited for

    @property
    def is_bw(self) -> bool:
        return bool(_C._in_backward())

    def _name(self, module: Any) -> str:
        if module not in self._seen:
            top = self._known.setdefault(module, type(module).__name__)
            self._seen.add(module)
            for path, child in module.named_modules():
                if path and child not in self._known:
                    self._known[child] = f"{top}.{path}"
        return self._known[module]

    def _join(self, name: str) -> Any:
        def join(*_: Any) -> None:
            if not self._ends:
                self._ends = True
                _C._queue_callback(self._end)
            self.parents.add(name)

        return join

    def _end(self) -> None:
        """Backward is over: modules whose inputs need no gradient are not left before."""
        self.parents, self._ends = {"Global"}, False

    def _leave(self, name: str) -> Any:
        def leave(*_: Any) -> None:
            self.parents.discard(name)

        return leave

    def _watch(self, tensors: list[Any], call: Any, mode: str) -> None:
        from flambeau.autograd.graph import register_multi_grad_hook

        self._handles.append(register_multi_grad_hook(tensors, call, mode=mode))

    def _before(self, module: Any, args: Any) -> None:
        name = self._name(module)
        self.parents.add(name)
        tensors = _followed(args)
        if tensors:
            self._watch(tensors, self._leave(name), "all")

    def _after(self, module: Any, args: Any, output: Any) -> None:
        name = self._name(module)
        self.parents.discard(name)
        tensors = _followed(output)
        if tensors:
            self._watch(tensors, self._join(name), "any")

    def __enter__(self) -> ModuleTracker:
        from flambeau.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        self._hooks = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        ]
        return self

    def __exit__(self, *error: Any) -> None:
        for handle in self._hooks + self._handles:
            handle.remove()
        self._handles.clear()
        self.parents = {"Global"}


def _followed(tree: Any) -> list[Any]:
    if not fl.is_grad_enabled():
        return []
    return [x for x in tree_flatten(tree)[0] if isinstance(x, fl.Tensor) and x.requires_grad]
