# ruff: noqa
"""Functions and methods of NumPy on arrays that come from tensors, from outside or from nothing."""

import functools

import numpy as np

import flambeau as fl

from . import T, program, t

if np.__version__.startswith("1."):  # has other rules of promotion: arrays are left to it
    program = functools.partial(program, breaks=True)

TABLE = np.arange(6.0).reshape(2, 3)
FACTOR = np.float32(1.5)


def A(*shape, dtype=np.float64, start=1.0):
    """An array with different values, some of them negative."""
    values = np.arange(int(np.prod(shape)), dtype=np.float64) * 0.5 + start
    values[2::3] *= -1
    return values.reshape(shape).astype(dtype)


def a(*shape, **options):
    return lambda: A(*shape, **options)


@program(t(2, 3))
def functions_of_elements(x):
    v = x.numpy()
    return np.abs(v), np.square(v), np.floor(v), np.ceil(v), np.sign(v), -v, np.negative(v), np.isnan(v)


@program(t(2, 3))
def round_trip(x):
    return fl.from_numpy(np.maximum(x.detach().cpu().numpy() * 2 + 1, 0))


@program(a(2, 3), a(2, 3, start=2.0))
def arithmetic(v, w):
    return v + w, v - w, v * w, v / w, v // w, v % w, v**2, v == w, v < w, v >= 1, v != 1.0


@program(a(2, 3), a(3, 2))
def products(v, w):
    return v @ w, np.matmul(v, w), np.dot(v, w), v.dot(w), np.einsum("ij,jk->ik", v, w), np.dot(v[0], w[:, 0])


@program(a(4), a(4, start=3.0))
def vector_products(v, w):
    return np.dot(v, w), np.inner(v, w), np.outer(v, w), np.vdot(v, w), v @ w, np.tensordot(v, w, axes=1)


@program(a(2, 3, dtype=np.int64), a(2, 3, dtype=np.int32, start=2.0))
def promotion_of_integers(v, w):
    return v + w, v / w, v * 2.5, v + 1, w * 2, w / 2, v**2, v & w, v | 1, ~v, v << 1, v > w


@program(a(3, dtype=np.float32), a(3, dtype=np.float64), a(3, dtype=np.int16))
def promotion_of_floats(v, w, i):
    return v + w, v + i, v * 2.5, v * np.float64(2.5), v + np.float32(1), i + np.int8(3), v * np.pi, np.sqrt(abs(i))


@program(a(2, 3))
def sums(v):
    return v.sum(), v.sum(axis=0), np.sum(v, axis=1), np.sum(v, axis=(0, 1), keepdims=True), v.sum(1, keepdims=True)


@program(a(2, 3), a(2, 3, dtype=np.float32), a(2, 3, dtype=np.int32))
def means(v, w, i):
    return v.mean(), w.mean(axis=0), i.mean(), np.mean(v, axis=-1, keepdims=True), w.mean(dtype=np.float64), i.mean(1)


@program(a(2, 4))
def spreads(v):
    return (
        v.var(),
        v.std(axis=0),
        np.var(v, axis=1, ddof=1),
        np.std(v, keepdims=True),
        np.median(v),
        np.median(v, axis=1),
    )


@program(a(2, 3, dtype=np.int32), a(2, 3, dtype=np.uint8, start=3.0), a(2, 2))
def reductions_of_integers(i, u, v):
    return i.sum(), i.prod(axis=0), (v > 0).sum(), (v > 0).mean(), i.max(), i.min(axis=1), i.cumsum()


@program(a(2, 3))
def extremes(v):
    return v.max(), v.min(axis=0), v.argmax(), v.argmin(axis=1), np.max(v, axis=1, keepdims=True), np.ptp(v)


@program(a(2, 3))
def truths(v):
    return (v > 0).any(), (v > -9).all(axis=1), np.any(v > 2, axis=0, keepdims=True), np.all(v)


@program(a(2, 3))
def shapes(v):
    return v.reshape(3, 2), v.reshape((-1,)), v.T, v.transpose(1, 0), v.ravel(), v.flatten(), np.reshape(v, (1, 6))


@program(a(2, 1, 3))
def dimensions(v):
    return (v.squeeze(), np.squeeze(v, axis=1), np.expand_dims(v, 0), v[np.newaxis], v[:, None].shape,
            np.expand_dims(v, (0, -1)), np.swapaxes(v, 0, 2), np.moveaxis(v, 0, -1), v.ndim, v.size, v.shape, v.nbytes)  # fmt: skip


