"""Operators on distributed tensors: ask the rules, move the inputs, run the operator on the local parts, wrap the results."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import _C
from flambeau._subclasses.fake_operators import info_of
from flambeau.distributed import _collectives as collectives
from flambeau.distributed.tensor import _rules
from flambeau.distributed.tensor._redistribute import redistribute_local
from flambeau.distributed.tensor._spec import DTensorSpec, TensorMeta, compute_local_shape
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard
from flambeau.ops import tags
from flambeau.ops.rules import aten_parts, divided, functional_name, named_arguments
from flambeau.ops.sharding import Call
from flambeau.utils import _pytree as pytree
from flambeau.utils._python_dispatch import _disable_current_modes, is_in_torch_dispatch_mode

__all__ = ["dispatch"]

_told: set[str] = set()
_PLAIN: Any = contextlib.nullcontext()
_META = flambeau.device("meta")
implicit_replication = False
# Operators that a block such as `loss_parallel` computes itself: (class, arguments) to result, or NotImplemented.
handlers: dict[str, Callable[[Any, tuple[Any, ...]], Any]] = {}


def _name(func: Any) -> str:
    return func.__name__.partition(".")[0]


def _meta(tensor: Any) -> Any:
    """A tensor without data of the whole shape."""
    return flambeau.empty_strided(tuple(tensor.shape), tuple(tensor.stride()), dtype=tensor.dtype, device="meta")


def _collect(values: list[Any], kind: type) -> tuple[list[int], Any]:
    """Places of tensors among the arguments, and their mesh."""
    places, mesh = [], None
    for place, value in enumerate(values):
        if isinstance(value, flambeau.Tensor):
            places.append(place)
            if isinstance(value, kind):
                if mesh is not None and value._spec.mesh != mesh:
                    raise RuntimeError(f"[DTensor] expected tensors of one mesh, got {mesh} and {value._spec.mesh}")
                mesh = value._spec.mesh
    return places, mesh


def _placements(name: str, value: Any, kind: type, mesh: Any) -> tuple[Placement, ...]:
    if isinstance(value, kind):
        return value._spec.placements
    # What derivatives make beside the tensors they are given is the same on every process.
    if value.dim() == 0 or value.numel() == 1 or implicit_replication or _C._in_backward():
        return (Replicate(),) * mesh.ndim
    raise RuntimeError(
        f"[{name}] got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed "
        "operators!"
    )


def _decide(
    func: Any,
    mesh: Any,
    metas: list[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    current: list[tuple[Placement, ...]],
    outputs: list[Any],
) -> tuple[list[tuple[Placement, ...]], list[tuple[Placement, ...]]]:
    """Placements of inputs and outputs, from the rules' answers for each mesh dimension."""
    name, arguments = func._full_name, named_arguments(func, args, kwargs)
    required: list[list[Placement]] = [[] for _ in metas]
    output_placements: list[list[Placement]] = [[] for _ in outputs]
    for mesh_dim in range(mesh.ndim):
        placements = [own[mesh_dim] for own in current]
        decision = None
        if any(not p.is_replicate() for p in placements):
            results_so_far = output_placements[0] if outputs else []
            earlier = _divided(metas[0], mesh, required[0]), _divided(next(iter(outputs), None), mesh, results_so_far)
            call = Call(arguments, metas, placements, outputs, mesh.size(mesh_dim), _writes(func), earlier)
            decision = _rules.decide(name, list(args), call)
            if decision is None:
                _tell(_name(func), placements)
        if decision is not None and not all(
            _fits(meta, mesh, [*before, own])
            for tensors, known, owns in zip((metas, outputs), (required, output_placements), decision)
            for meta, before, own in zip(tensors, known, owns)
        ):
            decision = None
        inputs, results = decision or ([Replicate()] * len(metas), [Replicate()] * len(outputs))
        for i in range(len(metas)):
            required[i].append(inputs[i])
        for j in range(len(outputs)):
            output_placements[j].append(results[j])
    return [tuple(one) for one in required], [tuple(one) for one in output_placements]


def _divided(tensor: Any, mesh: Any, placements: list[Placement]) -> list[int]:
    """Into how many parts placements along the first dimensions of a mesh divide each dimension of a tensor."""
    parts = [1] * (0 if tensor is None else tensor.dim())
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            parts[placement.dim] *= mesh.size(mesh_dim)
    return parts


