"""The state of optimizers over sharded models: by the names of parameters, whole or in parts, saved and loaded."""

from __future__ import annotations

from typing import Any

from flambeau.distributed import _groups
from flambeau.distributed.fsdp._options import FullOptimStateDictConfig, OptimStateKeyType, StateDictType


def _wrapper() -> Any:
    from flambeau.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel

    return FullyShardedDataParallel


def optim_state_dict(model: Any, optim: Any, optim_state_dict: Any = None, group: Any = None) -> dict[str, Any]:
    """The state of an optimizer under the names of parameters: whole tensors, or parts as the settings say."""
    from flambeau.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    settings = _wrapper().get_state_dict_type(model)
    whole = settings.state_dict_type is StateDictType.FULL_STATE_DICT
    state = get_optimizer_state_dict(model, optim, options=StateDictOptions(full_state_dict=whole))
    only_first = whole and getattr(settings.optim_state_dict_config, "rank0_only", False)
    return {} if only_first and _groups.get_rank(group) != 0 else state


def optim_state_dict_to_load(
    model: Any,
    optim: Any,
    optim_state_dict: dict[str, Any],
    is_named_optimizer: bool = False,
    load_directly: bool = False,
    group: Any = None,
) -> dict[str, Any]:
    """A state by names as the optimizer's `load_state_dict` takes it, divided as the parameters are."""
    from flambeau.distributed.checkpoint.state_dict import _names, _placed_as

    names = _names(model)
    order = [names[p] for entry in optim.param_groups for p in entry["params"]]
    parameters = {names[p]: p for entry in optim.param_groups for p in entry["params"]}
    saved_groups = {name: entry for entry in optim_state_dict["param_groups"] for name in entry["params"]}
    state = {
        index: {key: _placed_as(value, parameters[name]) for key, value in optim_state_dict["state"][name].items()}
        for index, name in enumerate(order)
        if name in optim_state_dict["state"]
    }
    groups, start = [], 0
    for entry in optim.param_groups:
        numbers = list(range(start, start + len(entry["params"])))
        saved = saved_groups.get(order[start], entry) if numbers else entry
        groups.append({key: value for key, value in saved.items() if key != "params"} | {"params": numbers})
        start += len(numbers)
    loaded = {"state": state, "param_groups": groups}
    if load_directly:
        optim.load_state_dict(loaded)
    return loaded


def full_optim_state_dict(
    model: Any, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: Any = None
) -> dict[str, Any]:
    """The whole state, by default on the first process only."""
    kind, config = StateDictType.FULL_STATE_DICT, FullOptimStateDictConfig(rank0_only=rank0_only)
    with _wrapper().state_dict_type(model, kind, None, config):
        return _wrapper().optim_state_dict(model, optim, group=group)


def sharded_optim_state_dict(model: Any, optim: Any, group: Any = None) -> dict[str, Any]:
    """The state in parts, on every process."""
    with _wrapper().state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        return optim_state_dict(model, optim, group=group)


def shard_full_optim_state_dict(
    full_optim_state_dict: dict[str, Any], model: Any, optim_input: Any = None, optim: Any = None
) -> dict[str, Any]:
    """A whole state, as the optimizer's `load_state_dict` takes it, divided as the parameters are."""
    if optim is None:
        parameters = list(model.parameters()) if optim_input is None else list(optim_input)
        grouped = bool(parameters) and isinstance(parameters[0], dict)
        optim = _Numbering(parameters if grouped else [{"params": parameters}])
    return optim_state_dict_to_load(model, optim, full_optim_state_dict)


class _Numbering:
    """The groups of an optimizer that is not there yet."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        self.param_groups = [{**group, "params": list(group["params"])} for group in groups]


def scatter_full_optim_state_dict(
    full_optim_state_dict: dict[str, Any] | None,
    model: Any,
    optim_input: Any = None,
    optim: Any = None,
    group: Any = None,
) -> dict[str, Any]:
    """The same, from a state that only the first process has."""
    from flambeau.distributed._objects import broadcast_object_list

    box = [full_optim_state_dict]
    broadcast_object_list(box, src=0, group=group)
    return shard_full_optim_state_dict(box[0], model, optim_input, optim)  # type: ignore[arg-type]


def flatten_sharded_optim_state_dict(
    sharded_optim_state_dict: dict[str, Any], model: Any, optim: Any
) -> dict[str, Any]:
    """A state in parts, as the optimizer's `load_state_dict` takes it."""
    return optim_state_dict_to_load(model, optim, sharded_optim_state_dict)


def rekey_optim_state_dict(
    optim_state_dict: dict[str, Any],
    optim_state_key_type: OptimStateKeyType,
    model: Any,
    optim_input: Any = None,
    optim: Any = None,
) -> dict[str, Any]:
    """A state by numbers as one by names, or the other way round, for a model that is not sharded."""
    names = [name for name, _ in model.named_parameters()]
    if optim is not None:
        by_parameter = {parameter: name for name, parameter in model.named_parameters()}
        names = [by_parameter[p] for group in optim.param_groups for p in group["params"]]
    pairs = list(enumerate(names))
    to_names = optim_state_key_type is OptimStateKeyType.PARAM_NAME
    table: dict[Any, Any] = dict(pairs) if to_names else {name: i for i, name in pairs}
    groups = [
        {**group, "params": [table.get(key, key) for key in group["params"]]}
        for group in optim_state_dict["param_groups"]
    ]
    return {"state": {table.get(k, k): v for k, v in optim_state_dict["state"].items()}, "param_groups": groups}
