"""Changes of functions, variables and containers between calls."""

import array
import collections
import contextvars
import functools
import gc
import importlib
import inspect
import logging
import operator
import os
import pathlib
import sys
import threading
import types
import weakref

import pytest

import flambeau as fl

sys.path.insert(0, str(pathlib.Path(__file__).parent))
check = importlib.import_module("mutations").check

CASES = []


def case(make):
    CASES.append(make)
    return make


G = 1


@case
def code_of_helper():
    def h(x):
        return x + 1

    def g(x):
        return x + 100

    def f(x):
        return h(x)

    return f, [lambda: setattr(h, "__code__", g.__code__)]


@case
def dict_of_module():
    class Scaled(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = fl.nn.Identity()
            self.count = 3
            self.mode = "a"

        def forward(self, x):
            y = self.inner(x) * self.count
            return y if self.mode == "a" else -y

    module = Scaled()
    state = module.__dict__
    return module, [
        lambda: state.update(count=5),
        lambda: operator.setitem(state, "mode", "b"),
        lambda: vars(module.inner).update(forward=lambda x: x + 7),
        lambda: vars(module.inner).pop("forward"),
        lambda: operator.setitem(module.__dict__, "forward", lambda x: x * 11),
        lambda: state.pop("forward"),
        lambda: state["_modules"].update(inner=fl.nn.ReLU()),
        lambda: operator.setitem(state, "inner", lambda x: x - 1),
    ]


@case
def code_of_self():
    def f(x):
        return x + 1

    def g(x):
        return x + 100

    return f, [lambda: setattr(f, "__code__", g.__code__)]


@case
def defaults_of_helper():
    def h(x, k=1):
        return x + k

    def f(x):
        return h(x)

    return f, [lambda: setattr(h, "__defaults__", (5,))]


@case
def kwdefaults_of_helper():
    def h(x, *, k=1):
        return x + k

    def f(x):
        return h(x)

    def m():
        h.__kwdefaults__["k"] = 7

    return f, [m]


@case
def weak_ref_died():
    class A:
        pass

    box = [A()]
    r = weakref.ref(box[0])

    def f(x):
        return x + 1 if r() is not None else x - 1

    return f, [lambda: (box.clear(), gc.collect())]


@case
def weak_value_dict():
    class A:
        pass

    box = [A()]
    d = weakref.WeakValueDictionary({"a": box[0]})

    def f(x):
        return x + len(d)

    return f, [lambda: (box.clear(), gc.collect())]


@case
def glob():
    def f(x):
        return x + G

    def m():
        global G
        G += 5

    return f, [m]


@case
def builtin_shadow():
    def f(x):
        return x + len([1, 2])

    def m():
        globals()["len"] = lambda v: 50

    def u():
        del globals()["len"]

    return f, [m, u]


@case
def module_attr():
    mod = types.ModuleType("mm")
    mod.k = 1

    def f(x):
        return x + mod.k

    return f, [lambda: setattr(mod, "k", 6)]


@case
def module_func():
    mod = types.ModuleType("mm")
    exec("def h(x): return x+1", mod.__dict__)

    def f(x):
        return mod.h(x)

    def m():
        exec("def h(x): return x+77", mod.__dict__)

    return f, [m]


@case
def closure():
    k = 1

    def f(x):
        return x + k

    def m():
        nonlocal k
        k = 9

    return f, [m]


@case
def closure_of_helper():
    k = 1

    def h(x):
        return x + k

    def f(x):
        return h(x)

    def m():
        nonlocal k
        k = 9

    return f, [m]


@case
def list_item():
    l = [1, 2]

    def f(x):
        return x + sum(l)

    return f, [lambda: l.append(3), lambda: l.__setitem__(0, 10)]


@case
def dict_item():
    d = {"a": 1}

    def f(x):
        return x + d["a"]

    return f, [lambda: d.__setitem__("a", 3)]


@case
def dict_absent():
    d = {"a": 1}

    def f(x):
        return x + d.get("b", 0)

    return f, [lambda: d.__setitem__("b", 3)]


@case
def dict_order():
    d = {"a": 1, "b": 2}

    def f(x):
        return x * next(iter(d.values()))

    def m():
        v = d.pop("a")
        d["a"] = v

    return f, [m]


@case
def set_():
    s = {1, 2}

    def f(x):
        return x + sum(s)

    return f, [lambda: s.add(5)]


@case
def deque_():
    s = collections.deque([1, 2])

    def f(x):
        return x + s[0]

    return f, [lambda: s.appendleft(5)]


@case
def nested_list():
    l = [[1], [2]]

    def f(x):
        return x + l[1][0]

    return f, [lambda: l[1].__setitem__(0, 9)]


@case
def func_attr():
    def h(x):
        return x + h.k

    h.k = 1

    def f(x):
        return h(x)

    return f, [lambda: setattr(h, "k", 8)]


@case
def partial_():
    p = [functools.partial(operator.add, 1)]

    def f(x):
        return p[0](x)

    return f, [
        lambda: p.__setitem__(0, functools.partial(operator.add, 5)),
        lambda: p[0].__setstate__((operator.mul, (3,), {}, {})),
    ]


@case
def name_of_func():
    def h(x):
        return x

    def f(x):
        return x + len(h.__name__)

    return f, [lambda: setattr(h, "__name__", "abcdefgh")]


@case
def doc_of_func():
    def h(x):
        return x

    def f(x):
        return x + (1 if h.__doc__ else 2)

    return f, [lambda: setattr(h, "__doc__", "abcdefgh")]


@case
def sysmodules():
    def f(x):
        return x + (1 if "zzq" in sys.modules else 2)

    return f, [lambda: sys.modules.__setitem__("zzq", os)]


@case
def environ():
    def f(x):
        return x + (1 if os.environ.get("ZZQ") else 2)

    return f, [lambda: os.environ.__setitem__("ZZQ", "1")]


@case
def thread_local():
    t = threading.local()
    t.k = 1

    def f(x):
        return x + t.k

    return f, [lambda: setattr(t, "k", 5)]


@case
def recursion():
    def f(x):
        return x + sys.getrecursionlimit()

    return f, [lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 5)]


