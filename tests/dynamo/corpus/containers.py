# ruff: noqa
"""Lists, tuples, dicts, sets, deques, named tuples, dataclasses, ranges and itertools."""

import collections
import dataclasses
import functools
import itertools
import operator
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import flambeau as fl

from . import T, program, t

Pair = namedtuple("Pair", ["left", "right"])


class Triple(NamedTuple):
    a: object
    b: object = 2
    c: int = 3

    def total(self):
        return self.a * self.b + self.c


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    names: list = dataclasses.field(default_factory=list)

    def apply(self, x):
        return x * self.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: object
    n: int = 1


@program(t(3))
def list_methods(x):
    values = [x, x + 1]
    values.append(x + 2)
    values.insert(0, x - 1)
    values.extend([x * 2, x * 3])
    last = values.pop()
    values.reverse()
    return values, last, len(values)


@program(t(3))
def list_slices(x):
    values = [x * i for i in range(6)]
    values[1:3] = [x]
    del values[0]
    return values[::2], values[-1]


@program(t(3))
def list_concatenate(x):
    a = [x] + [x + 1]
    a += [x + 2]
    return a * 2


@program(t(3))
def list_of_ints(x):
    n = [3, 1, 2]
    n.sort()
    m = sorted(n, reverse=True)
    return x * n[0], m, n.index(2), n.count(1), 2 in n, 7 not in n


@program(t(3), lambda: [T(2), T(2)])
def list_argument(x, values):
    return x.sum() + sum(v.sum() for v in values)


@program(t(3), lambda: [1, 2])
def append_to_argument(x, values):
    values.append(x * 2)
    values[0] = 10
    return x + 1


@program(t(3), lambda: {"a": T(3), "n": 2})
def dict_argument(x, d):
    return x + d["a"] * d["n"]


@program(t(3), dict)
def fill_dict_argument(x, d):
    d["y"] = x + 1
    d["z"] = d["y"] * 2
    d.update(w=3)
    return len(d)


@program(t(3), lambda: {"a": 1, "b": 2, "c": 3})
def delete_from_dict_argument(x, d):
    del d["b"]
    d["b"] = x
    d.pop("a")
    return x


@program(t(3), lambda: ({1, 2, 3},))
def set_argument(x, s):
    s[0].add(5)
    s[0].discard(1)
    return x * len(s[0])


@program(t(3), lambda: deque([1, 2, 3], maxlen=3))
def deque_argument(x, d):
    d.append(4)
    d.appendleft(x)
    return d[0] + 1, len(d)


@program(t(3))
def dict_methods(x):
    d = {"a": x}
    d["b"] = x + 1
    d.setdefault("c", x + 2)
    e = dict(d, z=5)
    f = {**d, "a": x * 9}
    return list(d.keys()), d.get("q"), d.get("q", 4), [v.sum() for v in d.values()], e, f, d.pop("a"), "a" in d


@program(t(3))
def dict_items(x):
    total = x
    for name, value in {"a": 1, "b": 2}.items():
        total = total + value * len(name)
    return total


@program(t(3))
def dict_union(x):
    return {"a": 1} | {"b": x}


@program(t(3))
def ordered_dict(x):
    d = OrderedDict()
    d["b"] = x
    d["a"] = x + 1
    d.move_to_end("b")
    return list(d), d["a"], d


@program(t(3))
def default_dict(x):
    d = defaultdict(list)
    d["a"].append(x)
    d["b"].append(x + 1)
    d["a"].append(2)
    return dict(d)


@program(t(3))
def default_dict_lambda(x):
    d = defaultdict(lambda: x * 2)
    return d["q"] + 1, len(d)


@program(t(3))
def counter(x):
    c = collections.Counter("hello")
    return x * c["l"], c.most_common(1)


@program(t(3))
def set_methods(x):
    a, b = {1, 2, 3}, {2, 3, 4}
    return x * len(a | b), a & b, a - b, a ^ b, a <= b, frozenset(a)


@program(t(3))
def tuple_methods(x):
    a = (1, 2, 2)
    return x * a.count(2), a.index(2), a + (x,), a[1:], a * 2


@program(t(3))
def deque_methods(x):
    d = deque()
    d.append(x)
    d.appendleft(x + 1)
    d.rotate(1)
    return list(d), d.pop(), d.popleft()


@program(t(3))
def named_tuple(x):
    p = Pair(x, x + 1)
    q = p._replace(left=x * 2)
    left, right = q
    return p.left + p.right, q, left * right, p[0], p._fields


