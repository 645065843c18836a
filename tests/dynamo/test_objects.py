"""Kinds of Python objects inside one graph: read-only dicts, classes derived from containers, generators, new modules."""

from __future__ import annotations

import collections
import functools
import operator
import types
import weakref
from typing import TypedDict

import pytest

import flambeau as fl
from flambeau import nn


def same(actual, expected):
    if isinstance(expected, fl.Tensor):
        return fl.equal(actual, expected)
    if isinstance(expected, (list, tuple)):
        return type(actual) is type(expected) and len(actual) == len(expected) and all(map(same, actual, expected))
    return actual == expected


def check(function, make, calls=2):
    """Compares a function with its graph, on arguments made anew for each call."""
    expected = function(*make())
    compiled = fl.compile(function, backend="eager", fullgraph=True)
    for _ in range(calls):
        actual = compiled(*make())
    assert same(actual, expected)
    return actual


@pytest.fixture
def x():
    return fl.arange(3.0) + 1


def test_mapping_proxies_are_read_and_returned(x):
    shown = types.MappingProxyType({"a": 2, "b": 3})

    def read(x):
        return x * shown["a"], list(shown), dict(shown), {**shown}, len(shown), "a" in shown, shown

    assert check(read, lambda: (x,))[-1] is shown
    check(lambda x: types.MappingProxyType({"q": 1}), lambda: (x,))


def test_a_changed_mapping_behind_a_proxy_is_seen(x):
    held = {"a": 2}
    shown = types.MappingProxyType(held)
    compiled = fl.compile(lambda x: x * shown["a"], backend="eager")
    assert fl.equal(compiled(x), x * 2)
    held["a"] = 5
    assert fl.equal(compiled(x), x * 5)


def test_views_of_dicts_as_arguments_and_results(x):
    held = {"a": 1, "c": 3}
    check(lambda keys: ("c" in keys, list(keys), keys), lambda: (held.keys(),))
    compiled = fl.compile(lambda keys: "c" in keys, backend="eager")
    assert compiled(held.keys())
    del held["c"]
    assert not compiled(held.keys())


def test_an_object_with_keys_is_unpacked(x):
    class Pairs:
        def keys(self):
            return ["a", "b"]

        def __getitem__(self, key):
            return key * 2

    check(lambda pairs: (dict(**pairs), dict(pairs)), lambda: (Pairs(),))


class Items(list):
    def twice(self):
        return len(self) * 2

    def __contains__(self, item):
        self.asked = True
        return super().__contains__(item)


class Pair(tuple):
    pass


def test_a_list_of_a_class_of_its_own_is_read_and_written(x):
    def run(x, items):
        found = 3 in items
        items.append(4)
        items[0] = 7
        return x * items.twice() * sum(items[1:3]), found, items == [7, 2, 3, 4], items

    result = check(run, lambda: (x, Items([1, 2, 3])))
    assert type(result[3]) is Items and result[3].asked


@pytest.mark.parametrize("kind", [Items, Pair])
def test_items_of_a_class_of_its_own_are_guarded(kind):
    compiled = fl.compile(lambda items: items == kind([1, 2]), backend="eager")
    assert compiled(kind([1, 2])) and not compiled(kind([1, 3])) and not compiled(kind([1]))


def test_tuples_with_attributes_and_constructors_of_their_own(x):
    class Point(collections.namedtuple("Point", "x y")):
        pass

    class Always(tuple):
        def __new__(cls, *args):
            return super().__new__(cls, [1, 2])

    def run(x):
        point = Point(x, x + 1)
        point.z = x + 2
        return point, Always(), point.z

    result = check(run, lambda: (x,))
    assert fl.equal(result[0].z, x + 2)


class Table(dict):
    pass


class Counting(dict):
    def __init__(self, *args):
        super().__init__(*args)
        self.calls = 0

    def __getitem__(self, key):
        self.calls += 1
        return super().__getitem__(key) + 1


