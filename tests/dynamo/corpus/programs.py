# ruff: noqa
"""Programs as their users write them: training loops, caches, configurations, helpers, containers of modules."""

import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import logging
import math
import operator
import re
import typing
import warnings
from collections import OrderedDict
from typing import NamedTuple

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.utils.checkpoint import checkpoint

from . import T, program, t


class MLP(nn.Module):
    def __init__(self, d=4, h=8):
        super().__init__()
        fl.manual_seed(1)
        self.fc1 = nn.Linear(d, h)
        self.fc2 = nn.Linear(h, d)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


class EMA:
    def __init__(self, model, decay=0.9):
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.decay = decay
        self.updates = 0

    @fl.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for k, v in model.named_parameters():
            self.shadow[k].mul_(d).add_(v.detach(), alpha=1 - d)


def mk():
    m = MLP()
    return m


@program(mk, t(3, 4))
def ema_step(m, x):
    e = EMA(m)
    e.update(m)
    e.update(m)
    return list(e.shadow.values()), e.updates


def mk_ema():
    m = MLP()
    return (m, EMA(m))


@program(mk_ema, t(3, 4))
def ema_outside(me, x):
    m, e = me
    loss = m(x).pow(2).mean()
    loss.backward()
    e.update(m)
    return loss.detach(), e.updates


def mk_opt():
    m = MLP()
    o = fl.optim.AdamW(m.parameters(), lr=1e-2)
    s = fl.optim.lr_scheduler.CosineAnnealingLR(o, 10)
    return m, o, s


@program(mk_opt, t(4, 4))
def grad_accumulation(mos, x):
    m, o, s = mos
    o.zero_grad()
    total = 0.0
    for i, chunk in enumerate(x.chunk(2)):
        loss = m(chunk).pow(2).mean() / 2
        loss.backward()
        total = total + loss.detach()
    nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    o.step()
    return total


@program(mk_opt, t(4, 4))
def with_scheduler(mos, x):
    m, o, s = mos
    for _ in range(2):
        o.zero_grad(set_to_none=True)
        l = m(x).square().sum()
        l.backward()
        o.step()
        s.step()
    return o.param_groups[0]["lr"], l.detach()


class KVCache:
    def __init__(self):
        self.k = None
        self.v = None

    def update(self, k, v):
        if self.k is None:
            self.k, self.v = k, v
        else:
            self.k = fl.cat([self.k, k], dim=-2)
            self.v = fl.cat([self.v, v], dim=-2)
        return self.k, self.v

    @property
    def length(self):
        return 0 if self.k is None else self.k.shape[-2]


@program(t(1, 2, 3, 4))
def kv_cache(x):
    c = KVCache()
    outs = []
    for i in range(x.shape[2]):
        q = x[:, :, i : i + 1]
        k, v = c.update(q, q * 2)
        outs.append(F.scaled_dot_product_attention(q, k, v))
    return fl.cat(outs, 2), c.length


@program(KVCache, t(1, 2, 1, 4))
def kv_cache_outside(c, x):
    k, v = c.update(x, x + 1)
    return F.scaled_dot_product_attention(x, k, v), c.length


