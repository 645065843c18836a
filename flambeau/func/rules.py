"""Batching rules: how operators are computed on tensors with a hidden dimension.

A rule gets the mode, the operator and its arguments, in which every batched tensor is a `Held`: the tensor with the
hidden dimension first. It returns tensors with the hidden dimension first. Pointwise and reduction records share a rule
each; rules of others are found by the operator's name. The rest is computed element by element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau._C import Tensor
from flambeau.func.batching import at_front

RULES: dict[str, Callable[..., Any]] = {}


class Held:
    """A batched argument: `value` has the batch as first dimension, `rank` counts the others."""

    __slots__ = ("rank", "value")

    def __init__(self, value: Tensor) -> None:
        self.value, self.rank = value, value.dim() - 1

    def padded(self, rank: int) -> Tensor:
        """With dimensions of size one after the batch, as broadcasting would add."""
        if self.rank >= rank:
            return self.value
        shape = self.value.shape
        return self.value.reshape([shape[0], *[1] * (rank - self.rank), *shape[1:]])


def rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names, fn))
        return fn

    return decorate


@functools.cache
def _records() -> dict[str, Any]:
    from flambeau.backends import records

    return records._all()


@functools.cache
def _kind(name: str) -> str:
    found = _records().get(name)
    return "" if found is None else found.kind


@functools.cache
def _functional(name: str) -> str | None:
    """The operator of which this is the in-place form."""
    base, dot, overload = name.partition(".")
    if not base.endswith("_") or base.startswith("__"):
        return None
    return base[:-1] + dot + overload


# ---------------------------------------------------------------- running


def run(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = func._full_name
    held_args, held_kwargs = _hold(mode, args), {k: _hold_one(mode, v) for k, v in kwargs.items()}
    found = RULES.get(name)
    if found is not None:
        return mode.wrap(found(mode, func, *held_args, **held_kwargs))
    base = _functional(name)
    if base is not None:
        return _in_place(mode, func, base, args, held_args, held_kwargs)
    kind = _kind(name)
    if kind == "pointwise":
        return mode.wrap(pointwise(mode, func, *held_args, **held_kwargs))
    if kind == "reduction":
        return mode.wrap(reduction(mode, func, *held_args, **held_kwargs))
    return mode.wrap(one_by_one(mode, func, *held_args, **held_kwargs))


def _hold_one(mode: Any, x: Any) -> Any:
    if mode.owns(x):
        return Held(at_front(x))
    return _hold(mode, x) if isinstance(x, (list, tuple)) else x


def _hold(mode: Any, values: Sequence[Any]) -> list[Any]:
    return [_hold_one(mode, x) for x in values]


def _in_place(mode: Any, func: Any, base: str, given: Sequence[Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of the functional form, copied into the first argument, which has to have the batch."""
    if not isinstance(args[0], Held):
        raise RuntimeError(
            f"[vmap] expected a batched tensor to write to in {func._full_name}, got one without the batch: vmap: "
            "inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args "
            "that has more elements than `self`"
        )
    target = args[0]
    if base in ("copy", "fill", "zero"):
        source = args[1] if base != "zero" else 0
        target.value.copy_(source.padded(target.rank) if isinstance(source, Held) else _as_tensor(source, target.value))
        return given[0]
    try:
        functional = fl._C._operator_object(base)
    except (RuntimeError, KeyError, LookupError) as error:
        raise NotImplementedError(f"[vmap] expected an operator with a rule, got {func._full_name}") from error
    wrapped = [mode.wrap(x.value) if isinstance(x, Held) else x for x in args]
    result = run(
        mode, functional, wrapped, {k: mode.wrap(v.value) if isinstance(v, Held) else v for k, v in kwargs.items()}
    )
    target.value.copy_(at_front(result) if mode.owns(result) else result)
    return given[0]


def _as_tensor(x: Any, like: Tensor) -> Tensor:
    return x if isinstance(x, Tensor) else fl.scalar_tensor(x, dtype=like.dtype, device=like.device)