def test_writes_to_a_dict_of_a_class_of_its_own(x):
    def run(table, x):
        table[6] = 14
        table.pop(2)
        for key, value in table.items():
            x = x * key * value
        return x, table, len(table), table.get(6), table.setdefault(9, 1), table == {4: 10, 6: 14, 9: 1}

    assert type(check(run, lambda: (Table({2: 5, 4: 10}), x))[1]) is Table

    def count(table, x):
        table["d"] = 4
        return x * table["a"] + table["d"], table, table.calls

    check(count, lambda: (Counting({"a": 2}), x))


def test_isinstance_asks_a_metaclass_of_the_program(x):
    class Everything(type):
        def __instancecheck__(cls, instance):
            return instance is not None

    class Any(metaclass=Everything):
        pass

    check(lambda x: (isinstance(x.shape, Any), isinstance(3, (str, Any)), isinstance(None, Any)), lambda: (x,))


def test_cached_functions_and_methods_of_tensors(x):
    class Scale:
        @functools.lru_cache  # noqa: B019
        def run(self, value, factor=1.0):
            return value * factor * 2

    scale = Scale()
    check(lambda x: scale.run(x), lambda: (x,))
    check(lambda x: operator.methodcaller("add", x, alpha=2)(x), lambda: (x,))


def test_facts_about_functions_and_classes(x):
    class Base:
        if hasattr(functools, "cache"):
            limit = 3

    class Derived(Base):
        pass

    compiled = fl.compile(lambda x: (len(Base.__subclasses__()), "same" in str(same)), backend="eager", fullgraph=True)
    assert compiled(x) == (1, True)

    class Second(Base):
        pass

    assert compiled(x) == (2, True)


def numbers(t):
    yield t + 1
    yield t + 2


def test_generators_that_have_not_begun_are_returned(x):
    def run(x):
        def inner(*rest, k=3, **more):
            yield from rest
            yield k
            yield more["z"]

        return numbers(x), inner(1, x, k=2, z=x), (i + x for i in [1, x]), zip(numbers(x), numbers(x + 1))

    compiled = fl.compile(run, backend="eager", fullgraph=True)
    for _ in range(2):
        results = compiled(x)
        assert isinstance(results[0], types.GeneratorType)
        assert same([list(r) for r in results], [list(r) for r in run(x)])


def test_a_generator_left_in_a_try_block_runs_its_end_when_the_function_returns(x):
    def run(x):
        ends = []

        def steps():
            try:
                yield 1
            finally:
                ends.append(x + 3)

        left = steps()
        next(left)
        return x.sin(), ends

    check(run, lambda: (x,))


def test_parameters_and_modules_made_inside(x):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", fl.zeros(3))
            self.linear = nn.Linear(3, 2)
            self.calls = 0

        def __len__(self):
            self.calls += 1
            return 0

        def forward(self, x):
            return self.linear(x + self.shift)

    def run(x):
        block = Block()
        parameter = nn.Parameter(x, requires_grad=False)
        kind = 1 if block else 2
        return block(parameter), kind, parameter

    fl.manual_seed(0)
    expected = run(x)
    compiled = fl.compile(run, backend="eager", fullgraph=True)
    fl.manual_seed(0)
    actual = compiled(x)
    assert fl.allclose(actual[0], expected[0]) and actual[1:2] == (2,)
    assert type(actual[2]) is nn.Parameter and not actual[2].requires_grad

    def keep(x):
        block = Block()
        return block, len(block)

    block, _ = fl.compile(keep, backend="eager", fullgraph=True)(x)
    assert list(block.state_dict()) == ["shift", "linear.weight", "linear.bias"] and block.calls == 1
    assert type(block.linear.weight) is nn.Parameter and block.linear.weight.is_leaf and block(x).requires_grad


def test_a_result_that_depends_on_a_returned_leaf_keeps_its_history(x):
    def run(x):
        weight = nn.Parameter(fl.ones(3))
        return (x * weight).sum(), weight

    loss, weight = fl.compile(run, backend="eager")(x)
    loss.backward()
    assert fl.equal(weight.grad, x)


def test_lazy_modules_are_initialised_by_the_capture(x):
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
    compiled = fl.compile(model, backend="eager", fullgraph=True)
    assert compiled(x).shape == (2,) and type(model[0]) is nn.Linear
    assert fl.allclose(compiled(x), model(x))


