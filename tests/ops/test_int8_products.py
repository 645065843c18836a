"""Products and convolutions of 8-bit integers: sums are exact, and what follows them is the arithmetic of the definition."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau as fl

pytestmark = pytest.mark.host

SHAPES = [(1, 1, 1), (3, 5, 7), (13, 31, 64), (17, 33, 65), (1, 70, 129), (40, 16, 3), (300, 48, 257), (64, 64, 128), (65, 100, 1024), (2, 300, 200), (16, 513, 130)]  # fmt: skip
LEVELS = {"avx2": "avx2", "avx_vnni": "avx_vnni", "avx512": "avx512bw", "avx512_vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16", "amx": "amx_int8"}  # fmt: skip


def integers(*shape: int, dtype: fl.dtype = fl.int8) -> fl.Tensor:
    bounds = fl.iinfo(dtype)
    values = fl.randint(bounds.min, bounds.max + 1, shape)
    values.view(-1)[::7] = bounds.max  # extremes, where narrower sums would saturate
    values.view(-1)[3::7] = bounds.min
    return values.to(dtype)


def close_on_grid(actual: fl.Tensor, expected: fl.Tensor) -> None:
    """Equal but for values that lie between two numbers of the grid."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if actual.is_floating_point():
        fl.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)
        return
    distance = (actual.int() - expected.int()).abs()
    assert distance.max().item() <= 1 and (distance > 0).float().mean().item() < 0.02


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_sums_are_exact_for_every_layout(m: int, n: int, k: int) -> None:
    for first, second in itertools.product((fl.int8, fl.uint8), (False, True)):
        a, b = integers(m, k, dtype=first), integers(k, n)
        b = b.t().contiguous().t() if second else b
        assert fl.equal(fl._int_mm(a, b), (a.long() @ b.long()).int())
    assert fl.equal(fl._int_mm(integers(m, 2 * k)[:, ::2][:0], integers(k, n)), fl.zeros(0, n, dtype=fl.int32))


def test_products_without_depth_are_zero() -> None:
    assert fl.equal(fl._int_mm(integers(3, 0), integers(0, 4)), fl.zeros(3, 4, dtype=fl.int32))


def linear(x: fl.Tensor, zero: int, w: fl.Tensor, scales: fl.Tensor, zeros: fl.Tensor | None, bias: fl.Tensor | None) -> fl.Tensor:  # fmt: skip
    """The value of a quantized linear layer, input scale 0.02, in double precision."""
    centered = w.long() if zeros is None else w.long() - zeros.long().unsqueeze(1)
    value = ((x.long() - zero) @ centered.t()).double() * (0.02 * scales.double())
    return value if bias is None else value + bias.double()


def on_grid(value: fl.Tensor, scale: float, zero: int, dtype: fl.dtype) -> fl.Tensor:
    bounds = fl.iinfo(dtype)
    return ((value.float() * (1.0 / scale)).round() + zero).clamp(bounds.min, bounds.max).to(dtype)


@pytest.mark.parametrize("dtype", [fl.uint8, fl.int8], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(5, 33, 65), (1, 16, 64), (70, 48, 128)])
def test_linear_layers_finish_their_sums(dtype: fl.dtype, m: int, n: int, k: int) -> None:
    x, w = integers(m, k, dtype=dtype), integers(n, k)
    zero = 7
    for scales, zeros, bias in (
        (fl.tensor([0.01]), None, None),
        (fl.rand(n) * 0.01, None, fl.randn(n)),
        (fl.rand(n) * 0.01, fl.randint(-9, 9, (n,)).int(), fl.randn(n)),
    ):
        value = linear(x, zero, w, scales, zeros, bias)
        for packed in (None, fl._ops._int8_pack(w)):
            start = (x, 0.02, zero, w, packed, scales, zeros, bias)
            fl.testing.assert_close(fl._ops._int8_linear(*start, 1.0, 0), value.float(), rtol=1e-5, atol=1e-3)
            fl.testing.assert_close(fl._ops._int8_linear(*start, 1.0, 0, None, "gelu"), fl.nn.functional.gelu(value.float()), rtol=1e-5, atol=1e-3)  # fmt: skip
            for out in (fl.uint8, fl.int8):
                step = float(value.abs().max()) / 100
                close_on_grid(fl._ops._int8_linear(*start, step, 3, out), on_grid(value, step, 3, out))
                close_on_grid(fl._ops._int8_linear(*start, step, 3, out, "relu"), on_grid(value.relu(), step, 3, out))
                other = integers(m, n, dtype=out)
                residual = (value + (other.long() - 2) * 0.5).relu()
                close_on_grid(
                    fl._ops._int8_linear(*start, step, 3, out, "add_relu", other, 0.5, 2),
                    on_grid(residual, step, 3, out),
                )


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16], ids=str)
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("reduce_range", [False, True])
def test_dynamic_layers_quantize_their_input(dtype: fl.dtype, per_row: bool, reduce_range: bool) -> None:
    x, w, scales, bias = fl.randn(9, 70).to(dtype), integers(20, 70), fl.rand(20) * 0.01, fl.randn(20)
    top = 127 if reduce_range else 255
    dim = (1,) if per_row else (0, 1)
    wide = x.float()
    low, high = wide.amin(dim, keepdim=True).clamp(max=0), wide.amax(dim, keepdim=True).clamp(min=0)
    step = ((high.double() - low.double()) / top).float()
    zero = (-low.double() / step.double()).round()
    places = ((wide * (1 / step)).round() + zero).clamp(0, top)
    expected = ((places - zero).double() @ w.double().t()) * (step.double() * scales.double()) + bias.double()
    actual = fl._ops._int8_linear_dynamic(x, w, None, scales, None, bias, reduce_range, per_row)
    assert actual.dtype == dtype
    tolerance = 1e-3 if dtype == fl.float32 else 0.02
    fl.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance * 30)


