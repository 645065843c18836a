"""vmap: a function of single values called once on a whole batch.

Inside, a batched input is a `Batched`: a tensor that hides one dimension of the tensor it holds. A mode sees every
operator and computes it on the held tensors by its batching rule (`ops/batching.py`): the hidden dimension is added to shapes and
counted in dimensions. What has no rule is computed element by element.

`Batched` lies below autograd: it is differentiated as a whole, and what the rules compute is recorded in turn for the
tensors it holds. Hence `vmap(grad(f))` and `grad(vmap(f))` work, to any depth.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as fl
from flambeau import _C
from flambeau._C import Tensor
from flambeau.autograd.transforming import call_inside, refuse
from flambeau.utils import _pytree as pytree
from flambeau.utils._python_dispatch import TorchDispatchMode

_state = threading.local()


class Batched(Tensor):
    """A tensor that stands for each element of `value` along its dimension `axis`, inside the vmap of a level."""

    __torch_function__ = _C._disabled_torch_function_impl

    value: Tensor
    axis: int
    level: int

    @staticmethod
    def __new__(cls, value: Tensor, axis: int, level: int) -> Batched:
        sizes = list(value.shape)
        sizes.pop(axis)
        batched = Tensor._make_wrapper_subclass(cls, sizes, dtype=value.dtype, device=value.device)  # type: ignore[arg-type]
        batched.value, batched.axis, batched.level = value, axis, level
        return batched

    @property
    def _all_values(self) -> Tensor:
        return self.value

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "[vmap] expected a tensor that is the same for all elements, got a batched one, whose values cannot be read: "
            "a function under vmap cannot depend on values (data-dependent control flow)"
        )

    def _call_function(self, function: Any, args: tuple[Any, ...]) -> Any:
        """What an autograd.Function computes by its own `vmap`, for the innermost batch among its arguments."""
        return _by_own_rule(function, args)

    tolist = numpy = __array__ = _refuse

    def requires_grad_(self, requires_grad: bool = True) -> Batched:
        refuse("Tensor.requires_grad_()", "Transform a function of this tensor instead.")
        return super().requires_grad_(requires_grad)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"BatchedTensor(lvl={self.level}, bdim={self.axis}, value={self.value!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(
            f"[vmap] expected tensors of an active vmap in {func._full_name}, got one that escaped from its function"
        )


def at_front(x: Batched) -> Tensor:
    """The held tensor with the hidden dimension first."""
    return x.value if x.axis == 0 else x.value.movedim(x.axis, 0)


def same_value(x: Any) -> Any:
    """A batched tensor without the history it has as one; others detached."""
    return Batched(x.value, x.axis, x.level) if isinstance(x, Batched) else x.detach()


class VmapMode(TorchDispatchMode):
    """Computes operators on the batched tensors of one level."""

    _sees_parts = False

    def __init__(self, level: int, size: int, randomness: str) -> None:
        self.level, self.size, self.randomness = level, size, randomness

    def owns(self, x: Any) -> bool:
        return isinstance(x, Batched) and x.level == self.level

    def wrap(self, value: Any) -> Any:
        """Results of a rule, with the hidden dimension first, as batched tensors."""
        if isinstance(value, Tensor):
            return Batched(value, 0, self.level)
        if isinstance(value, (tuple, list)):
            return (
                type(value)(self.wrap(v) for v in value)
                if type(value) in (tuple, list)
                else tuple(map(self.wrap, value))
            )
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from flambeau.func import rules

        kwargs = kwargs or {}
        batched = any(
            self.owns(x) for a in (*args, *kwargs.values()) for x in (a if isinstance(a, (list, tuple)) else (a,))
        )
        if rules.is_random(func._full_name):
            return _C._call_above_autograd(rules.random, self, func, args, kwargs, batched)
        if not batched:
            return func(*args, **kwargs)
        return _C._call_above_autograd(rules.run, self, func, args, kwargs)


class VmapInfo(NamedTuple):
    """What the `vmap` of an autograd.Function gets to know of the batch."""

    batch_size: int
    randomness: str


def _by_own_rule(function: Any, args: tuple[Any, ...]) -> Any:
    leaves = pytree.tree_leaves(args)
    level = max(x.level for x in leaves if isinstance(x, Batched))
    taken: list[VmapMode] = []
    try:
        while not taken or getattr(taken[-1], "level", None) != level:
            if not _C._len_torch_dispatch_stack():
                raise RuntimeError(
                    f"[vmap] expected tensors of an active vmap in {function.__name__}, got one that escaped"
                )
            taken.append(_C._pop_torch_dispatch_mode())
        mode = taken[-1]
        values = pytree.tree_map(lambda x: x.value if mode.owns(x) else x, args)
        dims = pytree.tree_map(lambda x: x.axis if mode.owns(x) else None, args)
        returned = function.vmap(VmapInfo(mode.size, mode.randomness), dims, *values)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise RuntimeError(
                f"[vmap] expected {function.__name__}.vmap to return (output, out_dims), got {type(returned).__name__}: expected the vmap staticmethod to have two returns"
            )
        out, where = returned
        flat, spec = pytree.tree_flatten(out)
        try:
            if isinstance(where, (tuple, list, dict)) and not isinstance(out, type(where)):
                raise ValueError(f"[vmap] expected out_dims of the structure of {type(out).__name__}, got {where!r}")
            outs = _matched(where, out, "out_dims")
        except ValueError as error:
            raise RuntimeError(
                f"[{function.__name__}] {error}: the vmap staticmethod returned an incompatible (output, out_dims)"
            ) from None
        return pytree.tree_unflatten(
            [
                x if d is None or not isinstance(x, Tensor) else Batched(x, d % x.dim(), level)
                for x, d in zip(flat, outs)
            ],
            spec,
        )
    finally:
        for mode in reversed(taken):
            _C._push_torch_dispatch_mode(mode)


# ---------------------------------------------------------------- the transformation


def _matched(dims: Any, tree: Any, op: str) -> list[int | None]:
    """For each leaf of the tree the dimension it is batched along."""
    leaves, _spec = pytree.tree_flatten(tree)
    if dims is None or isinstance(dims, int):
        return [dims] * len(leaves)
    if isinstance(dims, (tuple, list)) and isinstance(tree, (tuple, list)):
        if len(dims) != len(tree):
            raise ValueError(f"[vmap] expected {op} for {len(tree)} values, got {len(dims)}")
        return [d for part, sub in zip(dims, tree) for d in _matched(part, sub, op)]
    if isinstance(dims, dict) and isinstance(tree, dict):
        return [d for key in tree for d in _matched(dims[key], tree[key], op)]
    raise ValueError(f"[vmap] expected {op} of the structure of the values, got {dims!r}")


def _checked(leaves: list[Any], dims: list[int | None]) -> tuple[list[int | None], int]:
    """The dimensions of the inputs, not negative, and the size of the batch."""
    sizes = set()
    checked: list[int | None] = []
    for x, d in zip(leaves, dims):
        if d is None:
            checked.append(None)
            continue
        if not isinstance(x, Tensor):
            raise ValueError(f"[vmap] expected a Tensor for an input batched along {d}, got {type(x).__name__}")
        if not -x.dim() <= d < x.dim():
            raise ValueError(
                f"[vmap] expected in_dims below the dimensions of the input, got {d} for {x.dim()}-d tensor"
            )
        checked.append(d % x.dim())
        sizes.add(x.shape[d])
    if not sizes:
        raise ValueError(
            "[vmap] expected at least one input to be batched, got in_dims=None for all: at least one Tensor has to be mapped over"
        )
    if len(sizes) > 1:
        raise ValueError(f"[vmap] expected one batch size, got {sorted(sizes)}")
    return checked, sizes.pop()


def _unwrapped(x: Any, d: int | None, mode: VmapMode) -> Tensor:
    """A result of the function with the batch as dimension d; one that is the same for all is repeated."""
    if not isinstance(x, Tensor):
        raise ValueError(f"[vmap] expected func to return Tensors, got {type(x).__name__}")
    if d is None:
        if mode.owns(x):
            raise ValueError("[vmap] expected a result that is the same for all with out_dims=None, got a batched one")
        return x
    if not -x.dim() - 1 <= d <= x.dim():
        raise IndexError(f"[vmap] expected out_dims below the dimensions of the result, got {d} for {x.dim()}-d tensor")
    front = at_front(x) if mode.owns(x) else x.unsqueeze(0).expand(mode.size, *x.shape)  # type: ignore[arg-type]
    return front.movedim(0, d)


def _call_batched(
    func: Callable[..., Any],
    leaves: list[Any],
    dims: list[int | None],
    size: int,
    spec: Any,
    out_dims: Any,
    randomness: str,
    kwargs: dict[str, Any],
) -> Any:
    level = _state.level = getattr(_state, "level", 0) + 1
    mode = VmapMode(level, size, randomness)
    try:
        inner = [x if d is None else Batched(x, d, level) for x, d in zip(leaves, dims)]
        named = pytree.tree_map(
            lambda x: Batched(x, 0, level) if isinstance(x, Tensor) and x.dim() and x.shape[0] == size else x, kwargs
        )
        with mode:
            out = call_inside(func, *pytree.tree_unflatten(inner, spec), **named)
        flat, out_spec = pytree.tree_flatten(out)
        outs = _matched(tuple(out_dims) if isinstance(out_dims, list) else out_dims, out, "out_dims")
        return pytree.tree_unflatten([_unwrapped(x, d, mode) for x, d in zip(flat, outs)], out_spec)
    finally:
        _state.level = level - 1


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function of single examples as a function of batches.

    - func: the function; in_dims, out_dims: where the batch dimension stands in arguments and results, None for none.
    - randomness: "error", "same" or "different" for random operators; chunk_size: examples at a time.

    >>> flambeau.func.vmap(flambeau.dot)(flambeau.ones(3, 2), flambeau.ones(3, 2))
    tensor([2., 2., 2.])
    """
    if randomness not in ("error", "same", "different"):
        raise RuntimeError(f"[vmap] expected randomness error, same or different, got {randomness!r}")
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size <= 0):
        raise ValueError(
            f"[vmap] expected a positive chunk_size, got {chunk_size!r}: vmap: chunk_size should be None or greater than 0."
        )

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        dims = _matched(tuple(in_dims) if isinstance(in_dims, list) else in_dims, args, "in_dims")
        leaves, spec = pytree.tree_flatten(args)
        dims, size = _checked(leaves, dims)
        if chunk_size is None or size <= chunk_size:
            return _call_batched(func, leaves, dims, size, spec, out_dims, randomness, kwargs)
        parts = []
        seeds = fl.random.states() if randomness == "same" else None
        for begin in range(0, size, chunk_size):
            count = min(chunk_size, size - begin)
            if seeds is not None:
                fl.random.set_states(seeds)
            piece = [x if d is None else x.narrow(d, begin, count) for x, d in zip(leaves, dims)]
            parts.append(_call_batched(func, piece, dims, count, spec, out_dims, randomness, kwargs))
        flat = [pytree.tree_flatten(part) for part in parts]
        outs = _matched(out_dims, parts[0], "out_dims")
        joined = [
            column[0] if d is None else fl.cat(list(column), d) for column, d in zip(zip(*(f for f, _ in flat)), outs)
        ]
        return pytree.tree_unflatten(joined, flat[0][1])

    return wrapper
