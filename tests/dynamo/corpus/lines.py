# ruff: noqa
"""Programs of a line or two: the body of a function of tensors x (3) and y (2, 3), a number n, and a list and a dict."""

import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import string
import textwrap
import types
import typing

import flambeau as fl
import flambeau.nn.functional as F

from . import T, program

LINES = """
return x + n
return x * (n, n + 1)[1]
return y.sum(dim=n % 2)
return [x, y][0] + 1
return x[n - 1]
return y[:, :n]
return y[..., None].shape
return x.sin().cos().tanh()
return fl.add(x, x, alpha=n)
return F.relu(x) if n > 0 else F.gelu(x)
return y @ x
return y.t() @ y
return (x > 0).float().mean()
return fl.where(x > 0, x, n)
return x.clamp(min=0, max=n)
return {k: x * v for k, v in zip("abc", range(3))}
return [x * i for i in range(3)][::-1]
return [v for pair in [(x, 1), (x, 2)] for v in pair]
return [[i * j for i in range(2)] for j in range(3)], x
return sum([x, x, x])
return sum((x * i for i in range(3)), start=x)
return max(n, 5) * x
return x * min([n, 3, 2])
return x.reshape(-1, 1) + y.mean()
return x.view(1, -1).expand(2, -1) + y
return fl.stack([x] * n)
return fl.cat([x[:1], y[0]])
return tuple(x * i for i in range(n))
return list(map(fl.sin, [x, y]))
return [f(x) for f in (fl.sin, fl.cos, lambda v: v * 2)]
return (lambda a, b=2: a * b)(x)
return (lambda *a, **k: (a, k))(x, 1, q=n)
return functools.reduce(lambda a, b: a + b, [x] * 3)
return functools.partial(fl.add, alpha=2)(x, x)
return operator.mul(x, n), operator.itemgetter(0)(items)
return x if items else y
return items[0] * x, items[-1]
return [v * 2 for v in items], x
return items + [x]
return items * 2, x
return len(items) + len(table), x
return sorted(items, reverse=True), x
return list(reversed(items)), x
return list(enumerate(items, 1)), x
return dict(enumerate(items)), x
return list(zip(items, items[1:])), x
return set(items) | {n}, x
return table["a"] * x
return table.get("zz", x)
return {**table, "x": x}
return dict(table, x=x)
return list(table.items()), x
return [table[k] for k in sorted(table)], x
return {v: k for k, v in table.items()}, x
return table | {"c": x}
return "a" in table, "zz" not in table, x
return any(v > 1 for v in items), all(items), x
return x * sum(table.values())
return x.shape, y.shape, x.shape[0] * y.shape[1]
return y.view(y.shape[1], y.shape[0])
return y.reshape(y.numel())
return fl.zeros(y.shape), fl.ones(*y.shape), fl.full(y.size(), n)
return fl.zeros(x.size(0), y.size(1)) + x
return fl.arange(x.shape[0]) + x
return fl.arange(0, n), x
return x.new_zeros(x.shape[0], 2)
return y.sum(tuple(range(y.ndim)))
return y.permute(*reversed(range(y.dim())))
return y.transpose(0, -1).contiguous().view(-1)
return y.flatten().unfold(0, 2, 1)
return y.softmax(dim=-1).argmax(-1)
return fl.einsum("ij,j->i", y, x)
return x.pow(2).sum().sqrt()
return (x - x.mean()) / (x.std() + 1e-5)
return F.layer_norm(y, (3,))
return F.softmax(y, dim=1).log()
return F.one_hot(fl.arange(3), 4)
return F.pad(y, (1, 0, 0, 2), value=n)
return F.mse_loss(x, x * 2, reduction="none")
return F.linear(y, y)
return fl.tril(fl.ones(n, n)), x
return y.max(dim=1)[0], y.min(0).indices
return y.sort(descending=True).values
return fl.topk(y, 2).indices
return y.unbind(1)
return y.split(1, dim=1)
return [c.sum() for c in y.chunk(2)]
return x.double().dtype, x.int() // 2
return x.to(fl.float64) + n
return x.type_as(x.double())
return x.dtype is fl.float32, x.dtype == fl.float64, x.is_floating_point()
return x.device == fl.device("cpu"), str(x.device), x
return f"{n}", f"{n:>4}", f"{n!r}", f"{items}", x
return "%d %s" % (n, "s"), x
return "{0}-{1}".format(n, "b"), x
return ",".join(str(i) for i in items), x
return "abc".upper()[::-1], "a,b".split(","), x
return str(n) + repr(items), x
return string.ascii_lowercase[:3], x
return math.sqrt(n * n) * x, math.ceil(1.2), math.isclose(1.0, 1.0)
return math.inf, -math.inf, math.pi * x
return abs(-n), round(1.256, 2), divmod(n, 2), pow(n, 2), x
return int("7") + int(3.9), float("2.5"), complex(1, 2), bool(n), x
return n << 2, n >> 1, n & 1, n | 8, n ^ 3, ~n, x
return n // 2, n % 2, -n // 2, n / 2, n ** 3, x
return 1 < n < 5, not n, n and 4, 0 or n, x
return n is None, n is not None, n == 2.0, x
return (n, 1) < (n, 2), [1, 2] == [1, 2], "a" < "b", x
return [1, 2, 3][1:], (1, 2, 3)[::-1], "hello"[1:3], x
return list(range(n, 0, -1)), range(5)[1:3], len(range(0, 10, 3)), x
return [*items, x, *range(2)], (*items,), {*items}
return isinstance(x, fl.Tensor), isinstance(n, (int, str)), type(n) is int, issubclass(bool, int)
return callable(fl.sin), hasattr(x, "sin"), hasattr(x, "nothing"), getattr(x, "ndim")
return list(itertools.chain(items, [x])), list(itertools.islice(items, 2))
return list(itertools.product([1, 2], "ab")), x
return list(itertools.accumulate(items, operator.mul)), x
return list(itertools.zip_longest(items, [0], fillvalue=-1)), x
return [list(g) for _, g in itertools.groupby([1, 1, 2], key=lambda v: v > 1)], x
return list(itertools.compress(items, [1, 0, 1])), list(itertools.dropwhile(lambda v: v < 2, items)), x
return collections.OrderedDict(a=x, b=n)
return collections.deque(items, maxlen=2), x
return collections.Counter("aab")["a"] * x
return copy.copy(items), x
return types.SimpleNamespace is not None, x
return (a := x + 1) * a
return [(b := i) for i in range(3)], b, x
return x.add(1).mul(2).sub(n).div(2)
return (x + 1).add_(2)
return x.clone().zero_()
return x.clone().fill_(n)
return x.clone().copy_(y[0])
return x.repeat(2), x.repeat_interleave(2), x.tile((2, 1))
return x.roll(1), x.flip(0), fl.rot90(y)
return x.cumsum(0), x.cumprod(0), x.diff()
return x.logical_not(), (x > 0).logical_and(x < 2)
return x.isnan().any(), x.isfinite().all(), x.sign()
return fl.maximum(x, y[0]), fl.minimum(x, y[1])
return fl.outer(x, x), fl.dot(x, x), fl.cross(x, x * 2, dim=0)
return fl.meshgrid(x, x, indexing="ij")
return fl.broadcast_tensors(x, y)
return fl.atleast_2d(x), fl.squeeze(x[None]), fl.ravel(y)
return fl.nn.functional.normalize(y), fl.linalg.norm(y)
return fl.tensor([n, 2, 3]) + x
return fl.tensor(n) * x, fl.tensor([[1.0], [2.0]]) + y
return fl.as_tensor([1, 2, 3]) * x
return fl.finfo(fl.float32).max > 1, fl.iinfo(fl.int8).min, x
return fl.float32.itemsize, fl.is_tensor(x), fl.is_grad_enabled()
return fl.promote_types(fl.int8, fl.float32), fl.can_cast(fl.int8, fl.float32), x
return typing.cast(int, n), x
return x.detach(), x.requires_grad, (x * 2).is_leaf
return x.T.shape, y.T.shape, y.mT.shape, y.H.shape
return x.numel(), y.nelement(), x.element_size(), x.nbytes
return x.size(), y.size(-1), y.stride(), y.stride(0), y.is_contiguous(), y.t().is_contiguous()
return x.ndim, x.dim(), len(y), x.ndimension()
return x.__class__, type(x).__name__, x.__len__()
return print("line", n) or x
return [print(i) for i in range(2)], x
return contextlib.nullcontext is not None, x * 2
return (yield_free := 3) * x
return x[[0, 2]], y[[0, 1], [1, 2]], y[:, [0, 1]]
return y[0, 1], y[-1, -1], y[0][1], y[1:, 1:]
return y[None, :, None].shape, y[..., 0], y[0, ...]
return x[x.shape[0] - 1], x[: x.shape[0] // 2], x[-2:]
return x.index_select(0, fl.tensor([0, 1])), y.gather(1, fl.tensor([[0], [1]]))
return x.masked_fill(x > 1, 0), fl.where(x > 0, 1.0, 0.0)
return (x == x).all(), (x != x).any(), (x <= n).sum()
return -x, +x, abs(x), x ** 2, 2 ** x, x // 2, x % 2
return x.lerp(y[0], 0.5), fl.addcmul(x, x, x), fl.addmm(y @ y.t(), y, y.t())
return x.norm(), x.norm(1), y.norm(dim=0), x.var(unbiased=False)
return fl.sum(x), fl.mean(y, 0), fl.prod(x), fl.amax(y, 1), fl.logsumexp(y, 1)
return y.mean((0, 1), keepdim=True).shape, y.sum(0, keepdim=True)
return F.dropout(x, p=0.3, training=False), F.leaky_relu(x), F.threshold(x, 0.5, 0)
return F.embedding(fl.tensor([0, 1]), y), F.cosine_similarity(y, y * 2)
return F.avg_pool1d(y[None], 2), F.max_pool1d(y[None], 2), F.interpolate(y[None], scale_factor=2)
return F.conv1d(y[None], fl.ones(1, 2, 2)), F.unfold(y[None, None], 2)
return F.scaled_dot_product_attention(y[None], y[None], y[None])
return F.cross_entropy(y, fl.tensor([0, 2])), F.nll_loss(y.log_softmax(1), fl.tensor([0, 2]))
return fl.special.expit(x), fl.linalg.inv(y @ y.t() + fl.eye(2)), fl.fft.fft(x).abs()
a, *b = items; return a * x, b
a = b = x; a = a + 1; return a, b
(a, b), c = (x, n), items; return a * b, c
i = 0; i += n; i *= 2; return x * i
v = x; v = v if n else None; return v
s = 0; s = [s := s + k for k in items]; return s, x
d = {}; d["a"] = x; d.setdefault("b", []).append(n); return d
d = collections.defaultdict(int); d["q"] += n; return dict(d), x
l = []; l.extend(items); l.remove(2); l.append(x); return l
l = list(items); l[1:2] = [x, x]; del l[0]; return l
l = [3, 1, 2]; l.sort(key=lambda v: -v); return l, x
s = {1, 2}; s.add(n); s.discard(1); s |= {9}; return s, x
q = collections.deque([1]); q.appendleft(x); q.rotate(); return list(q)
z = x.clone(); z += 1; z[0] = n; z[1:] *= 2; return z
z = y.clone(); z[0], z[1] = z[1].clone(), z[0].clone(); return z
z = x.clone(); w = z.view(3, 1); w.add_(1); return z
z = fl.empty(2, 3); z[:] = y; z[:, 0] = 0; return z
it = iter(items); a = next(it); return a * x, list(it), next(it, None)
g = (k * x for k in items); return next(g), list(g)
f = x.sin; return f()
f = fl.Tensor.sin; return f(x)
f = lambda: x * n; return f()
f = [lambda v, k=k: v * k for k in range(3)]; return [h(x) for h in f]
x = x + 1; x = x * 2; return x
assert n > 0; return x
assert isinstance(x, fl.Tensor), "no"; return x
items.append(n); return x
items[0] = x; return items[0] * 2
items.clear(); return x
items.pop(0); items.insert(1, n); return x
table["new"] = x; return len(table)
table.update(a=5); table.pop("b"); return x
del table["a"]; return x
x.add_(1); return x
return y * x, y + x[None], y - x.view(1, 3)
return sum(items) * x, len(items) * y
return x.max() - x.min(), x.sum() / n, x.mean() * 2
return [x][0], (x,)[0], {"x": x}["x"]
return [x, *[y]], (x,) + (n,), [x] + items
return x.eq(1), x.ne(1), x.lt(2), x.ge(0)
return x.square().neg().exp(), x.expm1(), x.log2().isnan()
return y.sum(-1, dtype=fl.float64), y.mean(dtype=fl.float64)
return fl.sigmoid(x).logit(), fl.atan2(x, x + 1), fl.hypot(x, x)
return y.cumsum(1)[:, -1], y.logcumsumexp(0)
return [k.upper() for k in table], [v ** 2 for v in table.values()], x
return next(iter(table)), next(iter(items)), next(iter([]), n), x
return (n if n > 1 else -n) * x, x * (not n), x * bool(items)
return list(filter(None, [0, 1, n])), list(map(str, items)), x
return (x, y)[n - 2], [x, y][-1]
return x.sum() * items[1], y.sum() * table["b"]
return fl.ones(n, 2).sum(), fl.eye(n)[0], x
return [i for i in range(10) if i % n == 0][1:], x
return {"a", "b"} == {"b", "a"}, frozenset(items), x
return y.mul(2).add(1)[0].max(), y.neg().abs().min()
return (x * x).sum().rsqrt(), x.reciprocal(), x.trunc()
return [x + i for i in items if i != 2]
return {i: x * i for i in items}
return [a + b for a in (x, y[0]) for b in items]
return x if n == 2 else y, y if n == 3 else x
return dict(z=x, **table)
return [*table.values(), *table]
return (x, *items, n)[1:]
return x * len("abc") + len(range(4))
return sorted(table, key=lambda k: -table[k]), x
return max(table, key=table.get), min(items, key=lambda v: -v), x
return x.softmax(0).sum().round()
return fl.relu(x).sum() + fl.relu(-x).sum()
return (x * 2 + 1).exp().log1p().sqrt()
return F.silu(y).mean(1, keepdim=True) * x
return y.mean(0).unsqueeze(0).expand(4, -1)
return [t.mean() for t in y.unbind(0)]
return x.view(-1, 1) @ x.view(1, -1)
return fl.cat([y, x[None]], dim=0).std(0)
return (y > 0).sum(1), (y > 0).any(0), y.abs().argmin()
return fl.linspace(0, n, 5) * 2, fl.logspace(0, 1, 2), x
return fl.stack([x, x], -1).flatten(), fl.dstack([x, x])
return y.select(0, 1), y.narrow(1, 0, 2), y.diagonal()
return fl.bucketize(x, fl.tensor([0.0, 1.0])), fl.searchsorted(fl.tensor([0.0, 1.0]), x)
t = (x, y); return t[0] + t[1], len(t), t.index(n) if n in (1,) else 0
u = {"k": [x]}; u["k"].append(y); return u
w = [[]] * 2; w[0].append(x); return w
p = x; q = [p]; q[0] = q[0] + 1; return p, q
k = 3; k -= 1; k **= 2; k //= 3; k %= 4; return x + k
x[0] = n; return x.sum()
y[0].mul_(2); return y
y.t()[0] = 1; return y
"""

for _index, _line in enumerate(LINES.strip().splitlines()):
    _source = "def f(x, y, n, items, table):\n" + "".join(f"    {part.strip()}\n" for part in _line.split("; "))
    _names = dict(globals())
    exec(compile(_source, f"<line {_index}>", "exec"), _names)
    _function = _names["f"]
    _function.__qualname__ = _function.__name__ = f"line_{_index}"
    program(lambda: T(3), lambda: T(2, 3), 2, lambda: [1, 2, 3], lambda: {"a": 1, "b": 2})(_function)
    if (
        not any(part in _line for part in ("_(", "x[0] =", "items[0] = x", "nn.functional.normalize"))
        and _index % 3 == 0
    ):
        _again = types.FunctionType(_function.__code__, _names, f"line_{_index}_with_grad", None, _function.__closure__)
        _again.__qualname__ = _again.__name__
        program(
            lambda: T(3).requires_grad_(),
            lambda: T(2, 3).requires_grad_(),
            3,
            lambda: [1, 2, 3],
            lambda: {"a": 1, "b": 2},
        )(_again)
