"""Models and functions for the exchange of archives: each is scripted or traced by one library and loaded by the other."""

# ruff: noqa: B023, C416, E731, F403, F405, RUF059
import enum
import math
from typing import *

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def fill(m):
    with torch.no_grad():
        for i, p in enumerate(list(m.parameters()) + [b for b in m.buffers() if b.is_floating_point()]):
            p.copy_((torch.arange(p.numel(), dtype=torch.float32) * 0.37 + i).sin().reshape(p.shape).abs() * 0.3 + 0.05)


def X(*s):
    return lambda: ((torch.arange(math.prod(s), dtype=torch.float32) * 0.7).sin().reshape(s),)


def idx(*s):
    return lambda: ((torch.arange(math.prod(s)) % 5).reshape(s),)


CASES = []


def L(name, make, inp):
    CASES.append((name, make, inp))
    CASES.append(("trace_" + name, make, inp))


L("linear", lambda: nn.Linear(3, 4), X(2, 3))
L("conv1d", lambda: nn.Conv1d(3, 4, 3, padding=1), X(2, 3, 8))
L("conv2d", lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), X(2, 3, 8, 8))
L("conv2d_same", lambda: nn.Conv2d(3, 4, 3, padding="same"), X(2, 3, 8, 8))
L("conv2d_reflect", lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), X(2, 3, 8, 8))
L("conv3d", lambda: nn.Conv3d(2, 3, 3), X(1, 2, 5, 5, 5))
L("convt2d", lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), X(2, 3, 5, 5))
L("bn", lambda: nn.BatchNorm2d(3), X(2, 3, 4, 4))
L("bn1", lambda: nn.BatchNorm1d(3), X(4, 3))
L("ln", lambda: nn.LayerNorm(4), X(2, 3, 4))
L("gn", lambda: nn.GroupNorm(2, 4), X(2, 4, 3, 3))
L("inorm", lambda: nn.InstanceNorm2d(3), X(2, 3, 4, 4))
L("rms", lambda: nn.RMSNorm(4), X(2, 4))
for n in "ReLU ReLU6 SiLU GELU Sigmoid Tanh ELU SELU CELU LeakyReLU Hardtanh Hardswish Hardsigmoid Softplus Softsign Mish LogSigmoid Tanhshrink Hardshrink Softshrink Identity PReLU GLU".split():
    L("act_" + n, (lambda n: lambda: getattr(nn, n)())(n), X(2, 4))
L("softmax", lambda: nn.Softmax(-1), X(2, 4))
L("logsoftmax", lambda: nn.LogSoftmax(1), X(2, 4))
L("drop", lambda: nn.Dropout(0.5), X(2, 4))
L("drop2d", lambda: nn.Dropout2d(0.5), X(2, 4, 3, 3))
L("emb", lambda: nn.Embedding(5, 3), idx(2, 4))
L("embpad", lambda: nn.Embedding(5, 3, padding_idx=1), idx(2, 4))
L("maxpool", lambda: nn.MaxPool2d(2), X(1, 2, 6, 6))
L("avgpool", lambda: nn.AvgPool2d(3, 2, 1), X(1, 2, 6, 6))
L("adavg", lambda: nn.AdaptiveAvgPool2d((2, 2)), X(1, 2, 6, 6))
L("admax", lambda: nn.AdaptiveMaxPool2d(2), X(1, 2, 6, 6))
L("flatten", lambda: nn.Flatten(), X(2, 3, 4))
L("pad", lambda: nn.ZeroPad2d(1), X(1, 2, 3, 3))
L("refpad", lambda: nn.ReflectionPad2d(1), X(1, 2, 3, 3))
L("pixshuf", lambda: nn.PixelShuffle(2), X(1, 4, 3, 3))
L("up", lambda: nn.Upsample(scale_factor=2.0, mode="nearest"), X(1, 2, 3, 3))
L("upb", lambda: nn.Upsample(scale_factor=2.0, mode="bilinear", align_corners=False), X(1, 2, 3, 3))
L("upsize", lambda: nn.Upsample(size=(5, 7), mode="bilinear"), X(1, 2, 3, 3))
L("lstm", lambda: nn.LSTM(3, 4, 2, batch_first=True), X(2, 5, 3))
L("gru", lambda: nn.GRU(3, 4), X(5, 2, 3))
L("rnn", lambda: nn.RNN(3, 4, bidirectional=True), X(5, 2, 3))
L("lstmcell", lambda: nn.LSTMCell(3, 4), X(2, 3))
L("grucell", lambda: nn.GRUCell(3, 4), X(2, 3))
L("seq", lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), X(2, 3))
L("mha", lambda: MHA(), X(3, 2, 4))
L("tel", lambda: nn.TransformerEncoderLayer(4, 2, 8), X(3, 2, 4))
L("tenc", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2), X(2, 3, 4))
L("tfm", lambda: TF(), X(3, 2, 4))


