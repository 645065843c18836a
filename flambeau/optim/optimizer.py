"""The base of all optimizers: parameter groups, state, checkpoints of both, and hooks.

Checkpoints have PyTorch's layout: `state` by the parameter's number, `param_groups` with those numbers for parameters.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, Union

import flambeau as fl
from flambeau import Tensor
from flambeau._tensor import beside_torch
from flambeau.autograd.profiler import record_function
from flambeau.utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"]

ParamsT = Union[Iterable[Tensor], Iterable[dict[str, Any]], Iterable[tuple[str, Tensor]]]
StateDict = dict[str, Any]


class _RequiredParameter:
    """Stands for a default that every parameter group has to give itself."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def _add_hook(hooks: OrderedDict[int, Any], hook: Any, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


_global_optimizer_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before every step of every optimizer."""
    return _add_hook(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after every step of every optimizer."""
    return _add_hook(_global_optimizer_post_hooks, hook)


# ---------------------------------------------------------------- helpers that optimizers share


def _use_grad_for_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of `step`: gradients are recorded when, and only when, the optimizer is differentiable."""

    @functools.wraps(function)
    def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        before = fl.is_grad_enabled()
        fl.set_grad_enabled(self.defaults["differentiable"])
        try:
            return function(self, *args, **kwargs)
        finally:
            fl.set_grad_enabled(before)

    return step


def _get_value(x: Any) -> Any:
    return x.item() if isinstance(x, Tensor) else x


def _get_scalar_dtype(is_fused: bool | None = None) -> fl.dtype:
    """The dtype of scalar state such as step counts."""
    return fl.float64 if fl.get_default_dtype() == fl.float64 and not is_fused else fl.float32


def _stack_if_compiling(x: Any) -> Any:
    return x


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Replace complex tensors by real views, in all lists where the parameter is complex."""
    for i, p in enumerate(params):
        if p.is_complex():
            params[i] = fl.view_as_real(p)
            for each in state_and_grads:
                each[i] = fl.view_as_real(each[i].resolve_conj())


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """(fused, foreach): every step here is one call over all parameters, whichever of them is asked for."""
    return (use_fused and not differentiable), not differentiable


def _disable_dynamo_if_unsupported(single_tensor_fn: Any = None) -> Callable[[Any], Any]:
    return lambda function: function


def _to_scalar(x: Any) -> Any:
    return x.squeeze() if isinstance(x, Tensor) and x.dim() > 0 else x


def _check_tensor_lr(lr: Any, foreach: bool | None = None, capturable: bool = False) -> None:
    if isinstance(lr, Tensor):
        if foreach and not capturable:
            raise ValueError("[optim] expected capturable=True for a Tensor as lr with foreach=True, got False")
        if lr.numel() != 1:
            raise ValueError(
                f"[optim] expected an lr of one element, got a Tensor of shape {tuple(lr.shape)}: Tensor lr must be 1-element"
            )


