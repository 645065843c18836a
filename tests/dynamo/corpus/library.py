# ruff: noqa
"""The standard library around tensors: functools, itertools, operator, math, copy, random, time, os, strings."""

import bisect
import cmath
import collections
import copy
import dataclasses
import datetime
import functools
import heapq
import itertools
import json
import logging
import math
import operator
import os
import random
import re
import string
import time
import types
import typing

import flambeau as fl

from . import T, program, t

CALLS = []
log = logging.getLogger("corpus")


@functools.lru_cache(None)
def cached_square(n):
    return n * n


@functools.lru_cache
def cached_mask(n):
    return fl.tril(fl.ones(n, n))


@functools.singledispatch
def describe(value):
    return 0


@describe.register
def _(value: int):
    return value + 1


@describe.register
def _(value: str):
    return len(value)


@program(t(3))
def lru_cache(x):
    return x * cached_square(4) + cached_square(4)


@program(t(3, 3))
def lru_cache_of_tensor(x):
    return x * cached_mask(3)


@program(t(3))
def singledispatch(x):
    return x + describe(3) + describe("abc") + describe(2.5)


@program(t(3))
def reduce(x):
    return functools.reduce(lambda a, b: a * 2 + b, [x, x + 1, x + 2]), functools.reduce(operator.add, [1, 2, 3], 10)


@program(t(3))
def partials(x):
    f = functools.partial(fl.add, x, alpha=2)
    g = functools.partial(functools.partial(max, 3), 4)
    return f(x), g(2)


@functools.total_ordering
class Version:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


@program(t(3))
def total_ordering(x):
    a, b = Version(1), Version(2)
    return x + (a < b) + (a >= b) * 10 + (a <= b) * 100 + (a > b) * 1000


@program(t(3))
def cmp_to_key(x):
    return x, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


@program(t(4))
def itertools_all(x):
    parts = list(x.unbind())
    out = [
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.accumulate(parts))[-1],
        list(itertools.chain([1], (2, 3), range(2))),
        list(itertools.chain.from_iterable([[1], [2, 3]])),
        list(itertools.combinations([1, 2, 3], 2)),
        list(itertools.combinations_with_replacement("ab", 2)),
        list(itertools.compress([1, 2, 3], [1, 0, 1])),
        list(itertools.islice(itertools.count(3, 2), 3)),
        list(itertools.islice(itertools.cycle([1, 2]), 5)),
        list(itertools.dropwhile(lambda v: v < 2, [1, 2, 3, 1])),
        list(itertools.takewhile(lambda v: v < 2, [1, 2, 3, 1])),
        list(itertools.filterfalse(lambda v: v % 2, range(5))),
        [(k, list(g)) for k, g in itertools.groupby([1, 1, 2, 3, 3], key=lambda v: v > 1)],
        list(itertools.pairwise([1, 2, 3])),
        list(itertools.permutations([1, 2, 3], 2)),
        list(itertools.product([1, 2], repeat=2)),
        list(itertools.repeat(7, 3)),
        list(itertools.starmap(lambda a, b: a * b, [(1, 2), (3, 4)])),
        list(itertools.zip_longest([1, 2], [3], fillvalue=0)),
    ]
    a, b = itertools.tee(parts)
    return out, list(a)[0] + list(b)[1]


@program(t(4))
def operator_all(x):
    out = [
        operator.add(x, 1),
        operator.sub(x, 1),
        operator.mul(x, 2),
        operator.truediv(x, 2),
        operator.neg(x),
        operator.pow(x, 2),
        operator.matmul(x, x),
        operator.getitem(x, 1),
        operator.abs(x),
        operator.gt(x, 0),
        operator.and_(6, 3),
        operator.or_(6, 3),
        operator.xor(6, 3),
        operator.invert(6),
        operator.lshift(1, 3),
        operator.rshift(8, 1),
        operator.mod(7, 3),
        operator.floordiv(7, 2),
        operator.concat([1], [2]),
        operator.countOf([1, 1, 2], 1),
        operator.indexOf([5, 6], 6),
        operator.contains([1], 1),
        operator.truth([]),
        operator.is_(None, None),
        operator.is_not(1, None),
        operator.not_(0),
        operator.eq(1, 1.0),
        operator.ne(1, 2),
        operator.le(1, 1),
        operator.lt(1, 1),
        operator.index(4),
        operator.pos(-2),
        operator.length_hint([1, 2]),
        operator.itemgetter(0, 2)([4, 5, 6]),
        operator.attrgetter("ndim")(x),
        operator.methodcaller("sum", 0)(x),
    ]
    values = [1, 2]
    operator.setitem(values, 0, 5)
    operator.delitem(values, 1)
    values = operator.iadd(values, [9])
    return out, values


