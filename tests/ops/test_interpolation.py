"""Resizing, grid sampling and folding against small independent definitions."""

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F


def linear_matrix(n, out, align):
    """The weights of linear interpolation along one axis, as an (out, n) matrix."""
    matrix = np.zeros((out, n))
    for o in range(out):
        at = o * (n - 1) / (out - 1) if align else max((o + 0.5) * n / out - 0.5, 0)
        low = min(int(at), n - 1)
        matrix[o, low] += 1 - (at - low)
        matrix[o, min(low + 1, n - 1)] += at - low
    return matrix


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("channels", [3, 32])
@pytest.mark.parametrize("last", [False, True])
def test_bilinear(align, channels, last):
    x = np.random.default_rng(0).standard_normal((2, channels, 7, 9)).astype(np.float32)
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if last else x
    want = np.einsum("ncij,hi,wj->nchw", x, linear_matrix(7, 12, align), linear_matrix(9, 5, align))
    got = F.interpolate(fl.as_tensor(given), size=(12, 5), mode="bilinear", align_corners=align)
    np.testing.assert_allclose(got.cpu().numpy(), want, atol=1e-5)
    assert (got.stride()[1] == 1) == last


@pytest.mark.parametrize("ndim,mode", [(1, "linear"), (3, "trilinear")])
def test_other_dimensions(ndim, mode):
    x = np.random.default_rng(1).standard_normal((2, 3) + (4, 5, 6)[:ndim])
    want = x
    for d in range(ndim):
        want = np.moveaxis(np.tensordot(linear_matrix(x.shape[2 + d], 8, False), want, (1, 2 + d)), 0, 2 + d)
    np.testing.assert_allclose(F.interpolate(fl.as_tensor(x), size=8, mode=mode).cpu().numpy(), want, atol=1e-12)


def test_nearest_and_exact_nearest():
    x = fl.arange(4, dtype=fl.float32).reshape(1, 1, 4)
    assert F.interpolate(x, size=6).tolist() == [[[0, 0, 1, 2, 2, 3]]]
    assert F.interpolate(x, size=6, mode="nearest-exact").tolist() == [[[0, 1, 1, 2, 3, 3]]]
    assert F.interpolate(x.to(fl.uint8), scale_factor=2).tolist() == [[[0, 0, 1, 1, 2, 2, 3, 3]]]


