"""Joining, repeating, padding and rolling in ONNX."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


@onnx("cat", "concat", "concatenate")
def cat(g: Any, tensors: Any, dim: int) -> Any:
    joined = [x for x in tensors if not (x.shape == (0,) and len(g.result.shape) != 1)]
    values = [g.cast(x, g.dtype) for x in joined]
    return values[0] if len(values) == 1 else g.op("Concat", *values, axis=dim)


@onnx("stack")
def stack(g: Any, tensors: Any, dim: int) -> Any:
    dim %= tensors[0].rank + 1
    return g.op("Concat", *(g.unsqueeze(g.cast(x, g.dtype), dim) for x in tensors), axis=dim)


@onnx("repeat", "tile")
def repeat(g: Any, **arguments: Any) -> Any:
    self, repeats = list(arguments.values())[:2]
    missing = len(repeats) - self.rank
    if missing < 0:
        repeats = [1] * -missing + list(repeats)
    elif missing > 0:
        self = g.unsqueeze(self, *range(missing))
    return g.op("Tile", self, g.ints(repeats))


@onnx("repeat_interleave.self_int")
def repeat_interleave(g: Any, self: Any, repeats: Any, dim: Any) -> Any:
    if dim is None:
        self, dim = g.op("Reshape", self, g.ints([-1])), 0
        rank = 1
    else:
        rank = self.rank
    dim %= rank
    wide = g.unsqueeze(self, dim + 1)
    tiles = [1] * (rank + 1)
    tiles[dim + 1] = repeats
    return g.reshape(g.op("Tile", wide, g.ints(tiles)), g.result_sizes(), g.result_shape())


@onnx("flip")
def flip(g: Any, self: Any, dims: Any) -> Any:
    count = len(dims)
    ends = g.ints([-(2**63) + 1] * count)
    return g.op("Slice", self, g.ints([-1] * count), ends, g.ints(list(dims)), g.ints([-1] * count))


@onnx("roll")
def roll(g: Any, self: Any, shifts: Any, dims: Any) -> Any:
    if not dims:
        flat = roll(g, g.op("Reshape", self, g.ints([-1])), shifts, [0])
        return g.op("Reshape", flat, g.shape(self))
    rolled = self
    for shift, dim in zip(shifts, dims):
        if shift == 0:
            continue
        last, first = g.ints(-shift), g.ints(2**63 - 1)
        head = g.op("Slice", rolled, last, first, g.ints(dim))
        tail = g.op("Slice", rolled, g.ints(0), last, g.ints(dim))
        rolled = g.op("Concat", head, tail, axis=dim)
    return rolled


@onnx("tril")
def tril(g: Any, self: Any, diagonal: int) -> Any:
    return _triangle(g, self, diagonal, 0)


@onnx("triu")
def triu(g: Any, self: Any, diagonal: int) -> Any:
    return _triangle(g, self, diagonal, 1)


def _triangle(g: Any, self: Any, diagonal: int, upper: int) -> Any:
    held = g.cast(self, fl.int32) if self.dtype == fl.bool else self  # runtimes have no kernel for booleans
    triangle = g.op("Trilu", held, g.constant(diagonal, fl.int64), upper=upper)
    return g.cast(triangle, self.dtype)


def _pads(g: Any, x: Any, pad: Any) -> Any:
    """ONNX lists what comes before each dimension, then what comes after."""
    before, after = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        before[x.rank - 1 - i], after[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return g.ints([*before, *after])


@onnx("constant_pad_nd")
def constant_pad(g: Any, self: Any, pad: Any, value: Any) -> Any:
    return g.op("Pad", self, _pads(g, self, pad), g.cast(value, self.dtype), mode="constant")


@onnx("_edge_pad")
def edge_pad(g: Any, self: Any, pad: Any, mode: str) -> Any:
    if mode == "circular" and g.opset < 19:
        raise g.unsupported("circular padding needs opset 19")
    kind = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    return g.op("Pad", self, _pads(g, self, pad), mode=kind)


@onnx("pad")
def pad(g: Any, input: Any, pad: Any, mode: str, value: Any) -> Any:
    if mode == "constant":
        return constant_pad(g, input, pad, 0.0 if value is None else value)
    return edge_pad(g, input, pad, mode)


@onnx("pixel_shuffle")
def pixel_shuffle(g: Any, self: Any, upscale_factor: int) -> Any:
    if self.rank != 4:
        raise g.unsupported("other than four dimensions")
    return g.op("DepthToSpace", self, blocksize=upscale_factor, mode="CRD")