class StaticCache(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.register_buffer("k", fl.zeros(1, n, 4))
        self.register_buffer("pos", fl.zeros((), dtype=fl.long))

    def forward(self, x, pos):
        self.k[:, pos] = x
        self.pos += 1
        return self.k.sum(), self.k


@program(StaticCache, t(1, 4), 3)
def static_cache(m, x, pos):
    return m(x, pos)


@program(StaticCache, t(1, 1, 4), lambda: fl.tensor([2]))
def static_cache_index_copy(m, x, pos):
    m.k.index_copy_(1, pos, x)
    return m.k[:, :4].sum()


@program(t(1, 5))
def greedy_generate(x):
    w = fl.ones(5, 5).tril()
    ids = []
    h = x
    for _ in range(3):
        h = h @ w
        nxt = h.argmax(-1)
        ids.append(nxt)
        h = F.one_hot(nxt, 5).float() + h * 0.1
    return fl.stack(ids, 1)


@dataclasses.dataclass
class Config:
    hidden: int = 4
    act: str = "gelu"
    layers: list = dataclasses.field(default_factory=lambda: [1, 2])
    dropout: float = 0.0

    @property
    def double(self):
        return self.hidden * 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int = 1
    b: float = 2.0


@program(Config, t(4))
def dataclass_config(cfg, x):
    act = getattr(F, cfg.act)
    c2 = dataclasses.replace(cfg, hidden=8, act="relu")
    return act(x) * cfg.double + c2.double, dataclasses.asdict(c2)["act"], [f.name for f in dataclasses.fields(cfg)], c2


@program(Frozen, t(4))
def dataclass_frozen(cfg, x):
    d = dataclasses.replace(cfg, a=5)
    return x * d.a + d.b, d == cfg, hash(d) == hash(cfg), dataclasses.astuple(d)


@program(t(4))
def dataclass_frozen_assign(x):
    f = Frozen()
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError as e:
        return x, str(e)


@dataclasses.dataclass
class Out:
    loss: typing.Any = None
    logits: typing.Any = None

    def __post_init__(self):
        self.extra = 1

    def __getitem__(self, i):
        return (self.loss, self.logits)[i]


@program(t(4))
def dataclass_output(x):
    o = Out(loss=x.sum(), logits=x)
    return o, o[0], o.extra


class Pt(NamedTuple):
    x: typing.Any
    y: typing.Any = 3

    def norm(self):
        return (self.x**2).sum() + self.y


@program(t(4))
def named_tuple(x):
    p = Pt(x)
    q = p._replace(y=5)
    a, b = q
    return p.norm(), q, a * b, q._asdict(), Pt._fields, Pt._make([x, 1])


class Mode(enum.Enum):
    TRAIN = "train"
    EVAL = "eval"

    @property
    def flag(self):
        return self is Mode.TRAIN


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Color(str, enum.Enum):
    R = "r"
    G = "g"


@program(t(4))
def enums(x):
    m = Mode("train")
    tot = x
    for e in Mode:
        tot = tot + len(e.value)
    b = Bits.A | Bits.B
    return (
        tot,
        m.flag,
        m.name,
        Mode["EVAL"].value,
        Color.R == "r",
        bool(b & Bits.A),
        Color("g"),
        [c.value for c in Color],
        isinstance(m, Mode),
    )


def rearrange(x, pattern, **sizes):
    left, right = [s.strip() for s in pattern.split("->")]

    def parse(s):
        out, group = [], None
        for tok in re.findall(r"\(|\)|\w+", s):
            if tok == "(":
                group = []
            elif tok == ")":
                out.append(tuple(group))
                group = None
            elif group is not None:
                group.append(tok)
            else:
                out.append((tok,))
        return out

    l, r = parse(left), parse(right)
    dims = {}
    shape = []
    for axis, group in zip(x.shape, l):
        known = math.prod(sizes[g] for g in group if g in sizes)
        for g in group:
            dims[g] = sizes[g] if g in sizes else axis // known
            shape.append(dims[g])
    names = [g for grp in l for g in grp]
    x = x.reshape(shape).permute([names.index(g) for grp in r for g in grp])
    return x.reshape([math.prod(dims[g] for g in grp) for grp in r])


@program(t(2, 3, 8))
def einops_like(x):
    y = rearrange(x, "b n (h d) -> b h n d", h=2)
    return y, rearrange(y, "b h n d -> (b n) (h d)")


class Lazy:
    def __init__(self):
        self.calls = 0

    @functools.cached_property
    def table(self):
        self.calls += 1
        return fl.arange(4).float()

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return len(name)
        raise AttributeError(name)


@program(Lazy, t(4))
def cached_property_and_getattr(o, x):
    return x + o.table + o.table + o.dyn_abc, hasattr(o, "nope"), getattr(o, "nope2", 7), o.calls


class Desc:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, cls=None):
        return self if obj is None else getattr(obj, self.name, 0) + 1

    def __set__(self, obj, v):
        setattr(obj, self.name, v * 2)