class Optimizer:
    """Base class of optimizers: groups of parameters with options, and state for each parameter.

    - params: parameters, or dicts with "params" and options; defaults: options that groups do not give.

    Write `step`, which changes the parameters from their gradients.

    >>> class Signs(flambeau.optim.Optimizer):
    ...     def step(self, closure=None):
    ...         for group in self.param_groups:
    ...             for p in group["params"]:
    ...                 p.data -= group["lr"] * p.grad.sign()
    >>> w = nn.Parameter(flambeau.tensor([1.0]))
    >>> w.sum().backward()
    >>> Signs([w], {"lr": 0.1}).step()
    >>> w.detach()
    tensor([0.9000])
    """

    OptimizerPreHook = Callable[..., Any]
    OptimizerPostHook = Callable[..., Any]

    _optimizer_step_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_step_post_hooks: OrderedDict[int, Callable[..., Any]]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        self._patch_step_function()
        if isinstance(params, Tensor):
            raise TypeError(
                f"[{type(self).__name__}] expected a list of Tensors or of groups (dicts), got one Tensor; write [parameter]: "
                "params argument given to the optimizer should be an iterable of Tensors or dicts"
            )
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        if hasattr(params, "parameters") and not hasattr(params, "__iter__"):
            raise TypeError(f"[{type(self).__name__}] expected parameters, got a module; write model.parameters()")
        groups = list(params)
        if not groups:
            raise ValueError(
                f"[{type(self).__name__}] expected at least one parameter, got none; was model.parameters() used up or the model empty?"
            )
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)  # type: ignore[arg-type]
        self._warned_capturable_if_run_uncaptured = True

    def _make_hooks(self) -> None:
        for moment in ("step", "state_dict", "load_state_dict"):
            for order in ("pre", "post"):
                vars(self).setdefault(f"_optimizer_{moment}_{order}_hooks", OrderedDict())

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_hooks()
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(k for k in group if k != "params"):
                text += f"    {key}: {group[key]}\n"
        return text + ")"

    # ---------------------------------------------------------------- steps

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """`step` within a named range for profilers, between the hooks."""

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self = args[0]
            self._optimizer_step_code()
            with record_function(f"Optimizer.step#{type(self).__name__}.step"):
                for hook in chain(_global_optimizer_pre_hooks.values(), self._optimizer_step_pre_hooks.values()):
                    changed = hook(self, args, kwargs)
                    if changed is None:
                        continue
                    if not isinstance(changed, tuple) or len(changed) != 2:
                        raise RuntimeError(
                            f"[{type(self).__name__}] expected a step pre-hook to return None or (args, kwargs), got {changed}"
                        )
                    args, kwargs = changed
                out = func(*args, **kwargs)
                for hook in chain(self._optimizer_step_post_hooks.values(), _global_optimizer_post_hooks.values()):
                    hook(self, args, kwargs)
            return out

        return wrapper

    def _optimizer_step_code(self) -> None:
        """Called at the beginning of each step; profilers replace it."""

    def _patch_step_function(self) -> None:
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"
        if not getattr(type(self).step, "hooked", False):
            type(self).step = self.profile_hook_step(type(self).step)  # type: ignore[method-assign]
            type(self).step.hooked = True

    def _cuda_graph_capture_health_check(self) -> None: ...

    _accelerator_graph_capture_health_check = _cuda_graph_capture_health_check

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zero."""
        gradients = []
        with record_function(self._zero_grad_profile_name):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    if set_to_none:
                        p.grad = None
                        continue
                    if p.grad.grad_fn is not None:
                        p.grad.detach_()
                    else:
                        p.grad.requires_grad_(False)
                    gradients.append(p.grad)
            if gradients:
                fl._foreach_zero_(gradients)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return new args and kwargs."""
        return _add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return _add_hook(self._optimizer_step_post_hooks, hook)

    # ---------------------------------------------------------------- checkpoints

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict` reads anything."""
        return _add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` on the result, which it may change or replace."""
        return _add_hook(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; it may return another state dict."""
        return _add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return _add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def state_dict(self) -> StateDict:
        """State and options, with numbers in the place of parameters. Tensors are not copied."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed = {key: value for key, value in group.items() if key != "params"}
            groups.append({**packed, "params": [numbers[id(p)] for p in group["params"]]})
        state = {numbers[id(k)] if isinstance(k, Tensor) else k: v for k, v in self.state.items()}
        state_dict: StateDict = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        return state_dict

    @staticmethod
    def _process_value_according_to_param_policy(
        param: Tensor,
        value: Tensor,
        param_id: int,
        param_groups: list[dict[str, Any]],
        key: Hashable = None,
    ) -> Tensor:
        """A loaded state tensor as the parameter needs it: on its device and, if floating, in its dtype.

        Step counts are neither moved nor converted, except for groups whose steps run on the device.
        """
        if key == "step":
            group = next((g for g in param_groups if param_id in g["params"]), {})
            if group.get("capturable") or group.get("fused"):
                return value.to(dtype=fl.float32, device=param.device)
            return value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take state and options from another optimizer's `state_dict`, parameters matched by position."""
        if beside_torch.torch_module():
            state_dict = deepcopy(beside_torch.converted(state_dict))  # steps of PyTorch's write to the same memory
        else:
            state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed
        saved_groups = deepcopy(state_dict["param_groups"])
        if len(saved_groups) != len(self.param_groups):
            raise ValueError(
                f"[{type(self).__name__}] expected {len(self.param_groups)} parameter groups in the state dict, got {len(saved_groups)}"
            )
        for i, (ours, theirs) in enumerate(zip(self.param_groups, saved_groups)):
            if len(ours["params"]) != len(theirs["params"]):
                raise ValueError(
                    f"[{type(self).__name__}] expected {len(ours['params'])} parameters in group {i} of the state dict, "
                    f"got {len(theirs['params'])}"
                )
        numbers = chain.from_iterable(g["params"] for g in saved_groups)
        parameters = dict(zip(numbers, chain.from_iterable(g["params"] for g in self.param_groups)))

        def take(param: Tensor, value: Any, number: int, key: Hashable = None) -> Any:
            if isinstance(value, Tensor):
                return Optimizer._process_value_according_to_param_policy(
                    param, value, number, state_dict["param_groups"], key
                )
            if isinstance(value, dict):
                return {k: take(param, v, number, k) for k, v in value.items()}
            if isinstance(value, (list, tuple)):
                return type(value)(take(param, v, number) for v in value)
            return value

        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in parameters:
                state[parameters[key]] = take(parameters[key], value, key)
            else:
                state[key] = value
        groups = []
        for ours, theirs in zip(self.param_groups, saved_groups):
            theirs["params"] = ours["params"]
            if "param_names" in ours and "param_names" not in theirs:
                theirs["param_names"] = ours["param_names"]
            groups.append(theirs)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # ---------------------------------------------------------------- groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; options not given are the optimizer's defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(
                f"[{type(self).__name__}] expected a parameter group to be a dict, got {type(param_group).__name__}"
            )
        if "params" not in param_group:
            raise KeyError(f"[{type(self).__name__}] expected 'params' in a parameter group, got {sorted(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            param_group["params"] = [params]
        elif isinstance(params, set):
            raise TypeError(
                f"[{type(self).__name__}] expected parameters in an order that lasts, got a set; use a list"
            )
        else:
            param_group["params"] = list(params)
        self._split_names(param_group)
        for p in param_group["params"]:
            if not isinstance(p, Tensor):
                hint = "; pass the values() of a dict, or (name, parameter) pairs" if isinstance(p, str) else ""
                raise TypeError(
                    f"[{type(self).__name__}] expected Tensors as parameters, got {beside_torch.named(p)}{hint}"
                )
            if not self.defaults.get("differentiable", None) and not (p.is_leaf or p.retains_grad):
                raise ValueError(
                    f"[{type(self).__name__}] expected leaf Tensors as parameters, got the result of an operation ({p.grad_fn.name()})"
                )
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    f"[{type(self).__name__}] expected a value for {name} in every parameter group, got none"
                )
            param_group.setdefault(name, default)
        own = {id(p) for p in param_group["params"]}
        if len(own) != len(param_group["params"]):
            import warnings

            warnings.warn(
                f"[{type(self).__name__}] expected each parameter once in a group, got one more often: optimizer contains a parameter group "
                "with duplicate parameters; in future, this will cause an error",
                stacklevel=3,
            )
        if any(id(p) in own for group in self.param_groups for p in group["params"]):
            raise ValueError(
                f"[{type(self).__name__}] expected each parameter in one group, got some in several: some parameters "
                "appear in more than one parameter group"
            )
        self.param_groups.append(param_group)

    def _split_names(self, param_group: dict[str, Any]) -> None:
        """(name, parameter) pairs as two lists; either all parameters have names or none has."""
        names, params = [], []
        for item in param_group["params"]:
            if isinstance(item, tuple):
                names.append(item[0])
                params.append(item[1])
            else:
                params.append(item)
        if names:
            if len(names) != len(params):
                raise ValueError(
                    f"[{type(self).__name__}] expected names for all parameters or for none, got {len(names)} names for {len(params)}: all optimizer "
                    "params should be with/without names. Some param names are missing"
                )
            param_group["params"], param_group["param_names"] = params, names
        if self.param_groups and ("param_names" in param_group) != ("param_names" in self.param_groups[0]):
            raise ValueError(
                f"[{type(self).__name__}] expected names in all parameter groups or in none, got a group that differs: all optimizer "
                "param groups should be with/without names. cannot add param group "
                f"{'with' if 'param_names' in param_group else 'without'} names to the optimizer"
            )