CONVOLUTIONS = [  # sizes of the input, of the weight, stride, padding, dilation, groups
    ((2, 8, 9, 10), (16, 8, 3, 3), 1, 1, 1, 1),
    ((2, 8, 9, 10), (16, 8, 1, 1), 1, 0, 1, 1),
    ((1, 16, 7, 7), (33, 16, 1, 1), 2, 0, 1, 1),
    ((2, 3, 15, 14), (8, 3, 7, 7), 2, 3, 1, 1),
    ((2, 8, 9, 9), (12, 4, 3, 3), 1, 2, 2, 2),
    ((2, 40, 9, 9), (40, 1, 3, 3), 2, 1, 1, 40),
    ((2, 6, 20), (8, 6, 5), 1, 2, 1, 1),
    ((1, 4, 5, 6, 7), (8, 4, 3, 3, 3), 1, 1, 1, 1),
    ((1, 16, 20, 15), (40, 16, 3, 3), 1, 0, 1, 1),  # read where it lies
    ((1, 8, 17, 14), (32, 2, 5, 2), 1, 0, 1, 4),  # pixels of a group that are no whole units
    ((1, 5, 9, 11), (8, 5, 3, 3), 1, 1, 2, 1),
    ((1, 1024, 6, 6), (16, 1024, 3, 3), 1, 1, 1, 1),  # pixels that share lines of the cache
    ((1, 512, 12, 12), (16, 512, 1, 1), 2, 0, 1, 1),
    ((2, 4, 1000), (8, 4, 7), 1, 3, 1, 1),  # lines in several parts
    ((2, 32, 13, 12), (40, 32, 3, 3), 1, 1, 1, 1),  # Winograd's, where bytes are multiplied as 16-bit integers
    ((1, 96, 3, 300), (17, 96, 3, 3), 1, (2, 0), 1, 1),
]


@pytest.mark.parametrize("dtype", [fl.uint8, fl.int8], ids=str)
@pytest.mark.parametrize("settings", CONVOLUTIONS, ids=str)
def test_convolutions_add_up_exactly(settings: tuple, dtype: fl.dtype) -> None:
    image, kernel, stride, padding, dilation, groups = settings
    x, w = integers(*image, dtype=dtype), integers(*kernel)
    n, dims = kernel[0], len(kernel) - 2
    convolve = (fl.nn.functional.conv1d, fl.nn.functional.conv2d, fl.nn.functional.conv3d)[dims - 1]
    scales, bias = fl.rand(n) * 0.01, fl.randn(n)
    across = (1, -1, *[1] * dims)
    for zeros in (None, fl.randint(-9, 9, (n,)).int()):
        centered = w.double() if zeros is None else w.double() - zeros.double().view(-1, *[1] * (dims + 1))
        sums = convolve((x.long() - 7).double(), centered, None, stride, padding, dilation, groups)
        value = sums * (0.02 * scales.double()).view(across) + bias.double().view(across)
        geometry = (
            [stride] * dims,
            [*padding] if isinstance(padding, tuple) else [padding] * dims,
            [dilation] * dims,
            groups,
        )
        for packed in (None, fl._ops._int8_convolution_pack(w, groups)):
            start = (x, 0.02, 7, w, packed, scales, zeros, bias, *geometry)
            exact = fl._ops._int8_convolution(x, 1.0, 7, w, packed, fl.ones(1), zeros, None, *geometry, 1.0, 0)
            fl.testing.assert_close(exact, sums.float(), rtol=1e-6, atol=0)
            fl.testing.assert_close(fl._ops._int8_convolution(*start, 1.0, 0), value.float(), rtol=1e-5, atol=1e-3)
            other = integers(*value.shape, dtype=fl.uint8)
            step = float(value.abs().max()) / 100
            close_on_grid(
                fl._ops._int8_convolution(*start, step, 3, fl.uint8, "add_relu", other, 0.5, 2),
                on_grid((value + (other.long() - 2) * 0.5).relu(), step, 3, fl.uint8),
            )


