"""Joining, cutting and rearranging, against NumPy."""

import numpy as np
import pytest

import flambeau as fl

F = fl.nn.functional


def arange(*shape, dtype="float32"):
    return np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)


def same(ours, theirs):
    assert tuple(ours.shape) == theirs.shape
    assert np.array_equal(ours.cpu().numpy(), theirs)


# ---------------------------------------------------------------- cat and stack


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "complex128"])
def test_cat_and_stack_along_each_dimension(dim, dtype):
    a, b = arange(2, 3, 4, dtype=dtype), arange(2, 3, 4, dtype=dtype)[::-1].copy()
    same(fl.cat([fl.tensor(a), fl.tensor(b)], dim), np.concatenate([a, b], dim))
    same(fl.stack([fl.tensor(a), fl.tensor(b)], dim), np.stack([a, b], dim))
    strided = [fl.tensor(x).permute(2, 0, 1) for x in (a, b)]
    same(fl.cat(strided, dim), np.concatenate([x.transpose(2, 0, 1) for x in (a, b)], dim))
    same(fl.stack(strided, dim), np.stack([x.transpose(2, 0, 1) for x in (a, b)], dim))


def test_cat_of_large_tensors_of_unequal_sizes():
    parts = [arange(n, 300) for n in (1, 250, 7, 333)]
    same(fl.cat([fl.tensor(p) for p in parts]), np.concatenate(parts))
    parts = [arange(300, n) for n in (1, 250, 7, 333)]
    same(fl.cat([fl.tensor(p) for p in parts], 1), np.concatenate(parts, 1))


def test_cat_promotes_and_skips_empty_vectors():
    out = fl.cat([fl.ones(2, dtype=fl.int64), fl.ones(1, dtype=fl.float16), fl.ones(1)])
    assert out.dtype == fl.float32 and out.tolist() == [1] * 4
    assert fl.cat([fl.ones(2, 3), fl.empty(0)]).shape == (2, 3)
    assert fl.cat([fl.empty(0), fl.empty(0)]).shape == (0,)


def test_cat_keeps_channels_last():
    t = fl.ones(2, 3, 4, 5).contiguous(memory_format=fl.channels_last)
    assert fl.cat([t, t], 1).is_contiguous(memory_format=fl.channels_last)


def test_bad_joins_raise():
    with pytest.raises(ValueError):
        fl.cat([])
    with pytest.raises(RuntimeError):
        fl.cat([fl.ones(2, 3), fl.ones(2, 2)])
    with pytest.raises(RuntimeError):
        fl.cat([fl.tensor(1.0)])
    with pytest.raises(IndexError):
        fl.cat([fl.ones(2)], 1)
    with pytest.raises(TypeError):
        fl.cat([fl.ones(2), 1])
    with pytest.raises(RuntimeError):
        fl.stack([fl.ones(2), fl.ones(3)])


@pytest.mark.parametrize("name", ["hstack", "vstack", "dstack", "column_stack"])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
def test_stacks_as_numpy(name, shape):
    a = arange(*shape)
    same(getattr(fl, name)([fl.tensor(a), fl.tensor(a)]), getattr(np, name)([a, a]))


# ---------------------------------------------------------------- cutting


def test_split_chunk_unbind_are_views():
    t = fl.tensor(arange(7, 2))
    assert [p.shape[0] for p in t.split(3)] == [3, 3, 1]
    assert [p.shape[0] for p in t.split([1, 0, 6])] == [1, 0, 6]
    assert [p.shape[0] for p in t.chunk(3)] == [3, 3, 1]
    assert [p.shape[0] for p in t.tensor_split(3)] == [3, 2, 2]
    assert [p.shape[0] for p in fl.tensor_split(t, (2, 5))] == [2, 3, 2]
    assert [p.shape[1] for p in fl.hsplit(t, 2)] == [1, 1]
    assert len(t.unbind(1)) == 2
    t.split(3)[1].fill_(-1)
    assert t[3:6].tolist() == [[-1, -1]] * 3
    assert t.narrow(0, 6, 1).data_ptr() == t[6:].data_ptr()
    assert t.narrow_copy(0, 6, 1).data_ptr() != t[6:].data_ptr()


@pytest.mark.parametrize(
    "bad",
    [
        lambda t: t.split(0),
        lambda t: t.split([1, 2]),
        lambda t: t.chunk(0),
        lambda t: t.tensor_split(0),
        lambda t: t.hsplit(4),
        lambda t: t.narrow(0, 3, 2),
        lambda t: fl.tensor(1).split(1),
    ],
)
def test_bad_cuts_raise(bad):
    with pytest.raises(RuntimeError):
        bad(fl.ones(4, 6))


# ---------------------------------------------------------------- rearranging


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 2), (0, 1, 2), ()])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int16", "complex64"])
def test_flip(dims, dtype):
    a = arange(3, 4, 37, dtype=dtype)
    same(fl.tensor(a).flip(dims), np.flip(a, dims))
    same(fl.tensor(a).permute(2, 0, 1).flip(dims), np.flip(a.transpose(2, 0, 1), dims))


def test_long_flip_and_roll():
    a = arange(100001)
    same(fl.tensor(a).flip(0), a[::-1])
    same(fl.tensor(a).roll(-12345), np.roll(a, -12345))


@pytest.mark.parametrize(("shifts", "dims"), [(1, 0), (-2, 1), ((1, 5), (0, 1)), (100, ()), ((1, 2), (0, 0)), (0, 1)])
def test_roll(shifts, dims):
    a = arange(3, 4)
    same(fl.tensor(a).roll(shifts, dims), np.roll(a, shifts, dims if dims != () else None))