class MHA(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        return self.a(x, x, x)


class TF(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Transformer(4, 2, 1, 1, 8)

    def forward(self, x):
        return self.t(x, x)


two = lambda *s: lambda: X(*s)() + X(*s)()
L("mse", lambda: nn.MSELoss(), two(2, 3))
L("l1", lambda: nn.L1Loss(reduction="sum"), two(2, 3))
L("smooth", lambda: nn.SmoothL1Loss(), two(2, 3))
L("huber", lambda: nn.HuberLoss(), two(2, 3))
L("bcel", lambda: nn.BCEWithLogitsLoss(), two(2, 3))
L("kld", lambda: nn.KLDivLoss(reduction="batchmean"), two(2, 3))
L("ce", lambda: nn.CrossEntropyLoss(), lambda: (X(3, 5)()[0], torch.tensor([0, 1, 4])))
L("nll", lambda: nn.NLLLoss(), lambda: (X(3, 5)()[0], torch.tensor([0, 1, 4])))
L("cossim", lambda: nn.CosineSimilarity(), two(2, 3))


class Block(nn.Module):
    def __init__(self, i, o, s=1):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, s, 1, bias=False)
        self.b1 = nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(o)
        self.down = None
        if s != 1 or i != o:
            self.down = nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        identity = x
        out = self.relu(self.b1(self.c1(x)))
        out = self.b2(self.c2(out))
        if self.down is not None:
            identity = self.down(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 1, 1)
        self.layers = nn.Sequential(Block(4, 4), Block(4, 8, 2))
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.pool(self.layers(self.stem(x)))
        return self.fc(torch.flatten(x, 1))


L("resnet", ResNet, X(2, 3, 8, 8))


class Attn(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.o = nn.Linear(d, d)
        self.h = h
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)))

    def forward(self, x):
        B, T_, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T_, self.h, C // self.h).transpose(1, 2)
        k = k.view(B, T_, self.h, C // self.h).transpose(1, 2)
        v = v.view(B, T_, self.h, C // self.h).transpose(1, 2)
        a = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        a = a.masked_fill(self.mask[:T_, :T_] == 0, float("-inf"))
        y = F.softmax(a, dim=-1) @ v
        return self.o(y.transpose(1, 2).contiguous().view(B, T_, C))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(11, 8)
        self.pos = nn.Embedding(8, 8)
        self.blocks = nn.ModuleList([Attn(8, 2) for _ in range(2)])
        self.ln = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)

    def forward(self, i):
        b, t = i.size()
        pos = torch.arange(0, t, dtype=torch.long, device=i.device).unsqueeze(0)
        x = self.tok(i) + self.pos(pos)
        for blk in self.blocks:
            x = x + blk(x)
        return self.head(self.ln(x))


L("gpt", GPT, idx(2, 6))
S = lambda name, make, inp: CASES.append((name, make, inp))


class Ctl(nn.Module):
    def __init__(self):
        super().__init__()
        self.names = ["a", "b"]
        self.d = {"k": 1.5}
        self.k: Final[int] = 3
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x, n: int, opt: Optional[Tensor] = None):
        if opt is not None:
            x = x + opt
        tot = torch.zeros_like(x)
        for i in range(n):
            if i == 3:
                break
            if i == 1:
                continue
            tot = tot + x * i
        j = 0
        while j < 5:
            j += 1
            if j > n:
                return tot * self.d["k"], j
        l: List[int] = []
        for q in self.names:
            l.append(len(q))
        return tot * self.w + sum(l), j


