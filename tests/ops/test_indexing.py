"""Indexing against NumPy: `t[...]`, `t[...] = v`, masks and the index_* family."""

import random

import numpy as np
import pytest

import flambeau as fl


def same(ours: fl.Tensor, theirs: np.ndarray) -> None:
    assert tuple(ours.shape) == theirs.shape
    np.testing.assert_array_equal(ours.cpu().numpy(), theirs)


def arange(*shape: int, dtype: str = "float32") -> tuple[fl.Tensor, np.ndarray]:
    array = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
    return fl.tensor(array), array


KEYS = [
    0,
    -1,
    slice(1, None),
    slice(None, None, 2),
    None,
    Ellipsis,
    (),
    (0, 1),
    (0, Ellipsis, None),
    (slice(None), 1, slice(0, 2)),
    True,
    False,
    (True, 0),
    [0, 1, -1],
    ([0, 1], [1, 2]),
    ([0, 1], slice(None), [1, 2]),
    (slice(None), [0, 2], [1, 3]),
    (slice(None), [[0], [2]], [1, 3]),
    (None, [0, 1], None, slice(None), [1]),
    (Ellipsis, [0, 1, 2, 3, 0]),
    range(2),
    np.array([[0, 1], [1, 0]]),
    np.array(1),
    np.int64(1),
    [True, False],
    (slice(None), [True, False, True]),
    np.zeros((2, 3), dtype=bool),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_key_reads_and_writes_as_numpy(key):
    ours, theirs = arange(2, 3, 4)
    same(ours[key], theirs[key])
    ours[key] = 7
    theirs[key] = 7
    same(ours, theirs)


def random_key(rng: random.Random, shape: tuple[int, ...]) -> list:
    """Items of a key both libraries read alike: one mask at most, index arrays of one broadcast shape."""
    width = rng.randint(1, 3)
    items: list = []
    d = 0
    while d < len(shape):
        size = shape[d]
        choice = rng.random()
        if choice < 0.1:
            items.append(None)
            continue
        if choice < 0.2:
            items.append(rng.randint(-size, size - 1))
        elif choice < 0.5:
            items.append(
                slice(rng.randint(-size, size), rng.choice([None, rng.randint(-size, size)]), rng.randint(1, 2))
            )
        elif choice < 0.6 and not any(isinstance(i, np.ndarray) for i in items):
            items.append(np.array([rng.random() < 0.5 for _ in range(size)]))
            return items
        else:
            rows = [rng.randint(-size, size - 1) for _ in range(width)]
            items.append(np.array(rows if rng.random() < 0.7 else [rows]))
        d += 1
        if rng.random() < 0.2:
            break
    return items


def differs_by_design(items: list) -> bool:
    """A number between arrays is a view of its own here, and one more index array in NumPy."""
    arrays = [i for i, x in enumerate(items) if isinstance(x, np.ndarray)]
    numbers = [i for i, x in enumerate(items) if isinstance(x, int)]
    return bool(arrays and numbers)


def test_random_keys_on_strided_tensors():
    rng = random.Random(0)
    checked = 0
    for _ in range(1500):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 4)))
        items = random_key(rng, shape)
        if differs_by_design(items):
            continue
        dtype = rng.choice(["float32", "int64", "bool", "complex64", "uint8", "int16"])
        theirs = (np.arange(np.prod(shape) * 2).reshape(*shape, 2) % 251).astype(dtype)[..., 0]
        order = list(range(len(shape)))
        rng.shuffle(order)
        back = np.argsort(order)
        ours = fl.tensor(np.ascontiguousarray(theirs.transpose(order))).permute(*back.tolist())
        key = tuple(items)
        as_ours = tuple(fl.tensor(i) if isinstance(i, np.ndarray) and rng.random() < 0.5 else i for i in items)
        same(ours[as_ours], theirs[key])
        value = (np.arange(theirs[key].size).reshape(theirs[key].shape) % 7).astype(dtype)
        written, expected = ours.clone(), theirs.copy()
        written[as_ours] = fl.tensor(value)
        expected[key] = value
        if not any(isinstance(i, np.ndarray) and i.dtype != bool for i in items):  # repeated places have no order
            same(written, expected)
        checked += 1
    assert checked > 500


