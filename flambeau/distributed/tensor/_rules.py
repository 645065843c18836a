"""Sharding rules: how the placements of an operator's inputs and outputs go together, along one mesh dimension.

A rule gets the operator's name, its arguments (tensors of the whole shapes, on meta), and the placements of its tensors. It returns
the placements the inputs have to have and those of the outputs, or None when it has no answer; then everything is replicated,
which is always right. Pointwise operators and reductions have one rule for each kind of record; products and views are listed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from flambeau.ops import record

__all__ = ["Decision", "decide"]

R = Replicate()
Decision = tuple[list[Placement], list[Placement]]  # required of each tensor input, given to each output
Rule = Callable[[str, Sequence[Any], list[Any], list[Placement], Any], "Decision | None"]

_LINEAR = {"add", "sub", "neg", "clone", "detach", "alias", "_to_copy", "positive", "contiguous", "view_as", "to"}
_POINTWISE = {
    "clone", "detach", "alias", "_to_copy", "copy_", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like",
    "randn_like", "fill_", "zero_", "native_dropout", "bernoulli", "where", "lerp", "addcmul", "addcdiv", "clamp",
    "masked_fill", "dropout", "to", "contiguous", "bernoulli_", "uniform_", "normal_", "triu_", "lift_fresh", "set_",
}  # fmt: skip
_FRESH = {"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"}
_SUMS = {"sum": "sum", "mean": "avg", "amax": "max", "amin": "min"}


@functools.cache
def is_pointwise(name: str) -> bool:
    base = name.rstrip("_") if not name.startswith("_") else name
    if name in _POINTWISE or base in _POINTWISE or name.startswith("_grad_"):
        return True
    for candidate in (base, f"{base}.Tensor", f"{base}.Scalar"):
        found = record.find(candidate)
        if found is not None and found.kind == "pointwise":
            return True
    return False


def _aligned(placement: Placement, ndim: int, result_ndim: int) -> int | None:
    """The dimension of the result along which an operand is divided."""
    return placement.dim + result_ndim - ndim if isinstance(placement, Shard) else None


def pointwise(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any
) -> Decision | None:
    count = len(outputs)
    if name.endswith("_") and not name.endswith("__"):  # written in place: the first operand's placement stays
        result_ndim, dim = tensors[0].dim(), _aligned(placements[0], tensors[0].dim(), tensors[0].dim())
        if isinstance(placements[0], Partial):
            linear = name.rstrip("_") in {"zero", "copy", "add", "sub"} and all(p == placements[0] for p in placements)
            return (list(placements), [placements[0]] * count) if linear else None
    else:
        result_ndim = max((tensor.dim() for tensor in tensors), default=0)
        partial = [p for p in placements if isinstance(p, Partial)]
        if partial:
            return _partial_pointwise(name, tensors, placements, partial, count)
        dims = [d for t, p in zip(tensors, placements) if (d := _aligned(p, t.dim(), result_ndim)) is not None]
        # The most elements decide, so that the least is moved.
        sizes = [t.numel() for t, p in zip(tensors, placements) if isinstance(p, Shard)]
        dim = dims[sizes.index(max(sizes))] if dims else None
    if dim is None:
        return [R] * len(tensors), [R] * count
    required: list[Placement] = []
    for tensor in tensors:
        own = dim - (result_ndim - tensor.dim())
        required.append(Shard(own) if own >= 0 and tensor.shape[own] != 1 else R)
    return required, [Shard(dim)] * count


def _partial_pointwise(
    name: str, tensors: Sequence[Any], placements: list[Placement], partial: list[Partial], count: int
) -> Decision | None:
    """Operators that commute with a sum (or mean) of parts keep the parts; the others get the sum."""
    if name in _FRESH:
        return list(placements), [R] * count
    first = partial[0]
    if len(tensors) == 1 and name in ("clone", "detach", "alias"):
        return list(placements), [first] * count
    if first.reduce_op not in ("sum", "avg"):
        return None
    if name in _LINEAR and all(p == first for p in placements):
        return list(placements), [first] * count
    scales = name == "mul" or (name == "div" and isinstance(placements[0], Partial))
    others_whole = all(isinstance(p, Partial) or p.is_replicate() for p in placements)
    if scales and len(partial) == 1 and others_whole:
        return list(placements), [first] * count
    return None


def reduction(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any
) -> Decision | None:
    tensor, placement = tensors[0], placements[0]
    if isinstance(placement, Partial):
        return (
            (list(placements), [placement])
            if name in ("sum", "mean") and placement.reduce_op in ("sum", "avg")
            else None
        )
    if not isinstance(placement, Shard):
        return [R], [R] * len(outputs)
    given = args[1] if len(args) > 1 else None
    dims = (
        list(range(tensor.dim()))
        if given is None or given == []
        else [given]
        if isinstance(given, int)
        else list(given)
    )
    dims = [d % max(tensor.dim(), 1) for d in dims]
    if placement.dim not in dims:
        kept = outputs[0].dim() == tensor.dim()
        shift = 0 if kept else sum(d < placement.dim for d in dims)
        return [placement], [Shard(placement.dim - shift)] * len(outputs)
    if name == "mean" and tensor.shape[placement.dim] % _mesh_size.get():
        return None
    return [placement], [Partial(_SUMS[name])] * len(outputs)


def norm(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any
) -> Decision | None:
    """Norms of vectors: those of the parts make that of the whole."""
    tensor, placement = tensors[0], placements[0]
    power = args[1] if len(args) > 1 and args[1] is not None else 2
    if not isinstance(placement, Shard) or not isinstance(power, (int, float)) or power <= 0:
        return None
    chosen = args[2] if len(args) > 2 else None
    dims = range(tensor.dim()) if chosen is None or chosen == [] else [chosen] if isinstance(chosen, int) else chosen
    dims = [d % max(tensor.dim(), 1) for d in dims]
    if placement.dim in dims:
        return [placement], [Partial(f"norm{float(power)}")] * len(outputs)
    kept = outputs[0].dim() == tensor.dim()
    return [placement], [Shard(placement.dim - (0 if kept else sum(d < placement.dim for d in dims)))] * len(outputs)


class _MeshSize:
    """The size of the mesh dimension that a decision is made for."""

    value = 1

    def get(self) -> int:
        return self.value


_mesh_size = _MeshSize()


def product(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any
) -> Decision | None:
    """mm, bmm and addmm: rows of the first operand, columns of the second, batches, or the summed dimension."""
    bias = 1 if name in ("addmm", "baddbmm") else 0
    batch = tensors[bias].dim() - 2
    a, b = placements[bias], placements[bias + 1]
    row, column, inner_a, inner_b = Shard(batch), Shard(batch + 1), Shard(batch + 1), Shard(batch)

    def answer(left: Placement, right: Placement, out: Placement) -> Decision:
        head: list[Placement] = []
        if bias:
            added = tensors[0]
            if isinstance(out, Partial):
                head = [out]
            elif isinstance(out, Shard):
                own = out.dim - (outputs[0].dim() - added.dim())
                head = [Shard(own) if own >= 0 and added.shape[own] != 1 else R]
            else:
                head = [R]
        return [*head, left, right], [out]

    if isinstance(a, Partial) and b.is_replicate() and not bias:
        return [a, R], [a]
    if isinstance(b, Partial) and a.is_replicate() and not bias:
        return [R, b], [b]
    for left, right, out in (
        *(((Shard(0), Shard(0), Shard(0)),) if batch else ()),
        (inner_a, inner_b, Partial()),
        (row, R, row),
        (R, column, column),
    ):
        if a == left and b == right:
            return answer(left, right, out)
    if a == row:
        return answer(row, R, row)
    if b == column:
        return answer(R, column, column)
    if a == inner_a or b == inner_b:
        return answer(inner_a, inner_b, Partial())
    return answer(R, R, R)


def _dim_map(placement: Placement, mapping: dict[int, int | None], count: int = 1) -> Decision | None:
    """A view that moves dimensions: where each old one is in the result (None: gone)."""
    if not isinstance(placement, Shard):
        return [placement], [placement] * count
    target = mapping.get(placement.dim)
    return None if target is None else ([placement], [Shard(target)] * count)


def view(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any
) -> Decision | None:
    tensor, placement, ndim = tensors[0], placements[0], tensors[0].dim()
    if not isinstance(placement, Shard):
        return [placement], [placement] * len(outputs)
    if name in ("t", "transpose", "permute", "swapaxes", "movedim"):
        order = list(range(ndim))
        if name == "permute":
            order = [d % ndim for d in args[1]]
        elif ndim >= 2:
            i, j = (0, 1) if name == "t" else (args[1] % ndim, args[2] % ndim)
            order[i], order[j] = order[j], order[i]
        return [placement], [Shard(order.index(placement.dim))]
    if name == "unsqueeze":
        at = args[1] % (ndim + 1)
        return [placement], [Shard(placement.dim + (at <= placement.dim))]
    if name == "squeeze":
        gone = _squeezed(tensor, args)
        return (
            None
            if placement.dim in gone
            else ([placement], [Shard(placement.dim - sum(d < placement.dim for d in gone))])
        )
    if name in (
        "slice",
        "select",
        "narrow",
        "split",
        "split_with_sizes",
        "unbind",
        "chunk",
        "index_select",
        "roll",
        "flip",
    ):
        dim = _dim_argument(name, args) % ndim
        whole = name == "slice" and tuple(outputs[0].shape) == tuple(tensor.shape)
        if dim == placement.dim and not whole:
            return None
        shift = int(name in ("select", "unbind") and dim < placement.dim)
        return [placement, *([R] * (len(tensors) - 1))], [Shard(placement.dim - shift)] * len(outputs)
    if name == "expand":
        return [placement], [Shard(placement.dim + outputs[0].dim() - ndim)]
    return _reshape(tensor, placement, outputs[0].shape)


def _squeezed(tensor: Any, args: list[Any]) -> list[int]:
    ndim = tensor.dim()
    given = args[1] if len(args) > 1 else None
    dims = range(ndim) if given is None else [given] if isinstance(given, int) else given
    return [d % ndim for d in dims if tensor.shape[d % ndim] == 1]


def _dim_argument(name: str, args: list[Any]) -> int:
    place = {"slice": 1, "select": 1, "narrow": 1, "unbind": 1, "index_select": 1}.get(name, 2)
    value = args[place] if len(args) > place else 0
    return value if isinstance(value, int) else value[0] if value else 0


def _reshape(tensor: Any, placement: Shard, shape: Sequence[int]) -> Decision | None:
    """A division survives when its dimension is the first of those it is joined with or divided into."""
    before, size = math.prod(tensor.shape[: placement.dim]), tensor.shape[placement.dim]
    product_so_far = 1
    for dim, length in enumerate(shape):
        if product_so_far == before and length != 1:
            parts = _mesh_size.get()
            keeps = length == size or (length % parts == 0 and size % parts == 0)
            return ([placement], [Shard(dim)]) if keeps else None
        product_so_far *= length
    return None


def concatenate(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any
) -> Decision | None:
    dim = args[1] if len(args) > 1 and isinstance(args[1], int) else 0
    ndim = outputs[0].dim()
    dim %= ndim
    first = next((p for p in placements if isinstance(p, Shard)), None)
    if first is None:
        same = all(p == placements[0] for p in placements)
        return (list(placements), [placements[0]]) if same else ([R] * len(placements), [R])
    target = first.dim + (name == "stack" and dim <= first.dim)
    if target == dim:
        return [R] * len(placements), [R]
    return [first] * len(placements), [Shard(target)]


def along_rows(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any
) -> Decision | None:
    """Softmax, layer norm and their like: independent along the dimensions that they do not normalise."""
    tensor, placement = tensors[0], placements[0]
    if name in ("native_layer_norm", "layer_norm"):
        rows = tensor.dim() - len(args[1])
        if isinstance(placement, Shard) and placement.dim < rows:
            return [placement, *[R] * (len(tensors) - 1)], [placement] * len(outputs)
        return [R] * len(tensors), [R] * len(outputs)
    if name == "_layer_norm_backward":
        rows = tensor.dim() - args[5]
        sharded = next((p for p in placements[:2] if isinstance(p, Shard) and p.dim < rows), None)
        if sharded is not None:
            required = [sharded] * 4 + [R] * (len(tensors) - 4)
            return required, [sharded, *[Partial()] * (len(outputs) - 1)]
        return [R] * len(tensors), [R] * len(outputs)
    dim = args[-2] if name in ("_softmax_backward_data", "_log_softmax_backward_data") else args[1]
    if not isinstance(dim, int):
        return None
    sharded = next((p for p in placements if isinstance(p, Shard)), None)
    if sharded is None or sharded.dim == dim % tensor.dim():
        return [R] * len(tensors), [R] * len(outputs)
    return [sharded] * len(tensors), [sharded] * len(outputs)


def embedding(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any
) -> Decision | None:
    table, indices = placements[0], placements[1]
    if isinstance(table, Shard) and table.dim == 1:
        return [table, R], [Shard(outputs[0].dim() - 1)]
    if isinstance(indices, Shard):
        return [R, indices], [indices]
    return [R, R], [R]


def attention(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any
) -> Decision | None:
    """Batches and heads are independent of each other."""
    sharded = next((p for p in placements if isinstance(p, Shard)), None)
    if sharded is None or sharded.dim > 1 or tensors[0].dim() != 4:
        return [R] * len(tensors), [R] * len(outputs)
    required: list[Placement] = [
        sharded if t.dim() > sharded.dim and t.shape[sharded.dim] == tensors[0].shape[sharded.dim] else R
        for t in tensors
    ]
    return required, [sharded] * len(outputs)


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SUMS, reduction),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), product),
    **dict.fromkeys(("cat", "stack"), concatenate),
    **dict.fromkeys(
        ("native_layer_norm", "_layer_norm_backward", "_softmax", "_log_softmax", "softmax", "log_softmax",
         "_softmax_backward_data", "_log_softmax_backward_data"), along_rows),
    **dict.fromkeys(
        ("t", "transpose", "permute", "unsqueeze", "squeeze", "slice", "select", "split", "split_with_sizes", "unbind",
         "expand", "view", "_unsafe_view", "reshape", "flatten", "swapaxes", "unflatten", "chunk", "narrow"), view),
    "embedding": embedding,
    **dict.fromkeys(("_flash_attention", "scaled_dot_product_attention", "_flash_attention_backward"), attention),
}  # fmt: skip


_RULES["linalg_vector_norm"] = _RULES["_norm_p"] = norm

registered: dict[str, Callable[..., Any]] = {}  # rules of programs, by operator (`experimental.register_sharding`)


def _by_registered(
    rule: Callable[..., Any], tensors: Sequence[Any], args: list[Any], placements: list[Placement]
) -> Decision | None:
    """The choice of a program's rule that moves the fewest inputs."""
    best: tuple[int, Decision] | None = None
    for outputs, inputs in rule(*args):
        wanted = [placement for placement in inputs if placement is not None]
        if len(wanted) != len(tensors):
            continue
        moved = sum(tensor.numel() for tensor, own, target in zip(tensors, placements, wanted) if own != target)
        if best is None or moved < best[0]:
            best = (moved, (wanted, list(outputs)))
    return None if best is None else best[1]


def decide(
    name: str, tensors: Sequence[Any], args: list[Any], placements: list[Placement], outputs: Any, mesh_size: int
) -> Decision | None:
    """What the rules say of one mesh dimension; None: replicate."""
    if name in registered:
        return _by_registered(registered[name], tensors, args, placements)
    rule = _RULES.get(name) or (pointwise if is_pointwise(name) else None)
    if rule is None:
        return None
    _mesh_size.value = mesh_size
    return rule(name, tensors, args, placements, outputs)
