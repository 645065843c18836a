"""Collectives as functions: they leave their inputs alone and return new tensors.

Each is an operator of the namespace `_c10d_functional` with a shape rule and a derivative, so that graphs can hold it. The result of an
operator is complete when it returns. The functions return an `AsyncCollectiveTensor` instead where nothing is recorded: the
collective runs in the background, and the first operator on the result waits for it.
"""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import _C
from flambeau.distributed import _collectives as collectives
from flambeau.distributed import _groups as groups
from flambeau.distributed._process_group import ProcessGroup
from flambeau.distributed._types import ReduceOp
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.utils import _pytree as pytree

__all__ = [
    "AsyncCollectiveTensor", "all_gather_tensor", "all_gather_tensor_autograd", "all_reduce", "all_reduce_coalesced",
    "all_to_all_single", "all_to_all_single_autograd", "broadcast", "permute_tensor", "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd", "wait_tensor",
]  # fmt: skip

_REDUCTIONS = {
    "sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "mean": ReduceOp.AVG, "product": ReduceOp.PRODUCT, "min": ReduceOp.MIN,
    "max": ReduceOp.MAX, "band": ReduceOp.BAND, "bor": ReduceOp.BOR, "bxor": ReduceOp.BXOR,
}  # fmt: skip


class AsyncCollectiveTensor(flambeau.Tensor):
    """A result under way: the first operator that is not a view waits for it and goes on with the plain tensor."""

    elem: flambeau.Tensor
    _work: Any
    __torch_function__ = _C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, elem: Any, work: Any = None) -> AsyncCollectiveTensor:
        self = flambeau.Tensor._make_wrapper_subclass(
            cls,  # type: ignore[arg-type]
            tuple(elem.shape),
            strides=tuple(elem.stride()),
            dtype=elem.dtype,
            device=elem.device,
        )
        self.elem, self._work = elem, work
        return self

    @property
    def completed(self) -> bool:
        return self._work is None

    def trigger_wait(self) -> Any:
        work, self._work = self._work, None
        if work is not None:
            work.wait()
        return self.elem

    wait = trigger_wait

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__.partition(".")[0] in ("view", "_unsafe_view") and not args[0].completed:
            viewed = AsyncCollectiveTensor(func(args[0].elem, *args[1:], **(kwargs or {})))
            viewed._work = args[0]._work
            return viewed
        args, kwargs = pytree.tree_map(_waited, (args, kwargs or {}))
        return func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"AsyncCollectiveTensor({self.trigger_wait()})"

    def tolist(self) -> Any:
        return self.trigger_wait().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        return self.trigger_wait().numpy(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.trigger_wait().__reduce_ex__(protocol)


def _waited(value: Any) -> Any:
    return value.trigger_wait() if isinstance(value, AsyncCollectiveTensor) else value


def _in_background(tensor: Any) -> bool:
    """Whether a function may return before its collective is through: nothing records the call."""
    if type(tensor) not in (flambeau.Tensor, flambeau.nn.Parameter) or flambeau.compiler.is_compiling():
        return False
    return not (tensor.requires_grad and flambeau.is_grad_enabled()) and not _C._len_torch_dispatch_stack()


def _reduction(name: str) -> Any:
    if name.lower() not in _REDUCTIONS:
        raise ValueError(f"[functional collectives] expected one of {sorted(_REDUCTIONS)}, got {name!r}")
    return _REDUCTIONS[name.lower()]


def _resolve_group(group: Any, tag: str = "") -> ProcessGroup:
    """The group meant by a group, its name, a list of ranks, a mesh of one dimension or a (mesh, dimension)."""
    if group is None or isinstance(group, ProcessGroup):
        return groups._member_group(group)  # type: ignore[return-value]
    if isinstance(group, str):
        return groups._resolve_process_group(group)
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if isinstance(group, list):
        ranks = [rank for row in group for rank in row] if group and isinstance(group[0], list) else group
        matching = groups._find_pg_by_ranks_and_tag(tag, ranks)
        return matching if matching is not None else groups.new_group(ranks, use_local_synchronization=True)
    raise ValueError(
        f"[functional collectives] Invalid type for group, must be one of List, Processgroup, DeviceMesh, got {group!r}"
    )


def _resolve_group_name(group: Any, tag: str = "") -> str:
    return _resolve_group(group, tag).group_name


def wait_tensor(tensor: Any) -> Any:
    return _waited(tensor)


def all_reduce(self: Any, reduceOp: str, group: Any, tag: str = "") -> Any:
    self = _waited(self)
    if _in_background(self):
        result = self.clone(memory_format=flambeau.contiguous_format)
        collectives.name_next("c10d_functional.all_reduce")
        work = collectives.all_reduce(result, _reduction(reduceOp), _resolve_group(group, tag), async_op=True)
        return AsyncCollectiveTensor(result, work)
    return flambeau.ops._c10d_functional.all_reduce(self, reduceOp.lower(), _resolve_group_name(group, tag))


def broadcast(self: Any, src: int, group: Any, tag: str = "") -> Any:
    self = _waited(self)
    if _in_background(self):
        result = self.clone(memory_format=flambeau.contiguous_format)
        collectives.name_next("c10d_functional.broadcast")
        work = collectives.broadcast(result, group=_resolve_group(group, tag), async_op=True, group_src=src)
        return AsyncCollectiveTensor(result, work)
    return flambeau.ops._c10d_functional.broadcast(self, src, _resolve_group_name(group, tag))


def all_gather_tensor(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """The tensors of all ranks side by side along a dimension."""
    member, self = _resolve_group(group, tag), _waited(self)
    if gather_dim == 0 and _in_background(self):
        result = self.new_empty(_gathered_shape(self, member.size()))
        collectives.name_next("c10d_functional.all_gather_into_tensor")
        work = collectives.all_gather_into_tensor(result, self.contiguous(), member, async_op=True)
        return AsyncCollectiveTensor(result, work)
    whole = flambeau.ops._c10d_functional.all_gather_into_tensor(self, member.size(), member.group_name)
    return whole if gather_dim == 0 else flambeau.cat(whole.chunk(member.size(), 0), gather_dim)


def reduce_scatter_tensor(self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Any:
    """This rank's part along a dimension of the reduction of all tensors."""
    member = _resolve_group(group, tag)
    if self.shape[scatter_dim] % member.size():
        raise AssertionError(
            f"[reduce_scatter_tensor] input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of "
            f"group_size {member.size()}"
        )
    self = _waited(self)
    if scatter_dim != 0:
        self = flambeau.cat(self.chunk(member.size(), scatter_dim), 0)
    name = reduceOp.lower()
    if _in_background(self):
        result = self.new_empty([self.shape[0] // member.size(), *self.shape[1:]])
        collectives.name_next("c10d_functional.reduce_scatter_tensor")
        work = collectives.reduce_scatter_tensor(result, self.contiguous(), _reduction(name), member, async_op=True)
        return AsyncCollectiveTensor(result, work)
    return flambeau.ops._c10d_functional.reduce_scatter_tensor(self, name, member.size(), member.group_name)


def all_to_all_single(self: Any, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = "") -> Any:
    member = _resolve_group(group, tag)
    if not output_split_sizes or not input_split_sizes:
        part = self.shape[0] // member.size()
        output_split_sizes = input_split_sizes = [part] * member.size()
    self = _waited(self)
    if _in_background(self):
        result = self.new_empty([sum(output_split_sizes), *self.shape[1:]])
        sizes = list(output_split_sizes), list(input_split_sizes)
        collectives.name_next("c10d_functional.all_to_all_single")
        work = collectives.all_to_all_single(result, self.contiguous(), *sizes, member, async_op=True)
        return AsyncCollectiveTensor(result, work)
    return flambeau.ops._c10d_functional.all_to_all_single(
        self, list(output_split_sizes), list(input_split_sizes), member.group_name
    )


def permute_tensor(self: Any, src_dst: list[int], group: Any, tag: str = "") -> Any:
    """Rank i's tensor goes to rank src_dst[i]."""
    member = _resolve_group(group, tag)
    rank, size = member.rank(), member.size()
    outgoing, incoming = [0] * size, [0] * size
    for source, target in enumerate(src_dst):
        if source == rank:
            outgoing[target] = self.numel()
        if target == rank:
            incoming[source] = self.numel()
    flat = all_to_all_single(self.contiguous().view(-1), incoming, outgoing, member)
    return flat.view(self.shape)


def all_reduce_coalesced(self: list[Any], reduceOp: str, group: Any, tag: str = "") -> list[Any]:
    return [all_reduce(tensor, reduceOp, group, tag) for tensor in self]


def all_gather_into_tensor_coalesced(self: list[Any], group: Any, tag: str = "") -> list[Any]:
    return [all_gather_tensor(tensor, 0, group, tag) for tensor in self]


def reduce_scatter_tensor_coalesced(
    inputs: list[Any], reduceOp: str, scatter_dim: list[int], group: Any, tag: str = ""
) -> list[Any]:
    return [reduce_scatter_tensor(one, reduceOp, dim, group, tag) for one, dim in zip(inputs, scatter_dim)]


all_gather_tensor_autograd = all_gather_tensor
reduce_scatter_tensor_autograd = reduce_scatter_tensor
all_to_all_single_autograd = all_to_all_single
all_gather_single = all_gather_tensor
reduce_scatter_single = reduce_scatter_tensor


# ---------------------------------------------------------------------------------------------- operators


def _run_all_reduce(tensor: Any, op: str, name: str) -> Any:
    result = tensor.clone(memory_format=flambeau.contiguous_format)
    collectives.name_next("c10d_functional.all_reduce")
    collectives.all_reduce(result, _reduction(op), groups._resolve_process_group(name))
    return result


def _run_broadcast(tensor: Any, src: int, name: str) -> Any:
    result = tensor.clone(memory_format=flambeau.contiguous_format)
    collectives.name_next("c10d_functional.broadcast")
    collectives.broadcast(result, group=groups._resolve_process_group(name), group_src=src)
    return result


def _gathered_shape(tensor: Any, size: int) -> list[int]:
    shape = list(tensor.shape)
    return [shape[0] * size, *shape[1:]] if shape else [size]


def _run_all_gather(tensor: Any, size: int, name: str) -> Any:
    result = tensor.new_empty(_gathered_shape(tensor, size))
    collectives.name_next("c10d_functional.all_gather_into_tensor")
    collectives.all_gather_into_tensor(result, tensor.contiguous(), groups._resolve_process_group(name))
    return result


def _run_reduce_scatter(tensor: Any, op: str, size: int, name: str) -> Any:
    result = tensor.new_empty([tensor.shape[0] // size, *tensor.shape[1:]])
    member = groups._resolve_process_group(name)
    collectives.name_next("c10d_functional.reduce_scatter_tensor")
    collectives.reduce_scatter_tensor(result, tensor.contiguous(), _reduction(op), member)
    return result


def _run_all_to_all(tensor: Any, output_sizes: list[int], input_sizes: list[int], name: str) -> Any:
    result = tensor.new_empty([sum(output_sizes), *tensor.shape[1:]])
    member = groups._resolve_process_group(name)
    collectives.name_next("c10d_functional.all_to_all_single")
    collectives.all_to_all_single(result, tensor.contiguous(), list(output_sizes), list(input_sizes), member)
    return result


def _over_others(ops: Any) -> tuple[Any, ...]:
    """Operators that write into their arguments or take lists, over those that return one new tensor."""

    def written(name: str) -> Any:
        return lambda t, *rest: t.copy_(getattr(ops, name)(t, *rest))

    def listed(name: str) -> Any:
        return lambda tensors, *rest: [getattr(ops, name)(t, *rest) for t in tensors]

    def listed_in_place(tensors: Any, *rest: Any) -> Any:
        return [t.copy_(ops.all_reduce(t, *rest)) for t in tensors]

    def into(name: str) -> Any:
        return lambda t, *rest, out: out.copy_(getattr(ops, name)(t, *rest))

    group = "str group_name"
    return (
        (
            f"all_reduce_(Tensor(a!) input, str reduce_op, {group}) -> Tensor(a!)",
            written("all_reduce"),
            lambda t, *_: t,
        ),
        (f"broadcast_(Tensor(a!) input, int src, {group}) -> Tensor(a!)", written("broadcast"), lambda t, *_: t),
        *(
            (f"{name}_coalesced(Tensor[] inputs, {rest}{group}) -> Tensor[]", listed(name), listed(name))
            for name, rest in (
                ("all_reduce", "str reduce_op, "),
                ("all_gather_into_tensor", "int group_size, "),
                ("reduce_scatter_tensor", "str reduce_op, int group_size, "),
            )
        ),
        (
            f"all_reduce_coalesced_(Tensor[](a!) inputs, str reduce_op, {group}) -> Tensor[](a!)",
            listed_in_place,
            lambda tensors, *_: tensors,
        ),
        *(
            (
                f"{name}_out(Tensor input, {rest}{group}, *, Tensor(a!) out) -> Tensor(a!)",
                into(name),
                lambda *_, out: out,
            )
            for name, rest in (
                ("all_gather_into_tensor", "int group_size, "),
                ("reduce_scatter_tensor", "str reduce_op, int group_size, "),
            )
        ),
    )


def _define() -> None:
    """Registers the operators: schema, kernel, shape rule, derivative."""
    library = flambeau.library
    ops = flambeau.ops._c10d_functional
    like = flambeau.empty_like
    table = (
        (
            "all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor",
            _run_all_reduce,
            lambda t, op, name: like(t),
        ),
        ("broadcast(Tensor input, int src, str group_name) -> Tensor", _run_broadcast, lambda t, src, name: like(t)),
        (
            "all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor",
            _run_all_gather,
            lambda t, size, name: t.new_empty(_gathered_shape(t, size)),
        ),
        (
            "reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor",
            _run_reduce_scatter,
            lambda t, op, size, name: t.new_empty([t.shape[0] // size, *t.shape[1:]]),
        ),
        (
            "all_to_all_single(Tensor input, int[] output_split_sizes, int[] input_split_sizes, str group_name) -> Tensor",
            _run_all_to_all,
            lambda t, outputs, inputs, name: t.new_empty([sum(outputs), *t.shape[1:]]),
        ),
        ("wait_tensor(Tensor tensor) -> Tensor", lambda t: t.clone(), lambda t: like(t)),
        *_over_others(ops),
    )
    for schema, kernel, shape in table:
        # The second is an older name; derivatives are those of the first, so the third is another name for it as well.
        for namespace in ("_c10d_functional", "c10d_functional", "_c10d_functional_autograd"):
            name = f"{namespace}::{schema.partition('(')[0]}"
            library.define(name, schema[schema.index("(") :])
            library.impl(name, ("cpu", "cuda"), kernel)
            library.register_fake(name, shape)

    # Names under which plain collectives are counted (`tensor.debug.CommDebugMode`); they are called by their functions.
    for name in (
        "allreduce_", "broadcast_", "allgather_", "_allgather_base_", "reduce_scatter_", "_reduce_scatter_base_", "reduce_",
        "gather_", "scatter_", "alltoall_", "alltoall_base_", "barrier", "send_", "receive_",
    ):  # fmt: skip
        library.define(f"c10d::{name}", "(Tensor[] tensors) -> ()")

    def derivative(name: str, backward: Any, keep: Any) -> None:
        for namespace in ("_c10d_functional", "_c10d_functional_autograd"):
            library.register_autograd(f"{namespace}::{name}", backward, setup_context=keep)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.inputs, ctx.sizes = inputs[1:], inputs[0].shape

    derivative("all_reduce", lambda ctx, g: (ops.all_reduce(g, ctx.inputs[0], ctx.inputs[1]), None, None), keep)
    derivative("broadcast", lambda ctx, g: (ops.all_reduce(g, "sum", ctx.inputs[1]), None, None), keep)
    derivative(
        "all_gather_into_tensor",
        lambda ctx, g: (
            ops.reduce_scatter_tensor(g.contiguous(), "sum", *ctx.inputs).reshape(ctx.sizes),
            None,
            None,
        ),
        keep,
    )
    derivative("reduce_scatter_tensor", _scatter_backward, keep)
    derivative(
        "all_to_all_single",
        lambda ctx, g: (
            ops.all_to_all_single(g.contiguous(), ctx.inputs[1], ctx.inputs[0], ctx.inputs[2]),
            None,
            None,
            None,
        ),
        keep,
    )
    derivative("wait_tensor", lambda ctx, g: g, keep)


def _scatter_backward(ctx: Any, gradient: Any) -> Any:
    op, size, name = ctx.inputs
    whole = flambeau.ops._c10d_functional.all_gather_into_tensor(gradient.contiguous(), size, name)
    return (whole / size if op in ("avg", "mean") else whole), None, None, None


_define()
