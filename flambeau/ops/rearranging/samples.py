"""Samples of joining, splitting, padding and reordering."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, samples


@samples("cat", "concat", "concatenate")
def cat(make: Make) -> Iterator[Call]:
    yield call([make(2, 3), make(2, 1), make.strided(2, 2)], 1)
    yield call([make(2, 3), make(0), make(1, 3)])
    yield call([make(0, 2), make(1, 2)])


@samples("stack")
def stack(make: Make) -> Iterator[Call]:
    yield call([make(2, 3), make.strided(2, 3)], 1)
    yield call([make(), make()])


@samples("hstack", "vstack", "row_stack", "dstack", "column_stack")
def stacks(make: Make) -> Iterator[Call]:
    yield call([make(2, 2), make.strided(2, 2)])
    yield call([make(2), make(2)])


@samples("block_diag")
def block_diag(make: Make) -> Iterator[Call]:
    yield call([make(2, 3), make(2), make()])


@samples("meshgrid")
def meshgrid(make: Make) -> Iterator[Call]:
    yield call([make(2), make(3)], indexing="ij")
    yield call([make(2), make(3)], indexing="xy")


@samples("cartesian_prod")
def cartesian_prod(make: Make) -> Iterator[Call]:
    yield call([make(2), make(3)])


@samples("combinations")
def combinations(make: Make) -> Iterator[Call]:
    yield call(make(4), 2)
    yield call(make(3), 2, True)


@samples("flip")
def flip(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [0, 1])


@samples("roll")
def roll(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [1], [1])
    yield call(make.strided(2, 3), [2])


@samples("rot90")
def rot90(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1, [0, 1])


@samples("repeat")
def repeat(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [2, 2])
    yield call(make(3), [2, 0, 1])


@samples("tile")
def tile(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [2])


@samples("repeat_interleave.self_int")
def repeat_interleave(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 2)
    yield call(make(2, 3), 2, 1)


@samples("repeat_interleave.self_Tensor")
def repeat_interleave_tensor(make: Make) -> Iterator[Call]:
    yield call(make(3), make.index([1, 0, 2]))
    yield call(make(2, 3), make.index([1, 0, 2]), 1)


@samples("repeat_interleave.Tensor")
def repeat_interleave_counts(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 0, 2]))


@samples("constant_pad_nd")
def constant_pad(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [1, 2, 0, 1], 0.5)
    yield call(make(2, 3), [-1, 1])


@samples("_edge_pad")
def edge_pad(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 4), [1, 2, -1, 2], "reflect")
    yield call(make(2, 3), [3, 1], "replicate")
    yield call(make(2, 3), [3, 1], "circular")


@samples("_edge_pad_backward")
def edge_pad_backward(make: Make) -> Iterator[Call]:
    yield call(make(2, 4, 7), [2, 3, 4], [1, 2, -1, 2], "reflect")
    yield call(make(2, 7), [2, 3], [3, 1], "replicate")


@samples("pad")
def pad(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [1, 2])
    yield call(make(2, 2, 3), [1, 2], "reflect")
    yield call(make(1, 2, 2, 3), [1, 2, 0, 1], "replicate")
    yield call(make(2, 2, 3), [1, 2], "circular")


@samples("pixel_shuffle")
def pixel_shuffle(make: Make) -> Iterator[Call]:
    yield call(make(1, 4, 2, 2), 2)


@samples("pixel_unshuffle")
def pixel_unshuffle(make: Make) -> Iterator[Call]:
    yield call(make(1, 1, 4, 2), 2)


@samples("native_channel_shuffle", "channel_shuffle")
def channel_shuffle(make: Make) -> Iterator[Call]:
    yield call(make(1, 4, 2), 2)


@samples("tril", "triu")
def triangle(make: Make) -> Iterator[Call]:
    yield call(make(3, 4))
    yield call(make(2, 3, 3), 1)
    yield call(make.strided(3, 3), -1)


@samples("diag_embed")
def diag_embed(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))
    yield call(make(3), 1)


@samples("diag")
def diag(make: Make) -> Iterator[Call]:
    yield call(make(3))
    yield call(make(3, 3), 1)


@samples("trace")
def trace(make: Make) -> Iterator[Call]:
    yield call(make(3, 4))


@samples("fill_diagonal_")
def fill_diagonal(make: Make) -> Iterator[Call]:
    yield call(make(3, 3), 0.5)