S("ctl", Ctl, lambda: (torch.ones(3), 2))
S("ctl2", Ctl, lambda: (torch.ones(3), 7, torch.ones(3)))


class Cont(nn.Module):
    def __init__(self):
        super().__init__()
        self.md = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.ReLU()})
        self.ml = nn.ModuleList([nn.Linear(3, 3), nn.Tanh()])

    def forward(self, x):
        out: Dict[str, Tensor] = {}
        for k, m in self.md.items():
            x = m(x)
            out[k] = x
        for i, m in enumerate(self.ml):
            x = m(x) * i
        return x, out, self.md["a"](x)


S("cont", Cont, X(2, 3))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class P(NamedTuple):
    a: Tensor
    b: int


@torch.jit.script
class C:
    def __init__(self, x: int):
        self.x = x

    def inc(self, y: int) -> int:
        self.x += y
        return self.x


def helper(x, n: int):
    return x + n


class Lang(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = Color.BLUE
        self.register_buffer("t", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x, n: int, s: str):
        p = P(x, n)
        c = C(n)
        c.inc(2)
        y = p.a * p.b + c.x
        if self.c == Color.RED:
            y = y + 100
        with torch.no_grad():
            z = y * 2
        f = torch.jit.fork(helper, x, n)
        t = (1, "q", 2.5)
        a, b, cc = t
        e = {k: v for k, v in [("x", 1), ("y", 2)]}
        comp = [i * 2 for i in range(n)]
        assert n > 0, "neg"
        y[0] = 5.0
        y[1:] += 1
        q = s.upper() + f"{n}-{s}"
        return (
            y,
            z,
            torch.jit.wait(f),
            b,
            cc,
            comp,
            q,
            "x" in e,
            self.t[1:],
            y[y > 3],
            x.unsqueeze(-1)[..., None],
            sorted([3, 1, 2]),
            -n,
            n // 2,
            n / 2,
            n**2,
            n % 2,
            min(n, 1),
            max(2.5, float(n)),
            [[1, 2], [3]],
            int(x.sum()),
            math.sqrt(n),
            x.shape,
            x.size(0),
            x.dim(),
        )

    @torch.jit.export
    def extra(self, l: List[int]) -> List[int]:
        return [a + 1 for a in l]


S("lang", Lang, lambda: (torch.arange(3.0), 3, "hé"))


def fn(x: Tensor, y: Union[int, str], z: Optional[float] = None):
    if isinstance(y, int):
        r = y + 1
    else:
        r = len(y)
    if z is None:
        z = 2.0
    return x * r * z


S("fn", lambda: fn, lambda: (torch.ones(2), 3))
S("fn2", lambda: fn, lambda: (torch.ones(2), "abc", 1.5))


def rec(l: List[Tensor]):
    a, b = l[0], l[-1]
    out = torch.stack(l).sum(0)
    v, i = torch.max(out, dim=0)
    return (
        torch.cat([a, b], dim=0),
        v,
        i,
        out.to(torch.float64),
        out.mean(dim=0, keepdim=True),
        torch.where(out > 0, out, -out),
        out.type_as(a),
        torch.zeros(2, 3, dtype=torch.int64),
        torch.full([2], 3.5),
        torch.arange(5),
        torch.rand(3).shape,
        torch.linspace(0, 1, 5),
        out.clamp(min=0.1),
        out.permute(0),
        torch.einsum("i,i->i", a, b),
        torch.topk(out, 1),
        out.argmax(),
        out.std(),
        out.norm(),
        a.new_zeros([2]),
        out.masked_fill(out > 1, 0.0),
    )


S("rec", lambda: rec, lambda: ([torch.ones(2), torch.arange(2.0)],))
