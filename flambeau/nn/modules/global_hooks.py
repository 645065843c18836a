"""Hooks that look at the calls and registrations of all modules."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from flambeau import _C
from flambeau.utils.hooks import RemovableHandle


class _Hooks(OrderedDict):
    """A table of hooks on calls; while one of them holds something, no module takes the direct way to forward."""

    full: bool | None = None  # of backward hooks: whether they are full ones

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        _C._set_global_module_hooks(True)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        if not self:
            self.full = None
        _C._set_global_module_hooks(any(_CALL_HOOKS))


_global_forward_pre_hooks = _Hooks()
_global_forward_hooks = _Hooks()
_global_backward_pre_hooks = _Hooks()
_global_backward_hooks = _Hooks()
_CALL_HOOKS = (_global_forward_pre_hooks, _global_forward_hooks, _global_backward_pre_hooks, _global_backward_hooks)

_global_forward_hooks_with_kwargs: Any = OrderedDict()
_global_forward_hooks_always_called: Any = OrderedDict()
_global_buffer_registration_hooks: Any = OrderedDict()
_global_module_registration_hooks: Any = OrderedDict()
_global_parameter_registration_hooks: Any = OrderedDict()


def _add(table: Any, hook: Any, extra: Any = (), marks: Any = ()) -> RemovableHandle:
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id] = hook
    for mark in marks:
        mark[handle.id] = True
    return handle


def register_module_buffer_registration_hook(hook: Any) -> RemovableHandle:
    """Calls hook(module, name, buffer) whenever a module gets a buffer."""
    return _add(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Any) -> RemovableHandle:
    """Calls hook(module, name, submodule) whenever a module gets a submodule."""
    return _add(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Any) -> RemovableHandle:
    """Calls hook(module, name, param) whenever a module gets a parameter."""
    return _add(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook: Any) -> RemovableHandle:
    """Calls hook(module, args) before every module's forward."""
    return _add(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook: Any, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """Calls hook(module, args, output) after every module's forward."""
    extra = (_global_forward_hooks_with_kwargs, _global_forward_hooks_always_called)
    return _add(_global_forward_hooks, hook, extra, (*extra[: int(with_kwargs)], *extra[1 : 1 + int(always_call)]))


def register_module_full_backward_pre_hook(hook: Any) -> RemovableHandle:
    """Calls hook(module, grad_output) before the backward of every module."""
    return _add(_global_backward_pre_hooks, hook)


def _add_backward(hook: Any, full: bool) -> RemovableHandle:
    if _global_backward_hooks.full is (not full):
        raise RuntimeError("[nn] expected old or full global backward hooks, got both")
    _global_backward_hooks.full = full
    return _add(_global_backward_hooks, hook)


def register_module_backward_hook(hook: Any) -> RemovableHandle:
    """The old form of register_module_full_backward_hook."""
    return _add_backward(hook, False)


def register_module_full_backward_hook(hook: Any) -> RemovableHandle:
    """Calls hook(module, grad_input, grad_output) after the backward of every module."""
    return _add_backward(hook, True)