@pytest.mark.parametrize(("activation", "zero_point", "number"), [(255, 0, -128), (0, 255, -128), (255, 0, 127)])
def test_the_largest_sums_do_not_overflow(activation: int, zero_point: int, number: int) -> None:
    x, w = fl.full((1, 1824, 11, 12), activation, dtype=fl.uint8), fl.full((16, 1824, 3, 3), number, dtype=fl.int8)
    packed, ones = fl._ops._int8_convolution_pack(w, 1), fl.ones(1)
    actual = fl._ops._int8_convolution(
        x, 1.0, zero_point, w, packed, ones, None, None, [1, 1], [1, 1], [1, 1], 1, 1.0, 0
    )
    inside = fl.nn.functional.conv2d(fl.ones(1, 1, 11, 12), fl.ones(1, 1, 3, 3), None, 1, 1)
    wanted = inside.double() * (1824 * (activation - zero_point) * number)
    assert fl.equal(actual.double(), wanted.float().double().expand(1, 16, 11, 12))


@pytest.mark.parametrize("dtype", [fl.uint8, fl.int8], ids=str)
def test_maxima_of_windows_of_bytes_stay_bytes(dtype: fl.dtype) -> None:
    x = integers(2, 20, 9, 8, dtype=dtype)
    for laid in (x, x.to(memory_format=fl.channels_last)):
        expected, places = fl.nn.functional.max_pool2d(laid.float(), 3, 2, 1, return_indices=True)
        assert fl.equal(fl.nn.functional.max_pool2d(laid, 3, 2, 1), expected.to(dtype))
        actual = fl.nn.functional.max_pool2d(laid, 3, 2, 1, return_indices=True)
        assert fl.equal(actual[0], expected.to(dtype)) and fl.equal(actual[1], places)


def test_shapes_are_known_without_data() -> None:
    x, w = integers(3, 5, dtype=fl.uint8), integers(4, 5)
    packed = fl._ops._int8_pack(w.to("meta"))
    assert packed.shape == fl._ops._int8_pack(w).shape
    result = fl._ops._int8_linear(x.to("meta"), 0.1, 0, w.to("meta"), packed, fl.ones(1, device="meta"), None, None, 1.0, 0, fl.int8)  # fmt: skip
    assert result.shape == (3, 4) and result.dtype == fl.int8


def test_mistakes_are_refused() -> None:
    x, w, one = integers(3, 5, dtype=fl.uint8), integers(4, 5), fl.ones(1)
    start = (x, 0.1, 0, w)
    for call, text in (
        (lambda: fl._ops._int8_linear(*start, fl._ops._int8_pack(w[:, :4].contiguous()), one, None, None, 1.0, 0), "packed"),
        (lambda: fl._ops._int8_linear(*start, None, fl.ones(3), None, None, 1.0, 0), "scale"),
        (lambda: fl._ops._int8_linear(*start, None, one, None, None, 1.0, 0, fl.int64), "result of"),
        (lambda: fl._ops._int8_linear(*start, None, one, None, None, 1.0, 0, None, "elu"), "post_op"),
        (lambda: fl._ops._int8_linear(*start, None, one, None, None, 1.0, 0, None, "add"), "other"),
        (lambda: fl._ops._int8_linear(x.float(), 0.1, 0, w, None, one, None, None, 1.0, 0), "uint8 or int8"),
        (lambda: fl._ops._int8_linear(x, 0.1, 300, w, None, one, None, None, 1.0, 0), "zero point"),
        (lambda: fl._int_mm(w, w), "int_mm"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=text):
            call()


@pytest.mark.parametrize("level", LEVELS)
def test_every_instruction_set_agrees(level: str) -> None:
    """The tests above and products of bfloat16, with the kernels of one instruction set."""
    if os.environ.get("FLAMBEAU_CPU_CAPABILITY"):
        pytest.skip("runs in a process that chose an instruction set")
    if LEVELS[level] not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip(f"the processor has no {level}")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, *(f"{os.path.dirname(__file__)}/test_{name}_products.py" for name in ("bfloat16", "weight_only"))]  # fmt: skip
    result = subprocess.run(command, env={**os.environ, "FLAMBEAU_CPU_CAPABILITY": level}, capture_output=True, text=True)  # fmt: skip
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def test_an_unknown_instruction_set_is_refused() -> None:
    program = "import flambeau as fl; fl._int_mm(fl.ones(2, 2, dtype=fl.int8), fl.ones(2, 2, dtype=fl.int8))"
    environment = {**os.environ, "FLAMBEAU_CPU_CAPABILITY": "avx3"}
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert result.returncode != 0 and "expected avx2, avx_vnni" in result.stderr
