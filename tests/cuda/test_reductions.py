"""Reductions on the device against the CPU over shapes that take each kernel: rows by groups of threads and by blocks,
parts of long rows, columns, vectors and what is left of them; and what else is read in words, gathered or drawn by
several elements to a thread: indexing, padding, resizing, chances."""

import pytest

import flambeau as fl

# Shape and reduced dimensions.
CASES = [
    ((4096, 16), 1), ((300, 7), 1), ((257, 1000), 1), ((70, 1031), 1), ((3, 20000), 1), ((40009,), 0),
    ((2000, 64), 0), ((1999, 24), 0), ((515, 33), 0), ((6, 8, 16, 16), (0, 2, 3)), ((6, 5, 3, 7), (0, 2, 3)),
    ((4, 300, 24), 1), ((3, 5, 70), (0, 1)), ((1, 1), 1), ((130, 1), 1), ((9, 8, 4), None),
]  # fmt: skip
FLOATING = [fl.float32, fl.float64, fl.bfloat16, fl.float16]
WHOLE = [fl.bool, fl.uint8, fl.int8, fl.int16, fl.int32, fl.int64]


def numbers(shape, dtype, spread=3.0):
    fl.manual_seed(len(shape))
    drawn = fl.randn(shape, device="cpu") * spread
    return drawn.to(dtype) if dtype.is_floating_point else (drawn > 0 if dtype is fl.bool else drawn.abs().to(dtype))


def layouts(t):
    """The tensor as it is, off the boundaries of vectors, backwards in memory, and every other element of one."""
    yield t
    shifted = fl.empty(t.numel() + 1, dtype=t.dtype)[1:].view(t.shape)
    yield shifted.copy_(t)
    order = list(reversed(range(t.dim())))
    yield t.permute(order).contiguous().permute(order)
    yield fl.stack([t, t], -1)[..., 0]


