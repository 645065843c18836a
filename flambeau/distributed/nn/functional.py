"""Collectives that gradients flow through. Backward of each is the collective that moves gradients the other way."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.autograd import Function
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._groups import _member_group, get_group_rank
from flambeau.distributed._types import ReduceOp

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter",
    "scatter",
]  # fmt: skip


def _place(group: Any, rank: int) -> tuple[Any, int]:
    """The group object, and the rank of a root in it."""
    member = _member_group(group)
    return member, get_group_rank(member, rank)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Any) -> Any:
        ctx.op, ctx.group = op, group
        result = tensor.clone(memory_format=flambeau.contiguous_format)
        collectives.all_reduce(result, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, gradient)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, root: int, group: Any, tensor: Any) -> Any:
        ctx.root, ctx.group = root, group
        result = tensor.clone()
        collectives.broadcast(result, group=group, group_src=root)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None, _Reduce.apply(ctx.root, ReduceOp.SUM, ctx.group, gradient)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, root: int, op: Any, group: Any, tensor: Any) -> Any:
        ctx.root, ctx.group = root, group
        result = tensor.clone()
        collectives.reduce(result, group=group, group_dst=root, op=op)
        return result if group.rank() == root else flambeau.zeros_like(result)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None, None, _Broadcast.apply(ctx.root, ctx.group, gradient)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, root: int, group: Any, tensor: Any) -> Any:
        ctx.root, ctx.group = root, group
        results = [flambeau.zeros_like(tensor) for _ in range(group.size())]
        collectives.gather(tensor.contiguous(), results if group.rank() == root else None, group=group, group_dst=root)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, _Scatter.apply(ctx.root, ctx.group, *gradients)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, root: int, group: Any, *tensors: Any) -> Any:
        ctx.root, ctx.group = root, group
        result = flambeau.zeros_like(tensors[0])
        parts = [tensor.contiguous() for tensor in tensors] if group.rank() == root else None
        collectives.scatter(result, parts, group=group, group_src=root)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None, *_Gather.apply(ctx.root, ctx.group, gradient)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Any, *inputs: Any) -> Any:
        ctx.group = group
        result = flambeau.empty_like(tensor)
        collectives.reduce_scatter(result, [one.contiguous() for one in inputs], op, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None, None, *_AllGather.apply(ctx.group, gradient)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, tensor: Any) -> Any:
        ctx.group = group
        results = [flambeau.empty_like(tensor) for _ in range(group.size())]
        collectives.all_gather(results, tensor.contiguous(), group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        own = gradients[ctx.group.rank()]
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, own, *gradients)


class _AllGatherBase(Function):
    @staticmethod
    def forward(ctx: Any, output: Any, tensor: Any, group: Any) -> Any:
        ctx.group = group
        collectives.all_gather_into_tensor(output, tensor.contiguous(), group)
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        size = ctx.group.size()
        result = gradient.new_empty([gradient.shape[0] // size, *gradient.shape[1:]])
        collectives.reduce_scatter_tensor(result, gradient.contiguous(), group=ctx.group)
        return None, result, None


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, outputs: Any, *tensors: Any) -> Any:
        ctx.group = group
        ctx.sizes = [tensor.shape for tensor in tensors]
        collectives.all_to_all(outputs, [tensor.contiguous() for tensor in tensors], group)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        outputs = [gradients[0].new_empty(size) for size in ctx.sizes]
        return None, None, *_AllToAll.apply(ctx.group, outputs, *gradients)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, output: Any, output_sizes: Any, input_sizes: Any, tensor: Any) -> Any:
        ctx.group, ctx.shape = group, tensor.shape
        ctx.output_sizes, ctx.input_sizes = output_sizes, input_sizes
        collectives.all_to_all_single(output, tensor.contiguous(), output_sizes, input_sizes, group)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        output = gradient.new_empty(ctx.shape)
        result = _AllToAllSingle.apply(ctx.group, output, ctx.input_sizes, ctx.output_sizes, gradient.contiguous())
        return None, None, None, None, result


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    return _AllReduce.apply(op, _member_group(group), tensor)


def broadcast(tensor: Any, src: int, group: Any = None) -> Any:
    member, root = _place(group, src)
    return _Broadcast.apply(root, member, tensor)


def reduce(tensor: Any, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    member, root = _place(group, dst)
    return _Reduce.apply(root, op, member, tensor)


def gather(tensor: Any, dst: int = 0, group: Any = None) -> Any:
    """All tensors on the destination; zeros elsewhere."""
    member, root = _place(group, dst)
    return _Gather.apply(root, member, tensor)


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Any:
    member, root = _place(group, src)
    return _Scatter.apply(root, member, *tensors)


def reduce_scatter(output: Any, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    return _ReduceScatter.apply(op, _member_group(group), output, *input_list)


def all_gather(tensor: Any, group: Any = None) -> Any:
    return _AllGather.apply(_member_group(group), tensor)


def _all_gather_base(output_tensor: Any, input_tensor: Any, group: Any = None) -> Any:
    return _AllGatherBase.apply(output_tensor, input_tensor, _member_group(group))


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None) -> Any:
    return _AllToAll.apply(_member_group(group), output_tensor_list, *input_tensor_list)


def all_to_all_single(
    output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None
) -> Any:
    return _AllToAllSingle.apply(_member_group(group), output, output_split_sizes, input_split_sizes, input)
