"""Generated Triton kernels, without a GPU: they compile, and computed by Triton's interpreter they give what eager mode
gives on the CPU."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor import config, triton_build
from flambeau._inductor.compile_fx import compile_tensor_function
from flambeau._inductor.schedule import Group
from flambeau._inductor.tiles import Target

pytestmark = pytest.mark.skipif(not triton_build.available(), reason="Triton is not installed")

LARGE = Target()
SMALL = Target(processors=4, longest_row=32, longest_shared_row=32)  # on which small tensors are large


def floats(*size, dtype=fl.float32):
    return lambda: fl.randn(size).to(dtype)


def planes(*size, dtype=fl.float32):
    return lambda: fl.randn(*size).to(dtype).contiguous(memory_format=fl.channels_last)


def integers(*size, dtype=fl.int64):
    return lambda: fl.randint(-9, 10, size).to(dtype)


def chain(x, y):
    z = fl.relu((x + 1) * 2) - fl.sigmoid(y) * fl.tanh(x)
    return (z * z + 0.5).sqrt() * fl.exp(-y.abs())


def norm(x, w, b):
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)) + x


def normalised(x, k, w, b):
    return F.relu(F.batch_norm(F.conv2d(x, k, padding=1), None, None, w, b, True)) * 2


def counted(x, mean, variance):
    made = F.batch_norm(x, mean, variance, None, None, True, 0.3)
    return [made, mean + 0, variance + 0]


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + fl.cat((-second, first), -1) * sin


def gated(x, gate, up, bias, rest):
    return F.silu(F.linear(x, gate, bias)) * F.linear(x, up) + rest


def after_norm(x, scale, one, two, three):
    wide = x.float()
    y = (wide * fl.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * scale
    x = x + F.linear(F.silu(F.linear(y, one)) * F.linear(y, two), three)
    return F.linear(F.layer_norm(x, x.shape[-1:], scale), one) + F.linear(x, two)


def mixed(x, w, b):
    made = F.conv1d(x.transpose(1, 2), w, b, padding=3, groups=w.shape[0])
    return F.silu(made[..., : x.shape[1]].transpose(1, 2)) * 2


def grouped(x, w, b):
    return F.silu(F.group_norm(x * 2 + 3, 4, w, b))


def extended(x, key, value, cos, sin, keys, values, at):
    """Caches that get what is computed of a word, and what reads them."""
    k = rotated(F.linear(x, key).view(1, 1, 2, 8).transpose(1, 2), cos, sin)
    v = F.linear(x, value).view(1, 1, 2, 8).transpose(1, 2)
    keys.index_copy_(2, at, k)
    values.index_copy_(2, at, v)
    return [keys * 2, values[:, :, :1] + 1, (keys * values).sum((0, 1, 3))]


def copied_to_rows(x, cache, rows):
    cache.index_copy_(1, rows, fl.tanh(x) * 2)
    return [cache + 1, cache[:, :3].sum(1), x.sum(1)]


def copied_twice(x, cache, one, two):
    before = cache.sum()
    cache.index_copy_(0, one, x + 1)
    cache.index_copy_(0, two, x * cache[:2])
    return [before, cache * 2]


def begun(ids, at, words, table, weight, matrix):
    """The beginning of a decoded word: its embedding, what belongs to its position, a norm and a product."""
    x = F.embedding(ids, words)
    y = F.rms_norm(x, x.shape[-1:], weight)
    hidden = fl.arange(40, device=ids.device) <= at
    return [F.linear(y, matrix), x + table[at], hidden, table[fl.arange(1, 9, 3, device=ids.device) - 5] * 2]


# name: function, inputs, and whether gradients are compared too
CASES = {
    "equal calls": (
        lambda x: [x * (n := fl.arange(70, device=x.device)) + x.exp(), (x.exp() * fl.arange(70, device=n.device)).sum(1)],
        [floats(9, 70)],
        True,
    ),
    "attention of one query": (
        lambda q, k, v, last: F.scaled_dot_product_attention(
            q, k, v, fl.arange(300, device=q.device) <= last, enable_gqa=True
        ),
        [floats(2, 6, 1, 20), floats(2, 2, 300, 20), floats(2, 2, 300, 20), lambda: fl.tensor([280])],
        False,
    ),
    "attention of two queries with a bias": (
        lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, bias),
        [floats(1, 3, 2, 64), floats(1, 3, 257, 64), floats(1, 3, 257, 64), floats(3, 2, 257)],
        False,
    ),
    "a rotary embedding": (rotated, [floats(2, 3, 5, 16), floats(5, 16), floats(5, 16)], True),
    "a rotary embedding in bfloat16": (rotated, [floats(2, 4, 8, 32, dtype=fl.bfloat16), floats(8, 32), floats(8, 32)], True),
    "tensors beside each other": (
        lambda x, y, z: [fl.cat((x, y.exp(), z * 2), 1) + 1, fl.cat((x, x[:1]), 0), fl.cat((x.sum(1, True), y), 1)],
        [floats(4, 5, 6), floats(4, 7, 6), floats(4, 1, 6)],
        True,
    ),
    "integers beside each other": (lambda x, y: fl.cat((x, -y, x), 1) * 3, [integers(4, 5), integers(4, 2)], False),
    "padding": (
        lambda x: [F.pad(x, (1, 2, 0, 3)) * 2, F.pad(x.relu(), (0, 1), value=0.5), F.pad(x, (2, 0))[:, 1:7].exp()],
        [floats(9, 17)],
        True,
    ),
    "slices with gradients": (lambda x: x[:, 2:6] * x[:, 3:7].sin() + x[:, -4:], [floats(9, 9)], True),
    "products with a vector": (gated, [floats(1, 40), *[floats(72, 40)] * 2, floats(72), floats(1, 72)], True),
    "products with a vector after norms": (
        after_norm, [floats(1, 1, 40), floats(40), *[floats(72, 40)] * 2, floats(40, 72)], False
    ),
    "products with a vector after norms in bfloat16": (
        after_norm, [floats(*n, dtype=fl.bfloat16) for n in ((1, 40), (40,), (72, 40), (72, 40), (40, 72))], False
    ),
    "products with a vector in bfloat16": (
        gated,
        [floats(1, 1, 300, dtype=fl.bfloat16), *[floats(72, 300, dtype=fl.bfloat16)] * 2, *[floats(72, dtype=fl.bfloat16)] * 2],
        False,
    ),
    "a filter along a sequence": (mixed, [floats(2, 9, 24), floats(24, 1, 4), floats(24)], True),
    "a filter along a sequence in bfloat16": (
        mixed, [floats(*n, dtype=fl.bfloat16) for n in ((2, 40, 64), (64, 1, 4), (64,))], True
    ),
    "a filter along channels": (
        lambda x, w: F.conv1d(x, w, padding=1, groups=6).relu(), [floats(2, 6, 11), floats(6, 1, 3)], True
    ),
    "group norm": (grouped, [floats(2, 8, 5, 6), floats(8), floats(8)], True),
    "group norm of channels-last images": (grouped, [planes(2, 32, 9, 10), floats(32), floats(32)], True),
    "group norm of channels-last images in bfloat16": (
        grouped, [planes(2, 32, 9, 10, dtype=fl.bfloat16), floats(32, dtype=fl.bfloat16), floats(32, dtype=fl.bfloat16)], True
    ),
    "group norm without parameters": (lambda x: F.group_norm(x, 2), [floats(3, 4, 7)], True),
    "a chain": (chain, [floats(9, 70), floats(9, 70)], True),
    "a chain in bfloat16": (chain, [floats(9, 70, dtype=fl.bfloat16), floats(9, 70, dtype=fl.bfloat16)], False),
    "a chain in half": (chain, [floats(9, 70, dtype=fl.float16), floats(9, 70, dtype=fl.float16)], False),
    "a chain in double": (chain, [floats(9, 70, dtype=fl.float64), floats(9, 70, dtype=fl.float64)], True),
    "activations": (lambda x: [F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.elu(x)], [floats(99)], True),
    "functions": (
        lambda x: [x.exp(), x.abs().log(), x.sin(), x.cos(), x.erf(), x.expm1(), x.abs().rsqrt(), x.atan(), x.round()],
        [floats(99)],
        False,
    ),
    "broadcasting": (lambda x, y: (x + y) * x.sum(), [floats(10, 1, 7), floats(5, 7)], True),
    "softmax": (lambda x: F.softmax(x, -1), [floats(10, 70)], True),
    "softmax along the first dimension": (lambda x: F.softmax(x, 0), [floats(10, 7)], True),
    "softmax of one long row": (lambda x: F.softmax(x, 0), [floats(9000)], False),
    "log softmax": (lambda x: F.log_softmax(x, 1), [floats(4, 6, 5)], True),
    "softmax in bfloat16": (lambda x: F.softmax(x, -1), [floats(10, 70, dtype=fl.bfloat16)], False),
    "layer norm and gelu": (norm, [floats(10, 64), floats(64), floats(64)], True),
    "layer norm of few long rows": (norm, [floats(2, 9000), floats(9000), floats(9000)], False),
    "layer norm and gelu in bfloat16": (norm, [floats(*n, dtype=fl.bfloat16) for n in ((10, 64), (64,), (64,))], True),
    "batch norm": (normalised, [floats(4, 3, 5, 6), floats(8, 3, 3, 3), floats(8), floats(8)], True),
    "batch norm in bfloat16": (
        normalised, [floats(*n, dtype=fl.bfloat16) for n in ((4, 3, 5, 6), (8, 3, 3, 3), (8,), (8,))], True
    ),
    "batch norm that counts": (counted, [floats(4, 3, 5, 6), floats(3), lambda: fl.rand(3)], False),
    "batch norm in use": (
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), [floats(4, 3, 5), floats(3), lambda: fl.rand(3), floats(3), floats(3)], False
    ),
    "what follows folds along rows": (
        lambda x: (x - x.mean(0)) * fl.rsqrt(x.var(0) + 0.1) + fl.tanh(x.sum(0)), [floats(330, 65)], True
    ),
    "cross entropy of uneven rows": (
        lambda x, w, y: F.cross_entropy(F.linear(x, w).float(), y),
        [floats(260, 8, dtype=fl.bfloat16), floats(131, 8, dtype=fl.bfloat16), lambda: (fl.arange(260) * 7) % 131],
        True,
    ),
    "uneven rows of other operators": (
        lambda x, w: fl.cumsum(x, 0)[None].squeeze(0) @ w, [floats(260, 131, dtype=fl.bfloat16), floats(131, 4, dtype=fl.bfloat16)], False
    ),
    "rms norm": (lambda x, w: F.rms_norm(x, (64,), w), [floats(10, 64), floats(64)], True),
    "cross entropy": (F.cross_entropy, [floats(6, 5), lambda: fl.arange(6) % 5], True),
    "cross entropy of long rows": (
        lambda x, y: F.cross_entropy(x.float(), y), [floats(40, 99), lambda: (fl.arange(40) * 7) % 99], True
    ),
    "cross entropy with ignored rows": (
        lambda x, y: [F.cross_entropy(x, y, ignore_index=3, reduction=how) for how in ("none", "sum", "mean")],
        [floats(20, 9), lambda: fl.arange(20) % 9],
        True,
    ),
    "sums": (lambda x: [x.sum(), x.sum(0), x.sum(1), (x * x).mean(), x.mean((0, 1))], [floats(33, 65)], True),
    "sums of integers": (lambda x: [x.sum(), x.sum(0), x.prod(1)], [integers(5, 7)], False),
    "a fold along rows": (lambda x: (x * 2).sum(0), [floats(330, 65)], True),
    "a fold along many rows": (lambda x: [x.sum(0), x.mean(0), x.amax(0)], [floats(4000, 3)], False),
    "folds both ways": (lambda x: x.sum(0) + x.exp().sum(1), [floats(33, 33)], True),
    "a fold in the middle": (lambda x: (x * 2).sum((0, 2)), [floats(3, 5, 7)], True),
    "a long sum": (lambda x: (x * x).mean(), [floats(300, 51)], True),
    "extremes": (lambda x: [x.amax(), x.amin(0), x.amax(1), x.max(1).values, x.argmax(1)], [floats(9, 40)], False),
    "extremes with nan": (lambda x: [(x / x).amax(1), (x / x).amin(0)], [integers(5, 40, dtype=fl.float32)], False),
    "variance": (lambda x: [x.var(1), x.std(0)], [floats(9, 40)], True),
    "transposed": (lambda x: (x.t() + 1).contiguous() * 2, [floats(33, 65)], True),
    "transposed twice": (lambda x, y: x.transpose(1, 2) + y, [floats(2, 20, 30), floats(2, 30, 20)], True),
    "bits": (
        lambda x: [((x * 2).view(fl.int32) >> 23).long(), (x.exp().view(fl.int32) & -256).view(fl.float32) * x], [floats(5, 9)], False
    ),
    "complex numbers": (
        lambda x, z: fl.view_as_real(fl.view_as_complex(x.sin()) * z).flatten(1) * 2,
        [floats(5, 9, 2), lambda: fl.randn(9, dtype=fl.complex64)],
        True,
    ),
    "slices": (lambda x: x[:, 1:] - x[:, :-1], [floats(5, 9)], True),
    "expanded": (lambda x: x.expand(4, 9) * x, [floats(9)], True),
    "one element": (lambda x: [x * 2, x.sum()], [floats(1)], True),
    "no dimensions": (lambda x, y: x * y + 1, [floats(), floats(3, 4)], True),
    "integers": (
        lambda x: [x // 3, x % 5, fl.remainder(x, -4), x * x, x.clamp(0, 5), x > 2, -x, x.abs(), x & 3, x ^ 5],
        [integers(7, 9)],
        False,
    ),
    "small integers wrap": (lambda x: [x * 100, (x * 100).sum()], [integers(7, 9, dtype=fl.int8)], False),
    "mixed dtypes": (lambda x, y: [x + y, x * 2.5, (x > 0) & (y > 0)], [integers(7, 9), floats(7, 9)], False),
    "conditions": (lambda x: [(x > 0).any(), (x > 0).all(1), ~(x > 0), (x > 0).sum()], [floats(7, 9)], False),
    "where": (lambda x, y: fl.where(x > y, x, y * 2), [floats(7, 9), floats(7, 9)], True),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [floats(2, 3, 40, 16)] * 3, True),
    "attention without gradients": (F.scaled_dot_product_attention, [floats(1, 2, 40, 16)] * 3, False),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [floats(1, 2, 150, 24)] * 3, True
    ),
    "causal attention of two lengths": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [floats(1, 2, 70, 32), floats(1, 2, 100, 32), floats(1, 2, 100, 16)],
        True,
    ),
    "attention in bfloat16 with shared heads": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True),
        [floats(1, 4, 128, 64, dtype=fl.bfloat16)] + [floats(1, 2, 128, 64, dtype=fl.bfloat16)] * 2,
        True,
    ),
    "attention with a bias that all batches share": (
        lambda q, k, v, b: fl._ops._biased_attention(q, k, v, b, None, False, None, 0.0)[0],
        [floats(9, 2, 20, 16)] * 3 + [floats(1, 2, 20, 20)],
        True,
    ),
    "attention with a bias that all heads share, and dropout": (
        lambda q, k, v, b, keep: fl._ops._biased_attention(q, k, v, b, keep, False, 0.4, 0.25)[0],
        [floats(2, 4, 49, 16), floats(2, 2, 70, 16), floats(2, 2, 70, 24), floats(2, 1, 49, 70),
         lambda: fl.rand(2, 4, 49, 70) > 0.25],
        True,
    ),
    "attention with a bias for each weight": (
        lambda q, k, v, b: fl._ops._biased_attention(q, k, v, b, None, False, None, 0.0)[0],
        [floats(2, 2, 30, 16, dtype=fl.bfloat16)] * 3 + [floats(2, 2, 30, 30, dtype=fl.bfloat16)],
        True,
    ),
    "causal attention with dropout": (
        lambda q, k, v: fl._ops._biased_attention(q, k, v, None, fl.native_dropout(q.new_zeros(1, 2, 70, 70), 0.3, True)[1], True, None, 0.3)[0],
        [floats(1, 2, 70, 16)] * 3,
        True,
    ),
    "attention with a mask that hides all keys of some queries": (
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask),
        [floats(2, 2, 30, 16)] * 3 + [lambda: fl.arange(30)[:, None] > fl.arange(30)],
        True,
    ),
    "attention with a floating mask": (
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask.detach()),
        [floats(2, 2, 1, 16), floats(2, 2, 70, 16), floats(2, 2, 70, 16), floats(2, 1, 1, 70)],
        True,
    ),
    "attention with keys repeated for the heads that share them": (
        lambda q, k, v: F.scaled_dot_product_attention(
            q,
            (k * 2)[:, :, None].expand(2, 2, 3, 40, 16).reshape(2, 6, 40, 16),
            v.repeat_interleave(3, 1),
            is_causal=True,
        ),
        [floats(2, 6, 40, 16), floats(2, 2, 40, 16), floats(2, 2, 40, 16)],
        True,
    ),
    "attention with repeated keys that are needed elsewhere": (
        lambda q, k, v: [F.scaled_dot_product_attention(q, r := k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)), r],
        [floats(2, 6, 20, 16), floats(2, 2, 20, 16), floats(2, 2, 20, 16)],
        True,
    ),
    "a product and an activation": (
        lambda x, w, b, y: F.gelu(F.linear(x, w, b)) * y,
        [floats(3, 11, 70, dtype=fl.bfloat16), floats(45, 70, dtype=fl.bfloat16), floats(45, dtype=fl.bfloat16), floats(45, dtype=fl.bfloat16)],
        False,
    ),
    "a product of turned matrices, added twice": (
        lambda x, w, b: (p := fl.addmm(b, x.t(), w)) * 2 + p.relu() + x.sum(),
        [floats(64, 32, dtype=fl.float16), floats(64, 48, dtype=fl.float16), floats(48, dtype=fl.float16)],
        True,
    ),
    "a product that is returned too": (
        lambda x, w: [p := x @ w, p + 1],
        [floats(20, 30, dtype=fl.bfloat16), floats(30, 20, dtype=fl.bfloat16)],
        True,
    ),
    "a product whose operand changes": (
        lambda x, w: [(p := x @ w), w[0].fill_(2), fl.relu(p.clone()) * w.sum()][2:],
        [floats(20, 30, dtype=fl.bfloat16), floats(30, 20, dtype=fl.bfloat16)],
        False,
    ),
    "two embeddings, of which one is used twice": (
        lambda v, w, i: F.embedding(i, v) * F.embedding(i + 1, w) + F.embedding(i, w),
        [floats(11, 8), floats(11, 8), lambda: fl.arange(20) * 7 % 10],
        True,
    ),
    "patches of an image, normalised": (
        lambda x, w, p, g, b: F.layer_norm(F.layer_norm(y := F.conv2d(x, w, None, 4).flatten(2).transpose(1, 2) + p, (24,), g, b) + y, (24,)),
        [floats(2, 3, 12, 16), floats(24, 3, 4, 4), floats(1, 12, 24), floats(24), floats(24)],
        True,
    ),
    "a convolution and a residual": (
        lambda x, w, b, y: fl.relu(F.conv2d(x, w, b, 1, 1) + y),
        [planes(2, 20, 9, 7, dtype=fl.bfloat16), planes(37, 20, 3, 3, dtype=fl.bfloat16), floats(37, dtype=fl.bfloat16), planes(2, 37, 9, 7, dtype=fl.bfloat16)],
        False,
    ),
    "a convolution and a normalisation": (
        lambda x, w, mean, variance, scale, shift: F.gelu(
            F.batch_norm(F.conv2d(x, w, None, 2, (2, 1), (2, 1)), mean, variance.square() + 0.5, scale, shift)
        ),
        [floats(2, 33, 10, 11, dtype=fl.float16), floats(18, 33, 3, 2, dtype=fl.float16), *[floats(18)] * 4],
        False,
    ),
    "a convolution of few channels": (
        lambda x, w, b: F.silu(F.conv2d(x, w, b, (2, 3), 3)) * 2,
        [planes(1, 3, 21, 19, dtype=fl.bfloat16), floats(40, 3, 7, 7, dtype=fl.bfloat16), floats(40, dtype=fl.bfloat16)],
        False,
    ),
    "a convolution by one element": (
        lambda x, w, y: (F.conv2d(x, w) + y).relu() * 0.5,
        [planes(3, 64, 5, 6, dtype=fl.bfloat16), floats(32, 64, 1, 1, dtype=fl.bfloat16), floats(1, 32, 1, 1, dtype=fl.bfloat16)],
        False,
    ),
    "a convolution with gradients": (
        lambda x, w: fl.relu(F.conv2d(x, w, None, 1, (0, 1), (1, 2))),
        [floats(2, 17, 8, 9, dtype=fl.float16), floats(5, 17, 3, 3, dtype=fl.float16)],
        True,
    ),
    "a convolution after an activation": (
        lambda x, w, b: F.conv2d(fl.relu(x), w, b, 1, (1, 3), (2, 1)),
        [planes(2, 20, 7, 6, dtype=fl.float16), floats(17, 20, 2, 3, dtype=fl.float16), floats(17, dtype=fl.float16)],
        True,
    ),
    "a convolution after an activation, planes apart": (
        lambda x, w: F.conv2d(fl.relu(x), w, None, 1, 1),
        [floats(2, 6, 7, 6, dtype=fl.bfloat16), floats(9, 6, 3, 3, dtype=fl.bfloat16)],
        True,
    ),
    "a convolution in groups": (
        lambda x, w: fl.relu(F.conv2d(x, w, None, 1, 1, 1, 2)),
        [floats(2, 8, 5, 5, dtype=fl.bfloat16), floats(6, 4, 3, 3, dtype=fl.bfloat16)],
        False,
    ),
    "8-bit floats": (
        lambda x, y: [(q := (x / (amax := x.abs().max())).to(fl.float8_e4m3fn)), q.float() * amax, (y * 30000).to(fl.float8_e5m2)],
        [floats(33, 65), floats(40, 7)],
        False,
    ),
    "8-bit floats, turned": (
        lambda x: [(q := (x * 3).clamp(-448, 448).to(fl.float8_e4m3fn)), q.t().contiguous()], [floats(33, 65)], False
    ),
    "small kernels side by side": (
        lambda x, y, z: [x.sin() * 2, y.cos() + 1, F.dropout(z, 0.5, True), z.sum()], [floats(70), floats(9, 30), floats(3, 64)], True
    ),
    "products with a vector side by side": (
        lambda x, w, v, y: [F.silu(F.linear(x, w)), F.linear(x, v), y * 2],
        [floats(1, 40), floats(72, 40), floats(19, 40), floats(5, 6)],
        False,
    ),
    "places of extremes": (
        lambda x, y: [x.argmax(1), x.argmin(0, True), y.argmax(-1, keepdim=True), fl.zeros_like(y).argmin(-1), (x * 0 - 0.0).argmax(1)],
        [
            lambda: fl.tensor([[1.0, 3, 3, -2, float("nan"), 5], [0.0, -0.0, -1, -7, -7, float("-inf")]] * 3), floats(1, 20000)
        ],
        False,
    ),
    "places of extremes in bfloat16": (
        lambda x: [(x + 1).argmax(-1), x.argmin(1)], [lambda: (fl.randn(5, 700) * 3).to(fl.bfloat16)], False
    ),
    "rows of tables": (
        begun,
        [
            lambda: fl.tensor([[7]]), lambda: fl.tensor([-3]), floats(11, 40), floats(20, 40), floats(40), floats(72, 40)
        ],
        False,
    ),
    "caches that are extended": (
        extended,
        [
            floats(1, 40), *[floats(16, 40)] * 2, *[floats(1, 8)] * 2, *[floats(1, 2, 30, 8)] * 2, lambda: fl.tensor([17])
        ],
        False,
    ),
    "caches in bfloat16 that are extended": (
        extended,
        [
            floats(1, 40, dtype=fl.bfloat16), *[floats(16, 40, dtype=fl.bfloat16)] * 2, *[floats(1, 8, dtype=fl.bfloat16)] * 2,
            *[floats(1, 2, 30, 8, dtype=fl.bfloat16)] * 2, lambda: fl.tensor([0]),
        ],
        False,
    ),
    "rows that are copied to places": (
        copied_to_rows, [floats(4, 3, 70), floats(4, 9, 70), lambda: fl.tensor([5, 0, 7])], False
    ),
    "rows that are copied twice": (
        copied_twice, [floats(2, 7), floats(9, 7), lambda: fl.tensor([5, 1]), lambda: fl.tensor([1, 2])], False
    ),
    "dropout": (lambda x: F.dropout(x, 0.4, True) * 2, [floats(33, 65)], True),
    "dropout of whole rows": (
        lambda x, b: F.layer_norm(x + F.dropout(x + b, 0.4, True), (128,)) + F.dropout(b + x, 0.3, True), [floats(9, 128), floats(128)], True
    ),
    "dropout of one number": (lambda x, y: F.dropout(x.sum(), 0.4, True) * y, [floats(5), floats(33, 65)], True),
}  # fmt: skip


def check(name, printer_of):
    """Compares a case, compiled with the printer for a target, with eager mode."""
    case, _, which = name.rpartition(" on ")
    printer = printer_of(SMALL if which == "small" else LARGE)
    # Results of calls whose place a kernel takes are no memory to write over.
    chosen = case.startswith(("a product", "a convolution"))
    with config.patch(max_autotune_gemm=chosen):
        agree(case, lambda function, inputs: compile_tensor_function(function, inputs, printer=printer))


def agree(case, compiled, device="cpu"):
    """Compares a case, compiled, on a device with eager mode on the CPU."""
    function, inputs, gradients = CASES[case]

    def listed(*args):
        made = function(*args)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    fl.manual_seed(1)
    given = [make() for make in inputs]
    results = []
    for run, place in ((listed, "cpu"), (compiled(listed, len(given)), device)):
        fl.manual_seed(2)
        own = [t.clone().to(place).requires_grad_(gradients and t.is_floating_point()) for t in given]
        made = run(*own)
        assert all(t.device.type == place for t in made)
        if gradients:
            sources = [t for t in made if t.requires_grad]
            weights = [fl.arange(t.numel(), dtype=fl.float64).reshape(t.shape).sin().to(t.dtype) for t in sources]
            fl.autograd.backward(sources, [w.to(place) for w in weights])
        results.append([t.detach().cpu() for t in made] + [t.grad.cpu() for t in own if t.grad is not None])
    compare(*results)


def compare(expected, found):
    assert len(expected) == len(found)
    for want, got in zip(expected, found):
        assert (want.dtype, want.shape) == (got.dtype, got.shape)
        tolerance = TOLERANCE[want.dtype]
        exact, given = want.to(fl.float64), got.to(fl.float64)
        largest = max(1.0, fl.nan_to_num(exact.abs(), posinf=0.0).max().item())
        close = fl.allclose(given, exact, rtol=tolerance, atol=tolerance * largest, equal_nan=True)
        assert close, (want, got, (given - exact).abs().max())


# Absolute errors are relative to the largest number.
TOLERANCE = {fl.float64: 1e-12, fl.float32: 2e-5, fl.bfloat16: 0.03, fl.float16: 0.005}
TOLERANCE |= dict.fromkeys((fl.int64, fl.int8, fl.bool, fl.float8_e4m3fn, fl.float8_e5m2), 0.0)


@pytest.fixture(scope="module")
def interpreter():
    """A process that computes kernels by Triton's interpreter."""
    here = pathlib.Path(__file__).resolve().parent
    root = pathlib.Path(fl.__file__).resolve().parent.parent
    paths = os.pathsep.join([str(root), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    process = subprocess.Popen(
        [sys.executable, str(here / "interpreted.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths.rstrip(os.pathsep), "OMP_NUM_THREADS": "1", "FLAMBEAU_STRICT": "1"},
    )
    yield process
    process.stdin.close()
    process.wait()


@pytest.mark.parametrize("which", ["small", "large"])
@pytest.mark.parametrize("name", CASES)
def test_interpreted_kernels_agree_with_eager_mode(interpreter, name, which):
    interpreter.stdin.write(f"{name} on {which}\n")
    interpreter.stdin.flush()
    problem = json.loads(interpreter.stdout.readline())
    assert not problem, problem


class Ends:
    """A tuner that takes the first of all kernels, or the last."""

    def __init__(self, first):
        self.first = first

    def product(self, product, finished, separate):
        return 0 if self.first else len(finished) - 1

    def loop(self, kernels):
        return 0 if self.first else len(kernels) - 1


class Stop(BaseException):
    """Raised instead of launching; no error of the compiler, which would be reported."""


class CompileOnly(triton_build.TritonPrinter):
    def launches_by_step(self, work, steps):
        printed = triton_build.print_all(work, self.target, Ends(False), steps)
        kernels = [k for made in printed for k in made or ()]
        self.images = triton_build.images(kernels, self.target.capability)
        raise Stop


SAMPLES = [
    "a chain in bfloat16", "softmax", "layer norm and gelu", "sums", "folds both ways", "transposed", "integers",
    "conditions", "dropout", "dropout of whole rows", "dropout of one number", "a product and an activation", "a convolution and a residual",
    "a convolution of few channels", "a convolution by one element", "a rotary embedding in bfloat16", "padding",
    "products with a vector in bfloat16", "products with a vector side by side", "small kernels side by side", "a filter along a sequence in bfloat16",
    "group norm of channels-last images in bfloat16", "attention of one query",
    "caches in bfloat16 that are extended", "rows that are copied to places", "rows of tables", "cross entropy", "places of extremes",
]  # fmt: skip


@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_without_a_gpu(capability):
    for name in [*SAMPLES, *(["8-bit floats", "8-bit floats, turned"] if capability >= 89 else [])]:
        function, inputs, _ = CASES[name]
        printer = CompileOnly(0, Target(capability, processors=4, longest_shared_row=32))
        with pytest.raises(Stop):
            compile_tensor_function(function, len(inputs), printer=printer)(*[make() for make in inputs])
        assert all(image.code.startswith(b"\x7fELF") for image in printer.images), name


def test_products_are_made_by_the_group_that_alone_reads_them():
    def finished(name):
        found = []

        class Printer(triton_build.TritonPrinter):
            def launches_by_step(self, work, steps):
                triton_build.print_all(work, self.target, Seen(True))
                raise Stop

        class Seen(Ends):
            def product(self, product, finished, separate):
                found.append(product)

        function, inputs, _ = CASES[name]
        with pytest.raises(Stop):
            compile_tensor_function(function, len(inputs), printer=Printer(0, LARGE))(*[make() for make in inputs])
        return found

    assert len(finished("a product and an activation")) == 1
    assert len(finished("a product of turned matrices, added twice")) == 1
    assert not finished("a product that is returned too")
    assert not finished("a product whose operand changes")
    for name in ("a residual", "a normalisation"):
        assert len(finished(f"a convolution and {name}")) == 1
    assert len(finished("a convolution of few channels")) == 1
    assert not finished("a convolution in groups")


def test_an_activation_waits_for_the_product_that_it_is_multiplied_by():
    names = []

    class Printer(triton_build.TritonPrinter):
        def launches_by_step(self, work, steps):
            names.append([[m.loop.name for m in item.members] for item, _ in work if isinstance(item, Group)])
            if len(names) == 2:
                raise Stop
            return [[] if isinstance(item, Group) else None for item, _ in work]

    def gated(x, gate, up):
        return F.silu(F.linear(x, gate)) * F.linear(x, up)

    inputs = [fl.randn(64, 32), fl.randn(48, 32), fl.randn(48, 32)]
    with pytest.raises(Stop):
        compile_tensor_function(gated, 3, printer=Printer(0, LARGE))(*[t.requires_grad_() for t in inputs])
    assert names[0] == [["silu", "mul.Tensor"]]
    assert sorted(names[1][0]) == ["_grad_mul_Tensor_0", "_grad_mul_Tensor_1", "_grad_silu_0", "silu"]


def test_copies_of_parameters_are_one_kernel():
    kernels = []

    class Printer(triton_build.TritonPrinter):
        def launches_by_step(self, work, steps):
            kernels.extend(k for made in triton_build.print_all(work, self.target, None, steps) for k in made or ())
            raise Stop

    def model(x, *weights):
        for weight in weights:
            x = F.linear(x, weight.bfloat16())
        return x

    inputs = [fl.randn(64, 128).bfloat16(), *(fl.randn(128, 128) for _ in range(10))]
    with pytest.raises(Stop):
        compile_tensor_function(model, 11, printer=Printer(0, LARGE))(*inputs)
    assert [len(kernel.pointers) for kernel in kernels] == [16, 4]


def test_images_are_found_on_disk_and_spoilt_ones_are_built_again():
    function, inputs, _ = CASES["a long sum"]

    def build():
        printer = CompileOnly(0, Target(90, processors=4))
        with pytest.raises(Stop):
            compile_tensor_function(function, len(inputs), printer=printer)(*[make() for make in inputs])
        return printer.images

    first = build()
    triton_build._made.clear()
    assert build() == first
    path = triton_build._folder() / first[0].name
    path.write_bytes(path.read_bytes()[:-1])
    triton_build._made.clear()
    assert build() == first


@pytest.mark.parametrize("allowed", [False, True])
def test_convolutions_of_single_precision_are_products_where_their_operands_may_be_rounded(allowed, monkeypatch):
    found = []

    class Seen(Ends):
        def product(self, product, finished, separate):
            found.extend(finished)

    class Printer(triton_build.TritonPrinter):
        def launches_by_step(self, work, steps):
            triton_build.print_all(work, self.target, Seen(True))
            raise Stop

    monkeypatch.setitem(vars(fl.backends.cudnn), "_tf32", allowed)
    with pytest.raises(Stop):
        compile_tensor_function(lambda x, w: [F.conv2d(x, w).relu()], 2, printer=Printer(0, LARGE))(
            fl.randn(64, 64, 16, 16), fl.randn(128, 64, 3, 3)
        )
    assert bool(found) is allowed
    assert all('input_precision="tf32"' in kernel.source for kernel in found)
