"""State dicts of models and optimizers that do not depend on how a model is wrapped or its parameters are numbered.

Parameters are called by their full names, in the state of optimizers too. Tensors that are divided over processes stay so,
or are gathered with `full_state_dict`; whole ones are divided again when they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import flambeau as fl
from flambeau import nn
from flambeau.distributed import _collectives, _groups
from flambeau.distributed._objects import broadcast_object_list
from flambeau.distributed.tensor._api import DTensor, distribute_tensor
from flambeau.optim import Optimizer

__all__ = [
    "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
    "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip

_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.")  # in names, of compiled modules and of wrappers inside the model


@dataclass
class _Elsewhere:
    """A tensor that only the first process has."""

    shape: tuple[int, ...]
    dtype: Any


@dataclass
class StateDictOptions:
    """What a state dict holds. With `full_state_dict` and `cpu_offload` only the first process gets it."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module that programs know, without what trains it on many processes."""
    from flambeau.distributed.fsdp import FullyShardedDataParallel

    wrappers = (nn.parallel.DistributedDataParallel, FullyShardedDataParallel)
    return model.module if isinstance(model, wrappers) else model


def _plain_name(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _names(model: nn.Module) -> dict[Any, str]:
    """The full name of each parameter."""
    named = _unwrapped(model).named_parameters(remove_duplicate=False)
    names: dict[Any, str] = {}
    for name, parameter in named:
        names.setdefault(parameter, _plain_name(name))
    return names


def _parts(model: nn.Module) -> dict[str, Any]:
    """The state dict in which divided tensors stay so, whatever the wrappers in the model are set to."""
    from flambeau.distributed.fsdp import FullyShardedDataParallel, StateDictType

    if not FullyShardedDataParallel.fsdp_modules(model):
        return model.state_dict()
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return model.state_dict()


def _listed(optimizers: Optimizer | Iterable[Optimizer]) -> list[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _on_cpu(value: Any, options: StateDictOptions) -> Any:
    """A value as the options want it: whole, in the memory of the host."""
    if options.full_state_dict and isinstance(value, DTensor):
        with fl.no_grad():
            value = value.full_tensor()
    return value.cpu() if options.cpu_offload and isinstance(value, fl.Tensor) else value


def _only_first(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    """A whole state in host memory is for one process, which saves it."""
    if options.full_state_dict and options.cpu_offload and _groups.is_initialized() and _groups.get_rank() != 0:
        return {}
    return state


def _placed(value: Any, own: Any, options: StateDictOptions) -> Any:
    """A value as the one that it replaces: divided as that is."""
    if isinstance(own, DTensor) and not isinstance(value, DTensor):
        if options.broadcast_from_rank0 and value is None:
            value = fl.empty(own.shape, dtype=own.dtype)
        source = 0 if options.broadcast_from_rank0 else None
        return distribute_tensor(value, own.device_mesh, own.placements, src_data_rank=source)
    if options.broadcast_from_rank0 and isinstance(own, fl.Tensor) and _groups.is_initialized():
        received = fl.empty_like(own) if value is None else value.detach().clone()
        _collectives.broadcast(received, src=0)
        return received
    return value


def _placed_as(value: Any, parameter: Any) -> Any:
    """An entry of an optimizer's state, divided as its parameter when it has the parameter's shape."""
    if not isinstance(value, fl.Tensor):
        return value
    value = value.clone()  # two optimizers must not count steps in one tensor
    if not isinstance(parameter, DTensor) or isinstance(value, DTensor):
        return value
    if tuple(value.shape) != tuple(parameter.shape):
        return value
    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)


def get_model_state_dict(
    model: nn.Module, *, submodules: set[nn.Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The model's state dict under full names; with `submodules`, what belongs to these."""
    options = options or StateDictOptions()
    model = _unwrapped(model)
    state = {_plain_name(name): _on_cpu(value, options) for name, value in _parts(model).items()}
    if options.ignore_frozen_params:
        frozen = {name for p, name in _names(model).items() if not p.requires_grad}
        state = {name: value for name, value in state.items() if name not in frozen}
    if submodules:
        prefixes = [_plain_name(f"{name}.") for name, m in model.named_modules() if m in submodules]
        chosen = {name: p for name in state for p in prefixes if name.startswith(p)}
        cut = not options.keep_submodule_prefixes
        state = {name[len(prefix) :] if cut else name: state[name] for name, prefix in chosen.items()}
    return _only_first(state, options)


def set_model_state_dict(
    model: nn.Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Loads what `get_model_state_dict` gave."""
    options = options or StateDictOptions()
    model = _unwrapped(model)
    values = _parts(model)
    own = {_plain_name(name): name for name in values}
    if options.broadcast_from_rank0:
        model_state_dict = {name: model_state_dict.get(name) for name in own}
    plain = {
        own.get(name, name): _placed(value, values.get(own.get(name, name)), options)
        for name, value in model_state_dict.items()
    }
    return model.load_state_dict(plain, strict=options.strict)


def _filled(optimizer: Optimizer) -> None:
    """Makes an optimizer that has not stepped yet have its state, without moving a parameter."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if optimizer.state or not parameters or any(p.grad is not None for p in parameters):
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = fl.tensor(0.0) if isinstance(group["lr"], fl.Tensor) else 0.0
    for parameter in parameters:
        parameter.grad = fl.zeros_like(parameter)
    optimizer.step(closure=None)
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def _flattened(state: dict[str, Any]) -> dict[str, Any]:
    flat = {f"state.{name}.{key}": v for name, values in state["state"].items() for key, v in values.items()}
    for group in state["param_groups"]:
        for name in group["params"]:
            flat |= {f"param_groups.{name}.{key}": value for key, value in group.items() if key != "params"}
    return flat


def get_optimizer_state_dict(
    model: nn.Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The state of all optimizers together, parameters called by name; with an option as one flat dict."""
    options = options or StateDictOptions()
    names = _names(model)
    joined: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in _listed(optimizers):
        _filled(optimizer)
        saved = optimizer.state_dict()
        order = [names[p] for group in optimizer.param_groups for p in group["params"]]
        for index, values in saved["state"].items():
            joined["state"][order[index]] = {key: _on_cpu(value, options) for key, value in values.items()}
        for group in saved["param_groups"]:
            joined["param_groups"].append(group | {"params": [order[index] for index in group["params"]]})
    return _only_first(_flattened(joined) if options.flatten_optimizer_state_dict else joined, options)


def _from_first(state: dict[str, Any]) -> dict[str, Any]:
    """The state that the first process has, where the others have nothing; whole tensors are there only, as yet."""
    tensors = {
        (name, key): value
        for name, values in state.get("state", {}).items()
        for key, value in values.items()
        if isinstance(value, fl.Tensor)
    }
    described = fl.utils._pytree.tree_map_only(fl.Tensor, lambda t: _Elsewhere(tuple(t.shape), t.dtype), state)
    box = [described if _groups.get_rank() == 0 else None]
    broadcast_object_list(box, src=0)
    everywhere: dict[str, Any] = box[0] or {}
    for name, values in everywhere["state"].items():
        for key, value in values.items():
            if isinstance(value, _Elsewhere):
                own = tensors.get((name, key))
                values[key] = fl.empty(value.shape, dtype=value.dtype) if own is None else own
    return everywhere


def _received(value: Any, parameter: Any) -> Any:
    """A whole entry of the first process, or the part of it that goes with a parameter."""
    if not isinstance(value, fl.Tensor):
        return value
    if isinstance(parameter, DTensor) and value.shape == parameter.shape:
        return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=0)
    value = value.clone()
    _collectives.broadcast(value, src=0)
    return value


def _unflattened(flat: dict[str, Any], order: list[list[str]]) -> dict[str, Any]:
    state: dict[str, Any] = {"state": {}, "param_groups": []}
    for names in order:
        group: dict[str, Any] = {"params": names}
        for name in names:
            prefix = f"state.{name}."
            values = {key[len(prefix) :]: v for key, v in flat.items() if key.startswith(prefix)}
            if values:
                state["state"][name] = values
            head = f"param_groups.{name}."
            group |= {key[len(head) :]: v for key, v in flat.items() if key.startswith(head)}
        state["param_groups"].append(group)
    return state


def set_optimizer_state_dict(
    model: nn.Module,
    optimizers: Optimizer | Iterable[Optimizer],
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Loads what `get_optimizer_state_dict` gave; the order of parameters and groups may be another."""
    options = options or StateDictOptions()
    names = _names(model)
    parameters = {name: parameter for parameter, name in names.items()}
    place = _received if options.broadcast_from_rank0 else _placed_as
    for optimizer in _listed(optimizers):
        _filled(optimizer)
        order = [[names[p] for p in group["params"]] for group in optimizer.param_groups]
        nested = optim_state_dict if "param_groups" in optim_state_dict else _unflattened(optim_state_dict, order)
        if options.broadcast_from_rank0:
            nested = _from_first(nested)
        by_first = {name: group for group in nested["param_groups"] for name in group["params"]}
        flat = [name for group in order for name in group]
        state = {
            index: {key: place(value, parameters[name]) for key, value in nested["state"][name].items()}
            for index, name in enumerate(flat)
            if name in nested["state"]
        }
        groups, start = [], 0
        for own, saved_names in zip(optimizer.param_groups, order):
            saved = by_first.get(saved_names[0], own) if saved_names else own
            numbers = list(range(start, start + len(saved_names)))
            groups.append({key: v for key, v in saved.items() if key != "params"} | {"params": numbers})
            start += len(saved_names)
        optimizer.load_state_dict({"state": state, "param_groups": groups})


def get_state_dict(
    model: nn.Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[nn.Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state dicts of a model and of its optimizers."""
    state = get_model_state_dict(model, submodules=submodules, options=options)
    return state, get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options)


def set_state_dict(
    model: nn.Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Loads what `get_state_dict` gave."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)


def _patch_model_state_dict(model: nn.Module, *, options: StateDictOptions | None = None) -> None:
    """`model.state_dict()` and `load_state_dict` become those of this module."""
    model.state_dict = lambda *_, **__: get_model_state_dict(model, options=options)  # type: ignore[method-assign]
    model.load_state_dict = lambda state, *_, **__: set_model_state_dict(model, state, options=options)  # type: ignore[method-assign]


def _patch_optimizer_state_dict(model: nn.Module, *, optimizers: Any, options: StateDictOptions | None = None) -> None:
    """The same for optimizers; the first one's methods are those of all together."""
    listed = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)

    def load(state: Any) -> None:
        set_optimizer_state_dict(model, listed, state, options=options)

    for optimizer in listed:
        optimizer.state_dict = lambda: get_optimizer_state_dict(model, listed, options=options)  # type: ignore[method-assign]
        optimizer.load_state_dict = load  # type: ignore[method-assign]
