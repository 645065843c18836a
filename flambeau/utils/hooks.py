"""Hooks of modules: the handle that takes one off again, and the nodes that catch gradients at a module's border."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import OrderedDict
from typing import Any

__all__ = ["RemovableHandle", "BackwardHook", "unserializable_hook", "warn_if_has_hooks"]


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook off again. Also a context manager.

    The table of hooks is held weakly, so that a handle does not keep a model alive.
    """

    id: int
    next_id: int = 0

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref: Any = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extra = () if extra_dict is None else (extra_dict,) if isinstance(extra_dict, dict) else tuple(extra_dict)
        self.extra_dict_ref: tuple[Any, ...] = tuple(weakref.ref(table) for table in extra)

    def remove(self) -> None:
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            table = reference()
            if table is not None and self.id in table:
                del table[self.id]

    def __getstate__(self) -> tuple[Any, ...]:
        tables = (self.hooks_dict_ref(), self.id)
        return (*tables, tuple(reference() for reference in self.extra_dict_ref)) if self.extra_dict_ref else tables

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.hooks_dict_ref = weakref.ref(OrderedDict() if state[0] is None else state[0])
        self.id = state[1]
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)
        extra = state[2] if len(state) > 2 else ()
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if table is None else table) for table in extra)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: Any) -> None:
        self.remove()


def unserializable_hook(f: Any) -> Any:
    """Marks a hook that a pickled tensor loses, with a warning."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    hooks = getattr(tensor, "_backward_hooks", None) or {}
    for hook in hooks.values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(f"the backward hook {hook!r} of a tensor is not pickled with it", stacklevel=2)


class BackwardHook:
    """Catches the gradients with respect to the outputs and the inputs of one module call.

    Inputs and outputs go through identity nodes whose hooks see the gradients: those of the outputs first, where
    `user_pre_hooks` may replace them, then those of the inputs, where `user_hooks` may.
    """

    def __init__(self, module: Any, user_hooks: list[Any], user_pre_hooks: list[Any]) -> None:
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.input_slots: list[int] | None = None  # places of the tensors among the inputs
        self.input_count = 0

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        args, node, self.input_slots = _through_identity(args)
        self.input_count = len(args)
        if node is not None:
            node.register_hook(self._inputs_done)
        return args

    def setup_output_hook(self, result: Any) -> Any:
        single = not isinstance(result, tuple)
        outputs = (result,) if single else result
        outputs, node, slots = _through_identity(outputs)
        if node is not None:
            node.register_prehook(functools.partial(self._outputs_done, slots, len(outputs)))
        return outputs[0] if single else outputs

    def _outputs_done(self, slots: list[int], count: int, grads: tuple[Any, ...]) -> Any:
        full = _spread(grads, slots, count)
        changed = False
        for hook in self.user_pre_hooks:
            returned = hook(self.module, full)
            if returned is not None:
                full = self._replaced("grad_output", returned, full)
                changed = True
        self.grad_outputs = full
        if self.input_slots is None or not self.input_slots:
            # No input takes part in backward: the input hooks run now, there is nothing left to wait for.
            for hook in self.user_hooks:
                if hook(self.module, _spread((), [], self.input_count), full) is not None:
                    raise RuntimeError(
                        "[backward hook] expected None for a module whose inputs need no gradient, got a value"
                    )
            self.grad_outputs = None
        return tuple(full[slot] for slot in slots) if changed else None

    def _inputs_done(self, grad_input: tuple[Any, ...], _: Any) -> Any:
        if self.grad_outputs is None:
            return None  # backward did not pass through the outputs
        assert self.input_slots is not None
        full = _spread(grad_input, self.input_slots, self.input_count)
        changed = False
        for hook in self.user_hooks:
            returned = hook(self.module, full, self.grad_outputs)
            if returned is not None:
                full = self._replaced("grad_input", returned, full)
                changed = True
        self.grad_outputs = None
        return tuple(full[slot] for slot in self.input_slots) if changed else None

    @staticmethod
    def _replaced(what: str, returned: Any, old: tuple[Any, ...]) -> tuple[Any, ...]:
        new = returned if isinstance(returned, tuple) else (returned,)
        if len(new) != len(old):
            raise RuntimeError(f"[backward hook] expected {len(old)} values for {what}, got {len(new)}")
        return new


def _spread(grads: tuple[Any, ...], slots: list[int], count: int) -> tuple[Any, ...]:
    """Gradients at their places among all arguments, None elsewhere."""
    full: list[Any] = [None] * count
    for slot, grad in zip(slots, grads):
        full[slot] = grad
    return tuple(full)


def _through_identity(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, list[int]]:
    """The values with their tensors passed through one identity node; that node, if there is one; their places."""
    import flambeau as fl

    slots = [i for i, value in enumerate(values) if isinstance(value, fl.Tensor)]
    if not fl.is_grad_enabled() or not any(values[i].requires_grad for i in slots):
        return values, None, []
    passed = _identity().apply(*(values[i] for i in slots))
    passed = passed if isinstance(passed, tuple) else (passed,)
    node = next((t.grad_fn for t in passed if t.grad_fn is not None), None)
    results = list(values)
    for slot, tensor in zip(slots, passed):
        results[slot] = tensor
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*results), node, slots
    return tuple(results), node, slots


@functools.lru_cache(maxsize=1)
def _identity() -> Any:
    from flambeau.autograd import Function

    class BackwardHookFunction(Function):
        """The identity; a node for hooks to hang on."""

        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            ctx.mark_non_differentiable(*(t for t in tensors if not t.requires_grad))
            return tuple(t.view_as(t) for t in tensors)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads

    return BackwardHookFunction