@program(t(3))
def typed_named_tuple(x):
    value = Triple(x)
    return value.total(), value


@program(lambda: Pair(T(3), 4))
def named_tuple_argument(p):
    return p.left * p.right, p


@program(t(3))
def dataclass(x):
    config = Config(3.0)
    config.names.append("a")
    config.scale += 1
    return config.apply(x), config.names, config.scale


@program(t(3))
def dataclass_returned(x):
    return Config(2.5, [x])


@program(t(3), lambda: Config(2.0, ["q"]))
def dataclass_argument(x, config):
    config.names.append("r")
    config.scale = 5.0
    return config.apply(x)


@program(t(3))
def frozen_dataclass(x):
    f = Frozen(x, 3)
    return f.x * f.n


@program(t(3))
def dataclass_replace(x):
    c = dataclasses.replace(Config(1.5), scale=2.5)
    return c.apply(x)


@program(t(3))
def enumerate_zip(x):
    out = []
    for i, (a, b) in enumerate(zip([1, 2], [x, x + 1]), start=1):
        out.append(b * a + i)
    return out


@program(t(3))
def zip_unequal(x):
    return [a * b for a, b in zip([1, 2, 3], (x, x))]


@program(t(3))
def map_filter(x):
    values = list(map(lambda v: v * 2, [x, x + 1]))
    kept = list(filter(lambda n: n % 2, range(6)))
    return values, kept


@program(t(3))
def map_two(x):
    return list(map(lambda a, b: a * b, [x, x + 1], [2, 3]))


@program(t(3))
def reversed_range(x):
    for i in reversed(range(3)):
        x = x - i
    return x, list(reversed([1, 2, 3]))


@program(t(3))
def any_all_min_max(x):
    values = [3, 1, 2]
    return x * max(values), min(values), any(v > 2 for v in values), all(values), max(1, 5), min("b", "a")


@program(t(3))
def max_with_key(x):
    return max([x[:1], x], key=lambda v: v.shape[0]), min([-3, 2], key=abs), max([], default=4)


@program(t(3))
def sorted_with_key(x):
    pairs = [(2, x), (1, x + 1)]
    return sorted(pairs, key=lambda p: p[0])


@program(t(3))
def sort_by_tuple(x):
    return x, sorted([("b", 1), ("a", 2)])


@program(t(3))
def functools_reduce(x):
    return functools.reduce(lambda a, b: a * b, [x, x + 1, x + 2]), functools.reduce(operator.add, [1, 2, 3], 10)


@program(t(3))
def itertools_chain(x):
    return [v * 2 for v in itertools.chain([x], (x + 1,), [x + 2])], list(itertools.chain.from_iterable([[1], [2, 3]]))


@program(t(3))
def itertools_product(x):
    total = x
    for i, j in itertools.product(range(2), [3, 4]):
        total = total + i * j
    return total


@program(t(3))
def itertools_more(x):
    a = list(itertools.combinations([1, 2, 3], 2))
    b = list(itertools.islice(itertools.count(5), 3))
    c = list(itertools.accumulate([1, 2, 3]))
    d = list(itertools.repeat(7, 2))
    e = list(itertools.zip_longest([1], [2, 3], fillvalue=0))
    f = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2])]
    g = list(itertools.starmap(lambda p, q: p + q, [(1, 2), (3, 4)]))
    return x, a, b, c, d, e, f, g


@program(t(3))
def itertools_accumulate_tensors(x):
    return list(itertools.accumulate([x, x + 1, x + 2]))


@program(t(3))
def itertools_pairwise_permutations(x):
    return (
        x,
        list(itertools.pairwise([1, 2, 3])),
        list(itertools.permutations([1, 2])),
        list(itertools.takewhile(lambda n: n < 3, [1, 2, 3, 1])),
    )


@program(t(3))
def iterators_by_hand(x):
    it = iter([x, x + 1, x + 2])
    first = next(it)
    rest = list(it)
    return first, rest, next(it, "end")


@program(t(3))
def range_object(x):
    r = range(2, 10, 3)
    return x * len(r), r[1], 5 in r, list(r), r


@program(t(3))
def slice_object(x):
    s = slice(0, 2)
    return x[s], s


@program(t(3))
def operator_getters(x):
    get = operator.itemgetter(1)
    both = operator.itemgetter(0, 2)
    name = operator.attrgetter("left")
    return get([x, x + 1]), both([1, 2, 3]), name(Pair(x, 1))


