"""Views in ONNX: reshapes, transpositions and slices."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx

LAST = 2**63 - 1


@onnx(
    "view",
    "reshape",
    "flatten",
    "unflatten",
    "ravel",
    "view_as",
    "reshape_as",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
)
def reshaped(g: Any, self: Any) -> Any:
    shape = g.result_shape()
    return self if self.shape == shape else g.reshape(self, g.result_sizes(), shape)


@onnx("unsqueeze")
def unsqueeze(g: Any, self: Any, dim: int) -> Any:
    return g.unsqueeze(self, dim % (self.rank + 1))


@onnx("alias", "detach", "resolve_conj", "resolve_neg", "conj")
def identity(g: Any, self: Any) -> Any:
    return self


@onnx("permute")
def permute(g: Any, self: Any, dims: Any) -> Any:
    return g.op("Transpose", self, perm=[d % max(self.rank, 1) for d in dims])


@onnx("transpose", "swapaxes", "swapdims")
def transpose(g: Any, **arguments: Any) -> Any:
    self, first, second = list(arguments.values())[:3]
    order = list(range(self.rank))
    if order:
        order[first], order[second] = order[second], order[first]
    return g.op("Transpose", self, perm=order)


@onnx("t", "_numpy_T")
def t(g: Any, self: Any) -> Any:
    return self if self.rank < 2 else g.op("Transpose", self, perm=list(reversed(range(self.rank))))


@onnx("_mT", "adjoint")
def matrix_transpose(g: Any, self: Any) -> Any:
    return transpose(g, self=self, dim0=-2, dim1=-1)


@onnx("expand", "broadcast_to", "expand_as")
def expand(g: Any, self: Any) -> Any:
    shape = g.result_shape()
    return self if self.shape == shape else g.op("Expand", self, g.ints(g.result_sizes()))


@onnx("slice")
def slice_(g: Any, self: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    start = 0 if start is None else start
    end = LAST if end is None else end
    if isinstance(start, int) and start == 0 and isinstance(end, int) and end == LAST and step == 1:
        return self
    return g.op("Slice", self, g.ints(start), g.ints(end), g.ints(dim), g.ints(step))


@onnx("narrow")
def narrow(g: Any, self: Any, dim: int, start: Any, length: Any) -> Any:
    end = start + length if isinstance(start, int) and isinstance(length, int) else g.arithmetic("Add", start, length)
    return g.op("Slice", self, g.ints(start), g.ints(end), g.ints(dim))


@onnx("select")
def select(g: Any, self: Any, dim: int, index: Any) -> Any:
    if isinstance(index, int):
        return g.op("Gather", self, g.constant(index, fl.int64), axis=dim)
    return g.op("Gather", self, g.scalar(index) if index.is_size else index, axis=dim)


def _split(g: Any, self: Any, sizes: Any, dim: int, count: int) -> Any:
    parts = g.op("Split", self, g.ints(sizes), outputs=count, axis=dim)
    return parts if isinstance(parts, tuple) else (parts,)


@onnx(
    "split.Tensor",
    "split.sizes",
    "split_with_sizes",
    "chunk",
    "unsafe_split.Tensor",
    "unsafe_chunk",
    "tensor_split.sections",
)
def split(g: Any, **arguments: Any) -> Any:
    """Pieces, whose sizes are known from the results."""
    values = list(arguments.values())
    dim = arguments["dim"]
    sizes = [g.result_sizes(piece)[dim] for piece in g.result]
    return _split(g, values[0], sizes, dim, len(sizes))


@onnx("unbind.int")
def unbind(g: Any, self: Any, dim: int) -> Any:
    pieces = _split(g, self, [1] * len(g.result), dim, len(g.result))
    return tuple(g.squeeze(piece, dim % self.rank) for piece in pieces)


@onnx("diagonal")
def diagonal(g: Any, self: Any, offset: int, dim1: int, dim2: int) -> Any:
    n, m = self.shape[dim1], self.shape[dim2]
    if not isinstance(n, int) or not isinstance(m, int):
        raise g.unsupported("a diagonal of sizes that vary")
    rows = [i for i in range(n) if 0 <= i + offset < m]
    rank = self.rank
    first, second = dim1 % rank, dim2 % rank
    order = [d for d in range(rank) if d not in (first, second)] + [first, second]
    last = g.op("Transpose", self, perm=order)
    sizes = [
        g.dim(last, d) if not isinstance(self.shape[order[d]], int) else self.shape[order[d]] for d in range(rank - 2)
    ]
    flat = g.op("Reshape", last, g.ints([*sizes, n * m]))
    return g.op("Gather", flat, g.constant([i * m + i + offset for i in rows], fl.int64), axis=-1)


@onnx("unfold")
def unfold(g: Any, self: Any, dimension: int, size: int, step: int) -> Any:
    length = self.shape[dimension]
    if not isinstance(length, int):
        raise g.unsupported("windows of a size that varies")
    starts = range(0, length - size + 1, step)
    dim = dimension % max(self.rank, 1)
    index = g.constant(fl.tensor([[s + i for i in range(size)] for s in starts]))
    gathered = g.op("Gather", self, index, axis=dim)
    order = [d for d in range(self.rank + 1) if d != dim + 1] + [dim + 1]
    return g.op("Transpose", gathered, perm=order)


@onnx("movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist")
def movedim(g: Any, **arguments: Any) -> Any:
    self, source, destination = list(arguments.values())[:3]
    rank = self.rank
    sources = [s % rank for s in (source if isinstance(source, (list, tuple)) else [source])]
    places = [d % rank for d in (destination if isinstance(destination, (list, tuple)) else [destination])]
    rest = iter(d for d in range(rank) if d not in sources)
    order = [sources[places.index(d)] if d in places else next(rest) for d in range(rank)]
    return g.op("Transpose", self, perm=order)
