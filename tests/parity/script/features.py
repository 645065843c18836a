"""Features of the language for the exchange of archives: interfaces, hooks, properties, classes, enumerations, containers."""

# ruff: noqa: B007, C416, E731, F403, F405, RUF012, UP031
import collections
import enum
import math
from typing import *

import torch
from torch import Tensor, nn


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class A1(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class A2(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 3


class UseI(nn.Module):
    m: Step

    def __init__(self):
        super().__init__()
        self.m = A1()

    def forward(self, x):
        return self.m.forward(x)


class DynIdx(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.ModuleList([A1(), A2()])

    def forward(self, x, i: int):
        m: Step = self.l[i]
        return m.forward(x)


class Prop(nn.Module):
    __constants__ = ["c"]

    def __init__(self):
        super().__init__()
        self._a = 1
        self.c = 4
        self.at = torch.jit.Attribute({}, Dict[str, int])
        self.t = [(1, "a")]
        self.o = torch.jit.Attribute(None, Optional[Tensor])
        self.nested = {"a": [1, 2]}

    @property
    def a(self) -> int:
        return self._a * 2

    @a.setter
    def a(self, v: int):
        self._a = v

    @torch.jit.unused
    def un(self, x):
        return x

    def forward(self, x):
        self.a = 7
        self.at["q"] = 3
        if x.sum() < -100:
            x = self.un(x)
        for q, w in self.t:
            x = x + q
        if self.o is None:
            self.o = x
        return x * self.a + self.c + self.at["q"] + self.nested["a"][1]


class Hk(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = A1()

    def forward(self, x):
        return self.l(x)


def hook(self, inp: Tuple[Tensor], out: Tensor) -> Tensor:
    return out * 10


def pre(self, inp: Tuple[Tensor]) -> Tuple[Tensor]:
    return (inp[0] + 1,)


def hk():
    m = Hk()
    m.l.register_forward_hook(hook)
    m.l.register_forward_pre_hook(pre)
    return m


class E(enum.Enum):
    A = "x"
    B = "y"


class EM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = E.B

    def forward(self, b: bool):
        e = E.A if b else self.e
        return e.value, e.name, e == E.B, [q.value for q in E]


def strs(s: str, n: int):
    return (
        s.split(","),
        s.replace("a", "b"),
        s.startswith("a"),
        s.find("c"),
        s[1:3],
        ",".join(["x", "y"]),
        "%d-%s" % (n, s),
        len(s),
        "a" in s,
        str(3.5),
        f"{n}|{s}",
        s.count("a"),
        'q"\n\té',
    )


def dicts(d: Dict[str, int]):
    d["z"] = 9
    k = list(d.keys())
    v = d.get("a", 0)
    p = d.pop("z")
    d.update({"y": 4})
    o = [a for a in d.values()]
    e = d.copy()
    e.clear()
    x = d.setdefault("n", 1)
    t = 0
    for q in d:
        t += d[q]
    del d["a"]
    return k, v, p, o, len(e), x, t, d, "b" in d, d.get("zz")


def lists(l: List[int]):
    l.append(4)
    l.insert(0, 9)
    l.extend([1, 2])
    a = l.pop()
    l.reverse()
    l.sort()
    m = l.copy()
    m.remove(9)
    c = l.count(1)
    i = l.index(9)
    x = [1, 2] + [3]
    y = [0] * 3
    z = l[-1]
    l2 = [[1], [2, 3]]
    l2[1].append(5)
    w = 0
    for q in l2:
        for r in q:
            w += r
    m[0] += 5
    return (
        l,
        a,
        m,
        c,
        i,
        x,
        y,
        z,
        l2,
        w,
        l == m,
        [1.5, 2.5][1],
        sum(l),
        min(l),
        max(l),
        list(range(2, 8, 3)),
        sorted([3, 1, 2]),
        l[::2],
    )


def maths(a: int, b: float):
    return (
        a // 2,
        a % 3,
        a**2,
        -a,
        abs(-a),
        math.floor(b),
        math.ceil(b),
        math.sqrt(b),
        math.pi,
        int(b),
        float(a),
        bool(a),
        a & 3,
        a | 8,
        a ^ 1,
        a << 2,
        a >> 1,
        math.log(b),
        math.inf,
        a / 2,
        b // 0.7,
        1 if a > b else 2,
        (a > 1 and b > 1) or False,
        1 < a < 9,
        math.exp(b),
        -1.5e-7,
        1e20,
        float("nan") if a < 0 else 0.1,
    )


def unions(x: Union[int, List[int], None]) -> Optional[int]:
    if x is None:
        return None
    if isinstance(x, int):
        return x
    return x[0]


def nested(x: int):
    for i in range(3):
        for j in range(3):
            if i * j == x:
                return i, j
    while x < 10:
        x += 1
        if x == 7:
            if x > 3:
                break
            else:
                continue
    return x, -1


def g(x: Tensor, k: int):
    return x + k


def fork(x):
    fs = torch.jit.annotate(List[torch.jit.Future[Tensor]], [])
    for i in range(3):
        fs.append(torch.jit.fork(g, x, i))
    r = [torch.jit.wait(q) for q in fs]
    return torch.stack(r).sum()


def tolist(x: Tensor):
    a: List[float] = x.tolist()
    return a


def anyt(x: Any):
    if isinstance(x, int):
        return 1
    elif isinstance(x, str):
        return 2
    elif torch.jit.isinstance(x, List[int]):
        return 3
    return 0


@torch.jit.script
class Node:
    def __init__(self, v: int, items: List[int]):
        self.v = v
        self.items = items
        self.t = torch.zeros(1)

    def add(self, o: "Node") -> "Node":
        return Node(self.v + o.v, self.items + o.items)

    def __len__(self) -> int:
        return len(self.items)

    @staticmethod
    def make(n: int) -> int:
        return n * 2


def classes(n: int):
    a = Node(n, [1])
    b = a.add(Node(2, [3, 4]))
    b.t += 1
    return b.v, len(b), b.items, b.t, Node.make(3)


@torch.jit.script
class Shelf:
    """Holds containers that its caller goes on using."""

    def __init__(self, items: List[int], named: Dict[str, List[int]]):
        self.items = items
        self.named = named

    def push(self, n: int):
        self.items.append(n)
        return self


def shared(n: int):
    items: List[int] = []
    named = {"a": [1]}
    shelf = Shelf(items, named)
    shelf.push(1).push(n)
    items.append(3)
    shelf.named["a"].append(n)
    other = shelf
    other.items = [7]
    other.items.append(6)
    return items, named, shelf.items


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = [1]

    def forward(self, n: int):
        given = [n]
        self.items = given
        given.append(3)
        self.items.append(4)
        return given, self.items


def edges(a: int, b: float):
    zero = b - b
    big = a * 4611686018427387904
    return (
        b / zero,
        -b / zero,
        b // zero,
        math.log(zero),
        math.sqrt(-b),
        math.exp(b * 1000),
        big,
        big + big,
        (big - 1) // 2,
        a << 62,
        math.acos(b),
        (-b) ** 0.5,
        max(a, b),
    )


def texts(a: float, n: int):
    return (
        f"{a} {n} {a * 2.0}",
        "{}|{}".format([a, 1.0], {"k": a}),
        str((a, "s", None)),
        "%s %s" % (a, n),
        str([str(n)]),
        str(True),
        str(complex(a, -1.0)),
        str(a * 1e18),
    )


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({"x": nn.Tanh(), "y": nn.Sigmoid()})

    def forward(self, x, name: str):
        if "x" in self.layers:
            x = self.layers["x"](x)
        return x, name in self.layers, "q" in self.layers


def factors(x):
    values, counts = torch.unique(x, return_counts=True)
    spectrum = torch.view_as_real(torch.stft(x.flatten(), 4, window=torch.ones(4), return_complex=True))
    return torch.tensordot(x, x, dims=([1], [1])), torch.lu(x)[0], values, counts, spectrum


def replaced(x):
    return x.where(x > 1, torch.zeros_like(x))


def outs(x):
    sums = torch.zeros_like(x)
    torch.add(x, x, alpha=2, out=sums)
    product = torch.empty(2, 2)
    torch.matmul(x, x, out=product)
    return sums, product


def ordered(x):
    pairs = collections.OrderedDict([("b", x), ("a", x + 1)])
    names: List[str] = []
    for name in pairs:
        names.append(name)
    return names, pairs["a"]


def delayed(x: Tensor, n: int) -> Tensor:
    return x + n


def awaits(x):
    later = torch.jit._awaitable(delayed, x, 3)
    known = torch.jit._awaitable_nowait(x)
    return torch.jit._awaitable_wait(later) * later.abs() + torch.jit._awaitable_wait(known)


def precisions(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = torch.mm(x, x)
        with torch.autocast("cpu", enabled=False):
            high = torch.mm(x, x)
    return low.float(), low.dtype == torch.bfloat16, high, high.dtype == torch.float32


def casts(x):
    return [
        x.float(), x.double(), x.half(), x.bfloat16().float(), x.cfloat(), x.cdouble(), x.bool(), x.byte(), x.char(), x.short(), x.int(),
        x.long(), x.float(memory_format=torch.contiguous_format),
    ]  # fmt: skip


def own_casts(x):
    return x.float(), x.double(), x.half(), x.byte(), x.char(), x.short(), x.int(), x.long(), torch.relu(x).int() + 1


class Found(NamedTuple):
    value: Tensor
    other: Optional[Tensor]
    count: int = 3


class Pairs(nn.Module):
    def forward(self, x):
        found = Found(x + 1, None)
        return found.value, found.count, [Found(x, x, 1)][0].value


def flags(x: bool):
    return x + 1, -x, x * 2.5, torch.norm(torch.ones(2, 3), dim=0)


one = lambda: (torch.ones(2),)
CASES = [
    ("iface", UseI, one),
    ("dynidx", DynIdx, lambda: (torch.ones(2), 1)),
    ("prop", Prop, one),
    ("hooks", hk, one),
    ("enum", EM, lambda: (True,)),
    ("enum2", EM, lambda: (False,)),
    ("strs", lambda: strs, lambda: ("a,bc", 5)),
    ("dicts", lambda: dicts, lambda: ({"a": 1, "b": 2},)),
    ("lists", lambda: lists, lambda: ([3, 1],)),
    ("maths", lambda: maths, lambda: (5, 2.5)),
    ("unions", lambda: unions, lambda: ([4],)),
    ("nested", lambda: nested, lambda: (2,)),
    ("nested2", lambda: nested, lambda: (5,)),
    ("fork", lambda: fork, one),
    ("tolist", lambda: tolist, one),
    ("anyt", lambda: anyt, lambda: ("a",)),
    ("classes", lambda: classes, lambda: (4,)),
    ("factors", lambda: factors, lambda: (torch.tensor([[1.0, 2.0], [2.0, 5.0]]),)),
    ("outs", lambda: outs, lambda: (torch.ones(2, 2),)),
    ("ordered", lambda: ordered, one),
    ("shared", lambda: shared, lambda: (4,)),
    ("kept", Kept, lambda: (4,)),
    ("edges", lambda: edges, lambda: (3, 2.5)),
    ("texts", lambda: texts, lambda: (3.0, 4)),
    ("texts2", lambda: texts, lambda: (0.1, 4)),
    ("named", Named, lambda: (torch.ones(2), "y")),
    ("replaced", lambda: replaced, one),
    ("awaits", lambda: awaits, one),
    ("precisions", lambda: precisions, lambda: (torch.ones(2, 2),)),
    ("own_casts", lambda: own_casts, one),
    ("trace_casts", lambda: casts, one),
    ("pairs", Pairs, one),
    ("flags", lambda: flags, lambda: (True,)),
]