def _fits(tensor: Any, mesh: Any, placements: list[Placement]) -> bool:
    """Whether dimensions consist of the pieces that the last placement divides, on every process."""
    last = placements[-1]
    if not isinstance(last, _StridedShard):
        return True
    size = tensor.shape[last.dim]
    for mesh_dim, placement in enumerate(placements[:-1]):
        if isinstance(placement, Shard) and placement.dim == last.dim:
            pieces = getattr(placement, "split_factor", 1)
            if size % (pieces * mesh.size(mesh_dim)):
                return False
            size //= mesh.size(mesh_dim)
    return size % last.split_factor == 0


def _tell(name: str, placements: list[Placement]) -> None:
    if name in _told or all(isinstance(p, (Partial, Replicate)) for p in placements):
        return
    _told.add(name)
    warnings.warn(f"[DTensor] {name} has no rule for {placements}: its inputs are replicated", stacklevel=6)


def _local(value: Any, kind: type, mesh: Any, current: Any, target: Any) -> Any:
    local = value._local_tensor if isinstance(value, kind) else value
    return redistribute_local(local, mesh, value.shape, current, target)


def _wrap(kind: Any, local: Any, mesh: Any, placements: tuple[Placement, ...], meta: Any) -> Any:
    tensor_meta = TensorMeta(meta.shape, tuple(meta.stride()), meta.dtype)
    return kind(local, DTensorSpec(mesh, placements, tensor_meta), requires_grad=False)