class HasDesc:
    v = Desc()


@program(HasDesc, t(4))
def descriptors(o, x):
    o.v = 3
    return x * o.v, o.v


@program(t(4))
def closure_nonlocal(x):
    n = 0
    hist = []

    def step(y):
        nonlocal n, x
        n += 1
        hist.append(n)
        x = x + y
        return x

    for i in range(3):
        step(i)
    return x, n, hist


@program(t(4))
def recursion(x):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def tree(t_, d):
        return t_ if d == 0 else tree(t_ * 0.5, d - 1) + tree(t_ + 1, d - 1)

    return x * fib(8), tree(x, 3)


@program(t(4))
def map_nested(x):
    def tree_map(f, o):
        if isinstance(o, dict):
            return {k: tree_map(f, v) for k, v in o.items()}
        if isinstance(o, (list, tuple)):
            return type(o)(tree_map(f, v) for v in o)
        return f(o)

    return tree_map(lambda v: v * 2, {"a": [x, (x + 1, x + 2)], "b": x})


@contextlib.contextmanager
def scaled(log, s):
    log.append("enter")
    try:
        yield s
    except ValueError:
        log.append("caught")
    finally:
        log.append("exit")


@program(t(4))
def context_managers(x):
    log = []
    with scaled(log, 2.0) as s:
        y = x * s
    with scaled(log, 3.0) as s:
        y = y + s
        raise ValueError("x")
    with contextlib.ExitStack() as st:
        a = st.enter_context(scaled(log, 1))
        st.callback(log.append, "cb")
        y = y + a
    with contextlib.suppress(KeyError):
        {}["a"]
    with contextlib.nullcontext(5) as five:
        y = y + five
    return y, log


class Timer:
    def __init__(self):
        self.n = 0

    def __enter__(self):
        self.n += 1
        return self

    def __exit__(self, t_, v, tb):
        self.n += 10
        return t_ is ZeroDivisionError


@program(Timer, t(4))
def class_context(tm, x):
    with tm as q:
        y = x + q.n
    with tm:
        y = y / (1 // 0)
    return y, tm.n


@program(t(4))
def itertools_(x):
    out = x
    for a, b in itertools.product([1, 2], repeat=2):
        out = out + a * b
    for i, (a, b) in enumerate(itertools.pairwise([x, x + 1, x + 2])):
        out = out + a * b * i
    for k, g in itertools.groupby([1, 1, 2], key=lambda v: v):
        out = out * k + len(list(g))
    c = itertools.count(3)
    cyc = itertools.cycle([1, 2])
    return (
        out,
        next(c),
        next(c),
        [next(cyc) for _ in range(3)],
        list(itertools.accumulate([x, x], operator.add)),
        list(itertools.chain([x], [x + 1])),
        list(zip(*[[1, 2], [3, 4]])),
        list(itertools.zip_longest([1], [2, 3])),
        list(itertools.starmap(fl.add, [(x, 1)])),
    )


@program(t(4), breaks=True)
def functools_(x):
    @functools.wraps(fl.sin)
    def f(v, *, k=2):
        return v * k

    compose = functools.reduce(lambda f, g: lambda v: g(f(v)), [fl.sin, fl.cos, functools.partial(f, k=3)])

    @functools.lru_cache(maxsize=None)
    def h(n):
        return n * 2

    return compose(x), h(3) + h(3)


@program(t(4), breaks=True)
def exceptions_(x):
    class MyErr(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    try:
        try:
            raise MyErr(3)
        except MyErr as e:
            raise RuntimeError("wrapped") from e
        finally:
            x = x + 1
    except RuntimeError as e:
        return x * e.__cause__.code, str(e), str(e.__cause__)


@program(t(4), breaks=True)
def raises_user(x):
    y = x * 2
    if y.shape[0] == 4:
        raise ValueError(f"bad shape {tuple(y.shape)}")
    return y


@program(t(4))
def assert_shape(x):
    assert x.ndim == 1, "must be 1d"
    assert x.shape[0] % 2 == 0 and x.is_floating_point()
    return x + 1


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        fl.manual_seed(0)
        self.d = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Sequential(nn.Linear(4, 4), nn.Tanh())})
        self.l = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.p = nn.ParameterList([nn.Parameter(fl.ones(4)) for _ in range(2)])
        self.pd = nn.ParameterDict({"s": nn.Parameter(fl.ones(4) * 2)})
        self.last = None
        self.count = 0
        self.hist = {}

    @property
    def n(self):
        return len(self.l)

    def forward(self, x, key="a"):
        for name, m in self.d.items():
            if name == key:
                x = m(x)
        for i, l in enumerate(self.l[:2]):
            x = l(x) * (i + 1) + self.p[i]
        self.last = x.detach()
        self.count += 1
        self.hist[key] = x.shape
        return x * self.pd["s"] * self.n