@program(a(4, 3))
def slices(v):
    return v[0], v[1:], v[:, 1], v[..., 0], v[::2], v[-1, -1], v[1:3, :2], v[2][1], len(v)


@program(a(4, 3))
def reversed_slices(v):
    w = v[::-1]
    return w, v[:, ::-1], v[3:0:-2], w[0], w.sum(axis=0), np.flip(v, 1), w[1:].copy()


@program(a(4, 3), lambda: np.array([2, 0]))
def index_arrays(v, i):
    return v[i], v[[0, 3]], v[:, i], v[i, [0, 1]], np.take(v, i, axis=0), v.take(i), v[np.argmax(v[:, 0])].copy()


@program(a(4, 3))
def masks(v):
    w = v.copy()
    w[w < 0] = 0
    return w, np.where(v > 0, v, 0.0), np.where(v > 0, v, -v), np.clip(v, -1, 1), v.clip(0)


@program(a(4, 3))
def stores(v):
    w = np.zeros((4, 3))
    w[0] = 1
    w[1:3] = v[1:3]
    w[:, 2] = [1, 2, 3, 4]
    w[3, 0] = v[0, 0]
    w[::-1, 1] = np.arange(4)
    return w


@program(a(2, 3))
def stores_into_argument(v):
    v[0] = 5
    v *= 2
    v += np.ones(3)
    return v.sum()


@program(t(2, 3))
def shared_memory(x):
    v = x.numpy()
    v[0, 0] = 7
    v += 1
    y = fl.from_numpy(v)
    y[1] = 0
    return x * 2, v


@program(a(2, 3), a(2, 3))
def views_follow(v, w):
    u = v[1]
    back = w[::-1]
    v[1, 0] = 9
    w[0, 0] = 8
    back[0] = 1
    return u, back, w


@program(a(2, 3))
def makers(v):
    return (np.zeros((2, 2)), np.ones(3, dtype=np.int32), np.full((2,), 7), np.arange(5), np.arange(0, 1, 0.25),
            np.linspace(0, 1, 5), np.eye(2), np.array([[1, 2], [3, 4]]), np.zeros_like(v), np.ones_like(v, dtype=bool),
            np.full_like(v, 2.5), np.zeros(v.shape), np.arange(v.shape[1]), np.identity(2))  # fmt: skip


@program(a(2, 3), a(2, 3, start=5.0))
def joins(v, w):
    return (np.concatenate([v, w]), np.concatenate((v, w), axis=1), np.stack([v, w]), np.stack([v, w], axis=-1),
            np.vstack([v, w]), np.hstack([v, w]), np.array([v[0], w[0]]), np.concatenate([v, w], axis=None))  # fmt: skip


@program(a(4, 3))
def parts(v):
    x, y = np.split(v, 2)
    return x, y, np.split(v, [1, 3]), [row.sum() for row in v], np.tile(v[0], 2), np.repeat(v, 2, axis=0), np.roll(v, 1)


@program(a(2, 3))
def running(v):
    return np.cumsum(v), v.cumsum(axis=1), np.cumprod(v, axis=0), np.diff(v), np.diff(v, axis=0)


@program(a(2, 3))
def orders(v):
    return np.sort(v), np.sort(v, axis=0), np.argsort(v), np.sort(v, axis=None), np.searchsorted(np.sort(v[0]), v[0])


@program(a(3, 3))
def matrices(v):
    return np.trace(v), np.diag(v), np.diag(v[0]), np.tril(v), np.triu(v, 1), v.diagonal(), np.kron(v[:1], v[:1])


@program(a(3))
def limits(v):
    return (
        np.maximum(v, 0),
        np.minimum(v, v[::-1]),
        np.round(v * 1.37, 1),
        np.rint(v),
        np.nan_to_num(v / 0),
        np.isfinite(v),
    )


@program(a(2, 3))
def kinds(v):
    w = v.astype(np.float32)
    return w, v.astype(int), v.astype("int32"), v.astype(bool), w.dtype, w.dtype == np.float32, v.dtype.kind, v.itemsize


@program(a(3))
def scalars(v):
    s = v.sum()
    return (
        s,
        s + 1,
        s * v,
        v - s,
        s / v.shape[0],
        v[0] * np.float32(2),
        isinstance(s, np.floating),
        isinstance(v, np.ndarray),
        type(s),
    )


@program(a(3), t(3))
def to_tensors(v, x):
    return (fl.from_numpy(v) + 1, fl.as_tensor(v), fl.tensor(v), fl.as_tensor(v, dtype=fl.float32), x * v.mean(),
            fl.as_tensor(v.sum()), fl.asarray(v) * 2)  # fmt: skip