@case
def lru():
    k = [1]

    @functools.lru_cache
    def h():
        return k[0]

    def f(x):
        return x + h()

    return f, [lambda: k.__setitem__(0, 5), lambda: h.cache_clear()]


@case
def locals_dict():
    k = [1]

    def f(x):
        a = k[0]
        return x + locals()["a"]

    return f, [lambda: k.__setitem__(0, 9)]


@case
def globals_():
    def f(x):
        return x + globals()["G"]

    def m():
        global G
        G += 5

    return f, [m]


@case
def eval_():
    k = [1]

    def f(x):
        return x + eval("k[0]", {"k": k})

    return f, [lambda: k.__setitem__(0, 9)]


@case
def decorated_wrapped():
    def deco(h):
        @functools.wraps(h)
        def w(x):
            return h(x) * 2

        return w

    @deco
    def h(x):
        return x + 1

    def g(x):
        return x + 31

    def f(x):
        return h(x)

    return f, [lambda: setattr(h.__wrapped__, "__code__", g.__code__)]


@case
def gen_helper_code():
    def h():
        yield 1

    def g():
        yield 31

    def f(x):
        return x + sum(h())

    return f, [lambda: setattr(h, "__code__", g.__code__)]


@case
def registered_dispatch():
    @functools.singledispatch
    def h(v):
        return 1

    def f(x):
        return x + h(3)

    return f, [lambda: h.register(int, lambda v: 50)]


@case
def signature():
    def h(a):
        pass

    def g(a, b, c=1):
        pass

    def f(x):
        return x + len(inspect.signature(h).parameters)

    return f, [lambda: setattr(h, "__code__", g.__code__)]


@case
def context_variable():
    v = contextvars.ContextVar("v", default=1)

    def f(x):
        return x + v.get()

    return f, [lambda: v.set(5)]


@case
def range_():
    r = [range(3)]

    def f(x):
        return x + sum(r[0])

    return f, [lambda: r.__setitem__(0, range(5))]


@case
def namedtuple_():
    T = collections.namedtuple("T", "a b")
    t = [T(1, 2)]

    def f(x):
        return x + t[0].b

    return f, [lambda: t.__setitem__(0, T(1, 9))]


@case
def mappingproxy():
    d = {"a": 1}
    p = types.MappingProxyType(d)

    def f(x):
        return x + p["a"]

    return f, [lambda: d.__setitem__("a", 8)]


@case
def chainmap():
    d = {"a": 1}
    p = collections.ChainMap(d, {"b": 2})

    def f(x):
        return x + p["a"]

    return f, [lambda: d.__setitem__("a", 8)]


@case
def userdict():
    p = collections.UserDict(a=1)

    def f(x):
        return x + p["a"]

    return f, [lambda: p.__setitem__("a", 8)]


@case
def bytearray_():
    b = bytearray(b"abc")

    def f(x):
        return x + b[0]

    return f, [lambda: b.__setitem__(0, 1)]


@case
def array_():
    b = array.array("i", [1, 2])

    def f(x):
        return x + b[0]

    return f, [lambda: b.__setitem__(0, 5)]


@case
def ordereddict():
    d = collections.OrderedDict(a=1, b=2)

    def f(x):
        return x * next(iter(d.values()))

    return f, [lambda: d.move_to_end("a")]