def test_index_tensors_of_several_dtypes():
    ours, theirs = arange(5, 3)
    for dtype in (fl.int64, fl.int32):
        same(ours[fl.tensor([4, -1, 0], dtype=dtype)], theirs[[4, -1, 0]])
    for dtype in (fl.int64, fl.int32, fl.int16, fl.int8):
        assert ours[fl.tensor(2, dtype=dtype)].data_ptr() == ours[2].data_ptr()
    same(ours[fl.tensor([1, 0, 0, 1, 0], dtype=fl.uint8)], theirs[[0, 3]])


def test_integer_and_slice_keys_are_views():
    ours, _ = arange(4, 4)
    ours[1][2] = -1
    ours[2:, ::2].fill_(-2)
    assert ours[1, 2] == -1 and ours[3, 2] == -2 and ours[3, 1] == 13


def test_list_of_sequences_is_a_tuple_of_indices():
    ours, theirs = arange(3, 3)
    same(ours[[[0, 1], [1, 2]]], theirs[[0, 1], [1, 2]])


def test_assignment_broadcasts_and_converts():
    ours, theirs = arange(3, 4)
    ours[:, 1] = fl.tensor([5, 6, 7])
    theirs[:, 1] = [5, 6, 7]
    ours[[0, 2]] = fl.tensor([[1.0], [2.0]])
    theirs[[0, 2]] = [[1.0], [2.0]]
    ours[ours > 5] = fl.tensor(9)
    theirs[theirs > 5] = 9
    ours[0] = fl.ones(1, 1, 4)
    theirs[0] = 1
    same(ours, theirs)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (5, IndexError),
        ((0, 0, 0), IndexError),
        ([0, 7], IndexError),
        (([0, 1], [0, 1, 2]), IndexError),
        (1.0, IndexError),
        ({1}, IndexError),
        (slice(None, None, -1), ValueError),
        ([True, False], IndexError),
    ],
    ids=str,
)
def test_bad_keys_raise(key, error):
    ours, _ = arange(3, 4)
    with pytest.raises(error):
        ours[key].tolist()  # waits for devices that report indices later
    with pytest.raises(error):
        ours[key] = 0
        ours.tolist()


def test_bad_values_raise():
    ours, _ = arange(3, 4)
    for value in ([1, 2, 3, 4], "a", None, object()):
        with pytest.raises(TypeError):
            ours[0] = value
    with pytest.raises(RuntimeError):
        ours[0] = 1j
    with pytest.raises(RuntimeError):
        ours[[0, 1]] = fl.ones(5)
    with pytest.raises(RuntimeError):
        ours[[0, 1]] = fl.ones(2, 4, dtype=fl.int64)
    with pytest.raises(IndexError):
        fl.tensor(5)[0]
    with pytest.raises(IndexError):
        ours[fl.tensor([0.0])]


def test_accumulate_adds_repeated_places_in_order():
    for dtype in (fl.float32, fl.int64, fl.bfloat16, fl.complex64):
        t = fl.zeros(4, 3, dtype=dtype)
        t.index_put_((fl.tensor([1, 1, 3]),), fl.ones(3, 3, dtype=dtype), accumulate=True)
        assert t.tolist() == [[0] * 3, [2] * 3, [0] * 3, [1] * 3]
    wide = fl.zeros(100, 64)
    index = fl.arange(2000) % 100
    wide.index_put_((index,), fl.ones(2000, 64), accumulate=True)
    assert (wide.cpu().numpy() == 20).all()


# ---------------------------------------------------------------- masks


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (2, 0, 3), (70000,), (300, 400)])
def test_nonzero_finds_what_numpy_finds(shape):
    array = (np.arange(int(np.prod(shape))).reshape(shape) * 7 % 5 - 2).astype("float32")
    ours = fl.tensor(array)
    same(fl.nonzero(ours), np.argwhere(array) if shape else np.zeros((1, 0), dtype=np.int64))
    if shape:
        for a, b in zip(fl.nonzero(ours, as_tuple=True), np.nonzero(array)):
            same(a, b)
    same(ours[ours > 0], array[array > 0])


def test_nonzero_sees_nan_and_strides():
    t = fl.tensor([[0.0, float("nan")], [1.0, 0.0]]).t()
    assert fl.nonzero(t).tolist() == [[0, 1], [1, 0]]
    assert fl.nonzero_static(t, size=3).tolist() == [[0, 1], [1, 0], [-1, -1]]