@program(t(3))
def global_array(x):
    return x.numpy() @ TABLE.T, TABLE[0] * FACTOR, TABLE * 2


@program(a(2, 3), a(3))
def outputs_given(v, w):
    out = np.empty((2, 3))
    result = np.add(v, w, out=out)
    np.multiply(out, 2, out=out)
    return (
        out,
        result is out,
        np.add(v, 1, dtype=np.float32),
        np.add.reduce(v),
        np.maximum.reduce(v, axis=1),
        np.add.outer(w, w),
    )


def _normalise(v, eps=1e-6):
    return (v - v.mean(axis=-1, keepdims=True)) / (v.std(axis=-1, keepdims=True) + eps)


@program(a(4, 8))
def helper_function(v):
    return _normalise(v)


@program(a(5))
def moving_average(v):
    total = np.zeros(3)
    for shift in range(3):
        total += v[shift : shift + 3]
    return total / 3


class Standardizer:
    def __init__(self, mean, scale):
        self.mean, self.scale = mean, scale

    def __call__(self, v):
        return (v - self.mean) / self.scale


@program(lambda: Standardizer(A(3), A(3, start=2.0)), a(2, 3))
def object_with_arrays(scaler, v):
    return scaler(v), scaler.mean.shape


@program(t(2, 4))
def between_operators(x):
    y = fl.relu(x)
    v = y.numpy()
    weights = v / v.sum(axis=1, keepdims=True)
    return x * fl.from_numpy(weights)


@program(a(3, 3))
def linear_algebra(v):
    w = v @ v.T + 10 * np.eye(3)
    return np.linalg.norm(v), np.linalg.norm(v, axis=1), np.allclose(1.0, 1.0)


@program(a(2, 3), lambda: {"k": A(3)})
def in_containers(v, table):
    rows = [row * 2 for row in v]
    table["sum"] = sum(rows)
    return rows, table["k"] + table["sum"]


@program(a(3))
def printed(v):
    print("shape", v.shape, v.dtype, v * 2)
    return v + 1


@program(a(3, dtype=np.complex128))
def complex_numbers(v):
    return v * 1j, v.real, v.imag, np.conj(v), abs(v)


@program(a(3), breaks=True)
def branch_on_array(v):
    if v.sum() > 0:
        return v * 2
    return v


@program(a(5), breaks=True)
def selection(v):
    w = v[v > 0]
    return w * 2, np.unique(v), float(v[0]), v.tolist()


@program(a(3), breaks=True)
def unknown_function(v):
    w = v * 2
    return np.interp(w, [0.0, 1.0], [0.0, 10.0]) + 1, np.convolve(v, w)


@program(a(3), breaks=True)
def error_of_numpy(v):
    try:
        return v + np.zeros(4)
    except ValueError:
        return v * 2


@program(a(3, dtype=np.int64), breaks=True)
def integer_stores_of_floats(v):
    try:
        v += 0.5
    except TypeError:
        v += 1
    return v


@program(lambda: np.array(["a", "b"]), lambda: np.arange(4.0)[::-1], breaks=True)
def other_arrays(names, backwards):
    return names[0], backwards + 1


@program(lambda: np.broadcast_to(np.arange(3.0), (2, 3)), breaks=True)
def read_only(v):
    w = v + 1
    try:
        v[0] = 1
    except ValueError:
        w = w * 2
    return w, v.T


@program(lambda: np.arange(12.0).reshape(4, 3)[::-1, ::-1])
def reversed_argument(v):
    w = v[1:]
    w[0] = 7
    v *= 2
    return v, w, v.T, w.sum(axis=0), v[0], v[:, 0]


@program(a(4, 3))
def views_of_reversed_views(v):
    back = v[::-1]
    tail = back[1:]
    turned = back.T[::-1]
    v[0] = 5
    tail[0] = 1
    turned[0] += 2
    return v, back, tail, turned, np.squeeze(back[:1]), np.expand_dims(back, 0)


@program(a(4, 3))
def row_at_a_computed_place(v):
    row = v[np.argmax(v[:, 0])]
    v += 1
    row[0] = 9
    return v, row, row.sum()


@program(a(3, 3))
def flat_copies_and_views(v):
    column = v[:, 0].ravel()
    rows = v.ravel()
    column += 1
    rows[0] = 5
    return v, column, rows, v.reshape(-1)