@program(t(3))
def math_all(x):
    return x * math.pi, [
        math.ceil(1.2),
        math.floor(-1.2),
        math.sqrt(2),
        math.exp(1),
        math.log(3),
        math.log2(8),
        math.log10(100),
        math.gcd(12, 18),
        math.lcm(4, 6),
        math.comb(5, 2),
        math.perm(5, 2),
        math.factorial(5),
        math.isclose(0.1 + 0.2, 0.3),
        math.hypot(3, 4),
        math.prod([1, 2, 3]),
        math.fsum([0.1] * 10),
        math.copysign(1, -0.0),
        math.frexp(8.0),
        math.ldexp(0.5, 3),
        math.modf(1.5),
        math.trunc(1.9),
        math.isnan(math.nan),
        math.inf,
        math.erf(0.5),
        math.gamma(5),
        math.atan2(1, 2),
        math.degrees(math.pi),
        math.dist([0, 0], [3, 4]),
        math.isqrt(17),
        math.tau,
    ]


@program(t(3))
def cmath_all(x):
    return x, cmath.sqrt(-1), cmath.exp(1j), cmath.phase(1j), cmath.polar(1 + 1j), cmath.isnan(1j), abs(3 + 4j)


@program(t(3))
def copies(x):
    a = [1, [2, 3], {"k": (4,)}]
    b, c = copy.copy(a), copy.deepcopy(a)
    c[1].append(5)
    return x + len(b[1]), b, c, b[1] is a[1], c[1] is a[1]


@dataclasses.dataclass
class Point:
    x: float
    y: float = 1.0
    tags: list = dataclasses.field(default_factory=list)

    def norm(self):
        return (self.x**2 + self.y**2) ** 0.5


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float
    name: str = "n"


@dataclasses.dataclass(order=True)
class Ranked:
    rank: int
    item: object = dataclasses.field(compare=False, default=None)

    def __post_init__(self):
        self.twice = self.rank * 2


@program(t(3))
def dataclass_use(x):
    p = Point(3.0, 4.0)
    p.tags.append("a")
    q = dataclasses.replace(p, y=0.0)
    return (
        x * p.norm(),
        p,
        q,
        dataclasses.asdict(p),
        [f.name for f in dataclasses.fields(p)],
        p == Point(3.0, 4.0, ["a"]),
    )


@program(t(3))
def dataclass_frozen(x):
    f = Frozen(2.0)
    try:
        f.scale = 3.0
    except dataclasses.FrozenInstanceError:
        x = x + 1
    return x * f.scale, hash(f) == hash(Frozen(2.0)), f == Frozen(2.0)


@program(t(3))
def dataclass_order(x):
    items = sorted([Ranked(3, "c"), Ranked(1, "a"), Ranked(2, "b")])
    return x + items[0].twice, [r.item for r in items], max(items).rank


@program(t(3), lambda: Point(1.0, 2.0))
def dataclass_argument(x, p):
    p.y = 5.0
    p.tags.append(len(p.tags))
    return x * p.x, p


@program(t(3), breaks=True)
def random_module(x):
    random.seed(3)
    a = random.random()
    b = random.randint(0, 10)
    return x * a + b


@program(t(3), breaks=True)
def random_state_goes_on(x):
    random.seed(7)
    first = [random.uniform(0, 1), random.choice([1, 2, 3])]
    y = x * first[0]
    items = [1, 2, 3, 4]
    random.shuffle(items)
    return y, first, items, random.gauss(0, 1)


@program(t(3), breaks=True)
def time_passes(x):
    begin = time.time()
    tick = time.perf_counter()
    y = x.sin()
    return y, time.time() >= begin, time.perf_counter() - tick >= 0


@program(t(3))
def environment(x):
    debug = os.environ.get("CORPUS_ABSENT", "no")
    return x * (2 if debug == "no" else 3), "PATH" in os.environ, os.getenv("CORPUS_ABSENT")


