"""`Module`, the base of all layers and models: named parameters, buffers and submodules, hooks, and state dicts.

A call without hooks and the lookup of members are native (csrc/python/nn_module.cpp); state dicts are in `state.py`. Every
change of a module's members, hooks or attributes bumps `mutations[0]`: who has checked a model can tell that nothing
changed by comparing one number, whatever the model's depth.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import flambeau as fl
from flambeau.__future__ import get_overwrite_module_params_on_conversion, get_swap_module_params_on_conversion
from flambeau._C import Tensor
from flambeau._tensor import beside_torch
from flambeau.nn.modules.global_hooks import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from flambeau.nn.modules.registry import TABLES, Registry, mutations
from flambeau.nn.modules.state import _EXTRA_STATE_KEY_SUFFIX, StateDicts, _IncompatibleKeys  # noqa: F401
from flambeau.nn.parameter import Buffer, Parameter
from flambeau.utils.hooks import BackwardHook, RemovableHandle

__all__ = [
    "Module", "register_module_forward_pre_hook", "register_module_forward_hook",
    "register_module_full_backward_pre_hook", "register_module_backward_hook", "register_module_full_backward_hook",
    "register_module_buffer_registration_hook", "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]  # fmt: skip


def _addindent(text: str, spaces: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


_DEVICES_WITH_MEMORY = frozenset(("cpu", "cuda"))


def _can_take(param: Any, applied: Any) -> bool:
    """Whether a parameter can stay the same object and get the data of another tensor, so that modules and optimizers that
    share it still do."""
    with_memory = {param.device.type, applied.device.type} <= _DEVICES_WITH_MEMORY
    return bool(param.layout == applied.layout and (with_memory or param.device.type == applied.device.type))


def _converted_grad(fn: Callable[[Tensor], Tensor], grad: Tensor, swap: bool) -> Tensor:
    """What fn makes of a gradient; where possible it stays the same object."""
    with fl.no_grad():
        applied = fn(grad)
    if applied is grad:
        return grad
    applied.requires_grad_(grad.requires_grad)
    if swap:
        fl.utils.swap_tensors(grad, applied)
    elif _can_take(grad, applied):
        grad.data = applied
    else:
        return applied
    return grad


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """The arguments of `to`, in any of its forms: device, dtype, whether to block, memory format."""
    memory_format = kwargs.pop("memory_format", None)
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    elif "tensor" in kwargs:
        tensor = kwargs.pop("tensor")
        args = (tensor.device, tensor.dtype, *args)
    names = ("dtype", "non_blocking", "copy") if args and isinstance(args[0], fl.dtype) else _TO_ARGUMENTS
    if len(args) > len(names) or any(name not in _TO_ARGUMENTS for name in kwargs):
        raise TypeError(f"[to] expected {', '.join(_TO_ARGUMENTS)}, got {args} {kwargs}")
    arguments = dict(zip(names, args)) | kwargs
    device = arguments.get("device")
    if device is not None:
        device = fl.device(device)
    return device, arguments.get("dtype"), bool(arguments.get("non_blocking", False)), memory_format


_TO_ARGUMENTS = ("device", "dtype", "non_blocking", "copy")


def _forward_unimplemented(self: Any, *input: Any) -> Any:
    hint = "index or iterate over its layers" if hasattr(self, "__getitem__") else "define forward(self, ...)"
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function; {hint}')


def _check_name(what: str, name: Any, module: Module, table: str) -> None:
    """A member's name is a new attribute's name without a dot."""
    if not isinstance(name, str):
        raise TypeError(
            f"[{what}] expected the name to be a string, got {type(name).__name__}: {what} name should be a string. Got "
            f"{type(name).__name__}"
        )
    if hasattr(module, name) and name not in module.__dict__[table]:
        raise KeyError(f"attribute '{name}' already exists")
    if "." in name:
        raise KeyError(f'{what} name can\'t contain ".", got: {name}')
    if not name:
        raise KeyError(f'{what} name can\'t be empty string ""')


class _CallSignature:
    """`inspect.signature(module)`: the call is native and has none of its own. Classes keep the one of __init__."""

    def __get__(self, module: Any, owner: type) -> Any:
        if module is None:
            raise AttributeError("__signature__")
        import inspect

        kinds = inspect.Parameter
        return inspect.Signature([kinds("args", kinds.VAR_POSITIONAL), kinds("kwargs", kinds.VAR_KEYWORD)])


class Module(StateDicts):
    """Base class of all layers and models: parameters, buffers and submodules that are assigned as attributes are found by name.

    Write `__init__` (call `super().__init__()` first) and `forward`; calling the module runs forward and its hooks. Modules move
    with `.to`, switch with `.train()` and `.eval()`, and are saved by `state_dict`.

    >>> class Double(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = nn.Parameter(flambeau.tensor(2.0))
    ...     def forward(self, x):
    ...         return self.scale * x
    >>> Double()(flambeau.tensor([1.0, 2.0])).detach()
    tensor([2., 4.])
    >>> list(dict(Double().named_parameters()))
    ['scale']
    """

    __signature__ = _CallSignature()

    dump_patches: bool = False
    training: bool
    call_super_init: bool = False
    _compiled_call_impl: Any = None
    forward: Callable[..., Any] = _forward_unimplemented

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            received = f"{len(args)} positional and {len(kwargs)} keyword arguments"
            raise TypeError(
                f"[{type(self).__name__}.__init__] expected no arguments for Module.__init__, got {received}"
            )
        state = self.__dict__
        state["training"] = True
        for table in TABLES:
            state[table] = Registry()
        state["_non_persistent_buffers_set"] = set()
        state["_is_full_backward_hook"] = None
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # ---------------------------------------------------------------- members

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is part of the state but no parameter; left out of state dicts when not persistent."""
        if "_buffers" not in self.__dict__:
            raise AttributeError(
                f"[{type(self).__name__}] expected super().__init__() before '{name}' is assigned, got no call of it"
            )
        _check_name("buffer", name, self, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor) and not hasattr(tensor, "__torch_function__"):
            raise TypeError(f"[register_buffer] expected a Tensor or None for '{name}', got {type(tensor).__name__}")
        for hook in _global_buffer_registration_hooks.values():
            output = hook(self, name, tensor)
            if output is not None:
                tensor = output
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter, or a place for one when it is None."""
        if "_parameters" not in self.__dict__:
            raise AttributeError(
                f"[{type(self).__name__}] expected super().__init__() before '{name}' is assigned, got no call of it"
            )
        _check_name("parameter", name, self, "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"[register_parameter] expected a Parameter or None for '{name}', got {type(param).__name__}"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"[register_parameter] expected a leaf for '{name}', got the result of an operation: a parameter cannot "
                "be computed from another tensor; compute it in forward()"
            )
        for hook in _global_parameter_registration_hooks.values():
            output = hook(self, name, param)
            if output is not None:
                param = output
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a submodule."""
        if module is not None and not isinstance(module, Module):
            hint = "; unpack a list of layers: Sequential(*layers)" if isinstance(module, (list, tuple)) else ""
            hint = "; write its parentheses to make a layer of the class" if isinstance(module, type) else hint
            raise TypeError(
                f"[{type(self).__name__}] expected a Module for '{name}', got {beside_torch.named(module)}{hint}"
            )
        _check_name("module", name, self, "_modules")
        for hook in _global_module_registration_hooks.values():
            output = hook(self, name, module)
            if output is not None:
                module = output
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        self.add_module(name, module)

    def __setattr__(self, name: str, value: Any) -> None:
        mutations[0] += 1
        state = self.__dict__
        parameters = state.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError(
                    f"[{type(self).__name__}] expected super().__init__() before '{name}' is assigned, got no call of it"
                )
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(
                    f"[{type(self).__name__}] expected a Parameter or None for '{name}', got {type(value).__name__}; "
                    "wrap it in nn.Parameter, or copy_ into the parameter under no_grad()"
                )
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            modules = state.get("_modules")
            if modules is None:
                raise AttributeError(
                    f"[{type(self).__name__}] expected super().__init__() before '{name}' is assigned, got no call of it"
                )
            self._forget(name, "_modules")
            for hook in _global_module_registration_hooks.values():
                output = hook(self, name, value)
                if output is not None:
                    value = output
            modules[name] = value
        elif (modules := state.get("_modules")) is not None and name in modules:
            if value is not None:
                raise TypeError(
                    f"[{type(self).__name__}] expected a Module or None for '{name}', got {type(value).__name__}"
                )
            modules[name] = None
        elif (isinstance(value, Tensor) and isinstance(value, Buffer)) or name in (state.get("_buffers") or ()):
            self._set_buffer(name, value)
        else:
            super().__setattr__(name, value)

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor) and not hasattr(value, "__torch_function__"):
            raise TypeError(
                f"[{type(self).__name__}] expected a Tensor or None for the buffer '{name}', got {type(value).__name__}"
            )
        if isinstance(value, Buffer):
            persistent = getattr(value, "persistent", True)
            if persistent:  # the default, which a subclass need not know of
                self.register_buffer(name, value)
            else:
                self.register_buffer(name, value, persistent)
            return
        for hook in _global_buffer_registration_hooks.values():
            output = hook(self, name, value)
            if output is not None:
                value = output
        self._buffers[name] = value

    def _forget(self, name: str, own_table: str) -> None:
        """Takes a name out of all places but one, before it is registered there."""
        state = self.__dict__
        state.pop(name, None)
        for table in ("_parameters", "_buffers", "_modules"):
            if table != own_table and name in (members := state.get(table) or ()):
                del members[name]  # type: ignore[union-attr]
        state.get("_non_persistent_buffers_set", set()).discard(name)

    def __delattr__(self, name: str) -> None:
        mutations[0] += 1
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            super().__delattr__(name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in TABLES:
            held = self.__dict__.get(table)
            if type(held) is not Registry:
                self.__dict__[table] = Registry(held or {})
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.setdefault("_is_full_backward_hook", None)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def __dir__(self) -> list[str]:
        members = [*self._parameters, *self._modules, *self._buffers]
        names = {*dir(type(self)), *self.__dict__, *members}
        return sorted(name for name in names if not name[0].isdigit())

    def get_submodule(self, target: str) -> Module:
        """The submodule of a dotted name; the module itself for the empty one."""
        module: Any = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(f"{module._get_name()} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replaces the submodule of a dotted name, or adds one when not strict."""
        if not target:
            raise ValueError("[set_submodule] expected the name of a submodule, got an empty string")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if not isinstance(module, Module):
            raise ValueError(f"[set_submodule] expected a Module, got {type(module).__name__}")
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target: str) -> Any:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{owner._get_name()} has no attribute `{name}`")
        return owner, name, getattr(owner, name)

    def get_parameter(self, target: str) -> Parameter:
        _, name, parameter = self._get_member(target)
        if not isinstance(parameter, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        owner, name, buffer = self._get_member(target)
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return buffer

    # ---------------------------------------------------------------- conversion

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Module:
        """Replaces each parameter, gradient and buffer by what fn makes of it, the parameters in place."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        overwrite, swap = get_overwrite_module_params_on_conversion(), get_swap_module_params_on_conversion()
        for key, param in self._parameters.items():
            if param is None:
                continue
            old_grad = param.grad
            with fl.no_grad():
                applied = fn(param)
            if swap or (applied is not param and hasattr(type(applied), "__tensor_flatten__")):
                # A tensor made of others: its parts have to come along, and the parameter stays the same object.
                param.grad = None  # swapped below
                fl.utils.swap_tensors(param, Parameter(applied, param.requires_grad))
                current = param
            elif not overwrite and _can_take(param, applied):
                with fl.no_grad():
                    param.data = applied
                current = param
            else:
                current = Parameter(applied, param.requires_grad)
                self._parameters[key] = current
            if old_grad is not None:
                current.grad = _converted_grad(fn, old_grad, swap)
        for key, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[key] = fn(buffer)
        mutations[0] += 1
        return self

    def apply(self, fn: Callable[[Module], None]) -> Module:
        """Calls fn with every submodule, children first, then with the module itself."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def cuda(self, device: Any = None) -> Module:
        return self._apply(lambda t: t.cuda(device))

    def xpu(self, device: Any = None) -> Module:
        return self.to("xpu" if device is None else fl.device("xpu", device))

    def cpu(self) -> Module:
        return self._apply(lambda t: t.cpu())

    def type(self, dst_type: Any) -> Module:
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Module:
        return self._to_floating(fl.float32)

    def double(self) -> Module:
        return self._to_floating(fl.float64)

    def half(self) -> Module:
        return self._to_floating(fl.float16)

    def bfloat16(self) -> Module:
        return self._to_floating(fl.bfloat16)

    def _to_floating(self, dtype: Any) -> Module:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """Moves to a device without copying what the tensors hold."""
        return self._apply(lambda t: fl.empty_like(t, device=device), recurse=recurse)

    def to(self, *args: Any, **kwargs: Any) -> Module:
        """Moves and converts parameters and buffers: to(device, dtype, non_blocking), to(dtype) or to(tensor)."""
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None and not isinstance(dtype, fl.dtype):
            raise TypeError(f"[Module.to] expected a dtype such as torch.float32, got {dtype!r}")
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"[Module.to] expected a floating point or complex dtype, got {dtype}")
        if dtype is not None and dtype.is_complex:
            warnings.warn("complex modules are young: some layers may not accept complex input", stacklevel=2)

        def convert(t: Tensor) -> Tensor:
            wanted = dtype if t.is_floating_point() or t.is_complex() else None
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, wanted, non_blocking, memory_format=memory_format)
            return t.to(device, wanted, non_blocking)

        return self._apply(convert)

    def share_memory(self) -> Module:
        return self._apply(lambda t: t.share_memory_())

    # ---------------------------------------------------------------- hooks

    def register_full_backward_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_output) before the gradients of the inputs are computed."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def register_backward_hook(self, hook: Any) -> RemovableHandle:
        """The old form of register_full_backward_hook; wrong for modules of several operations."""
        if self._is_full_backward_hook is True:  # type: ignore[has-type]
            raise RuntimeError(f"[{type(self).__name__}] expected old or full backward hooks, got both")
        self._is_full_backward_hook = False
        return self._add_hook(self._backward_hooks, hook)

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_input, grad_output) when the gradients of the inputs are known."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(f"[{type(self).__name__}] expected old or full backward hooks, got both")
        self._is_full_backward_hook = True
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_forward_pre_hook(
        self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls hook(module, args[, kwargs]) before forward; what it returns replaces the arguments."""
        marks = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return self._add_hook(self._forward_pre_hooks, hook, prepend, (self._forward_pre_hooks_with_kwargs,), marks)

    def register_forward_hook(
        self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Calls hook(module, args, [kwargs,] output) after forward; what it returns replaces the output."""
        extra = (self._forward_hooks_with_kwargs, self._forward_hooks_always_called)
        marks = (*extra[: int(with_kwargs)], *extra[1 : 1 + int(always_call)])
        return self._add_hook(self._forward_hooks, hook, prepend, extra, marks)

    @staticmethod
    def _add_hook(table: Any, hook: Any, prepend: bool = False, extra: Any = (), marks: Any = ()) -> RemovableHandle:
        handle = RemovableHandle(table, extra_dict=extra)
        table[handle.id] = hook
        for mark in marks:
            mark[handle.id] = True
        if prepend:
            table.move_to_end(handle.id, last=False)
        return handle

    def _get_backward_hooks(self) -> tuple[list[Any], list[Any]]:
        """Full and old-style backward hooks, those for all modules first."""
        full: list[Any] = []
        regular: list[Any] = []
        if _global_backward_hooks.full is True:
            full += _global_backward_hooks.values()
        if self._is_full_backward_hook is True:
            full += self._backward_hooks.values()
        if _global_backward_hooks.full is False:
            regular += _global_backward_hooks.values()
        if self._is_full_backward_hook is False:
            regular += self._backward_hooks.values()
        return full, regular

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """A call with its hooks; a call without any does not come here."""
        called_always: set[int] = set()
        result: Any = None

        def run() -> Any:
            nonlocal args, kwargs, result
            for hook_id, hook in (*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
                if hook_id in self._forward_pre_hooks_with_kwargs:
                    returned = hook(self, args, kwargs)
                    if returned is not None:
                        if not (isinstance(returned, tuple) and len(returned) == 2):
                            raise RuntimeError(
                                "[forward pre-hook] expected None or a tuple (new_args, new_kwargs), got "
                                f"{type(returned).__name__}"
                            )
                        args, kwargs = returned
                else:
                    returned = hook(self, args)
                    if returned is not None:
                        args = returned if isinstance(returned, tuple) else (returned,)

            full_hooks, regular_hooks = self._get_backward_hooks()
            pre_hooks = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
            border = BackwardHook(self, full_hooks, pre_hooks) if full_hooks or pre_hooks else None
            if border is not None:
                args = border.setup_input_hook(args)

            result = self.forward(*args, **kwargs)
            for hook_id, hook in (*_global_forward_hooks.items(), *self._forward_hooks.items()):
                if hook_id in self._forward_hooks_always_called or hook_id in _global_forward_hooks_always_called:
                    called_always.add(hook_id)
                with_kwargs = hook_id in self._forward_hooks_with_kwargs or hook_id in _global_forward_hooks_with_kwargs
                returned = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                if returned is not None:
                    result = returned
            if border is not None:
                if not isinstance(result, (Tensor, tuple)):
                    warnings.warn(
                        f"backward hooks of {type(self).__name__} are skipped: its forward returned "
                        f"{type(result).__name__}, and only a Tensor or a tuple of Tensors can carry them",
                        stacklevel=3,
                    )
                result = border.setup_output_hook(result)
            if regular_hooks:
                self._hang_regular_hooks(regular_hooks, result)
            return result

        try:
            return run()
        except Exception:
            self._run_always_called(args, kwargs, result, called_always)
            raise

    def _run_always_called(self, args: Any, kwargs: Any, result: Any, done: set[int]) -> None:
        """After an exception, runs those always_call hooks that did not run yet."""
        for hooks, always, kwargs_too in (
            (_global_forward_hooks, _global_forward_hooks_always_called, _global_forward_hooks_with_kwargs),
            (self._forward_hooks, self._forward_hooks_always_called, self._forward_hooks_with_kwargs),
        ):
            for hook_id, hook in hooks.items():
                if hook_id in always and hook_id not in done:
                    try:
                        hook(self, args, kwargs, result) if hook_id in kwargs_too else hook(self, args, result)
                    except Exception as error:
                        warnings.warn(
                            f"a forward hook with always_call raised {error!r} and was skipped, because forward or "
                            "another hook had raised before",
                            stacklevel=3,
                        )

    def _hang_regular_hooks(self, hooks: list[Any], result: Any) -> None:
        tensor = result
        while not isinstance(tensor, Tensor):
            tensor = (
                next(t for t in tensor.values() if isinstance(t, Tensor)) if isinstance(tensor, dict) else tensor[0]
            )
        if tensor.grad_fn is not None:
            for hook in hooks:
                tensor.grad_fn.register_hook(functools.partial(hook, self))

    _wrapped_call_impl = _call_impl

    # ---------------------------------------------------------------- walking

    def _named_members(
        self, get_members_fn: Any, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, member in get_members_fn(module):
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield f"{path}.{name}" if path else name, member

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters with their dotted names; each once, unless duplicates are asked for."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self) -> Iterator[Module]:
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """The module and all below it with their dotted names, parents first."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    # ---------------------------------------------------------------- modes

    def train(self, mode: bool = True) -> Module:
        if not isinstance(mode, bool):
            raise ValueError(f"[train] expected a bool, got {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Module:
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for param in self.parameters():
            if param.grad is None:
                continue
            if set_to_none:
                param.grad = None
            else:
                if param.grad.grad_fn is not None:
                    param.grad.detach_()
                else:
                    param.grad.requires_grad_(False)
                param.grad.zero_()

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles the module's call in place; arguments are those of flambeau.compile."""
        self._compiled_call_impl = fl.compile(self._call_impl, *args, **kwargs)

    def _replicate_for_data_parallel(self) -> Module:
        replica = type(self).__new__(type(self))
        replica.__dict__.update(self.__dict__)
        for table in ("_parameters", "_buffers", "_modules"):
            replica.__dict__[table] = Registry(self.__dict__[table] if table != "_parameters" else {})
        replica.__dict__["_is_replica"] = True
        return replica

    # ---------------------------------------------------------------- printing

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What a layer says of itself between the brackets."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return "\n  ".join([f"{self._get_name()}(", *lines, *children]) + "\n)"
