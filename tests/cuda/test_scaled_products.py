"""Products of 8-bit matrices on the device, beside the CPU's in single precision."""

import pytest

import flambeau as fl

E4M3, E5M2 = fl.float8_e4m3fn, fl.float8_e5m2


def matrices(m, n, k, left=E4M3, right=E4M3):
    fl.manual_seed(0)
    return fl.randn(m, k).to(left), fl.randn(n, k).to(right).t()


def both(a, b, *scales, **options):
    here = fl._scaled_mm(a, b, *scales, **options)
    moved = {k: v.cuda() if isinstance(v, fl.Tensor) else v for k, v in options.items()}
    there = fl._scaled_mm(a.cuda(), b.cuda(), *(s.cuda() for s in scales), **moved)
    assert (there.dtype, there.shape, there.stride()) == (here.dtype, here.shape, here.stride())
    return there.cpu().float(), here.float()


def close(found, want, tolerance):
    if not want.numel():
        assert not found.numel()
        return
    fl.testing.assert_close(found, want, rtol=tolerance, atol=tolerance * want.abs().max().item())


@pytest.mark.parametrize("left, right", [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2)])
@pytest.mark.parametrize("out_dtype, tolerance", [(fl.float32, 1e-3), (fl.bfloat16, 8e-3), (fl.float16, 2e-3)])
def test_one_scale(left, right, out_dtype, tolerance):
    a, b = matrices(70, 96, 160, left, right)
    for fast in (False, True):
        found, want = both(a, b, fl.tensor(0.25), fl.tensor([[3.0]]), out_dtype=out_dtype, use_fast_accum=fast)
        close(found, want, tolerance if not fast else 2e-2)


@pytest.mark.parametrize("out_dtype", [fl.bfloat16, fl.float16, fl.float32])
def test_scales_of_rows_and_columns(out_dtype):
    a, b = matrices(33, 48, 128)
    found, want = both(a, b, fl.rand(33, 1) + 0.1, fl.rand(1, 48) + 0.1, out_dtype=out_dtype)
    close(found, want, 8e-3)


def test_bias_and_8_bit_results():
    a, b = matrices(64, 32, 64)
    one = fl.tensor(0.5)
    for dtype in (fl.bfloat16, fl.float16):
        close(*both(a, b, one, one, bias=fl.randn(32).to(dtype), out_dtype=dtype), 8e-3)
    close(*both(a, b, one, one), 0.07)
    close(*both(a, b, one, one, scale_result=fl.tensor(4.0)), 0.07)


def test_slices_are_read_where_they_lie():
    a, b = matrices(64, 64, 128)
    one = fl.tensor(1.0)
    wide = matrices(8, 16, 49)[0]

    def sliced(a, b, wide, one):
        parts = (a[3:40, 16:80], b[16:80, 16:48]), (wide[:, 1:], b[:48, 16:32])
        return [fl._scaled_mm(left, right, one, one, out_dtype=fl.float32).cpu() for left, right in parts]

    for found, want in zip(sliced(*(t.cuda() for t in (a, b, wide, one))), sliced(a, b, wide, one)):
        close(found, want, 1e-3)


def test_what_the_library_does_not_take():
    one = fl.tensor(1.0)
    a, b = matrices(16, 32, 64)
    for left, right in (
        (a[:, :40], b[:40]),
        (a, b[:, :24]),
        (a, b.contiguous()),
        (a.t().contiguous().t(), b),
        (a.to(E5M2), b.to(E5M2)),
        (a[:0], b),
        (a[:, :0], b[:0]),
    ):
        for out_dtype in (fl.bfloat16, fl.float64):
            close(*both(left, right, one, one, out_dtype=out_dtype), 8e-3)
    bias = fl.randn(32)
    close(*both(a, b, one, one, bias=bias, out_dtype=fl.float32), 1e-3)
    close(*both(a, b, fl.rand(16, 1) + 0.1, fl.rand(1, 32) + 0.1, bias=bias, out_dtype=fl.bfloat16), 8e-3)
    with pytest.raises(RuntimeError, match="one device"):
        fl._scaled_mm(a.cuda(), b.cuda(), one, one.cuda(), out_dtype=fl.bfloat16)


def linear(x, weight, scale):
    """A layer that quantises its input by its largest number."""
    factor = 448.0 / x.abs().max().float().clamp(min=1e-12)
    narrow = (x.float() * factor).clamp(-448.0, 448.0).to(E4M3)
    return fl._scaled_mm(narrow, weight.t(), factor.reciprocal(), scale, out_dtype=fl.bfloat16)


def test_a_compiled_layer():
    fl.manual_seed(0)
    x = fl.randn(64, 128, dtype=fl.bfloat16)
    weight, scale = fl.randn(96, 128).to(E4M3), fl.tensor(0.1)
    want = linear(x, weight, scale).float()
    given = [t.cuda() for t in (x, weight, scale)]
    for options in ({}, {"mode": "max-autotune"}):
        found = fl.compile(linear, **options)(*given)
        close(found.cpu().float(), want, 8e-3)