@pytest.mark.parametrize("repeats", [(2, 3), (2, 1, 1), (1, 2, 0), (3, 2, 2)])
def test_repeat_and_tile(repeats):
    a = arange(3, 4)
    same(fl.tensor(a).repeat(*repeats), np.tile(a, repeats))
    same(fl.tensor(a.T.copy()).t().tile(repeats), np.tile(a, repeats))


def test_repeat_interleave():
    a = arange(3, 4)
    same(fl.tensor(a).repeat_interleave(2), np.repeat(a, 2))
    same(fl.tensor(a).repeat_interleave(2, 1), np.repeat(a, 2, 1))
    same(fl.tensor(a).repeat_interleave(fl.tensor([0, 2, 1]), 0), np.repeat(a, [0, 2, 1], 0))
    assert fl.repeat_interleave(fl.tensor([1, 0, 2])).tolist() == [0, 2, 2]


@pytest.mark.parametrize("k", range(-5, 6))
def test_triangles(k):
    a = arange(2, 3, 4)
    same(fl.tensor(a).tril(k), np.tril(a, k))
    same(fl.tensor(a).triu(k), np.triu(a, k))
    same(fl.tril_indices(3, 4, k), np.array(np.tril_indices(3, k, 4)).reshape(2, -1))
    same(fl.triu_indices(3, 4, k), np.array(np.triu_indices(3, k, 4)).reshape(2, -1))
    same(fl.rot90(fl.tensor(a), k, (0, 2)), np.rot90(a, k, (0, 2)))
    same(fl.diag(fl.tensor(a[0, 0]), k), np.diag(a[0, 0], k))
    same(fl.diag(fl.tensor(a[0]), k), np.diag(a[0], k))


def test_diagonals_and_products():
    a, b = arange(2, 3), arange(2)
    assert fl.trace(fl.tensor(arange(3, 4))).item() == 15
    assert fl.diag_embed(fl.tensor(a), 1, 0, 2).shape == (4, 2, 4)
    same(fl.diagflat(fl.tensor(a)), np.diagflat(a))
    expected = np.zeros((3, 5), "float32")
    expected[:2, :3], expected[2, 3:] = a, b
    same(fl.block_diag(fl.tensor(a), fl.tensor(b)), expected)
    for indexing in ("ij", "xy"):
        for ours, theirs in zip(
            fl.meshgrid(fl.tensor(a[0]), fl.tensor(b), indexing=indexing), np.meshgrid(a[0], b, indexing=indexing)
        ):
            same(ours, theirs)
    assert fl.cartesian_prod(fl.tensor([1, 2]), fl.tensor([3, 4])).tolist() == [[1, 3], [1, 4], [2, 3], [2, 4]]
    assert fl.combinations(fl.tensor([1, 2, 3])).tolist() == [[1, 2], [1, 3], [2, 3]]
    assert fl.combinations(fl.tensor([1, 2]), 2, True).tolist() == [[1, 1], [1, 2], [2, 2]]


# ---------------------------------------------------------------- broadcasting


def test_broadcast_shapes_and_tensors():
    assert fl.broadcast_shapes((2, 1), 3, (1,)) == (2, 3)
    with pytest.raises(RuntimeError):
        fl.broadcast_shapes((2,), (3,))
    a, b = fl.broadcast_tensors(fl.ones(2, 1), fl.ones(3))
    assert a.shape == b.shape == (2, 3)
    assert [t.shape for t in fl.atleast_2d(fl.tensor(1), fl.ones(3))] == [(1, 1), (1, 3)]
    assert fl.atleast_3d(fl.ones(3)).shape == (1, 3, 1)


# ---------------------------------------------------------------- padding and shuffling


@pytest.mark.parametrize(
    ("mode", "numpy_mode"),
    [("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")],
)
@pytest.mark.parametrize("pad", [(1, 2), (2, 0, 1, 1), (0, 3, 2, 1, 1, 1)])
def test_pad(mode, numpy_mode, pad):
    a = arange(*((2,) * (5 - len(pad) // 2 - 2) if len(pad) < 6 else (2, 2)), *(4,) * (len(pad) // 2))
    widths = [(0, 0)] * (a.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    if a.ndim - len(pad) // 2 not in (1, 2):
        a, widths = a[0], widths[1:]
    same(F.pad(fl.tensor(a), pad, mode), np.pad(a, widths, numpy_mode))


def test_negative_padding_crops():
    a = arange(3, 6)
    same(F.pad(fl.tensor(a), (-1, 2), value=3.0), np.pad(a[:, 1:], ((0, 0), (0, 2)), constant_values=3))
    same(F.pad(fl.tensor(a), (-1, 1), "circular"), np.pad(a[:, 1:], ((0, 0), (0, 1)), "wrap"))
    same(F.pad(fl.tensor(a), (-1, -2, 0, -1)), a[:2, 1:4])
    with pytest.raises(RuntimeError):
        F.pad(fl.tensor(a), (7, 0), "reflect")
    with pytest.raises(NotImplementedError):
        F.pad(fl.tensor(a), (1, 1), "other")


def test_pixel_and_channel_shuffle():
    a = arange(1, 8, 2, 3)
    up = a.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 6)
    same(F.pixel_shuffle(fl.tensor(a), 2), up)
    same(F.pixel_unshuffle(fl.tensor(up), 2), a)
    same(F.channel_shuffle(fl.tensor(a), 2), a.reshape(1, 2, 4, 2, 3).swapaxes(1, 2).reshape(1, 8, 2, 3))


def test_broadcast_tensors_hands_back_what_has_the_shape():
    a, b = fl.ones(2, 3, requires_grad=True), fl.ones(3)
    same, wide = fl.broadcast_tensors(a, b)
    assert same is a and wide.shape == (2, 3) and wide.stride() == (0, 1)
