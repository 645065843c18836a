"""Random programs for fuzzing the compiler: ops of every kind on tensors of many dtypes, strides and shapes.

`program(seed)` gives a function and a maker of its inputs; both depend on the seed alone. What the function does at each
step depends on the shapes and dtypes it has so far, never on values, so that eager and compiled runs do the same. Ops that
jump (comparisons, sorting, rounding) look at inputs only: a last bit that differs must not decide.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import flambeau as fl
import flambeau.nn.functional as F

FLOATS = (fl.float32, fl.float64, fl.bfloat16, fl.float16)
INTEGERS = (fl.int64, fl.int32, fl.uint8, fl.bool)
WHOLE = (*INTEGERS, fl.int16, fl.int8)
LARGEST = 6000  # elements of a value that the program goes on with

UNARY = [
    lambda t: t.clamp(-3, 3).exp(), lambda t: t.tanh(), lambda t: t.sigmoid(), lambda t: t.relu(), lambda t: t.abs() + 0.5,
    lambda t: -t, lambda t: t * 0.5, lambda t: t + 1, lambda t: 2 - t, lambda t: t.sin(), lambda t: F.gelu(t),
    lambda t: F.gelu(t, approximate="tanh"), lambda t: F.silu(t), lambda t: t.clamp(-4, 4).square(), lambda t: t.erf(),
    lambda t: (t.abs() + 1).sqrt(), lambda t: (t.abs() + 1).log(), lambda t: t.cos(), lambda t: t.clamp(-1, 1),
    lambda t: F.leaky_relu(t, 0.1), lambda t: F.softplus(t), lambda t: t / 3, lambda t: F.elu(t), lambda t: t.float(),
    lambda t: t.double(), lambda t: (t.abs() + 1).rsqrt(), lambda t: (t.abs() + 0.5).reciprocal(), lambda t: F.mish(t),
    lambda t: t.log1p() if t.dtype.is_complex else t.abs().log1p(), lambda t: t.clamp(-2, 2).expm1(), lambda t: t.clone(),
    lambda t: F.hardswish(t), lambda t: F.logsigmoid(t), lambda t: t.atan(), lambda t: t.asinh(),
]  # fmt: skip
BINARY = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b.clamp(-3, 3), lambda a, b: a / (b.abs() + 1),
    lambda a, b: fl.maximum(a, b), lambda a, b: fl.minimum(a, b), lambda a, b: fl.atan2(a, b.abs() + 1),
    lambda a, b: fl.add(a, b, alpha=0.5), lambda a, b: fl.addcmul(a, b.tanh(), b.tanh(), value=0.3),
    lambda a, b: a.abs().clamp(max=9).add(1).pow(b.tanh()), lambda a, b: fl.hypot(a, b.abs() + 1),
    lambda a, b: F.mse_loss(*fl.broadcast_tensors(a, b), reduction="none").clamp(max=50),
]  # fmt: skip
INTEGER = [
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b, lambda a, b: a > b,
    lambda a, b: a == b, lambda a, b: fl.maximum(a, b), lambda a, b: (a.long() // (b.long().abs() + 1)),
    lambda a, b: a.long() % 5, lambda a, b: a.long() << 2, lambda a, b: ~a, lambda a, b: fl.where(a > b, a, b),
    lambda a, b: a.to(fl.int16), lambda a, b: a.to(fl.uint8), lambda a, b: a.bool(), lambda a, b: a.long() - b.long(),
]  # fmt: skip


def _dim(choice: random.Random, t: Any) -> int:
    return choice.randrange(t.dim())


def _reduce(choice: random.Random, t: Any) -> Any:
    if t.dim() == 0:
        return t.sum()
    dims = sorted(choice.sample(range(t.dim()), choice.randint(1, t.dim())))
    keep = choice.random() < 0.6
    kinds = (
        ["sum", "mean", "amax", "amin", "var", "logsumexp", "norm", "all", "pair"]
        if t.is_floating_point()
        else ["sum", "amax", "amin", "any", "count_nonzero"]
    )
    kind = choice.choice(kinds)
    if kind in ("any", "count_nonzero"):
        return getattr(t, kind)(dims[0])
    if kind == "pair":
        return choice.choice(
            [lambda: fl.var_mean(t, dims, correction=0, keepdim=keep)[keep], lambda: fl.aminmax(t, dim=dims[0]).max]
        )()
    if kind == "all":
        return choice.choice(
            [
                lambda: t.sum(),
                lambda: t.mean(),
                lambda: t.std(correction=0),
                lambda: t.clamp(-2, 2).prod() if t.numel() <= 60 else t.mean(),
            ]
        )()
    if kind == "var":
        return t.var(dims, keepdim=keep, correction=0)
    if kind == "norm":
        return fl.linalg.vector_norm(t.abs() + 0.1, choice.choice([1, 2, 2, 3]), dims, keep)
    return getattr(t, kind)(dims, keepdim=keep)


def _view(choice: random.Random, t: Any) -> Any:
    if t.dim() == 0:
        return choice.choice([lambda: t.unsqueeze(0), lambda: t.expand(4), lambda: t.view(1, 1)])()
    d = _dim(choice, t)
    n = t.shape[d]
    options = [
        lambda: t.transpose(d, _dim(choice, t)),
        lambda: t.unsqueeze(d),
        lambda: t.narrow(d, n // 2, n - n // 2),
        lambda: t.reshape(-1),
        lambda: t.flip(d),
        lambda: t.select(d, choice.randrange(n)) if n else t,
        lambda: t.contiguous(),
        lambda: t.unsqueeze(-1).expand(*t.shape, choice.choice([1, 3])),
        lambda: t[..., ::2],
        lambda: t.permute(*choice.sample(range(t.dim()), t.dim())),
        lambda: t.unfold(d, 2, 1) if n >= 2 else t,
        lambda: t.diagonal() if t.dim() >= 2 else t.squeeze(),
        lambda: t.chunk(2, d)[-1],
        lambda: t.movedim(0, -1),
        lambda: t.reshape(2, -1) if t.numel() % 2 == 0 and t.numel() else t,
        lambda: t.detach() if choice.random() < 0.2 else t.squeeze(),
        lambda: t.view_as(t),
    ]
    return choice.choice(options)()


def _write(choice: random.Random, t: Any) -> Any:
    """Changes a tensor that nobody else has, or a part of it."""
    t = t * 1.5 if t.is_floating_point() else t.clone()
    views = [t]
    for _ in range(choice.randint(1, 4)):
        _write_part(choice, views)
    return choice.choice(views) if choice.random() < 0.5 else t


def _write_part(choice: random.Random, views: list[Any]) -> None:
    part = choice.choice(views)
    if part.dim() and choice.random() < 0.6:
        d = _dim(choice, part)
        n = part.shape[d]
        part = choice.choice([
            lambda: part.select(d, choice.randrange(n)) if n else part,
            lambda: part.narrow(d, 0, (n + 1) // 2),
            lambda: part.transpose(0, d),
            lambda: part.unsqueeze(d),
            lambda: part[..., ::2],
        ])()  # fmt: skip
        views.append(part)
    simple = [lambda: part.mul_(2), lambda: part.add_(1), lambda: part.fill_(1), lambda: part.zero_()]
    if part.is_floating_point():
        simple += [
            lambda: part.sigmoid_(), lambda: part.copy_(part.tanh()), lambda: part.clamp_(-1, 1),
            lambda: part.add_(part.sin()), lambda: part.masked_fill_(fl.ones(part.shape, dtype=fl.bool).tril_() if part.dim() == 2 else fl.zeros(part.shape, dtype=fl.bool), 0.5),
            lambda: part.copy_(views[0].sum()), lambda: part.mul_(part.detach().mean()),
        ]  # fmt: skip
    if part.dim():
        rows = fl.tensor([choice.randrange(part.shape[0]) for _ in range(2)]) if part.shape[0] else None
        simple += [
            lambda: part.__setitem__((..., 0) if part.shape[-1] else ..., 2), lambda: part.__setitem__(slice(1, None, 2), 3),
            lambda: part if rows is None else part.index_fill_(0, rows, 1), lambda: part.swapaxes(0, -1).add_(1),
            lambda: part if rows is None else part.__setitem__(rows, part[rows[0]].clone()),
        ]  # fmt: skip
    choice.choice(simple)()


def _scan(choice: random.Random, t: Any) -> Any:
    d = _dim(choice, t)
    return choice.choice([
        lambda: t.cumsum(d), lambda: t.clamp(-1, 1).cumprod(d), lambda: t.logcumsumexp(d), lambda: t.roll(1, d),
        lambda: t.tril() if t.dim() >= 2 else t.cumsum(0), lambda: t.triu(1) if t.dim() >= 2 else t,
        lambda: t.repeat_interleave(2, d), lambda: F.pad(t, (1, 2)), lambda: F.pad(t, (2, -1), value=0.5),
        lambda: F.pad(t, (1, 1), mode=choice.choice(["reflect", "replicate", "circular"])) if 2 <= t.dim() <= 3 and min(t.shape) > 1 else t,
        lambda: t.diff(dim=d), lambda: fl.trapezoid(t, dim=d), lambda: t if t.requires_grad else t.cummax(d).values,
    ])()  # fmt: skip


def _joined(choice: random.Random, t: Any) -> Any:
    d = _dim(choice, t)
    return choice.choice([
        lambda: fl.cat([t, t * 2], d), lambda: fl.stack([t, t + 1, -t], d), lambda: fl.cat([t.sin(), t.narrow(d, 0, t.shape[d] // 2)], d),
        lambda: fl.stack(t.unbind(d)[::-1], d) if t.shape[d] else t, lambda: fl.cat(list(t.split(2, d)), d),
        lambda: t.repeat(*([2] + [1] * (t.dim() - 1))), lambda: fl.cat([t.detach(), t[..., :0], t], -1), lambda: fl.hstack([t, t + 1]),
        lambda: fl.cat([t, fl.zeros(t.shape)], d), lambda: sum(t.tensor_split(2, d)[1:], start=t.sum()),
        lambda: fl.einsum("...i,...i->...", t.tanh(), t.tanh().flip(-1)), lambda: fl.outer(t.flatten()[:20], t.flatten()[:9]),
    ])()  # fmt: skip


def _indexed(choice: random.Random, t: Any) -> Any:
    d = _dim(choice, t)
    n = t.shape[d]
    if n == 0:
        return t
    rows = fl.tensor([choice.randrange(n) for _ in range(5)])
    flags = fl.tensor([choice.random() < 0.5 for _ in range(n)])
    wide = [1] * t.dim()
    wide[d] = n
    return choice.choice([
        lambda: t.index_select(d, rows), lambda: t.transpose(0, d)[rows], lambda: t.masked_fill(flags.view(wide), 0.25),
        lambda: fl.where(flags.view(wide), t, t.detach() * 2), lambda: t.gather(d, (t.detach() * 0).long()),
        lambda: t.index_add(d, rows, t.index_select(d, rows)), lambda: t.transpose(0, d).index_put((rows,), t.transpose(0, d)[rows] * 2, accumulate=True),
        lambda: fl.zeros(t.shape, dtype=t.dtype).scatter_add(d, (t.detach() * 0).long(), t), lambda: t.take_along_dim((t.detach() * 0).long(), d),
        lambda: F.embedding(rows % t.shape[0], t) if t.dim() == 2 else t,
        lambda: F.embedding(rows % t.shape[0], t, padding_idx=0) if t.dim() == 2 else t,
        lambda: t.scatter(d, (t.detach() * 0).long(), 0.5), lambda: t.scatter_reduce(d, (t.detach() * 0).long(), t * 0.5, "sum"),
        lambda: t.index_copy(d, rows[:1], t.index_select(d, rows[:1]) * 3), lambda: t.slice_scatter(t.narrow(d, 0, 1) * 2, d, 0, 1),
        lambda: t.select_scatter(t.select(d, 0).sin(), d, n - 1), lambda: t.index_fill(d, rows, 0.5),
        lambda: F.one_hot(rows, n).to(t.dtype) @ t.movedim(d, 0).reshape(n, -1).tanh(),
        lambda: fl.tril_indices(n, n)[0].clamp(max=n - 1).to(t.dtype) + t.sum(), lambda: t.take((rows * 3) % t.numel()),
    ])()  # fmt: skip


def _random(choice: random.Random, t: Any) -> Any:
    """Draws numbers, which are the same in compiled code."""
    return choice.choice([
        lambda: fl.rand_like(t) + t, lambda: fl.randn_like(t) * t, lambda: F.dropout(t, 0.3) * 2, lambda: fl.rand(t.shape) * t,
        lambda: fl.bernoulli(t.detach() * 0 + 0.5) * t, lambda: fl.empty(t.shape).uniform_(-1, 1) + t, lambda: fl.randn(3).sum() * t,
        lambda: F.dropout(F.softmax(t, -1), 0.2) if t.dim() else t, lambda: F.rrelu(t, 0.1, 0.3), lambda: t + fl.randint(0, 5, t.shape),
        lambda: F.alpha_dropout(t, 0.2), lambda: F.dropout1d(t, 0.4) if t.dim() == 3 else t,
    ])()  # fmt: skip


COMPLEX = [
    lambda t: t * 0.5, lambda t: t + 1, lambda t: -t, lambda t: t.conj(), lambda t: t.abs(), lambda t: t.real, lambda t: t.imag + 1,
    lambda t: t * t.conj(), lambda t: fl.view_as_real(t), lambda t: t.sum(), lambda t: t.flip(0) if t.dim() else t, lambda t: t * 1j,
    lambda t: t / (t.abs() + 1), lambda t: t.reshape(-1), lambda t: fl.cat([t, t]) if t.dim() else t, lambda t: t.sgn() if t.grad_fn is None else t,
    lambda t: (t / (t.abs() + 1)).exp(), lambda t: t.mean() + t, lambda t: t.t() @ t if t.dim() == 2 else t, lambda t: t.conj().clone(),
]  # fmt: skip


def _network(choice: random.Random, t: Any) -> Any:
    """Layers as models have them."""
    n = t.shape[-1]
    if 0 in t.shape:
        return t * 2
    weight = fl.linspace(-1, 1, 4 * n).view(4, n).to(t.dtype)
    options = [
        lambda: F.softmax(t, _dim(choice, t)), lambda: F.log_softmax(t, _dim(choice, t)), lambda: F.layer_norm(t, (n,)),
        lambda: F.layer_norm(t, (n,), weight[0], weight[1]), lambda: F.rms_norm(t, (n,)), lambda: F.normalize(t + 0.3, dim=-1),
        lambda: F.linear(t.tanh(), weight), lambda: F.linear(t.tanh(), weight, weight[:, 0]).relu(),
        lambda: F.cross_entropy(t.reshape(-1, n), fl.arange(t.numel() // n) % n), lambda: F.dropout(t, 0.5),
        lambda: F.cross_entropy(t.reshape(-1, n), fl.arange(t.numel() // n) % n, label_smoothing=0.1, reduction="none"),
        lambda: F.smooth_l1_loss(t, t.detach() * 0.5), lambda: F.glu(t) if n % 2 == 0 else t, lambda: F.softmin(t, -1),
        lambda: F.cross_entropy(t.reshape(-1, n), fl.arange(t.numel() // n) % n, weight[0].abs() + 0.1, ignore_index=0) if t.numel() > n > 1 else t,
        lambda: F.nll_loss(F.log_softmax(t.reshape(-1, n), -1), fl.arange(t.numel() // n) % n, reduction="sum"), lambda: F.huber_loss(t, t.detach() + 0.3),
        lambda: F.cosine_similarity(t + 0.3, weight[1] + 0.4, dim=-1), lambda: F.prelu(t, weight[0, :1]), lambda: F.hardtanh(t) + F.relu6(t),
        lambda: F.local_response_norm(t, 2) if t.dim() >= 3 else F.selu(t), lambda: F.softsign(t) + F.tanhshrink(t), lambda: fl.logaddexp(t, t * 0.3),
        lambda: F.layer_norm(t, t.shape), lambda: F.softmax(t, -1, dtype=fl.float32), lambda: t.softmax(-1).cumsum(-1),
        lambda: F.binary_cross_entropy_with_logits(t, (t.detach() * 0 + 0.5)), lambda: F.kl_div(F.log_softmax(t, -1), F.softmax(t * 0.5, -1), reduction="sum"),
    ]  # fmt: skip
    if t.dim() >= 2:
        options += [
            lambda: t.tanh() @ t.tanh().transpose(-1, -2), lambda: fl.einsum("...ij,...ik->...jk", t.tanh(), t.tanh()),
            lambda: fl.softmax(t @ t.transpose(-1, -2) / n, -1) @ t.tanh(), lambda: t.tanh() @ weight.t(),
            lambda: F.scaled_dot_product_attention(t[None, None] if t.dim() == 2 else t, t.view(t.shape)[None, None] if t.dim() == 2 else t, t.tanh()[None, None] if t.dim() == 2 else t, is_causal=choice.random() < 0.5),
            lambda: F.batch_norm(t, None, None, training=True) if t.dim() < 4 and t.shape[0] > 1 else t,
            lambda: F.batch_norm(t, fl.zeros(t.shape[1]), fl.ones(t.shape[1]), weight[0, :1].float().expand(t.shape[1]) if t.dtype == fl.float32 else None, training=choice.random() < 0.5) if t.shape[0] > 2 else t,
            lambda: F.instance_norm(t) if t.dim() >= 3 and n > 2 else t, lambda: F.bilinear(t.tanh(), t.tanh(), fl.linspace(-1, 1, 2 * n * n).view(2, n, n).to(t.dtype)) if n < 9 else t,
            lambda: _attention(choice, t), lambda: fl.baddbmm(t.reshape(-1, *t.shape[-2:]), *_square(t)) if t.shape[-2] == n else t,
            lambda: F.group_norm(t, 1), lambda: fl.addmm(weight[:1, :1], t.reshape(-1, n).tanh(), weight.t()),
        ]  # fmt: skip
    if t.dim() == 3:
        options += [
            lambda: F.conv1d(t.tanh(), (fl.linspace(-1, 1, 6 * t.shape[1]).view(2, t.shape[1], 3)).to(t.dtype), padding=1).relu(),
            lambda: F.max_pool1d(t, 1), lambda: F.avg_pool1d(t, 2, ceil_mode=True) if n > 1 else t,
            lambda: F.interpolate(t, scale_factor=2), lambda: F.adaptive_avg_pool1d(t, 2),
            lambda: fl.bmm(t.tanh(), t.tanh().transpose(1, 2)), lambda: F.interpolate(t, scale_factor=2, mode="linear", align_corners=choice.random() < 0.5),
            lambda: F.conv_transpose1d(t.tanh(), (fl.linspace(-1, 1, 4 * t.shape[1]).view(t.shape[1], 2, 2)).to(t.dtype), stride=2),
        ]  # fmt: skip
    if t.dim() >= 3 and t.shape[-2] >= 3 and n >= 3:
        images = t if t.dim() == 4 and choice.random() < 0.7 else t.reshape(1, -1, *t.shape[-2:])
        if choice.random() < 0.4:
            images = images.contiguous(memory_format=fl.channels_last)
        channels = images.shape[1]
        filters = fl.linspace(-1, 1, 18 * channels).view(2, channels, 3, 3).to(t.dtype)
        deep = fl.linspace(-1, 1, 9 * channels).view(channels, 1, 3, 3).to(t.dtype)
        options += [
            lambda: F.conv2d(images.tanh(), filters, padding=1), lambda: F.conv2d(images.tanh(), filters, filters[:, 0, 0, 0], stride=2).relu(),
            lambda: F.avg_pool2d(images, 2), lambda: F.adaptive_avg_pool2d(images, 1).flatten(1),
            lambda: F.conv2d(images.tanh(), deep, groups=channels, padding=1), lambda: F.conv2d(images.tanh(), filters, padding="same", dilation=2),
            lambda: F.conv_transpose2d(images.tanh(), filters.transpose(0, 1), stride=2), lambda: F.interpolate(images, scale_factor=2),
            lambda: F.batch_norm(F.conv2d(images.tanh(), filters), None, None, training=True) if images.shape[-1] > 4 and images.shape[-2] > 4 else images,
            lambda: F.conv2d(images.tanh(), filters[:, :, :1, :1]) + 1, lambda: F.pixel_shuffle(images, 2) if channels % 4 == 0 else images,
            lambda: F.interpolate(images, scale_factor=2, mode="bilinear"), lambda: F.unfold(images, 2), lambda: F.pad(images, (1, 1, 1, 1), mode="reflect"),
            lambda: images * fl.linspace(0, 1, channels).view(-1, 1, 1).to(t.dtype), lambda: F.dropout2d(images, 0.3),
        ]  # fmt: skip
        if t.grad_fn is None:  # among equal elements, a last bit would decide
            options += [
                lambda: F.max_pool2d(images, 2),
                lambda: F.max_pool2d(images, 3, 2, 1),
                lambda: F.adaptive_max_pool2d(images, 2),
            ]
    return choice.choice(options)()


def _square(t: Any) -> tuple[Any, Any]:
    rows = t.tanh().reshape(-1, *t.shape[-2:])
    return rows, rows.transpose(1, 2)


def _attention(choice: random.Random, t: Any) -> Any:
    """Attention with several queries a key, masks, and keys of another length."""
    rows, n = t.shape[-2:]
    query = t.reshape(-1, 1, rows, n).tanh()
    key = fl.cat([query, query * 0.5], 2)
    kind = choice.randrange(4)
    if kind == 0:
        return F.scaled_dot_product_attention(query, key, key.sin())
    if kind == 1:
        return F.scaled_dot_product_attention(query, key, key, attn_mask=fl.ones(rows, 2 * rows, dtype=fl.bool).tril())
    if kind == 2:
        return F.scaled_dot_product_attention(
            query, key, key, attn_mask=fl.linspace(-1, 1, 2 * rows).to(t.dtype).expand(rows, -1), scale=0.3
        )
    return F.scaled_dot_product_attention(query.expand(-1, 2, -1, -1), key, key, is_causal=True, enable_gqa=True)


def _step(choice: random.Random, values: list[Any], inputs: list[Any]) -> Any:
    t = choice.choice(values[-3:]) if choice.random() < 0.8 else choice.choice(values)
    if t.is_complex():
        fitting = [v for v in values if v.dtype != fl.bool and _broadcasts(t.shape, v.shape)]
        return t * choice.choice(fitting).sum() if choice.random() < 0.2 else choice.choice(COMPLEX)(t)
    if not t.is_floating_point():
        if choice.random() < 0.3:
            return t.to(choice.choice(FLOATS[:3])) / 4
        if choice.random() < 0.3:
            return choice.choice([_view, _reduce, _write])(choice, t)
        fitting = [v for v in values if v.dtype in WHOLE and _broadcasts(t.shape, v.shape)]
        return choice.choice(INTEGER)(t, choice.choice(fitting))
    kind = choice.random()
    if kind < 0.25:
        return choice.choice(UNARY)(t)
    if kind < 0.45:
        fitting = [v for v in values if v.is_floating_point() and _broadcasts(t.shape, v.shape)]
        return choice.choice(BINARY)(t, choice.choice(fitting))
    if kind < 0.55:
        return _reduce(choice, t)
    if kind < 0.68:
        return _view(choice, t)
    if kind < 0.76:
        return _write(choice, t)
    if kind < 0.79:
        return _jump(choice, choice.choice([v for v in inputs if not v.is_complex()] or [t.detach() * 0]))
    if kind < 0.80:
        return _random(choice, t)
    if kind < 0.802:
        return fl.complex(t.float(), t.float().sin()) if t.dtype != fl.float64 else fl.complex(t, t.sin())
    if kind < 0.82:
        return t.to(choice.choice(FLOATS))
    if t.dim() == 0 or t.shape[-1] == 0:
        return t * 2
    if kind < 0.85:
        return _scan(choice, t)
    if kind < 0.89:
        return _joined(choice, t)
    if kind < 0.93:
        return _indexed(choice, t)
    return _network(choice, t)


def _jump(choice: random.Random, t: Any) -> Any:
    """Comparisons, rounding and orders of an input: equal elements are in their order, and so are those of a sort."""
    if t.dim() == 0 or t.numel() == 0:
        return choice.choice(
            [lambda: t > 0, lambda: t.detach().round() if t.is_floating_point() else t + 1, lambda: t >= 0]
        )()
    return choice.choice([
        lambda: t > 0, lambda: t.detach().float().round(), lambda: t.argsort(stable=True), lambda: t.sort(dim=-1, stable=True).values,
        lambda: t.detach().argmax(-1), lambda: t.float().topk(1, dim=0).values, lambda: t.float().floor(), lambda: t.float().sign(),
        lambda: t.float().sort(dim=0, descending=True, stable=True).values, lambda: fl.bucketize(t.detach().float(), fl.tensor([-1.0, 0, 1])),
        lambda: t.isfinite(), lambda: (t > 0).any(-1), lambda: (t > 0.5).sum(), lambda: t.float().median(), lambda: t.float().trunc() * 2,
        lambda: t.float().where(t > 0, fl.tensor(0.5)), lambda: t.float().frac(), lambda: (t.float() * 2).long() % 3, lambda: t.detach().argmin(),
        lambda: fl.searchsorted(fl.tensor([-1.0, 0, 1]), t.detach().float()), lambda: t.float().kthvalue(1).values, lambda: t.float().remainder(1),
    ])()  # fmt: skip


def _broadcasts(a: Any, b: Any) -> bool:
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b)))


def _sizes(choice: random.Random) -> list[tuple[int, ...]]:
    lengths = [1, 2, 3, 4, 5, 8, 17, 33] + ([0] if choice.random() < 0.08 else [])
    if choice.random() < 0.05:
        lengths = [1, 40, 64, 130, 300]
        return [tuple(choice.choice(lengths) for _ in range(2)), (choice.choice(lengths),)]
    sizes = [tuple(choice.choice(lengths) for _ in range(choice.choice([0, 1, 2, 2, 3, 3, 4])))]
    for _ in range(choice.randint(0, 3)):
        base = choice.choice(sizes)
        sizes.append(tuple(1 if choice.random() < 0.3 else n for n in base)[choice.randint(0, len(base)) :])
    return sizes


def _input(choice: random.Random, size: tuple[int, ...], dtype: Any) -> Any:
    """A leaf of this size, in one of many layouts."""

    def make(*shape: int) -> Any:
        made = fl.randn(shape)
        if dtype.is_complex:
            return fl.complex(made, made.flip(0) if shape else made * 0.5).to(dtype)
        return (
            made.to(dtype)
            if dtype.is_floating_point
            else (made > 0)
            if dtype == fl.bool
            else (made * 3).abs().to(dtype)
        )

    layout = choice.random()
    if len(size) == 4 and choice.random() < 0.4:
        return make(*size).contiguous(memory_format=fl.channels_last)
    if layout < 0.6 or not size:
        return make(*size)
    if layout < 0.75:
        return make(*size[::-1]).permute(*range(len(size) - 1, -1, -1))
    if layout < 0.85:
        return make(*size[:-1], size[-1] * 2 + 1)[..., 1::2]
    if layout < 0.93:
        return make(size[0] + 2, *size[1:])[1:-1]
    return make(*size[:-1], 1).expand(size)


def program(seed: int) -> tuple[Callable[..., list[Any]], Callable[..., list[Any]]]:
    """A function of tensors and what makes its inputs: `inputs(1)`, `inputs(2)` are others, of the same sizes or not.

    `function.history` says that what requires gradients is to be the result of an operation, which may be written to;
    `function.variants` how many sets of inputs to try."""
    choice = random.Random(seed)
    sizes = _sizes(choice)
    dtypes = [choice.choices([*FLOATS, *INTEGERS, fl.complex64], [12, 2, 2, 1, 1, 1, 1, 1, 0.25])[0] for _ in sizes]
    dtypes[0] = dtypes[0] if choice.random() < 0.5 else fl.float32
    steps = choice.randint(2, 14)
    layouts = choice.random()
    grads = [(d.is_floating_point or d.is_complex) and choice.random() < 0.8 for d in dtypes]
    mutates = choice.random() < 0.2
    cast = choice.random() < 0.08
    wants_grad = choice.random() < 0.8
    resized = choice.random() < 0.5
    shares = len(sizes) > 1 and not (wants_grad and (grads[0] or grads[-1])) and choice.random() < 0.25
    largest = LARGEST * 10 if max((n for size in sizes for n in size), default=0) > 33 else LARGEST

    def inputs(variant: int = 0) -> list[Any]:
        fl.manual_seed(seed + variant)
        again = random.Random(layouts)
        lengths = random.Random(seed + variant)
        other = {
            n: n if n < 2 else lengths.choice([2, 3, 4, 6, 7, 9, 16, 20]) for n in sorted({n for s in sizes for n in s})
        }
        found = [tuple(other[n] for n in size) for size in sizes] if variant and resized else sizes
        made = [_input(again, size, dtype) for size, dtype in zip(found, dtypes)]
        if shares:
            made[-1] = made[0].movedim(0, -1) if made[0].dim() else made[0].view(1)
        return [t.requires_grad_() if grad and wants_grad else t for t, grad in zip(made, grads)]

    def function(*given: Any) -> list[Any]:
        again = random.Random(seed + 1)
        values = list(given)
        with fl.autocast(fl.get_default_device().type, dtype=fl.bfloat16) if cast else contextlib.nullcontext():
            for _ in range(steps):
                with fl.no_grad() if again.random() < 0.02 else contextlib.nullcontext():
                    made = _step(again, values, list(given))
                if made.numel() <= largest:
                    values.append(made)
                if mutates and again.random() < 0.3:
                    _change_input(again, given, function.history)
        function.low = cast or any(v.dtype in FLOATS[2:] for v in values)  # some digits are not to be compared
        return _results(again, values, given)

    function.history = mutates and choice.random() < 0.2
    function.variants = choice.choice([1, 1, 2, 3])
    return function, inputs


def _change_input(choice: random.Random, given: Any, history: bool) -> None:
    target = choice.choice(given)
    if (target.requires_grad and not history) or not all(target.stride()) or not target.is_floating_point():
        return
    part = target
    if target.dim() and target.numel() and choice.random() < 0.6:
        d = _dim(choice, target)
        part = choice.choice([lambda: target.select(d, 0), lambda: target.narrow(d, 0, 1), lambda: target.transpose(0, d), lambda: target[..., ::2]])()  # fmt: skip
    choice.choice([
        lambda: part.add_(1), lambda: part.mul_(0.5), lambda: part.copy_(part.sin()), lambda: part.fill_(0.5), lambda: part.sigmoid_(),
        lambda: part.copy_(part.detach().flip(0)) if part.dim() else part.neg_(), lambda: part.clamp_(-1, 1), lambda: part.add_(part.mean()),
    ])()  # fmt: skip


def _results(choice: random.Random, values: list[Any], given: Any) -> list[Any]:
    made = values[len(given) :][-3:] or [values[-1] * 1]
    if choice.random() < 0.1:
        made.append(choice.choice(given))
    if choice.random() < 0.1:
        made.append(made[0])
    if choice.random() < 0.15:
        made.append(_view(choice, choice.choice(values)))
    return made
