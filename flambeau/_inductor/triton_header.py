"""What every generated Triton kernel may use: reductions, conversions to 8-bit floats, and random numbers.

`random_words` gives the words of rows that lie in order and begin at multiples of 64; each counter makes four of them, which
belong to elements that are 16 apart. `random_word` computes a counter for each element.
"""

from __future__ import annotations

__all__ = ["HEADER"]

HEADER = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def fold_mul(a, b):
    return a * b


@triton.jit
def fold_bitor(a, b):
    return a | b


@triton.jit
def fold_bitand(a, b):
    return a & b


@triton.jit
def fold_maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fold_minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fast_inverse(x):
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def fast_exp2(x):
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def other_half(x, N: tl.constexpr):
    one, other = tl.split(tl.permute(tl.reshape(x, [2, N]), [1, 0]))
    return tl.reshape(tl.permute(tl.join(other, one), [1, 0]), [2 * N, 1])


@triton.jit
def order_key(x, sign: tl.constexpr):
    # An integer that is larger where a number, or for a negative sign its opposite, is larger.
    bits = (x * sign + 0.0).to(tl.int32, bitcast=True)
    return tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)


@triton.jit
def to_e4m3(x):
    return x.to(tl.float32).to(tl.float8e4nv)


@triton.jit
def to_e5m2(x):
    x = x.to(tl.float32)
    code = x.to(tl.float8e5).to(tl.uint8, bitcast=True)
    infinite = tl.where(x < 0, 0xFC, 0x7C).to(tl.uint8)
    return tl.where(tl.abs(x) >= 61440.0, infinite, code).to(tl.float8e5, bitcast=True)


@triton.jit
def random_counters(state, block):
    seed = tl.load(state).to(tl.uint64)
    offset = tl.load(state + 1).to(tl.uint64)
    c0 = block.to(tl.uint32)
    c1 = (block >> 32).to(tl.uint32)
    c2 = tl.zeros_like(c0) + offset.to(tl.uint32)
    c3 = tl.zeros_like(c0) + (offset >> 32).to(tl.uint32)
    k0 = seed.to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        h0 = tl.umulhi(c0, 0xD2511F53)
        l0 = c0 * 0xD2511F53
        h1 = tl.umulhi(c2, 0xCD9E8D57)
        l1 = c2 * 0xCD9E8D57
        c0 = h1 ^ c1 ^ k0
        c1 = l1
        c2 = h0 ^ c3 ^ k1
        c3 = l0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def random_word(state, index):
    e = (index % 64).to(tl.int32)
    c0, c1, c2, c3 = random_counters(state, (index // 64).to(tl.int64) * 16 + e % 16)
    which = e // 16
    return tl.where(which < 2, tl.where(which == 0, c0, c1), tl.where(which == 2, c2, c3)).to(tl.int64)


@triton.jit
def random_words(state, first, X: tl.constexpr, N: tl.constexpr):
    c0, c1, c2, c3 = random_counters(state, first // 4 + tl.arange(0, N // 4)[None, :])
    words = tl.join(tl.join(c0, c2), tl.join(c1, c3))
    words = tl.permute(tl.reshape(words, [X, N // 64, 16, 2, 2]), [0, 1, 3, 4, 2])
    return tl.reshape(words, [X, N]).to(tl.int64)


"""
