# ruff: noqa
"""More programs as their users write them: models with state, trainers, registries, operators, mappings."""

import abc
import collections
import contextlib
import copy
import functools
import math
import types

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import nn

from . import T, program, t


def seeded(make):
    """What a function makes, the same each time."""
    fl.manual_seed(0)
    return make()


class Block(nn.Module):
    def __init__(self, d=8, h=2, drop=0.0):
        super().__init__()
        fl.manual_seed(0)
        self.ln1 = nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.ln2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.drop = nn.Dropout(drop)

    def forward(self, x, mask=None):
        h = self.ln1(x)
        a, _ = self.attn(h, h, h, attn_mask=mask, need_weights=False)
        x = x + self.drop(a)
        return x + self.mlp(self.ln2(x))


@program(Block, t(2, 5, 8))
def causal_block(m, x):
    mask = fl.triu(fl.full((x.size(1), x.size(1)), float("-inf")), diagonal=1)
    return m(x, mask)


class RoPE(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        inv = 1.0 / (10000 ** (fl.arange(0, d, 2).float() / d))
        self.register_buffer("inv", inv, persistent=False)
        self._cached = None

    def forward(self, x):
        n = x.shape[1]
        if self._cached is None or self._cached[0].shape[0] < n:
            f = fl.outer(fl.arange(n, device=x.device).float(), self.inv)
            self._cached = (f.cos(), f.sin())
        c, s = (v[:n] for v in self._cached)
        a, b = x[..., ::2], x[..., 1::2]
        return fl.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


@program(RoPE, t(2, 5, 8))
def rope(m, x):
    return m(x), m(x[:, :3])


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        fl.manual_seed(0)
        self.gate = nn.Linear(4, 3)
        self.ex = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        w, idx = self.gate(x).softmax(-1).topk(2, -1)
        out = fl.zeros_like(x)
        for e, ex in enumerate(self.ex):
            m = (idx == e).float() * w
            out = out + ex(x) * m.sum(-1, keepdim=True)
        return out


@program(MoE, t(5, 4))
def moe_dense(m, x):
    return m(x)


class LSTMLM(nn.Module):
    def __init__(self):
        super().__init__()
        fl.manual_seed(0)
        self.e = nn.Embedding(10, 8)
        self.l = nn.LSTM(8, 8, batch_first=True)
        self.o = nn.Linear(8, 10)

    def forward(self, ids, state=None):
        h, state = self.l(self.e(ids), state)
        return self.o(h), state


@program(LSTMLM, lambda: fl.tensor([[1, 2, 3]]))
def lstm_state(m, ids):
    o, s = m(ids)
    o2, s2 = m(ids[:, :1], s)
    return o2, s2


@program(lambda: seeded(lambda: nn.LSTMCell(4, 4)), t(3, 2, 4))
def rnn_unrolled(cell, x):
    h = c = fl.zeros(2, 4)
    outs = []
    for step in x.unbind(0):
        h, c = cell(step, (h, c))
        outs.append(h)
    return fl.stack(outs)


class Trainer:
    def __init__(self):
        fl.manual_seed(0)
        self.model = nn.Linear(4, 2)
        self.opt = fl.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.step_no = 0
        self.history = collections.defaultdict(list)
        self.best = float("inf")
        self.meters = {"loss": Meter()}

    def train_step(self, batch):
        self.model.train()
        x, y = batch["x"], batch["y"]
        loss = F.cross_entropy(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.step_no += 1
        self.history["loss"].append(loss.detach())
        self.meters["loss"].update(loss.detach(), x.size(0))
        return {"loss": loss.detach(), "step": self.step_no}


class Meter:
    def __init__(self):
        self.sum = 0.0
        self.n = 0

    def update(self, v, n=1):
        self.sum = self.sum + v * n
        self.n += n

    @property
    def avg(self):
        return self.sum / max(self.n, 1)


@program(Trainer, t(3, 4), lambda: fl.tensor([0, 1, 1]))
def trainer_object(tr, x, y):
    out = tr.train_step({"x": x, "y": y})
    out2 = tr.train_step({"x": x, "y": y})
    return out2, tr.meters["loss"].avg, tr.step_no, len(tr.history["loss"])


def mk_gan():
    fl.manual_seed(0)
    g, d = nn.Linear(2, 4), nn.Linear(4, 1)
    return g, d, fl.optim.Adam(g.parameters(), 1e-3), fl.optim.Adam(d.parameters(), 1e-3)


@program(mk_gan, t(3, 4), t(3, 2))
def gan_step(gd, real, z):
    g, d, og, od = gd
    fake = g(z)
    ld = F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()
    od.zero_grad()
    ld.backward()
    od.step()
    lg = F.softplus(-d(fake)).mean()
    og.zero_grad()
    lg.backward()
    og.step()
    return ld.detach(), lg.detach()


@program(lambda: seeded(lambda: nn.Linear(3, 1)), t(4, 3))
def gradient_penalty(d, x):
    x = x.detach().requires_grad_(True)
    (g,) = fl.autograd.grad(d(x).sum(), x, create_graph=True)
    gp = ((g.norm(2, dim=1) - 1) ** 2).mean()
    gp.backward()
    return gp.detach(), d.weight.grad


@program(lambda: seeded(lambda: nn.Linear(3, 2)), t(4, 3))
def autocast_step(m, x):
    with fl.autocast("cpu", dtype=fl.bfloat16):
        y = m(x)
        l = y.float().pow(2).mean()
    return l, y.dtype


@program(lambda: seeded(lambda: nn.Linear(3, 2)), t(4, 3))
def no_grad_eval(m, x):
    was = m.training
    m.eval()
    with fl.no_grad():
        y = m(x)
    m.train(was)
    return y, y.requires_grad, m.training


@program(lambda: seeded(lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU())), t(4, 3))
def batchnorm_train(m, x):
    y = m(x)
    return y, m[1].running_mean, m[1].num_batches_tracked


@program(lambda: seeded(lambda: nn.Linear(3, 2)), t(4, 3))
def param_stats(m, x):
    total = sum(p.numel() for p in m.parameters() if p.requires_grad)
    norms = {n: p.norm() for n, p in m.named_parameters()}
    dev = next(m.parameters()).device
    return total, norms, str(dev), x.to(dev)


@program(lambda: seeded(lambda: nn.Linear(3, 2)), t(4, 3))
def apply_fn(m, x):
    m.apply(lambda mod: None)
    return m(x), [type(c).__name__ for c in m.modules()], m.extra_repr()


@program(t(2, 3, 4))
def tensor_api(x):
    b, n, d = x.shape
    q, k, v = x.repeat(1, 1, 3).chunk(3, dim=-1)
    a = fl.einsum("bnd,bmd->bnm", q, k).softmax(-1)
    o = fl.einsum("bnm,bmd->bnd", a, v)
    y = x.new_zeros(b, n)
    y[:, 0] = 1
    y[..., -1] += 2
    z = fl.cat([x, x.flip(-1)], -1).view(b, n, 2, d).transpose(1, 2).contiguous()
    i = fl.arange(n).unsqueeze(0).expand(b, -1)
    g = x.gather(1, i.unsqueeze(-1).expand(-1, -1, d))
    s = fl.zeros(b, n, d).scatter_(1, i.unsqueeze(-1).expand(-1, -1, d), x)
    return (
        o,
        y,
        z,
        g,
        s,
        x[:, None, :, 1::2],
        x[..., [0, 2]],
        x[fl.tensor([1, 0])],
        x.mean((0, 1)),
        x.std(unbiased=False),
        *x.unbind(0),
        x.amax(-1).values if False else x.max(-1).values,
    )


@program(t(2, 3))
def slicing(x):
    s = slice(1, None)
    idx = (Ellipsis, s)
    y = x.clone()
    y[idx] = 0
    y[y < 0] = 5.0
    y[0, :2] *= 2
    return y, x[idx], x[-1], x[None].shape, x.T.stride()


class Base(abc.ABC):
    registry = {}

    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        Base.registry[cls.__name__] = cls

    @abc.abstractmethod
    def run(self, x): ...
    def __call__(self, x):
        return self.run(x)


class Add(Base):
    def __init__(self, n=1):
        self.n = n

    def run(self, x):
        return x + self.n


class Mul(Base):
    def run(self, x):
        return x * 2


@program(t(3))
def plugin_registry(x):
    for name in ("Add", "Mul"):
        x = Base.registry[name]()(x)
    return x, isinstance(Add(), Base), Add.__mro__[1] is Base


class Vec:
    __slots__ = ("t",)

    def __init__(self, t_):
        self.t = t_

    def __add__(self, o):
        return Vec(self.t + (o.t if isinstance(o, Vec) else o))

    __radd__ = __add__

    def __mul__(self, k):
        return Vec(self.t * k)

    def __matmul__(self, o):
        return (self.t * o.t).sum()

    def __neg__(self):
        return Vec(-self.t)

    def __len__(self):
        return self.t.shape[0]

    def __getitem__(self, i):
        return self.t[i]

    def __iter__(self):
        return iter(self.t)

    def __eq__(self, o):
        return self is o

    __hash__ = None

    def __bool__(self):
        return True

    def __contains__(self, v):
        return v == 3

    def __call__(self, f):
        return Vec(f(self.t))

    def __repr__(self):
        return f"Vec({len(self)})"


@program(t(3))
def operators(x):
    v = Vec(x)
    w = 1 + v * 2 + v
    return (w @ v), len(w), w[0], sum(e for e in w), (-w).t, 3 in w, v(fl.sin).t, repr(v), bool(v), v == v


class Pipeline:
    def __init__(self, *fs):
        self.fs = fs

    def __or__(self, f):
        return Pipeline(*self.fs, f)

    def __call__(self, x):
        return functools.reduce(lambda v, f: f(v), self.fs, x)


@program(t(3))
def pipelines(x):
    return (Pipeline() | fl.sin | (lambda v: v * 2) | functools.partial(fl.clamp, min=0))(x)


@program(t(3))
def match_statement(x):
    def act(cfg):
        match cfg:
            case {"type": "relu"}:
                return fl.relu(x)
            case ["scale", k] if k > 1:
                return x * k
            case ("add", *rest):
                return x + sum(rest)
            case str() as s:
                return getattr(fl, s)(x)
            case None | 0:
                return x
            case _:
                return -x

    return act({"type": "relu"}), act(["scale", 3]), act(("add", 1, 2)), act("sin"), act(0), act(5)


@program(t(3))
def comprehensions(x):
    d = {k: x * i for i, k in enumerate("abc") if k != "b"}
    s = {len(k) for k in d}
    n = [[i * j for j in range(2)] for i in range(2)]
    return (
        d,
        s,
        n,
        [v for k, v in sorted(d.items(), reverse=True)],
        {**d, "z": x},
        [*d],
        max(d, key=lambda k: ord(k)),
        (y := x + 1) * y,
    )


@program(t(3))
def star_args(x):
    def f(a, /, b, *args, c=1, **kw):
        return a * b + sum(args) + c + sum(kw.values())

    return f(x, 2, 3, 4, c=5, d=6), f(*[x, 1], **{"c": 2, "e": 3})


@program(t(3))
def while_loops(x):
    i = 0
    while True:
        i += 1
        if i % 2:
            continue
        x = x + i
        if i > 6:
            break
    else:
        x = x * 100
    for j in range(2):
        pass
    else:
        x = x + j
    return x, i


@program(t(3))
def try_in_loop(x):
    out = []
    for k in ["a", "b", 3]:
        try:
            out.append({"a": x}[k] + len(k))
        except KeyError as e:
            out.append(x * 0 + len(e.args[0]) if isinstance(e.args[0], str) else x)
        except TypeError:
            out.append(None)
        else:
            out.append(1)
        finally:
            out.append("f")
    return out


@program(t(3))
def exception_groups_of_user(x):
    class_ = RuntimeError

    def inner():
        try:
            raise class_("a")
        finally:
            out.append(1)

    out = []
    try:
        inner()
    except (ValueError, RuntimeError) as e:
        out.append(str(e))
    try:
        with contextlib.suppress(ZeroDivisionError):
            1 / 0
        assert x.shape[0] == 4, f"got {x.shape[0]}"
    except AssertionError as e:
        out.append(e.args)
    return x, out


@program(t(3))
def weakrefs_and_ids(x):
    o = Vec(x)
    seen = {id(o): 1}
    return x * seen[id(o)]


class Cfg(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


@program(lambda: Cfg(a=1, b=Cfg(c=2.0)), t(3))
def attr_dict(cfg, x):
    return x * cfg.a + cfg.b.c, "a" in cfg, cfg.get("z", 5), dict(cfg)["a"]


@program(t(3))
def attr_dict_new(x):
    c = Cfg(k=2)
    c.m = 3
    return x * c.k + c.m, len(c), {**c}


@program(lambda: types.SimpleNamespace(lr=0.1, layers=[1, 2]), t(3))
def namespace(ns, x):
    ns.lr *= 0.5
    ns.new = x
    return x * ns.lr, vars(ns)["layers"], hasattr(ns, "zz")


@program(lambda: collections.deque([1.0, 2.0], maxlen=3), t(3))
def deques(q, x):
    q.append(3.0)
    q.append(4.0)
    return x * sum(q), list(q), q[0]


@program(lambda: collections.OrderedDict(a=1, b=2), t(3))
def ordered(od, x):
    od.move_to_end("a")
    od["c"] = x
    k, v = od.popitem(last=False)
    return od, k, v


@program(lambda: collections.Counter("aab"), t(3))
def counters(c, x):
    c["a"] += 1
    c.update("bb")
    return x * c["a"], c.most_common(1), sum(c.values())


@program(lambda: collections.ChainMap({"a": 1}, {"b": 2}), t(3))
def chainmaps(c, x):
    return x * c["b"], "a" in c


@program(t(4))
def dyn_reshape(x):
    n = x.shape[0]
    h = n // 2
    return (
        x.view(h, -1),
        x.reshape(2, n // 2).sum(0),
        fl.arange(n) * (n / 2),
        math.sqrt(n),
        x / math.sqrt(x.size(-1)),
        fl.full((n,), n),
        int(n * 0.5),
        x[: max(1, n // 3)],
        n > 3,
        fl.zeros(n, h).shape,
    )


@program(t(4), lambda: fl.tensor([3, 1]))
def lengths_mask(x, lens):
    m = fl.arange(4)[None] < lens[:, None]
    return (x[None] * m).sum(1) / m.sum(1).clamp(min=1)


@program(t(3, 4))
def padding_collate(x):
    seqs = [x[i, : i + 1] for i in range(3)]
    return nn.utils.rnn.pad_sequence(seqs, batch_first=True, padding_value=-1)


@program(t(2, 3, 8, 8))
def unet_like(x):
    p = F.max_pool2d(x, 2)
    u = F.interpolate(p, scale_factor=2, mode="nearest")
    b = F.interpolate(p, size=x.shape[-2:], mode="bilinear", align_corners=False)
    return fl.cat([u, b, x], 1), F.adaptive_avg_pool2d(x, 1).flatten(1)


@program(t(4, 3))
def losses(x):
    y = fl.tensor([0, 1, 2, 0])
    return (
        F.cross_entropy(x, y, label_smoothing=0.1),
        F.nll_loss(x.log_softmax(-1), y),
        F.mse_loss(x, x * 2),
        F.smooth_l1_loss(x, x + 1),
        F.kl_div(x.log_softmax(-1), x.softmax(-1), reduction="batchmean"),
        F.binary_cross_entropy_with_logits(x, (x > 0).float()),
        F.cosine_similarity(x, x + 1),
    )


@program(t(4))
def detach_stopgrad(x):
    x = x.requires_grad_() if False else x.clone().requires_grad_()
    y = (x * x.detach()).sum()
    y.backward()
    return x.grad


class Ste(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


@program(lambda: T(4).requires_grad_())
def straight_through(x):
    Ste.apply(x).pow(2).sum().backward()
    return x.grad, x + (x.round() - x).detach()


@program(t(3))
def isinstance_checks(x):
    return (
        isinstance(x, fl.Tensor),
        isinstance(x, nn.Parameter),
        type(x) is fl.Tensor,
        isinstance(3, (int, float)),
        issubclass(nn.Linear, nn.Module),
        callable(fl.sin),
        fl.is_tensor(x),
        x.is_cuda,
        x.dtype == fl.float32,
        x.dtype.is_floating_point,
        fl.finfo(x.dtype).min,
        x.device.type,
    )


@program(t(3))
def setdefault_groupby(x):
    groups = {}
    for i, k in enumerate("abab"):
        groups.setdefault(k, []).append(x * i)
    return {k: fl.stack(v).sum(0) for k, v in groups.items()}


@program(t(3))
def sorted_by_tensor_name(x):
    items = [("b", x), ("a", x + 1)]
    items.sort(key=lambda p: p[0])
    names, tensors = zip(*items)
    return (
        names,
        tensors,
        list(reversed(tensors)),
        sorted(names, reverse=True),
        min(3, 2),
        list(map(lambda a, b: a + b, [1], [2])),
        any(n == "a" for n in names),
        dict(zip(names, range(2))),
    )


@program(lambda: seeded(lambda: nn.Linear(3, 2)), t(4, 3))
def inference_mode(m, x):
    with fl.inference_mode():
        y = m(x)
    return y.is_inference(), x.is_inference()
