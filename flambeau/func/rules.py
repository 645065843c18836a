"""Running operators on batched tensors: the batching rule of an operator is found and called.

The rules are beside the records of the operators (`ops/*/batching.py`, `ops/batching.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau._C import Tensor
from flambeau.func.batching import Batched, at_front
from flambeau.ops import batching
from flambeau.ops.batching import Held
from flambeau.ops.record import find as find_record
from flambeau.ops.rules import batching as rules
from flambeau.ops.rules import functional_name


@functools.cache
def _rule_of(name: str) -> Any:
    """The batching rule of an operator: its own, that of its kind, or element by element."""
    own = rules.find(name)
    if own is not None:
        return own
    record = find_record(name)
    if record is not None and "data_dependent" in record.tags:
        return _refuse_sizes
    kind = "" if record is None else record.kind
    return {"pointwise": batching.pointwise, "reduction": batching.reduction}.get(kind, batching.one_by_one)


def _refuse_sizes(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        f"[vmap] expected operators whose results have one size for all elements, got {func._full_name}: vmap: We do not support "
        "batching operators that can output dynamic shape. Use where() or a mask instead."
    )


def run(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of an operator on batched tensors. A rule that wrote to the first argument returns it."""
    name = func._full_name
    held_args, held_kwargs = _hold(mode, args), {k: _hold_one(mode, v) for k, v in kwargs.items()}
    base = functional_name(name)
    if base is not None and rules.find(name) is None:
        return _in_place(mode, func, base, args, held_args, held_kwargs)
    result = _rule_of(name)(mode, func, *held_args, **held_kwargs)
    return args[0] if isinstance(result, Held) else mode.wrap(result)


def _hold_one(mode: Any, x: Any) -> Any:
    if mode.owns(x):
        return Held(at_front(x))
    return _hold(mode, x) if isinstance(x, (list, tuple)) else x


def _hold(mode: Any, values: Sequence[Any]) -> list[Any]:
    return [_hold_one(mode, x) for x in values]


def _in_place(
    mode: Any, func: Any, base: str, original_args: Sequence[Any], args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """The result of the functional form, copied into the first argument, which has to have the batch."""
    target = batching.written(func, args[0])
    try:
        functional = fl._C._operator_object(base)
    except (RuntimeError, KeyError, LookupError) as error:
        raise NotImplementedError(f"[vmap] expected an operator with a rule, got {func._full_name}") from error
    wrapped = [mode.wrap(x.value) if isinstance(x, Held) else x for x in args]
    result = run(
        mode, functional, wrapped, {k: mode.wrap(v.value) if isinstance(v, Held) else v for k, v in kwargs.items()}
    )
    if mode.owns(result) and _memory(result.value) == _memory(target.value):
        return _moved(original_args[0], result)
    target.value.copy_(_aligned(at_front(result), target.value.dim()) if mode.owns(result) else result)
    return original_args[0]


def _memory(value: Tensor) -> int:
    while isinstance(value, Batched):
        value = value.value
    return value.untyped_storage()._cdata


def _moved(batched: Any, window: Any) -> Any:
    """A batched tensor that an operator such as `unsqueeze_` made another window on its own memory."""
    batched.value, batched.axis = window.value, window.axis
    fl.Tensor.data.__set__(batched, window)  # the sizes that it shows
    return batched


def _aligned(value: Tensor, dims: int) -> Tensor:
    """A batched value of as many dimensions as what it is written to, of which each element may have more."""
    missing = dims - value.dim()
    return value if missing <= 0 else value.reshape(value.shape[0], *[1] * missing, *value.shape[1:])


# ---------------------------------------------------------------- random operators


@functools.cache
def is_random(name: str) -> bool:
    """Whether the operator of that name draws random numbers."""
    record = find_record(name) or find_record(functional_name(name) or "")
    return record is not None and "random" in record.tags


def random(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any], batched: bool) -> Any:
    name = func._full_name
    if mode.randomness == "error":
        raise RuntimeError(
            f"[vmap] expected no random operator, got {name}: vmap: called random operation while in randomness error "
            "mode. Please either use the 'same' or 'different' randomness flags on vmap or perform the randomness "
            "operation out of vmap"
        )
    if mode.randomness == "same" and not batched:
        return func(*args, **kwargs)
    in_place = functional_name(name) is not None or (args and func._schema.arguments[0].alias_info is not None)
    if in_place:
        return _random_in_place(mode, func, args, kwargs)
    sized = next((i for i, a in enumerate(func._schema.arguments) if a.name == "size"), None)
    if sized is not None:  # a factory
        args = list(args)
        args[sized] = [mode.size, *args[sized]]
        return mode.wrap(func(*args, **kwargs))
    own_rule = rules.find(name) or batching.one_by_one
    if not batched:  # random numbers from arguments without the batch
        held = [Held(a.unsqueeze(0).expand(mode.size, *a.shape)) if isinstance(a, Tensor) else a for a in args]
        return mode.wrap(own_rule(mode, func, *held, **kwargs))
    held_args, held_kwargs = _hold(mode, args), {k: _hold_one(mode, v) for k, v in kwargs.items()}
    if mode.randomness == "different":
        return mode.wrap(own_rule(mode, func, *held_args, **held_kwargs))
    seeds = fl.random.states()

    def same_each_time(*a: Any, **k: Any) -> Any:
        fl.random.set_states(seeds)
        return func(*a, **k)

    same_each_time._full_name = name
    return mode.wrap(batching.one_by_one(mode, same_each_time, *held_args, **held_kwargs))


def _random_in_place(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Random numbers written to the first argument, which has to have the batch unless all elements get the same."""
    name, target = func._full_name, args[0]
    others_batched = any(mode.owns(a) for a in (*args[1:], *kwargs.values()))
    if mode.randomness == "same" and others_batched:
        raise RuntimeError(
            f"[vmap] expected parameters without the batch for {name} with randomness='same', got batched ones: Vmap does not "
            "currently support same randomness with a batched tensor input"
        )
    if others_batched:
        batching.written(func, Held(target.value) if mode.owns(target) else target)
    if not mode.owns(target):
        raise RuntimeError(
            f"[vmap] expected a batched tensor for {name}, got one without the batch: vmap: Cannot ask for different "
            "inplace randomness on an unbatched tensor. This will appear like same randomness."
        )
    front = at_front(target)
    if mode.randomness == "different":
        rest = [at_front(a) if mode.owns(a) else a for a in args[1:]]
        func(front, *rest, **kwargs)
    else:
        drawn = front[0].clone()
        func(drawn, *args[1:], **kwargs)
        front.copy_(drawn.expand(front.shape))
    return target