@program(Experts, t(2, 4))
def module_containers(m, x):
    return m(x), m(x, key="b"), m.count, m.last, list(m.hist)


class Sq(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x * ctx.k, None


@program(lambda: T(4).requires_grad_())
def autograd_function(x):
    y = Sq.apply(x, 3).sum()
    return y


@program(lambda: T(4).requires_grad_())
def autograd_function_backward(x):
    y = Sq.apply(x, 3).sum()
    y.backward()
    return x.grad


@program(mk, lambda: T(3, 4).requires_grad_())
def checkpoint_(m, x):
    y = checkpoint(m, x, use_reentrant=False)
    return y.sum()


@program(mk, lambda: T(3, 4).requires_grad_())
def checkpoint_backward(m, x):
    y = checkpoint(lambda v: fl.sin(m(v)), x, use_reentrant=False).sum()
    y.backward()
    return x.grad, [p.grad for p in m.parameters()]


@program(t(3, 4), t(4))
def vmap_(x, w):
    return fl.func.vmap(lambda r: (r * w).sum())(x), fl.vmap(fl.dot, in_dims=(0, None))(x, w)


@program(t(4))
def func_grad(x):
    f = lambda v: (v.sin() * v).sum()
    return fl.func.grad(f)(x), fl.func.grad_and_value(f)(x)


@program(t(4))
def func_jac(x):
    f = lambda v: v.sin() * v.sum()
    return fl.func.jacrev(f)(x), fl.func.jacfwd(f)(x), fl.func.hessian(lambda v: (v**3).sum())(x)


@program(t(4))
def func_vjp(x):
    out, vjp = fl.func.vjp(lambda v: v.sin(), x)
    o2, j = fl.func.jvp(lambda v: v.cos(), (x,), (fl.ones(4),))
    return out, vjp(fl.ones(4))[0], o2, j


@program(mk, t(5, 4), t(5, 4))
def per_sample_grads(m, x, y):
    params = {k: v.detach() for k, v in m.named_parameters()}

    def loss(p, xi, yi):
        return F.mse_loss(fl.func.functional_call(m, p, (xi[None],))[0], yi)

    return fl.func.vmap(fl.func.grad(loss), in_dims=(None, 0, 0))(params, x, y)


@program(t(4))
def cond_(x):
    return fl.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))


@program(t(4))
def cond_closure(x):
    w = x * 2
    return fl.cond(x.sum() > 100, lambda: w + 1, lambda: w - 1, ())


def mk_fhook():
    m = MLP()
    m.acts = {}
    m.fc1.register_forward_hook(lambda mod, i, o: m.acts.__setitem__("fc1", o.detach()))
    m.fc2.register_forward_pre_hook(lambda mod, i: (i[0] * 2,))
    return m


@program(mk_fhook, t(3, 4))
def forward_hooks(m, x):
    return m(x), m.acts["fc1"]