def on_device(t):
    """A copy that lies in memory as the tensor does."""
    storage = fl.as_strided(t, (t.untyped_storage().nbytes() // t.element_size(),), (1,), 0)
    return fl.as_strided(storage.to("cuda"), t.shape, t.stride(), t.storage_offset())


def close(got, want, tolerance):
    assert got.shape == want.shape and got.dtype is want.dtype
    got, want = got.cpu().double(), want.double()
    assert bool((got.isnan() == want.isnan()).all())
    error = ((got - want).abs() / want.abs().clamp(min=1)).nan_to_num(0, 0, 0)
    assert error.numel() == 0 or error.max().item() <= tolerance


def single(dim):
    return dim if isinstance(dim, int) else None


TOLERANCE = {fl.float32: 2e-5, fl.float64: 1e-12, fl.bfloat16: 2e-2, fl.float16: 3e-3}


@pytest.mark.parametrize("shape, dim", CASES, ids=str)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_moments_and_sums(shape, dim, dtype):
    for t in layouts(numbers(shape, dtype) + 1000 * (dtype is fl.float64)):
        x = on_device(t)
        for got, want in zip(fl.var_mean(x, dim), fl.var_mean(t, dim)):
            close(got, want, TOLERANCE[dtype])
        close(fl.std(x, dim, correction=0, keepdim=True), fl.std(t, dim, correction=0, keepdim=True), TOLERANCE[dtype])
        close(x.double().sum(dim), t.double().sum(dim), 1e-11)
        close(x.mean(dim), t.mean(dim), TOLERANCE[dtype])


@pytest.mark.parametrize("shape, dim", CASES, ids=str)
@pytest.mark.parametrize("dtype", FLOATING + WHOLE, ids=str)
def test_extremes_with_ties(shape, dim, dtype):
    for t in layouts(numbers(shape, dtype).round() if dtype.is_floating_point else numbers(shape, dtype)):
        x = on_device(t)
        for name in ("amax", "amin"):
            close(getattr(x, name)(dim or ()), getattr(t, name)(dim or ()), 0)
        close(x.all() if dim is None else x.all(dim), t.all() if dim is None else t.all(dim), 0)
        close(
            (x != 0).any() if dim is None else (x != 0).any(dim),
            (t != 0).any() if dim is None else (t != 0).any(dim),
            0,
        )
        if isinstance(dim, tuple):
            continue
        if dtype is not fl.bool:
            for name in ("argmax", "argmin"):
                close(getattr(x, name)(single(dim)), getattr(t, name)(single(dim)), 0)
        if dim is not None:
            for name in ("max", "min"):
                for got, want in zip(getattr(x, name)(dim, keepdim=True), getattr(t, name)(dim, keepdim=True)):
                    close(got, want, 0)


@pytest.mark.parametrize("shape, dim", [((64, 5000), 1), ((5000, 64), 0), ((40, 40), 1)], ids=str)
def test_nan_and_infinity_count_once(shape, dim):
    t = numbers(shape, fl.float32)
    t[3, 7] = float("nan")
    t[5 % shape[0], 2:5] = float("nan")
    t[:, 9] = float("-inf")
    t[11, :] = float("-inf")
    x = t.to("cuda")
    for name in ("max", "min"):
        for got, want in zip(getattr(x, name)(dim), getattr(t, name)(dim)):
            close(got, want, 0)
    assert fl.var(x, dim).isnan().sum().item() == fl.var(t, dim).isnan().sum().item()


def test_nothing_and_single_elements():
    for t in (fl.empty(0), fl.ones(1), fl.ones(()), fl.empty(3, 0)):
        for got, want in zip(fl.var_mean(t.to("cuda")), fl.var_mean(t)):
            close(got, want, 0)
        close(t.to("cuda").all(), t.all(), 0)
    close(fl.var(fl.empty(3, 0, device="cuda"), 1), fl.var(fl.empty(3, 0), 1), 0)
    assert fl.empty(0, 4, device="cuda").max(1)[1].shape == (0,)
    close(fl.ones((), device="cuda").max(0)[1], fl.ones(()).max(0)[1], 0)


def test_variance_far_from_zero_and_beside_an_outlier():
    t = fl.randn(1 << 20) + 4096
    t[0] = 1e6
    close(fl.var(t.to("cuda")), fl.var(t.double()).float(), 1e-4)


@pytest.mark.parametrize("dtype", [fl.float32, fl.float16, fl.uint8, fl.complex128], ids=str)
@pytest.mark.parametrize("width, offset", [(32, 0), (32, 1), (6, 0), (5, 0), (1, 0), (64, 4)])
def test_rows_by_index_in_words(dtype, width, offset):
    flat = fl.arange(40 * width + offset).remainder(251).to(dtype)
    t = flat[offset:].view(40, width)
    x, index = on_device(t), fl.tensor([3, 0, 39, 3, 17, -1])
    close_bits = lambda got, want: got.shape == want.shape and bool((got.cpu() == want).all())  # noqa: E731
    assert close_bits(x[index.to("cuda")], t[index])
    assert close_bits(fl.index_select(x, 0, index[:5].to("cuda")), fl.index_select(t, 0, index[:5]))
    assert close_bits(x[:, 0:2][index.to("cuda")], t[:, 0:2][index])
    rows = t[index[:3]].flip(0)
    x[index[:3].to("cuda")] = rows.to("cuda")
    t[index[:3]] = rows
    assert close_bits(x, t)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    "shape, pad",
    [((2, 3, 7, 9), (2, 3, 1, 0)), ((2, 3, 7, 9), (-1, 3, 4, -2)), ((3, 5), (4, 2)), ((1, 2, 3, 4, 5), (2, 1, 0, 3, 2, 2)),
     ((2, 3, 1, 4), (1, 1, 0, 0)), ((2, 0, 3, 4), (1, 1, 1, 1))],
    ids=str,
)  # fmt: skip
def test_padding_copies_and_gathers(mode, shape, pad):
    pad_by = fl.nn.functional.pad
    for dtype in (fl.float32, fl.float64, fl.bfloat16):
        for arrange in (lambda t: t, lambda t: t.contiguous(memory_format=fl.channels_last) if t.dim() == 4 else t):
            found = []
            for device in ("cpu", "cuda"):
                x = arrange(numbers(shape, dtype)).to(device).requires_grad_()
                try:
                    y = pad_by(x, pad, mode)
                except RuntimeError:
                    found.append(None)
                    continue
                g = arrange(numbers(y.shape, dtype)).to(device)
                y.backward(g)
                found.append((y.detach(), x.grad))
            if found[0] is None:
                assert found[1] is None
                continue
            for got, want in zip(found[1], found[0]):
                close(got, want, TOLERANCE[dtype])
                assert got.stride() == want.stride()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(14, 18), (3, 4), (7, 9), (11, 5), (1, 1)], ids=str)