def test_bicubic_weights():
    x = np.zeros((1, 1, 1, 9))
    x[..., 4] = 1
    got = F.interpolate(fl.as_tensor(x), size=(1, 18), mode="bicubic").cpu().numpy()[0, 0, 0]

    def kernel(t, a=-0.75):
        t = abs(t)
        return (a + 2) * t**3 - (a + 3) * t**2 + 1 if t < 1 else a * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0

    np.testing.assert_allclose(got, [kernel((o + 0.5) / 2 - 0.5 - 4) for o in range(18)], atol=1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias_keeps_the_mean(mode):
    x = np.random.default_rng(2).standard_normal((1, 1, 32, 32))
    flat = F.interpolate(fl.as_tensor(np.ones((1, 1, 32, 32))), size=(7, 5), mode=mode, antialias=True).cpu().numpy()
    np.testing.assert_allclose(flat, 1)
    small = F.interpolate(fl.as_tensor(x), size=(8, 8), mode=mode, antialias=True).cpu().numpy()
    assert abs(small.mean() - x.mean()) < 0.05 and small.std() < x.std() / 2


@pytest.mark.parametrize("mode,kernel", [("bilinear", "linear"), ("bicubic", "cubic"), ("nearest", "nearest")])
def test_gradient_is_adjoint(mode, kernel):
    rng = np.random.default_rng(3)
    x, g = rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((2, 3, 9, 4))
    out = F.interpolate(fl.as_tensor(x), size=(9, 4), mode=mode).cpu().numpy()
    back = fl._ops._interpolate_backward(fl.as_tensor(g), [2, 3, 5, 6], kernel, False, None, False).cpu().numpy()
    np.testing.assert_allclose((out * g).sum(), (back * x).sum())


def test_sizes_and_modes_are_checked():
    x = fl.zeros(1, 1, 4, 4)
    for arguments in ({}, {"size": 2, "scale_factor": 2}, {"size": (1, 2, 3)}, {"size": 2, "align_corners": True}):
        with pytest.raises(ValueError):
            F.interpolate(x, **arguments)
    with pytest.raises(NotImplementedError):
        F.interpolate(x, size=2, mode="linear")


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_identity_grid_returns_the_input(align, mode):
    x = np.random.default_rng(4).standard_normal((2, 3, 5, 6))
    theta = fl.as_tensor(np.tile(np.array([[1.0, 0, 0], [0, 1, 0]]), (2, 1, 1)))
    grid = F.affine_grid(theta, (2, 3, 5, 6), align_corners=align)
    got = F.grid_sample(fl.as_tensor(x), grid, mode=mode, align_corners=align, padding_mode="border")
    np.testing.assert_allclose(got.cpu().numpy(), x, atol=1e-10)


def test_grid_padding():
    x = fl.tensor([[[[1.0, 2.0, 3.0]]]])
    grid = fl.tensor([[[[-3.0, 0.0], [3.0, 0.0]]]])
    sample = lambda padding: F.grid_sample(x, grid, "nearest", padding, align_corners=True).tolist()[0][0][0]  # noqa: E731
    assert sample("zeros") == [0, 0]
    assert sample("border") == [1, 3]
    assert sample("reflection") == [3, 1]


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_samples_outside_do_not_read_the_input(mode):
    x = np.full((1, 2, 4, 4), np.inf, np.float32)
    x[..., 2:, 2:] = 1
    grid = np.full((1, 1, 100, 2), 0.5, np.float32)
    grid[0, 0, 3], grid[0, 0, 70], grid[0, 0, 99] = np.nan, 5, -5
    got = F.grid_sample(fl.as_tensor(x), fl.as_tensor(grid), mode=mode, align_corners=False).cpu().numpy()
    assert (got[..., [3, 70, 99]] == 0).all() and (np.delete(got, [3, 70, 99], -1) == 1).all()


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("mode", [0, 2])
def test_grid_gradients_match_finite_differences(padding, mode):
    rng = np.random.default_rng(5)
    x, grid = rng.standard_normal((1, 2, 5, 4)), rng.uniform(-1.4, 1.4, (1, 3, 3, 2))
    g = rng.standard_normal((1, 2, 3, 3))
    dx, dgrid = fl._ops._grid_sampler_backward(*map(fl.from_numpy, (g, x, grid)), mode, padding, False)

    def out(x, grid):
        return (fl.grid_sampler(fl.as_tensor(x), fl.as_tensor(grid), mode, padding, False).cpu().numpy() * g).sum()

    np.testing.assert_allclose((dx.cpu().numpy() * x).sum(), out(x, grid))
    for place in [(0, 0, 0, 0), (0, 1, 2, 1), (0, 2, 1, 0)]:
        up, down = grid.copy(), grid.copy()
        up[place] += 1e-6
        down[place] -= 1e-6
        np.testing.assert_allclose(dgrid.cpu().numpy()[place], (out(x, up) - out(x, down)) / 2e-6, rtol=1e-4, atol=1e-5)


def test_unfold_and_fold():
    x = np.random.default_rng(6).standard_normal((2, 3, 6, 5))
    columns = F.unfold(fl.as_tensor(x), (3, 2), padding=1, stride=2).cpu().numpy()
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    want = np.stack([padded[:, :, i : i + 3, j : j + 2].reshape(2, -1) for i in (0, 2, 4) for j in (0, 2, 4)], -1)
    np.testing.assert_array_equal(columns, want)
    ones = F.fold(F.unfold(fl.ones(1, 1, 4, 4), 2), 4, 2).tolist()[0][0]
    assert ones == [[1, 2, 2, 1], [2, 4, 4, 2], [2, 4, 4, 2], [1, 2, 2, 1]]
    with pytest.raises(RuntimeError):
        F.fold(fl.zeros(1, 5, 9), 4, 2)
    with pytest.raises(RuntimeError):
        F.unfold(fl.zeros(1, 1, 2, 2), 3)