def test_extremes_and_copies_of_tensors(x):
    check(lambda x: (max(x.sum(), x[0]), min(x.sum(), x[0])), lambda: (x,))
    check(lambda x: (x.new(x.size()).shape, x.new(2, 3).shape, x.type(), x.half().type()), lambda: (x,))
    with pytest.warns(UserWarning, match="expected data"):
        check(lambda x: fl.tensor(x).add_(1), lambda: (x,))


def test_super_after_a_break(x):
    class Base:
        def add(self, x):
            return x + 1

    class Derived(Base):
        def add(self, x):
            fl.compiler.graph_break() if hasattr(fl.compiler, "graph_break") else print(end="")
            return x + super().add(x)

    assert fl.equal(fl.compile(Derived().add, backend="eager")(x), x + x + 1)


def test_whole_numbers_are_symbols_where_dynamic_is_asked_for(x):
    graphs = []

    def backend(graph, examples):
        graphs.append(graph)
        return graph

    compiled = fl.compile(lambda x, n: x + n, backend=backend, dynamic=True)
    assert fl.equal(compiled(x, 4), x + 4) and fl.equal(compiled(x, 20), x + 20) and len(graphs) == 1


def test_a_backend_that_raises_is_named():
    from flambeau._dynamo import config, exc

    def broken(graph, examples):
        raise ValueError("no such device")

    with (
        config.patch(suppress_errors=False),
        pytest.raises(exc.BackendCompilerFailed, match=r"broken.*\n.*no such device"),
    ):
        fl.compile(lambda x: x + 1, backend=broken)(fl.ones(2))


def test_keywords_of_nodes_may_be_reserved_words(x):
    drawn = fl.compile(lambda t, options: t.random_(**options), backend="eager")(x.clone(), {"from": 4, "to": 5})
    assert fl.equal(drawn, fl.full((3,), 4.0))


def test_identities_are_guarded_when_numbers_meet_them(x):
    class Thing:
        pass

    def run(thing, number):
        return id(thing) == number

    compiled = fl.compile(run, backend="eager")
    first, second = Thing(), Thing()
    assert compiled(first, id(first)) and not compiled(second, id(first)) and compiled(second, id(second))
    assert compiled(x, id(x)) and not compiled(x + 1, id(x))
    ids = {id(first): "first"}
    look = fl.compile(lambda thing: id(thing) in ids, backend="eager")
    assert look(first) and not look(second)


def test_attributes_and_the_dict_of_an_instance_are_one(x):
    class Field:
        def __set__(self, owner, value):
            owner.__dict__["field"] += value * 2

    class Owner:
        field = Field()

        def __init__(self):
            self.__dict__["field"] = 0

    def run(x, owner):
        owner.field = 10
        owner.other = 3
        return x + owner.field, "other" in owner.__dict__, owner.other

    owners = []

    def make():
        owners.append(Owner())
        return x, owners[-1]

    check(run, make)
    assert all(owner.__dict__ == {"field": 20, "other": 3} for owner in owners)


def test_values_behind_descriptors_of_new_objects(x):
    class Hidden:
        def __init__(self, value):
            self.__dict__["value"] = value

        value = property(lambda self: self.__dict__["value"])

    hidden = fl.compile(lambda x: Hidden(x + 1), backend="eager", fullgraph=True)(x)
    assert fl.equal(hidden.value, x + 1)


def test_weak_references_that_are_made_inside(x):
    def run(x):
        doubled = x * 2
        reference = weakref.ref(doubled)
        return reference() + 1, reference is weakref.ref(doubled), reference, doubled

    result = fl.compile(run, backend="eager", fullgraph=True)(x)
    assert fl.equal(result[0], x * 2 + 1) and result[1] and result[2]() is result[3]


def test_a_list_extended_by_itself(x):
    def run(x, items):
        items.extend(items)
        return items

    check(run, lambda: (x, Items([1, 2])))


def test_typed_dicts(x):
    class Options(TypedDict):
        scale: int

    check(lambda x: x * Options(scale=3)["scale"], lambda: (x,))


def test_exported_numbers_follow_the_data(x):
    graph, _ = fl._dynamo.export(lambda x, y: x.sum() + y.item(), aten_graph=True)(x, fl.tensor(1))
    assert graph(x, fl.tensor(2)).item() == 8
