"""Kernels run by the emulator beside this file: their arithmetic, layouts and waits without a device."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from attention_by_definition import attention

ROOT = Path(__file__).resolve().parents[2]
EMULATED = Path(__file__).resolve().parent / "emulated"

pytestmark = [pytest.mark.without_device, pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")]


class Operand(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), *((n, ctypes.c_int64) for n in ("batch", "head", "row"))]


KERNELS = [folder + name for folder in ("attention/", "hopper/") for name in ("flash_forward.cu", "flash_backward.cu")]
KERNELS.append("convolution/depthwise.cu")
OPERANDS = "query key value output grad_output grad_query grad_key grad_value".split()


class Args(ctypes.Structure):
    _fields_ = [
        *((n, Operand) for n in OPERANDS),
        ("mask", ctypes.c_void_p),
        *((f"mask_{n}", ctypes.c_int64) for n in ("batch", "head", "query", "key")),
        ("keep", ctypes.c_void_p),
        *((f"keep_{n}", ctypes.c_int64) for n in ("batch", "head", "query", "key")),
        ("grad_scores", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("products", ctypes.c_void_p),
        *((n, ctypes.c_int) for n in ("batch", "heads", "group", "queries", "keys", "depth")),
        ("scale", ctypes.c_float),
        ("kept_factor", ctypes.c_float),
        ("causal", ctypes.c_bool),
        ("mask_dtype", ctypes.c_int8),
        ("keep_pairs", ctypes.c_bool),
    ]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    out = tmp_path_factory.mktemp("emulated") / "emulated.so"
    sources = [ROOT / "csrc/cuda" / name for name in KERNELS]
    options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-I", EMULATED, "-I", ROOT / "csrc"]
    subprocess.run(["g++", *options, "-o", out, EMULATED / "emulator.cpp", "-x", "c++", *sources], check=True)
    library = ctypes.CDLL(str(out))
    library.attention.restype = library.depthwise.restype = ctypes.c_char_p
    assert library.size_of_arguments() == ctypes.sizeof(Args)
    return library


def aligned(shape):
    """Numbers of 16 bits whose first is at a multiple of 16 bytes, all set to NaN."""
    size = int(np.prod(shape))
    flat = np.full(size + 8, 0xFFFF, np.uint16)
    start = -(flat.ctypes.data // 2) % 8
    return flat[start : start + size].reshape(shape)


def to_bits(values, brain):
    if not brain:
        return values.astype(np.float16).view(np.uint16)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def to_double(bits, brain):
    if not brain:
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def check(
    library, groups, brain, b, heads, key_heads, queries, keys, depth, causal, mask=None, joined=False, dropout=None
):
    rng = np.random.default_rng(0)
    args = Args(batch=b, heads=heads, group=heads // key_heads, queries=queries, keys=keys, depth=depth)
    args.scale, args.causal = 0.25, causal
    tensors = {}
    for name in OPERANDS:
        h, n = (key_heads, keys) if "key" in name or "value" in name else (heads, queries)
        t = aligned((b, n, h, depth)).swapaxes(1, 2) if joined else aligned((b, h, n, depth))
        if name in ("query", "key", "value", "grad_output"):
            t[...] = to_bits(rng.standard_normal(t.shape), brain)
        tensors[name] = t
        setattr(args, name, Operand(t.ctypes.data, *t.strides[:3]))
    numbers = np.full((2, b, heads, queries), np.nan, np.float32)
    args.sums, args.products = numbers[0].ctypes.data, numbers[1].ctypes.data
    if mask is not None:
        args.mask, (args.mask_query, args.mask_key) = mask.ctypes.data, mask.strides
    keep = 1
    if dropout is not None:
        kept = rng.random((b, heads, queries, keys)) >= dropout
        args.keep, args.kept_factor, args.keep_pairs = kept.ctypes.data, 1 / (1 - dropout), keys % 2 == 0
        args.keep_batch, args.keep_head, args.keep_query, args.keep_key = kept.strides
        keep = kept / (1 - dropout)
    scores = aligned((b, heads, queries, keys))
    if mask is not None and not groups:
        args.grad_scores = scores.ctypes.data
    assert library.attention(ctypes.byref(args), brain, mask is not None and mask.dtype == bool, groups) is None
    values = {name: to_double(t, brain) for name, t in tensors.items()}
    if args.grad_scores:
        operands = (values[n] for n in ("query", "key", "value", "grad_output"))
        want = attention(*operands, mask, causal, 0.25, keep, True)
        tolerance = (2e-2 if brain else 3e-3) * max(1.0, np.abs(want).max())
        np.testing.assert_allclose(to_double(scores, brain), want, atol=tolerance, err_msg="scores")
    wanted = attention(*(values[n] for n in ("query", "key", "value", "grad_output")), mask, causal, 0.25, keep)
    for name, want in zip(("output", "grad_query", "grad_key", "grad_value"), wanted):
        tolerance = (2e-2 if brain else 3e-3) * max(1.0, np.abs(want).max())
        np.testing.assert_allclose(values[name], want, atol=tolerance, err_msg=name)


CASES = [
    (False, 1, 1, 1, 64, 64, 64, False),
    (True, 1, 1, 1, 130, 150, 64, True),
    (False, 2, 4, 2, 40, 70, 32, False),
    (False, 1, 2, 1, 65, 100, 128, True),
    (True, 1, 1, 1, 33, 17, 96, True),
    (False, 1, 1, 1, 150, 1, 40, True),
    (False, 1, 1, 1, 20, 200, 16, True),
]


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("place,case", list(enumerate(CASES)), ids=str)
def test_attention(library, place, case, groups):
    check(library, groups, *case, joined=place % 2 == 1)


@pytest.mark.parametrize("keys", [70, 71])
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_dropout(library, causal, depth, keys):
    mask = None if causal else np.random.default_rng(1).standard_normal((40, keys)).astype(np.float32)
    check(library, causal, False, 2, 2, 1, 40, keys, depth, causal, mask, dropout=0.3)


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("boolean", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
def test_masks(library, boolean, depth, groups):
    mask = np.random.default_rng(1).standard_normal((40, 70)).astype(np.float32)
    mask[3] = -np.inf
    check(library, groups, False, 1, 2, 2, 40, 70, depth, False, mask > -0.5 if boolean else mask)


class Axis(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int) for n in ("x", "y", "kernel", "stride", "padding", "dilation")]


class Depthwise(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_int8),
        ("last", ctypes.c_bool),
        ("batch", ctypes.c_int),
        ("channels", ctypes.c_int),
        ("height", Axis),
        ("width", Axis),
        ("processors", ctypes.c_int),
    ]


def depthwise_by_definition(x, w, bias, grad, height, width):
    """The result and both gradients; all are (batch, channels, rows, columns)."""
    room = [(0, 0), (0, 0), *((axis.padding, axis.padding + axis.dilation * axis.kernel) for axis in (height, width))]
    padded = np.pad(x, room)
    y, by_input, by_weight = np.zeros(grad.shape) + bias[:, None, None], np.zeros(padded.shape), np.zeros(w.shape)
    for i in range(height.kernel):
        for j in range(width.kernel):
            at = [axis.dilation * k for axis, k in ((height, i), (width, j))]
            rows, columns = (
                slice(start, start + axis.stride * (axis.y - 1) + 1, axis.stride)
                for start, axis in zip(at, (height, width))
            )
            tap = w[:, 0, i, j][:, None, None]
            y += padded[:, :, rows, columns] * tap
            by_input[:, :, rows, columns] += grad * tap
            by_weight[:, 0, i, j] = (padded[:, :, rows, columns] * grad).sum((0, 2, 3))
    top, left = height.padding, width.padding
    return y, by_input[:, :, top : top + height.x, left : left + width.x], by_weight


# batch, channels; then of height and width: size, taps, step, padding, distance of taps
DEPTHWISE = [
    (2, 8, (9, 3, 1, 1, 1), (15, 3, 1, 1, 1)),
    (2, 8, (9, 3, 2, 1, 1), (16, 3, 2, 1, 1)),
    (1, 6, (8, 5, 1, 2, 1), (8, 5, 1, 2, 1)),
    (3, 4, (11, 5, 2, 0, 1), (13, 5, 2, 2, 1)),
    (2, 140, (7, 7, 1, 3, 1), (9, 7, 1, 3, 1)),
    (1, 12, (10, 7, 2, 3, 1), (17, 7, 2, 2, 1)),
    (2, 5, (1, 3, 1, 4, 1), (2, 3, 1, 4, 1)),
    (2, 5, (12, 3, 1, 2, 2), (9, 3, 1, 1, 2)),
    (1, 40, (1, 1, 1, 0, 1), (30, 4, 3, 2, 2)),
    (2, 3, (9, 3, 3, 1, 1), (8, 2, 1, 0, 3)),
]
FLOATING = ["half", "bfloat16", "float", "double"]  # as the library counts them
TOLERANCE = {"half": 2e-3, "bfloat16": 1e-2, "float": 1e-5, "double": 1e-12}


def in_memory(values, name, last):
    """Numbers of a dtype at a multiple of 16 bytes, as they lie: (batch, channels, ...), channels innermost or not."""
    kind = {"half": np.float16, "bfloat16": np.uint16, "float": np.float32, "double": np.float64}[name]
    lying = np.moveaxis(values, 1, -1) if last else values
    room = np.empty(lying.size + 16, kind)
    start = -room.ctypes.data % 16 // room.itemsize
    made = room[start : start + lying.size].reshape(lying.shape)
    made[...] = to_bits(lying, True) if name == "bfloat16" else lying
    return made


def out_of_memory(made, name, last):
    values = to_double(made, True) if name == "bfloat16" else made.astype(np.float64)
    return np.moveaxis(values, -1, 1) if last else values


@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_depthwise(library, case, last, name):
    rng = np.random.default_rng(0)
    batch, channels, *axes = case
    axes = [
        Axis(n, (n + 2 * padding - distance * (taps - 1) - 1) // step + 1, taps, step, padding, distance)
        for n, taps, step, padding, distance in axes
    ]
    problem = Depthwise(FLOATING.index(name), last, batch, channels, *axes, 2)
    shapes = [(batch, channels, *(axis.x for axis in axes)), (channels, 1, *(axis.kernel for axis in axes))]
    shapes += [(channels,), (batch, channels, *(axis.y for axis in axes))]
    operands = [in_memory(rng.standard_normal(s), name, last and len(s) == 4 and s[1] > 1) for s in shapes]
    x, w, bias, grad = operands
    y, by_input, by_weight = (in_memory(np.full(s, np.nan), name, False) for s in (grad.shape, x.shape, w.shape))
    pointers = [ctypes.c_void_p(t.ctypes.data) for t in (x, w, bias, y, grad, by_input, by_weight)]
    assert library.depthwise(ctypes.byref(problem), *pointers) is None
    given = [out_of_memory(t, name, last and t.ndim == 4 and t is not w) for t in operands]
    wanted = depthwise_by_definition(*given, *axes)
    for got, want, lying in zip((y, by_input, by_weight), wanted, (last, last, False)):
        tolerance = TOLERANCE[name] * max(1.0, np.abs(want).max())
        np.testing.assert_allclose(out_of_memory(got, name, lying), want, atol=tolerance, rtol=0)