@case
def counter_():
    d = collections.Counter("aab")

    def f(x):
        return x * d["a"]

    return f, [lambda: d.update("a")]


@case
def defaultfactory():
    d = collections.defaultdict(lambda: 1)

    def f(x):
        return x + d.get("q", 3)

    return f, [lambda: d.__setitem__("q", 8)]


@case
def simple_ns():
    d = types.SimpleNamespace(a=1)

    def f(x):
        return x + d.a

    return f, [lambda: setattr(d, "a", 8)]


@case
def lambda_in_list():
    l = [lambda x: x + 1]

    def f(x):
        return l[0](x)

    return f, [lambda: l.__setitem__(0, lambda x: x + 40)]


@case
def arg_func_code():
    def h(x):
        return x + 1

    def g(x):
        return x + 31

    def f(x, h=h):
        return h(x)

    return f, [lambda: setattr(h, "__code__", g.__code__)]


@case
def logger_level():
    lg = logging.getLogger("zz")

    def f(x):
        return x + lg.getEffectiveLevel()

    return f, [lambda: lg.setLevel(10)]


@pytest.fixture(autouse=True)
def restore():
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)
    sys.modules.pop("zzq", None)
    os.environ.pop("ZZQ", None)
    globals().pop("len", None)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_change_is_seen(make):
    check(make)


def test_a_weak_reference_is_not_kept_alive():
    class Node:
        pass

    node = Node()
    reference = weakref.ref(node)
    compiled = fl.compile(lambda x: x + 1 if reference() is not None else x - 1, backend="eager")
    assert compiled(fl.zeros(1)).item() == 1
    del node
    gc.collect()
    assert reference() is None
    assert compiled(fl.zeros(1)).item() == -1


@pytest.mark.parametrize("name", ["stride", "storage_offset"])
def test_strides_and_offsets_of_arguments_that_are_read_are_guarded(name):
    def function(x):
        return x + (x.stride(0) if name == "stride" else x.storage_offset())

    compiled = fl.compile(function, backend="eager")
    base = fl.zeros(200)
    for size, stride, offset in [((1, 3), (3, 1), 0), ((1, 3), (77, 1), 0), ((1, 3), (3, 1), 5), ((2, 3), (3, 1), 0)]:
        x = base.as_strided(size, stride, offset)
        assert fl.equal(compiled(x), function(x))


def test_variables_of_a_function_that_asks_for_them_are_its_own():
    def function(x):
        first, second = 1, 2
        return x + len(locals()) + locals()["second"] + len(sys._getframe().f_code.co_name)

    def outer(x):
        return function(x) * 2

    for program in (function, outer):
        assert fl.equal(fl.compile(program)(fl.ones(2)), program(fl.ones(2)))


@pytest.mark.parametrize(
    "look",
    [
        lambda: sys._getframe(1).f_locals["wide"],
        lambda: inspect.currentframe().f_back.f_locals["wide"],
        lambda: inspect.stack()[1].frame.f_locals["wide"],
    ],
)
def test_variables_of_callers_are_those_of_the_program(look):
    def function(x):
        wide = 4  # noqa: F841 - read by look()
        return x.sin() + look()

    assert fl.equal(fl.compile(function)(fl.ones(2)), function(fl.ones(2)))


def test_a_generator_function_returns_a_generator():
    def generator(x):
        yield x + 1
        yield x + 2

    compiled = fl.compile(generator)
    for _ in range(2):
        assert [t.item() for t in compiled(fl.zeros(1))] == [1, 2]


def test_a_coroutine_function_returns_a_coroutine():
    async def coroutine(x):
        return x + 1

    with pytest.raises(StopIteration) as stop:
        fl.compile(coroutine)(fl.zeros(1)).send(None)
    assert stop.value.value.item() == 1


def test_globals_of_another_module_are_written_and_read_back():
    other = types.ModuleType("other")
    exec("K = 0\ndef bump(x):\n    global K\n    K = K + 1\n    return x + K", other.__dict__)

    def by_function(x):
        other.bump(x)
        return x + other.K

    def by_attribute(x):
        other.K = other.K + 10
        return other.bump(x)

    for function, step in ((by_function, 1), (by_attribute, 11)):
        compiled = fl.compile(function, backend="eager", fullgraph=True)
        for _ in range(3):
            before = other.K
            assert compiled(fl.zeros(1)).item() == other.K == before + step


def test_a_module_that_holds_its_own_compiled_form_is_collected():
    class Model(fl.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = fl.nn.Linear(2, 2)
            self.run = fl.compile(self.compute)

        def compute(self, x):
            return self.linear(x).relu()

    model = Model()
    model.run(fl.ones(1, 2))
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