@program(t(3))
def list_in_tuple_in_dict(x):
    return {"a": ([x, {"b": (x + 1,)}],), "c": []}


@program(t(3))
def aliasing_in_result(x):
    inner = [x]
    return inner, inner


@program(t(3))
def self_containing_list(x):
    values = [x]
    values.append(values)
    return len(values[1][1]), values[0]


@program(t(3))
def equality(x):
    return x, [1, 2] == [1, 2], (1, "a") != (1, "b"), {"a": 1} == {"a": 1}, [1] < [2], {1} == {1.0}


@program(t(3))
def identity(x):
    a = [x]
    b = a
    return a is b, a != [x], x is x, None is None


@program(t(3))
def tensor_in_list(x):
    y = x + 1
    return y in [x, y] if False else len([y])


@program(t(3))
def constructors(x):
    return (
        x,
        list((1, 2)),
        tuple([1]),
        set([1, 1]),
        dict(a=1),
        dict([("b", 2)]),
        list("ab"),
        frozenset((1,)),
        bytes([1]),
    )


@program(t(3))
def cat_list(x):
    return fl.cat([x, x + 1]), fl.stack([x for _ in range(3)])


@program(t(2, 3))
def named_results(x):
    r = x.max(dim=1)
    values, indices = x.sort(dim=0)
    return r.values, r.indices, r[0], values, indices, x.topk(2)


@program(t(4))
def split_and_unbind(x):
    a, b = x.split(2)
    return a + b, x.chunk(2), x.unbind()


class MyList(list):
    def doubled(self):
        return [v * 2 for v in self]


class MyDict(dict):
    def __missing__(self, key):
        return key * 2


@program(t(3))
def list_subclass(x):
    values = MyList([x])
    values.append(x + 1)
    return values.doubled(), len(values)


@program(t(3))
def dict_missing(x):
    d = MyDict()
    d[1] = x
    return d[1], d[4]


@program(t(3))
def copy_containers(x):
    a = [x, 1]
    b = a.copy()
    b.append(2)
    d = {"a": 1}
    e = d.copy()
    e["a"] = 2
    return a, b, d, e


@program(t(3))
def clear_containers(x):
    a = [x]
    a.clear()
    d = {1: x}
    d.clear()
    return a, d, x


@program(t(3))
def unpack_calls(x):
    def f(a, b, *rest, k=0, **more):
        return a + b + sum(rest) + k + sum(more.values())

    args, kwargs = (1, 2), {"k": 3, "z": 4}
    return f(x, *args, *[5], **kwargs)


@program(t(3), lambda: [[1, 2], [3]])
def nested_list_argument(x, values):
    values[0].append(9)
    values[1] = values[0]
    return x * len(values[0])


@program(t(3), lambda: (lambda a: [a, a])([1]))
def aliased_list_argument(x, values):
    values[0].append(2)
    return x * len(values[1]), values[0] is values[1]


@program(t(3), breaks=True)
def list_across_break(x):
    values = [x]
    n = int(x.sum().item())
    values.append(n)
    return values


@program(t(3), lambda: [1], breaks=True)
def mutate_argument_across_break(x, values):
    values.append(2)
    n = x.sum().item()
    values.append(n)
    return x


@program(t(3), breaks=True)
def iterator_across_break(x):
    it = iter([1, 2, 3])
    a = next(it)
    s = x.sum().item()
    return a, s, list(it)


@program(t(3), breaks=True)
def zip_across_break(x):
    out = []
    for a, b in zip([1, 2], ["p", "q"]):
        out.append((a, b, (x * a).sum().item()))
    return out


@program(t(3), breaks=True)
def set_of_tensor_values(x):
    return {v.item() for v in x}


class Output(OrderedDict):
    """Like the results of model libraries: a dict whose items are attributes too."""

    def __init__(self, **values):
        super().__init__()
        for name, value in values.items():
            self[name] = value

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __getitem__(self, key):
        if isinstance(key, str):
            return dict(self.items())[key]
        return tuple(self.values())[key]


@program(t(3))
def ordered_dict_subclass(x):
    out = Output(logits=x + 1, n=2)
    return out.logits + out["n"], out[0], out


@program(t(3), lambda: OrderedDict(b=T(3), a=1))
def ordered_dict_argument(x, d):
    d["c"] = x
    return [k for k in d], d["b"] * d["a"], d


@program(t(3))
def code_of_a_function(x):
    return x * list_methods.__code__.co_argcount, list_methods.__code__.co_varnames[0]