@program(t(3))
def path_text(x):
    return x, os.path.join("a", "b.txt"), os.path.basename("/x/y"), os.path.splitext("m.py")


@program(t(3))
def logging_calls(x):
    y = x * 2
    log.debug("shape %s", y.shape)
    log.info("done")
    return y


@program(t(3))
def counter(x):
    c = collections.Counter("abracadabra")
    c.update("aa")
    return x * c["a"], c.most_common(2), c["zzz"], sum(c.values())


@program(t(3))
def default_dict(x):
    groups = collections.defaultdict(list)
    for i, v in enumerate(x.unbind()):
        groups[i % 2].append(v)
    return {k: sum(v) for k, v in groups.items()}


@program(t(3))
def ordered_dict(x):
    d = collections.OrderedDict(a=1, b=2)
    d.move_to_end("a")
    d["c"] = x
    return list(d), d.popitem(last=False), d


@program(t(3))
def chain_map(x):
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    return x * m["a"] + m["b"], sorted(m), "c" in m


@program(t(3))
def deque_use(x):
    d = collections.deque([1, 2, 3], maxlen=3)
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    return x + d[0], list(d), d.maxlen


Pair = collections.namedtuple("Pair", "a b", defaults=[5])


class Typed(typing.NamedTuple):
    a: int
    b: str = "z"

    def both(self):
        return f"{self.a}{self.b}"


@program(t(3))
def named_tuples(x):
    p = Pair(x)
    q = p._replace(b=7)
    return q.a * q.b, p._fields, q._asdict()["b"], Typed(1).both(), Typed(2, "y") == (2, "y")


@program(t(3))
def heap(x):
    h = [5, 1, 4]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return x + heapq.heappop(h), heapq.nsmallest(2, h), bisect.bisect([1, 3, 5], 3)


@program(t(3))
def regular_expressions(x):
    found = re.match(r"(\w+)_(\d+)", "layer_12")
    return x * int(found.group(2)), found.groups(), re.sub("a", "b", "banana"), re.findall(r"\d", "1a2")


@program(t(3))
def json_text(x):
    return x, json.dumps({"a": [1, 2.5, None]}), json.loads('{"k": [1, 2]}')["k"]


@program(t(2, 3))
def formatting(x):
    b, c = x.shape
    return x, f"{b}x{c}", f"{b:>4}|{3.14159:.2f}|{c!r}", "{:d}-{}".format(b, c), "%d/%s" % (b, "z"), f"{x.ndim=}"


@program(t(3))
def string_use(x):
    s = "Hello, World"
    return x, [s.lower(), s.split(", "), s.replace("l", "L"), s.find("W"), s[::-1], s.startswith("He"), " a ".strip(),
               ",".join(["a", "b"]), s.title(), s.count("o"), "a-b".partition("-"), "x".zfill(3), s.encode(), string.digits,
               "abc".isalpha(), "7".isdigit(), "ab".center(6, "*"), s.swapcase(), "a\tb".expandtabs(2)]  # fmt: skip


@program(t(3))
def simple_namespace(x):
    n = types.SimpleNamespace(a=1, b=x)
    n.c = n.a + 1
    return n.b * n.c


@program(t(3))
def builtins_all(x):
    return x, [abs(-1), all([1, 1]), any([0, 1]), bin(5), bool([]), chr(65), divmod(7, 3), hash("a") == hash("a"), hex(255),
               isinstance(1, int), issubclass(bool, int), len("abc"), list(map(str, [1])), max(1, 2), min([3, 1]), oct(8),
               ord("A"), pow(2, 5), pow(3, 4, 5), repr("a"), list(reversed([1, 2])), round(2.567, 2), sorted([2, 1]), sum([1, 2]),
               tuple("ab"), list(zip([1], [2])), int("12"), float("1.5"), str(12), complex(1, 2), bytes(2), set([1]),
               frozenset([1]), dict(a=1), slice(1, 2), range(3), callable(len), type(1), ascii("é"), format(3, "03d"),
               list(enumerate("a", 1)), list(filter(None, [0, 1])), next(iter([4])), id(x) == id(x)]  # fmt: skip


@program(t(3))
def date(x):
    return x, datetime.timedelta(days=2).total_seconds(), datetime.date(2020, 1, 2).isoformat()
