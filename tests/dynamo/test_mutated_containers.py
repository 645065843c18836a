"""What programs read of containers, numbers and text of classes of their own is guarded: another value is another result."""

from __future__ import annotations

import collections
import itertools
import math
import operator

import pytest

import flambeau as fl


class Items(list):
    pass


class Pair(tuple):
    pass


class Queue(collections.deque):
    pass


class Table(dict):
    pass


class Ordered(collections.OrderedDict):
    pass


class Group(set):
    pass


class Text(str):
    pass


class Count(int):
    pass


class Rate(float):
    pass


SEQUENCES = {
    "len": len,
    "truth": bool,
    "sum": sum,
    "max": max,
    "sorted": lambda o: sorted(o)[-1],
    "in": lambda o: 3 in o,
    "equal": lambda o: o == type(o)([1, 2]),
    "less": lambda o: o < type(o)([1, 3]),
    "item": lambda o: o[-1],
    "arguments": lambda o: (lambda *a: len(a))(*o),
    "display": lambda o: [*o][-1],
    "count": lambda o: o.count(2),
    "native function": math.fsum,
    "reversed": lambda o: next(iter(reversed(o))),
    "any": lambda o: any(i == 3 for i in o),
    "set": lambda o: 3 in set(o),
    "dict": lambda o: 3 in dict(zip(o, o)),
    "set display": lambda o: 3 in {*o},
    "chain": lambda o: list(itertools.chain(o, [5]))[1],
    "text": lambda o: len(repr(o)),
    "twice": lambda o: len(o * 2),
}
MAPPINGS = {
    "len": len,
    "truth": bool,
    "get": lambda o: o.get("a", 7),
    "in": lambda o: "a" in o,
    "keys": lambda o: "b" in o.keys(),  # noqa: SIM118
    "values": lambda o: sum(o.values()),
    "equal": lambda o: o == {"a": 1},
    "dict": lambda o: sum(dict(o).values()),
    "keywords": lambda o: (lambda **k: len(k))(**o),
    "display": lambda o: "a" in [*o],
}
SETS = {"len": len, "in": lambda o: 2 in o, "equal": lambda o: o == {1}, "sum": sum, "union": lambda o: len(o | {1})}
TEXTS = {
    "equal": lambda o: o == "a",
    "len": len,
    "method": lambda o: o.startswith("b"),
    "key": lambda o: {"a": 1}.get(o, 5),
    "text": lambda o: f"{o}" == "a",
}
NUMBERS = {
    "product": lambda o: o * 2,
    "equal": lambda o: o == 1,
    "less": lambda o: o < 2,
    "root": math.sqrt,
    "key": lambda o: {1: 1}.get(o, 5),
}
GETTERS = {"call": lambda o: o([1, 2, 3])}
FAMILIES = [
    (SEQUENCES, [kind([1, 2]), kind([1, 3]), kind([1])])
    for kind in (list, Items, Pair, Queue, collections.deque, collections.UserList)
]
FAMILIES += [
    (MAPPINGS, [kind(a=1), kind(a=2), kind(b=1), kind(a=1, b=2)])
    for kind in (dict, Table, Ordered, collections.Counter, collections.UserDict)
]
FAMILIES += [(SETS, [kind([1]), kind([2]), kind([1, 2])]) for kind in (set, frozenset, Group)]
FAMILIES += [
    (TEXTS, [Text("a"), Text("b"), Text("bb")]),
    (NUMBERS, [Count(1), Count(2), Count(3)]),
    (NUMBERS, [Rate(1), Rate(2), Rate(3)]),
    ({"index": lambda o: [3, 4, 5, 6][o], "range": lambda o: len(range(o))}, [Count(1), Count(2), Count(3)]),
    (GETTERS, [operator.itemgetter(0), operator.itemgetter(1)]),
    (GETTERS, [operator.methodcaller("index", 1), operator.methodcaller("index", 2)]),
    ({"call": lambda o: o(3 + 4j)}, [operator.attrgetter("real"), operator.attrgetter("imag")]),
]
CASES = [
    pytest.param(read, values, id=f"{type(values[0]).__name__}: {name}")
    for reads, values in FAMILIES
    for name, read in reads.items()
    if not (type(values[0]) in (collections.UserList,) and name == "text")
]


@pytest.mark.parametrize(("read", "values"), CASES)
def test_another_value_is_another_result(read, values):
    compiled = fl.compile(lambda x, value: x * read(value), backend="eager")
    x = fl.ones(2)
    try:
        wanted = [x * read(value) for value in values]
    except TypeError:
        pytest.skip("not an operation of this type")
    for value, expected in zip(values, wanted):
        assert fl.equal(compiled(x, value), expected)