def dispatch(kind: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = _name(func)
    if name in handlers:
        result = handlers[name](kind, args)
        if result is not NotImplemented:
            return result
    written = info_of(func).outs
    if written:
        return _into(kind, func, written, args, kwargs)
    if _rules.draws(func._full_name):
        return _draw(kind, func, args, kwargs)
    parts = aten_parts.find(func._full_name)
    if parts is not None and _writes_lists(func):
        if _is_aligned(kind, args):
            func(*_local_lists(kind, args), **kwargs)
            return args[0] if func._schema.returns else None
        parts(*args, **kwargs)
        return None
    if parts is not None:
        result = parts(*args, **kwargs)
        if type(result) is tuple and result and callable(result[0]):  # another operator, with its arguments
            func, args, kwargs = result[0], tuple(result[1]), {}
        elif result is not NotImplemented:
            return result
    values, structure = pytree.tree_flatten((args, kwargs))
    places, mesh = _collect(values, kind)
    if mesh.get_coordinate() is None:
        return _outside(kind, func, values, structure, places, mesh)
    if func._full_name in tags.operators("reshapes"):
        return _reshape(func, args, kwargs)
    by_others = divided.find(func._full_name)
    if by_others is not None and any(isinstance(p, Shard) for i in places for p in _own(values[i], kind)):
        result = by_others(func, *args, **kwargs)
        if result is not NotImplemented:
            return result
    current = [_placements(name, values[place], kind, mesh) for place in places]
    returns_tensors = any("Tensor" in str(returned) for returned in func._schema.returns)
    on_meta = [_META if isinstance(value, flambeau.device) else value for value in values]
    with _disable_current_modes() if is_in_torch_dispatch_mode() else _PLAIN:  # a recorder is not to see this
        metas = [_meta(values[place]) for place in places]
        for place, meta in zip(places, metas):
            on_meta[place] = meta
        meta_args, meta_kwargs = pytree.tree_unflatten(on_meta, structure)
        result_on_meta = func(*meta_args, **meta_kwargs) if returns_tensors else None
    outputs = [value for value in pytree.tree_leaves(result_on_meta) if isinstance(value, flambeau.Tensor)]
    required, output_placements = _decide(func, mesh, metas, meta_args, meta_kwargs, current, outputs)
    if _writes(func) and required[0] != current[0]:
        return _in_place_by_copy(kind, func, values, structure, places, current, mesh)
    locals_ = list(values)
    for place, own, target in zip(places, current, required):
        locals_[place] = _local(values[place], kind, mesh, own, target)
    local_args, local_kwargs = pytree.tree_unflatten(locals_, structure)
    if outputs:
        whole, lies = outputs[0].shape, output_placements[0]
        local_args = _with_shape(func, local_args, whole, lambda: compute_local_shape(whole, mesh, lies))
    result = func(*local_args, **local_kwargs)
    if _writes(func):
        _write_back(args[0])
        return args[0]
    if not returns_tensors:
        return result
    wrapped = _wrap_all(kind, result, result_on_meta, mesh, output_placements)
    if func._full_name in tags.operators("view"):
        _open_windows(wrapped, func, args, kwargs, required[0] != current[0])
    return wrapped


def _into(kind: Any, func: Any, written: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator with `out=`: results are moved to where these tensors lie, which stay divided as they are."""
    outs = [kwargs[name] for name in written]
    functional = _C._operator_object(info_of(func).base)
    result = functional(*args, **{name: value for name, value in kwargs.items() if name not in written})
    for out, value in zip(outs, result if isinstance(result, (list, tuple)) else [result]):
        if not isinstance(out, kind) or not isinstance(value, kind):
            raise RuntimeError(f"[{_name(func)}] got mixed torch.Tensor and DTensor among the arguments and out=")
        if out.shape != value.shape:
            raise RuntimeError(
                f"[{_name(func)}] expected an out= of shape {tuple(value.shape)}, got {tuple(out.shape)}: distributed "
                "tensors are not resized"
            )
        _assign(out, value._local_tensor, value._spec)
    return outs[0] if len(outs) == 1 else tuple(outs)


def _outside(kind: Any, func: Any, values: list[Any], structure: Any, places: list[int], mesh: Any) -> Any:
    """What an operator gives to a process that is not in the mesh: tensors of the right shape without a part, True for a question."""
    if _writes(func):
        return values[0]
    on_meta = [_META if isinstance(value, flambeau.device) else value for value in values]
    for place in places:
        on_meta[place] = _meta(values[place])
    args, kwargs = pytree.tree_unflatten(on_meta, structure)
    if not any("Tensor" in str(returned) for returned in func._schema.returns):
        return True
    result = func(*args, **kwargs)
    flat, whole = pytree.tree_flatten(result)
    like, everywhere = values[places[0]], (Replicate(),) * mesh.ndim
    wrapped = [
        _wrap(kind, _no_part(value, like.device), mesh, everywhere, value)
        if isinstance(value, flambeau.Tensor)
        else value
        for value in flat
    ]
    return pytree.tree_unflatten(wrapped, whole)


def _no_part(whole: Any, device: Any) -> Any:
    """The part of a process that has none: no elements, or a zero where the whole is a scalar."""
    return flambeau.zeros(() if whole.dim() == 0 else 0, dtype=whole.dtype, device=device)


def _own(value: Any, kind: type) -> tuple[Placement, ...]:
    return value._spec.placements if isinstance(value, kind) else ()


def _reshape(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view that takes the place of the tensor it is of."""
    target = args[0]
    base, _, overload = (functional_name(func._full_name) or "").partition(".")
    functional = getattr(getattr(flambeau.ops.aten, base, None), overload or "default", None)
    if functional is None:
        raise NotImplementedError(
            f"[{_name(func)}] expected an operator that keeps the shape of a DTensor, got one that changes it"
        )
    view = functional(target, *args[1:], **kwargs)
    with flambeau._C.DisableTorchFunctionSubclass(), _C._DisableTorchDispatch(), _C._AutoDispatchBelowAutograd():
        func(*args, **kwargs)  # the shape of the whole
    target._local_tensor, target._spec = view._local_tensor, view._spec
    return target


def _draw(kind: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Random numbers of the whole from a seed that the first process draws, so that they do not depend on the mesh."""
    target, mesh = args[0], args[0]._spec.mesh
    if mesh.get_coordinate() is None:
        return target
    seed = flambeau.randint(0, 2**31, (1,))
    for mesh_dim in range(mesh.ndim):
        collectives.broadcast(seed, group=mesh.get_group(mesh_dim), group_src=0)
    whole = flambeau.empty(tuple(target.shape), dtype=target.dtype, device=target.device)
    with flambeau.random.fork_rng():
        flambeau.manual_seed(int(seed))
        whole = func(whole, *args[1:], **kwargs)
    own = _drawn_placements(target)
    local = redistribute_local(whole, mesh, whole.shape, (Replicate(),) * mesh.ndim, own)
    if _writes(func):
        target._local_tensor.copy_(local)
        return target
    return _wrap(kind, local, mesh, own, whole)


def _drawn_placements(target: Any) -> tuple[Placement, ...]:
    return tuple(Replicate() if isinstance(p, Partial) else p for p in target._spec.placements)


def _open_windows(views: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], moved: bool) -> None:
    """Notes of views for which parts were moved, and of views of these, what they are views of."""
    base = args[0]
    if moved:
        for i, view in enumerate(views if isinstance(views, (list, tuple)) else [views]):
            place = i if isinstance(views, (list, tuple)) else None
            view._window = (base, lambda whole, i=place: _at(func(whole, *args[1:], **kwargs), i))
    elif getattr(base, "_window", None) is not None:
        for view in views if isinstance(views, (list, tuple)) else [views]:
            view._window = (base, None)


def _at(value: Any, place: int | None) -> Any:
    return value if place is None else value[place]


def _write_back(target: Any) -> None:
    """Brings what was written to a view for which parts were moved to the tensor that it is a view of."""
    base, view = getattr(target, "_window", None) or (None, None)
    if base is None:
        return
    if view is None:
        return _write_back(base)
    mesh, everywhere = base._spec.mesh, (Replicate(),) * base._spec.mesh.ndim
    whole = redistribute_local(base._local_tensor, mesh, base.shape, base._spec.placements, everywhere).clone()
    view(whole).copy_(redistribute_local(target._local_tensor, mesh, target.shape, target._spec.placements, everywhere))
    _replace(base, whole)


def _replace(target: Any, whole: Any) -> None:
    """Other values for a tensor."""
    mesh = target._spec.mesh
    _assign(target, whole, DTensorSpec(mesh, (Replicate(),) * mesh.ndim))


def _assign(target: Any, local: Any, spec: DTensorSpec) -> None:
    """Writes values that lie by `spec` to a tensor, which stays divided as it is; parts to be reduced become the whole."""
    mesh, current = target._spec.mesh, target._spec.placements
    if spec.mesh != mesh:
        raise RuntimeError(f"[DTensor] expected tensors of one mesh, got {mesh} and {spec.mesh}")
    keep = tuple(p if isinstance(p, Shard) else Replicate() for p in current)
    target._local_tensor.copy_(redistribute_local(local, mesh, target.shape, spec.placements, keep))
    if keep != current:
        target._spec = DTensorSpec(mesh, keep, target._spec.tensor_meta)
    _write_back(target)


def _writes_lists(func: Any) -> bool:
    """Whether the operator writes to a list of tensors, as the step of an optimizer does, one position like the other."""
    first = func._schema.arguments[0]
    return bool(first.is_written) and str(first.type).startswith("List")


def _is_aligned(kind: Any, args: tuple[Any, ...]) -> bool:
    """Whether the tensors at each position of the lists are divided alike, so that the parts can be computed alone."""
    for row in zip(*(value for value in args if isinstance(value, (list, tuple)) and value)):
        placements = {value._spec.placements for value in row if isinstance(value, kind)}
        wholes = any(isinstance(v, flambeau.Tensor) and not isinstance(v, kind) and v.dim() for v in row)
        if len(placements) > 1 or wholes or any(isinstance(p, Partial) for own in placements for p in own):
            return False
    return True


def _local_lists(kind: Any, args: tuple[Any, ...]) -> list[Any]:
    return [
        [item._local_tensor if isinstance(item, kind) else item for item in value]
        if isinstance(value, (list, tuple))
        else value._local_tensor
        if isinstance(value, kind)
        else value
        for value in args
    ]


def _writes(func: Any) -> bool:
    """Whether the operator writes to its first argument."""
    return _name(func).endswith("_") and not _name(func).endswith("__")


def _with_shape(func: Any, args: Any, whole: Any, shape: Callable[[], list[int]]) -> list[Any]:
    """The arguments with the shape of this process's part of the result, where that is one of them, as of `view`."""

    def is_shape(name: str, value: Any) -> bool:
        sizes = isinstance(value, (list, tuple))
        return sizes and (name in ("size", "shape") or (name == "sizes" and tuple(value) == tuple(whole)))

    named = zip(func._schema.arguments, args)
    return [shape() if is_shape(argument.name, value) else value for argument, value in named]


def _wrap_all(kind: Any, result: Any, on_meta: Any, mesh: Any, placements: list[tuple[Placement, ...]]) -> Any:
    flat, structure = pytree.tree_flatten(result)
    meta_flat, _ = pytree.tree_flatten(on_meta)
    wrapped, index = [], 0
    for value, meta in zip(flat, meta_flat):
        if isinstance(value, flambeau.Tensor):
            wrapped.append(_wrap(kind, value, mesh, placements[index], meta))
            index += 1
        else:
            wrapped.append(value)
    return pytree.tree_unflatten(wrapped, structure)


def _in_place_by_copy(
    kind: Any, func: Any, values: list[Any], structure: Any, places: list[int], current: list[Any], mesh: Any
) -> Any:
    """A write for which no rule keeps the placement: on whole tensors, then back."""
    everywhere = (Replicate(),) * mesh.ndim
    locals_ = list(values)
    for place, own in zip(places, current):
        whole = _local(values[place], kind, mesh, own, everywhere)
        locals_[place] = whole.clone() if place == places[0] else whole
    args, kwargs = pytree.tree_unflatten(locals_, structure)
    result = func(*args, **kwargs)
    target = values[places[0]]
    _replace(target, result)
    return target