def test_masked_select_and_scatter_broadcast():
    ours, theirs = arange(3, 4)
    mask = np.array([True, False, True, False])
    same(ours.masked_select(fl.tensor(mask)), theirs[:, mask].reshape(-1))
    filled = ours.masked_scatter(fl.tensor(mask), -fl.arange(6.0))
    theirs[:, mask] = -np.arange(6).reshape(3, 2)
    same(filled, theirs)
    with pytest.raises(RuntimeError if ours.is_cpu else IndexError):
        ours.masked_scatter(fl.tensor(mask), fl.ones(5)).tolist()
    with pytest.raises(RuntimeError):
        ours.masked_select(fl.ones(4, dtype=fl.uint8))


def test_masked_fill_takes_numbers_and_zero_dim_tensors():
    ours, _ = arange(4)
    assert ours.masked_fill(ours > 1, -1).tolist() == [0, 1, -1, -1]
    assert ours.long().masked_fill(ours > 1, 1.5).tolist() == [0, 1, 1, 1]
    with pytest.raises(RuntimeError):
        ours.masked_fill(ours > 1, fl.tensor([1.0]))


# ---------------------------------------------------------------- one index along one dimension


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_select_add_copy_fill(dim):
    ours, theirs = arange(3, 4, 5)
    index = [2, 0, 2]
    same(ours.index_select(dim, fl.tensor(index)), np.take(theirs, index, axis=dim))
    source = np.take(theirs, [0, 1, 1], axis=dim) + 1
    moved = np.moveaxis(theirs.copy(), dim, 0)
    np.add.at(moved, index, 2 * np.moveaxis(source, dim, 0))
    same(ours.index_add(dim, fl.tensor(index), fl.tensor(source), alpha=2), np.moveaxis(moved, 0, dim))
    moved = np.moveaxis(theirs.copy(), dim, 0)
    moved[[1, 0, 2]] = np.moveaxis(source, dim, 0)
    same(ours.index_copy(dim, fl.tensor([1, 0, 2]), fl.tensor(source)), np.moveaxis(moved, 0, dim))
    moved = np.moveaxis(theirs.copy(), dim, 0)
    moved[[0, -1]] = 9
    same(ours.index_fill(dim, fl.tensor([0, -1]), 9), np.moveaxis(moved, 0, dim))


def test_index_reduce_modes():
    start = fl.tensor([[4.0, 6.0], [1.0, 1.0]])
    index, source = fl.tensor([0, 0]), fl.tensor([[2.0, 3.0], [6.0, 9.0]])
    assert start.index_reduce(0, index, source, "prod").tolist() == [[48, 162], [1, 1]]
    assert start.index_reduce(0, index, source, "mean").tolist() == [[4, 6], [1, 1]]
    assert start.index_reduce(0, index, source, "amax", include_self=False).tolist() == [[6, 9], [1, 1]]
    assert start.index_reduce(0, index, source, "amin").tolist() == [[2, 3], [1, 1]]


def test_take_put_and_take_along_dim():
    ours, theirs = arange(3, 4)
    same(ours.t().take(fl.tensor([[0, -1], [1, 2]])), theirs.T.reshape(-1)[[[0, -1], [1, 2]]])
    changed = ours.t().clone().put_(fl.tensor([0, 0, 5]), fl.tensor([1.0, 2.0, 3.0]), accumulate=True)
    expected = theirs.T.reshape(-1).copy()
    np.add.at(expected, [0, 0, 5], [1, 2, 3])
    same(changed.reshape(-1), expected)
    order = np.argsort(-theirs, axis=1)
    same(fl.take_along_dim(ours, fl.tensor(order), 1), np.take_along_axis(theirs, order, 1))
    with pytest.raises(IndexError):
        ours.take(fl.tensor([99])).tolist()


def test_meta_tensors_have_the_shape():
    t = fl.empty(3, 4, 5, device="meta")
    assert t[:, fl.empty(2, 6, dtype=fl.int64, device="meta")].shape == (3, 2, 6, 5)
    with pytest.raises(NotImplementedError):
        fl.nonzero(t)


def test_take_along_dim_refuses_other_indices_and_dimensions():
    x = fl.ones(2, 3)
    for dtype in (fl.int32, fl.uint8, fl.float32):
        with pytest.raises(RuntimeError, match="should be Long"):
            fl.take_along_dim(x, fl.zeros(2, 3, dtype=dtype), 1)
    for dim in (2, -3):
        with pytest.raises(IndexError, match=r"dimension in \[-2, 1\]"):
            fl.take_along_dim(x, fl.zeros(2, 3, dtype=fl.int64), dim)