def one_by_one(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator on each element, and the results stacked."""

    def pick(x: Any, k: int) -> Any:
        if isinstance(x, Held):
            return x.value.select(0, k)
        return [pick(v, k) for v in x] if isinstance(x, list) else x

    if mode.size == 0:
        raise RuntimeError(f"[vmap] expected a batch that is not empty for {func._full_name}, got size 0")
    rows = [func(*(pick(a, k) for a in args), **{n: pick(a, k) for n, a in kwargs.items()}) for k in range(mode.size)]
    return _stacked(func, rows)


def _stacked(func: Any, rows: list[Any]) -> Any:
    first = rows[0]
    if isinstance(first, Tensor):
        if any(r.shape != first.shape for r in rows):
            raise RuntimeError(
                f"[vmap] expected results of one shape from {func._full_name}, got several: its result depends on values"
            )
        return fl.stack(rows)
    if isinstance(first, (tuple, list)):
        return tuple(_stacked(func, list(column)) for column in zip(*rows))
    if first is None or all(r == first for r in rows):
        return first
    raise RuntimeError(
        f"[vmap] expected {func._full_name} to return the same for all elements, got different values: it is not "
        "possible to read a number or a truth value of a batched tensor"
    )


# ---------------------------------------------------------------- random operators


@functools.cache
def is_random(name: str) -> bool:
    """Whether the operator of that name draws numbers."""
    record = _records().get(name) or _records().get(_functional(name) or "")
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
    in_place = _functional(name) is not None or (args and func._schema.arguments[0].alias_info is not None)
    if in_place:
        target = args[0]
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
    sized = next((i for i, a in enumerate(func._schema.arguments) if a.name == "size"), None)
    if sized is not None:  # a factory
        args = list(args)
        args[sized] = [mode.size, *args[sized]]
        return mode.wrap(func(*args, **kwargs))
    if not batched:  # numbers drawn from what is the same for all
        held = [Held(a.unsqueeze(0).expand(mode.size, *a.shape)) if isinstance(a, Tensor) else a for a in args]
        return mode.wrap(one_by_one(mode, func, *held, **kwargs))
    held_args, held_kwargs = _hold(mode, args), {k: _hold_one(mode, v) for k, v in kwargs.items()}
    if mode.randomness == "different":
        return mode.wrap(one_by_one(mode, func, *held_args, **held_kwargs))
    seeds = fl.random.states()

    def same_each_time(*a: Any, **k: Any) -> Any:
        fl.random.set_states(seeds)
        return func(*a, **k)

    same_each_time._full_name = name  # type: ignore[attr-defined]
    return mode.wrap(one_by_one(mode, same_each_time, *held_args, **held_kwargs))


# ---------------------------------------------------------------- records


def _rank(x: Any) -> int:
    return x.rank if isinstance(x, Held) else x.dim() if isinstance(x, Tensor) else 0


def pointwise(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Broadcasting does it, once all have as many dimensions."""
    everything = (*args, *kwargs.values())
    rank = max(_rank(x) for x in everything)
    # A tensor without dimensions does not raise the dtype of others; with the batch it would.
    scalars = [x for x in everything if isinstance(x, Held) and x.rank == 0]
    others = [
        x.value.dtype if isinstance(x, Held) else x.dtype
        for x in everything
        if isinstance(x, (Held, Tensor)) and _rank(x) > 0
    ]
    dtype = None
    if scalars and others and any(s.value.dtype != others[0] for s in scalars):
        dtype = others[0]

    def one(x: Any) -> Any:
        if not isinstance(x, Held):
            return x
        value = x.padded(rank)
        if dtype is not None and x.rank == 0 and _category(x.value.dtype) <= _category(dtype):
            value = value.to(dtype)
        return value

    return func(*(one(a) for a in args), **{k: one(v) for k, v in kwargs.items()})


def _category(dtype: Any) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == fl.bool else 1


def _shifted(d: int, rank: int) -> int:
    if not -max(rank, 1) <= d < max(rank, 1):
        raise IndexError(f"[vmap] expected a dimension in [{-max(rank, 1)}, {max(rank, 1) - 1}], got {d}")
    return d % max(rank, 1) + 1


def _named(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, defaults filled in."""
    values = {a.name: a.default_value for a in func._schema.arguments}
    values.update(zip(values, args))
    values.update(kwargs)
    return values


def _call(func: Any, values: dict[str, Any]) -> Any:
    positional = [values[a.name] for a in func._schema.arguments if not a.kwarg_only]
    return func(*positional, **{a.name: values[a.name] for a in func._schema.arguments if a.kwarg_only})


def reduction(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    values = _named(func, args, kwargs)
    first = next(iter(values))
    held = values[first]
    if not isinstance(held, Held):
        return one_by_one(mode, func, *args, **kwargs)
    single = held.rank == 0  # reduced as one element
    rank = max(held.rank, 1)
    if "dim" not in values:
        flat = held.value.reshape(held.value.shape[0], -1)
        found = _along_rows(func._full_name, flat)
        return one_by_one(mode, func, *args, **kwargs) if found is None else found
    values[first] = held.value.unsqueeze(1) if single else held.value
    dim = values["dim"]
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        if func._schema.arguments[1].type in ("int", "int?", "Optional[int]") or func._full_name == "prod":
            values[first], values["dim"] = held.value.reshape(held.value.shape[0], -1), 1
        else:
            values["dim"] = list(range(1, rank + 1))
    elif isinstance(dim, int):
        values["dim"] = _shifted(dim, held.rank)
    else:
        values["dim"] = [_shifted(d, held.rank) for d in dim]
    out = _call(func, values)
    return out.squeeze(1) if single and values.get("keepdim") else out


def _along_rows(name: str, flat: Tensor) -> Tensor | None:
    """Reductions of everything that have a form along a dimension."""
    along = {"max": "amax", "min": "amin", "all": "all", "any": "any"}.get(name)
    return None if along is None else getattr(fl, along)(flat, 1)


# ---------------------------------------------------------------- the same for every element


def _on_value(mode: Any, func: Any, held: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(held, Held) or any(isinstance(x, Held) for x in (*args, *kwargs.values())):
        return one_by_one(mode, func, held, *args, **kwargs)
    return func(held.value, *args, **kwargs)


for _name in (
    "clone _to_copy alias conj_physical zeros_like ones_like empty_like full_like tril triu view_as_real view_as_complex "
    "_linalg_inv_ex _linalg_det _linalg_slogdet _linalg_cholesky_ex _linalg_svd _linalg_eigh _linalg_eig linalg_qr matrix_exp "
    "_linalg_lu_factor_ex _cholesky_inverse native_dropout".split()
):
    RULES[_name] = _on_value


@rule("detach")
def detach(mode: Any, func: Any, held: Held) -> Any:
    return held.value.detach()


@rule("_local_scalar_dense")
def item(mode: Any, func: Any, held: Held) -> Any:
    raise RuntimeError(
        "[vmap] expected a tensor that is the same for all elements, got a batched one: vmap: It looks like you're calling "
        ".item() on a Tensor, or using it as a number or a condition; a function under vmap cannot depend on values"
    )


@rule("new_zeros", "new_ones", "new_empty")
def new(mode: Any, func: Any, held: Held, size: Sequence[int], **kwargs: Any) -> Any:
    return func(held.value, [mode.size, *size], **kwargs)


@rule("new_full")
def new_full(mode: Any, func: Any, held: Held, size: Sequence[int], fill_value: Any, **kwargs: Any) -> Any:
    if isinstance(fill_value, Held) or not isinstance(held, Held):
        return one_by_one(mode, func, held, size, fill_value, **kwargs)
    return func(held.value, [mode.size, *size], fill_value, **kwargs)


# ---------------------------------------------------------------- one tensor along a dimension


def _along(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator with its dimensions counted after the batch."""
    values = _named(func, args, kwargs)
    first = next(iter(values))
    held = values[first]
    rest = [v for k, v in values.items() if k != first]
    name = "dim" if "dim" in values else "dims"
    if not isinstance(held, Held) or any(isinstance(x, Held) for x in rest) or values[name] in (None, []):
        return one_by_one(mode, func, *args, **kwargs)
    single = held.rank == 0
    values[first] = held.value.unsqueeze(1) if single else held.value
    dim = values[name]
    values[name] = _shifted(dim, held.rank) if isinstance(dim, int) else [_shifted(d, held.rank) for d in dim]
    out = _call(func, values)
    if not single or values.get("keepdim", True) is False:
        return out
    return tuple(x.squeeze(1) for x in out) if isinstance(out, (tuple, list)) else out.squeeze(1)


for _name in (
    "cumsum cumprod logcumsumexp cummax cummin sort sort.stable argsort argsort.stable max.dim min.dim median.dim mode "
    "argmax argmin _softmax _log_softmax _logsumexp flip var.correction std.correction var_mean.correction "
    "std_mean.correction linalg_vector_norm topk kthvalue roll".split()
):
    RULES[_name] = _along


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(mode: Any, func: Any, grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    if not isinstance(grad, Held) or not isinstance(output, Held) or output.rank == 0:
        return one_by_one(mode, func, grad, output, dim, input_dtype)
    return func(grad.value, output.value, _shifted(dim, output.rank), input_dtype)


@rule("select")
def select(mode: Any, func: Any, held: Held, dim: int, index: Any) -> Any:
    return func(held.value, _shifted(dim, held.rank), index)


@rule("slice")
def slice_(mode: Any, func: Any, held: Held, dim: int = 0, *args: Any, **kwargs: Any) -> Any:
    return func(held.value, _shifted(dim, held.rank), *args, **kwargs)


@rule("unfold")
def unfold(mode: Any, func: Any, held: Held, dim: int, size: int, step: int) -> Any:
    if held.rank == 0:
        return one_by_one(mode, func, held, dim, size, step)
    return func(held.value, _shifted(dim, held.rank), size, step)


@rule("unsqueeze")
def unsqueeze(mode: Any, func: Any, held: Held, dim: int) -> Any:
    return func(held.value, _shifted(dim, held.rank + 1))


@rule("squeeze")
def squeeze(mode: Any, func: Any, held: Held) -> Any:
    return held.value.squeeze([d for d in range(1, held.rank + 1) if held.value.shape[d] == 1])


@rule("squeeze.dim", "squeeze.dims")
def squeeze_dim(mode: Any, func: Any, held: Held, dim: Any) -> Any:
    if held.rank == 0:
        return held.value
    return func(held.value, _shifted(dim, held.rank) if isinstance(dim, int) else [_shifted(d, held.rank) for d in dim])


@rule("transpose")
def transpose(mode: Any, func: Any, held: Held, dim0: int, dim1: int) -> Any:
    if held.rank == 0:
        return held.value
    return func(held.value, _shifted(dim0, held.rank), _shifted(dim1, held.rank))


@rule("permute")
def permute(mode: Any, func: Any, held: Held, dims: Sequence[int]) -> Any:
    return func(held.value, [0, *(_shifted(d, held.rank) for d in dims)])


@rule("diagonal")
def diagonal(mode: Any, func: Any, held: Held, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return func(held.value, offset, _shifted(dim1, held.rank), _shifted(dim2, held.rank))


@rule("view", "reshape")
def view(mode: Any, func: Any, held: Held, size: Sequence[int]) -> Any:
    size = list(size)
    if -1 in size:
        known = 1
        for n in size:
            known *= n if n != -1 else 1
        count = 1
        for n in held.value.shape[1:]:
            count *= n
        size[size.index(-1)] = count // known if known else 0
    return held.value.reshape([mode.size, *size])


@rule("expand")
def expand(mode: Any, func: Any, held: Held, size: Sequence[int], *, implicit: bool = False) -> Any:
    value = held.padded(len(size))
    return value.expand([mode.size, *(n if n != -1 else m for n, m in zip(size, value.shape[1:]))])


@rule("split.Tensor", "split.sizes", "split_with_sizes")
def split(mode: Any, func: Any, held: Held, how: Any, dim: int = 0) -> Any:
    return tuple(func(held.value, how, _shifted(dim, held.rank)))


@rule("unbind.int")
def unbind(mode: Any, func: Any, held: Held, dim: int = 0) -> Any:
    return tuple(func(held.value, _shifted(dim, held.rank)))


@rule("_select_backward", "_slice_backward")
def window_backward(mode: Any, func: Any, held: Held, sizes: Sequence[int], dim: int, *args: Any) -> Any:
    return func(held.value, [mode.size, *sizes], _shifted(dim, len(sizes)), *args)


@rule("_diagonal_backward")
def diagonal_backward(mode: Any, func: Any, held: Held, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Any:
    return func(held.value, [mode.size, *sizes], offset, _shifted(dim1, len(sizes)), _shifted(dim2, len(sizes)))


@rule("_edge_pad_backward")
def edge_pad_backward(mode: Any, func: Any, held: Held, sizes: Sequence[int], *args: Any) -> Any:
    return func(held.value, [mode.size, *sizes], *args)


@rule("constant_pad_nd", "_edge_pad")
def pad(mode: Any, func: Any, held: Held, *args: Any, **kwargs: Any) -> Any:
    return _on_value(mode, func, held, *args, **kwargs)


# ---------------------------------------------------------------- several tensors


def _spread(mode: Any, x: Any) -> Tensor:
    """With the batch, repeated if need be."""
    return x.value if isinstance(x, Held) else x.unsqueeze(0).expand([mode.size, *x.shape])


@rule("cat")
def cat(mode: Any, func: Any, tensors: list[Any], dim: int = 0) -> Any:
    rank = max(_rank(t) for t in tensors)
    kept = [t for t in tensors if not (_rank(t) == 1 and rank != 1)]  # empty ones that are left out
    return func([_spread(mode, t) for t in kept], _shifted(dim, rank))


@rule("stack")
def stack(mode: Any, func: Any, tensors: list[Any], dim: int = 0) -> Any:
    return func([_spread(mode, t) for t in tensors], _shifted(dim, _rank(tensors[0]) + 1))


@rule("gather", "scatter.src", "scatter_add")
def gather(mode: Any, func: Any, self: Any, dim: int, index: Any, *args: Any, **kwargs: Any) -> Any:
    if _rank(self) == 0 or _rank(index) == 0:
        return one_by_one(mode, func, self, dim, index, *args, **kwargs)
    tensors = [_spread(mode, x) if isinstance(x, (Held, Tensor)) else x for x in args]
    return func(_spread(mode, self), _shifted(dim, _rank(self)), _spread(mode, index), *tensors, **kwargs)


@rule("embedding")
def embedding(mode: Any, func: Any, weight: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(weight, Held):
        return one_by_one(mode, func, weight, indices, *args, **kwargs)
    return func(weight, indices.value, *args, **kwargs)


@rule("masked_fill")
def masked_fill(mode: Any, func: Any, self: Any, mask: Any, value: Any) -> Any:
    if not isinstance(value, Held):
        return pointwise(mode, func, self, mask, value)
    dtype = self.value.dtype if isinstance(self, Held) else self.dtype
    return pointwise(mode, fl.where, mask, Held(value.value.to(dtype)), self)


@rule("as_strided")
def as_strided(
    mode: Any, func: Any, held: Held, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """Strides and offset are those of an element alone, laid out contiguously."""
    value = held.value.contiguous()
    step = value.numel() // max(mode.size, 1)
    return func(value, [mode.size, *size], [step, *stride], value.storage_offset() + (storage_offset or 0))


# ---------------------------------------------------------------- products


def product(a: Any, b: Any) -> Tensor:
    """matmul of arguments of which at least one is held."""
    ranks = _rank(a), _rank(b)
    if ranks[0] == 1:
        a = Held(a.value.unsqueeze(1)) if isinstance(a, Held) else a.unsqueeze(0)
    if ranks[1] == 1:
        b = Held(b.value.unsqueeze(-1)) if isinstance(b, Held) else b.unsqueeze(-1)
    rank = max(_rank(a), _rank(b))
    out = fl.matmul(*(x.padded(rank) if isinstance(x, Held) else x for x in (a, b)))
    if ranks[0] == 1:
        out = out.squeeze(-2)
    return out.squeeze(-1) if ranks[1] == 1 else out


@rule("mm", "bmm", "mv", "dot", "matmul")
def matmul(mode: Any, func: Any, a: Any, b: Any) -> Any:
    return product(a, b)


def _sum_of(first: Any, second: Tensor, rank: int, beta: Any, alpha: Any) -> Tensor:
    start = first.padded(rank) if isinstance(first, Held) else first
    return second * alpha if beta == 0 else start * beta + second * alpha


@rule("addmm", "addmv", "baddbmm")
def addmm(mode: Any, func: Any, self: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not isinstance(a, Held) and not isinstance(b, Held):
        made = fl.matmul(a, b)
        return _sum_of(self, made, made.dim(), beta, alpha)
    made = product(a, b)
    return _sum_of(self, made, made.dim() - 1, beta, alpha)


@rule("linear")
def linear(mode: Any, func: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    if not isinstance(weight, Held) and not isinstance(bias, Held):
        return func(input.value, weight, bias)
    if isinstance(weight, Held):
        turned: Any = Held(weight.value.transpose(-1, -2)) if weight.rank == 2 else weight
    else:
        turned = weight.t()
    made = (
        fl.matmul(input, turned)
        if not isinstance(input, Held) and not isinstance(turned, Held)
        else product(input, turned)
    )
    if bias is None:
        return made
    has_batch = isinstance(input, Held) or isinstance(turned, Held)
    rank = made.dim() - 1 if has_batch else made.dim()
    return made + (bias.padded(rank) if isinstance(bias, Held) else bias)


@rule("_linalg_solve_ex")
def solve(mode: Any, func: Any, A: Any, B: Any, left: bool) -> Any:
    rank = max(_rank(A), _rank(B))
    return func(Held(_spread(mode, A)).padded(rank), Held(_spread(mode, B)).padded(rank), left)


@rule("linalg_solve_triangular")
def solve_triangular(mode: Any, func: Any, A: Any, B: Any, **kwargs: Any) -> Any:
    rank = max(_rank(A), _rank(B))
    return func(Held(_spread(mode, A)).padded(rank), Held(_spread(mode, B)).padded(rank), **kwargs)


# ---------------------------------------------------------------- networks


@rule("native_layer_norm")
def layer_norm(mode: Any, func: Any, input: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    if not isinstance(input, Held):
        return one_by_one(mode, func, input, shape, weight, bias, eps)
    if not isinstance(weight, Held) and not isinstance(bias, Held):
        return func(input.value, shape, weight, bias, eps)
    out, mean, rstd = func(input.value, shape, None, None, eps)
    for parameter, combine in ((weight, fl.mul), (bias, fl.add)):
        if parameter is not None:
            out = combine(out, parameter.padded(input.rank) if isinstance(parameter, Held) else parameter)
    return out, mean, rstd


def _folded(space: int) -> Callable[..., Any]:
    """The batch joins the first dimension of (N, C, *space); what is the same for all stays."""

    def apply(mode: Any, func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, Held) or any(isinstance(x, Held) for x in (*args, *kwargs.values())):
            return one_by_one(mode, func, input, *args, **kwargs)
        value = input.value
        if input.rank == space + 1:
            return func(value, *args, **kwargs)
        out = func(value.flatten(0, 1), *args, **kwargs)
        shape = tuple(value.shape[:2])
        return tuple(x.unflatten(0, shape) for x in out) if isinstance(out, (tuple, list)) else out.unflatten(0, shape)

    return apply


for _n in (1, 2, 3):
    for _name in f"conv{_n}d conv_transpose{_n}d max_pool{_n}d max_pool{_n}d_with_indices avg_pool{_n}d adaptive_avg_pool{_n}d".split():
        RULES[_name] = _folded(_n)
