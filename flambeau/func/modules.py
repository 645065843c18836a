"""Modules as functions of their parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flambeau as fl
from flambeau._C import Tensor


def _owner(module: Any, name: str) -> tuple[Any, str]:
    *path, leaf = name.split(".")
    for part in path:
        module = getattr(module, part)
    return module, leaf


_NONE = object()


def _slot(module: Any, leaf: str) -> dict[str, Any]:
    """The table that has the name; one the module does not have is a buffer for the time of the call."""
    return module._parameters if leaf in module._parameters else module._buffers


def _with_ties(module: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensor for every name under which the module shares one."""
    names: dict[int, list[str]] = {}
    for name, value in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        names.setdefault(id(value), []).append(name)
    groups = {name: group for group in names.values() for name in group}
    full = dict(tensors)
    for name, value in tensors.items():
        for other in groups.get(name, ()):
            if other in tensors and tensors[other] is not value:
                raise ValueError(
                    f"[functional_call] expected one value for tied names, got different ones for {name} and {other}"
                )
            full[other] = value
    return full


@contextlib.contextmanager
def _replaced(module: Any, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Tensors in the place of the module's own while the block runs. What it writes to them stays with the caller."""
    saved = []
    try:
        for name, value in tensors.items():
            owner, leaf = _owner(module, name)
            table = _slot(owner, leaf)
            saved.append((table, leaf, table.get(leaf, _NONE)))
            table[leaf] = value
        yield
    finally:
        for table, leaf, value in reversed(saved):
            if value is _NONE:
                del table[leaf]
            else:
                table[leaf] = value


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """A module called with other parameters and buffers.

    - module; parameter_and_buffer_dicts: tensors by name; args, kwargs: of the call; tie_weights, strict.

    >>> m = nn.Linear(1, 1, bias=False)
    >>> flambeau.func.functional_call(m, {"weight": flambeau.tensor([[5.0]])}, flambeau.ones(1, 1))
    tensor([[5.]])
    """
    if isinstance(parameter_and_buffer_dicts, Mapping):
        tensors = dict(parameter_and_buffer_dicts)
    else:
        tensors = {}
        for part in parameter_and_buffer_dicts:
            if repeated := set(part) & set(tensors):
                raise ValueError(
                    f"[functional_call] expected each name once, got {sorted(repeated)} in several dictionaries"
                )
            tensors.update(part)
    known = {
        name
        for name, _ in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    }
    if strict and set(tensors) != known:
        missing, unexpected = sorted(known - set(tensors)), sorted(set(tensors) - known)
        raise RuntimeError(
            "[functional_call] expected exactly the module's names with strict=True: missing "
            f"{missing}, unexpected {unexpected}"
        )
    if tie_weights:
        tensors = _with_ties(module, tensors)
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, tensors):
        return module(*positional, **dict(kwargs or {}))


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of several modules of one kind, stacked for vmap.

    - models: the modules.

    >>> params, buffers = flambeau.func.stack_module_state([nn.Linear(1, 2) for _ in range(3)])
    >>> params["weight"].shape
    torch.Size([3, 2, 1])
    """
    if not models:
        raise RuntimeError(
            "[stack_module_state] expected models, got none: stack_module_state: Expected at least one model, got 0."
        )
    if any(m.training != models[0].training for m in models):
        raise RuntimeError(
            "[stack_module_state] expected models of one mode, got several: stack_module_state: Expected all models to have the "
            "same training/eval mode."
        )
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError(
            "[stack_module_state] expected models of one class, got several: stack_module_state: Expected all models to be of the "
            "same class."
        )

    def stacked(tables: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        state = {}
        for name, first in tables[0].items():
            if any(t[name].requires_grad != first.requires_grad for t in tables):
                raise RuntimeError(
                    f"[stack_module_state] expected {name} to require gradients in all models or in none, got both: Expected "
                    f"{name} from each model to have the same .requires_grad"
                )
            value = fl.stack([t[name].detach() for t in tables])
            state[name] = value.requires_grad_() if first.requires_grad else value
        return state

    return stacked([dict(m.named_parameters()) for m in models]), stacked([dict(m.named_buffers()) for m in models])


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Batch normalisations without running statistics, which functions of a batch cannot write; the module is changed.

    >>> model = flambeau.nn.Sequential(flambeau.nn.Linear(2, 3), flambeau.nn.BatchNorm1d(3))
    >>> flambeau.func.replace_all_batch_norm_modules_(model)[1].running_mean is None
    True
    """
    for module in root.modules():
        if isinstance(module, fl.nn.modules.batchnorm._BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """What a tensor inside of transformations holds, for printing.

    >>> seen = []
    >>> _ = flambeau.vmap(lambda row: seen.append(flambeau.func.debug_unwrap(row)) or row)(flambeau.ones(2, 3))
    >>> seen[0].shape
    torch.Size([2, 3])
    """
    value = getattr(tensor, "_all_values", tensor)
    return debug_unwrap(value) if recurse and value is not tensor else value