@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"antialias": True}], ids=str)
def test_resizing_and_its_gradient(mode, size, options):
    if ("nearest" in mode and options) or (mode == "nearest" and "antialias" in options):
        pytest.skip("not for nearest")
    for dtype, channels in ((fl.float32, 3), (fl.float64, 6)):
        found = []
        for device in ("cpu", "cuda"):
            x = numbers((2, channels, 7, 9), dtype).to(device).requires_grad_()
            y = fl.nn.functional.interpolate(x, size, mode=mode, **options)
            y.backward(numbers(y.shape, dtype).to(device))
            found.append((y.detach(), x.grad))
        for got, want in zip(found[1], found[0]):
            close(got, want, TOLERANCE[dtype])


def test_float_special_functions_are_close_to_double():
    x = fl.linspace(-9.7, 30, 4001)
    inside = fl.linspace(-0.9999, 0.9999, 2001)
    for name, given in (("lgamma", x[x > -2]), ("digamma", x), ("erfinv", inside), ("rsqrt", x[x > 0])):
        want = getattr(fl, name)(given.double())
        got = getattr(fl, name)(given.to("cuda")).cpu().double()
        error = ((got - want).abs() / want.abs().clamp(min=1e-2)).max().item()
        assert error < 2e-6, f"{name}: {error:.3g}"
    base, power = fl.rand(2000) * 5, fl.randn(2000) * 4
    want = fl.pow(base.double(), power.double())
    assert ((fl.pow(base.to("cuda"), power.to("cuda")).cpu().double() - want).abs() / want).max().item() < 1e-6


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", [(1000,), (33, 7), (), (0, 3)], ids=str)
def test_chances_are_drawn_as_on_the_cpu(shape, dtype):
    chances = numbers(shape, fl.float32).abs().clamp(max=1).to(dtype)
    found = []
    for device in ("cpu", "cuda"):
        p = chances.to(device)
        fl.manual_seed(5)
        drawn = fl.bernoulli(p)
        among = fl.zeros(4, *shape, dtype=fl.int32, device=device)
        turned = fl.zeros(*shape, 4, device=device).permute(-1, *range(len(shape)))
        found.append((drawn, among.bernoulli_(p), turned.bernoulli_(p)))
    for got, want in zip(found[1], found[0]):
        assert got.stride() == want.stride() and got.dtype is want.dtype
        assert bool((got.cpu() == want).all())


@pytest.mark.parametrize("chance", [1.5, -0.1, float("nan")])
def test_chances_outside_raise(chance):
    with pytest.raises(RuntimeError, match="expected probabilities"):
        fl.bernoulli(fl.tensor([0.5, chance], device="cuda"))


@pytest.mark.parametrize("shape, dim", [((70, 40), 1), ((70, 40), 0), ((5, 9000), 1), ((20000,), 0)], ids=str)
def test_lines_of_nothing_but_the_furthest_number(shape, dim):
    """The first of them counts, also where a block or thread sees no other number."""
    for dtype, low, high in ((fl.float32, float("-inf"), float("inf")), (fl.int64, -(2**63), 2**63 - 1)):
        for name, value in (("max", low), ("min", high)):
            t = fl.full(shape, value, dtype=dtype)
            other = t.clone()
            other.view(-1)[t.numel() // 2 :: 17] = 3
            for line in (t, other):
                for got, want in zip(getattr(line.to("cuda"), name)(dim), getattr(line, name)(dim)):
                    assert bool((got.cpu() == want).all())
