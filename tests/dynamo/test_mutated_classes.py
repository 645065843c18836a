"""Changes of classes between calls: attributes, bases, properties, metaclasses."""

import abc
import dataclasses
import enum
import functools
import importlib
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
check = importlib.import_module("mutations").check

CASES = []


def case(make):
    CASES.append(make)
    return make


@case
def class_attr():
    class A:
        k = 1

    a = A()

    def f(x):
        return x + a.k

    return f, [lambda: setattr(A, "k", 5), lambda: setattr(a, "k", 7)]


@case
def cls_method():
    class A:
        def m(self, x):
            return x + 1

    a = A()

    def f(x):
        return a.m(x)

    return f, [lambda: setattr(A, "m", lambda s, x: x + 9), lambda: setattr(a, "m", lambda x: x + 50)]


@case
def instance_class():
    class A:
        def m(self, x):
            return x + 1

    class B:
        def m(self, x):
            return x + 2

    a = A()

    def f(x):
        return a.m(x)

    return f, [lambda: setattr(a, "__class__", B)]


@case
def bases():
    class P:
        def m(self, x):
            return x + 1

    class Q:
        def m(self, x):
            return x + 2

    class A(P):
        pass

    a = A()

    def f(x):
        return a.m(x)

    return f, [lambda: setattr(A, "__bases__", (Q,))]


@case
def isinst_abc():
    class Ab(abc.ABC):  # noqa: B024
        pass

    class A:
        pass

    a = A()

    def f(x):
        return x + 1 if isinstance(a, Ab) else x - 1

    return f, [lambda: Ab.register(A)]


@case
def prop():
    class A:
        @property
        def p(self):
            return 1

    a = A()

    def f(x):
        return x + a.p

    return f, [lambda: setattr(A, "p", property(lambda s: 9))]


@case
def hasattr_():
    class A:
        pass

    a = A()

    def f(x):
        return x + 1 if hasattr(a, "q") else x

    return f, [lambda: setattr(a, "q", 1)]


@case
def hasattr_cls():
    class A:
        pass

    a = A()

    def f(x):
        return x + 1 if hasattr(a, "q") else x

    return f, [lambda: setattr(A, "q", 1)]


G = 1


@case
def bound_method_self():
    class A:
        def __init__(s, k):
            s.k = k

        def m(s, x):
            return x + s.k

    a = A(1)
    m_ = [a.m]

    def f(x):
        return m_[0](x)

    return f, [lambda: setattr(a, "k", 4), lambda: m_.__setitem__(0, A(30).m)]


@case
def slots_():
    class A:
        __slots__ = ("k",)

    a = A()
    a.k = 1

    def f(x):
        return x + a.k

    return f, [lambda: setattr(a, "k", 4)]


@case
def dataclass_():
    @dataclasses.dataclass
    class A:
        k: int = 1

    a = A()

    def f(x):
        return x + a.k

    return f, [lambda: setattr(a, "k", 4)]


@case
def metaclass_attr():
    class M(type):
        k = 1

    class A(metaclass=M):
        pass

    def f(x):
        return x + A.k

    return f, [lambda: setattr(M, "k", 5)]


@case
def metaclass_getattr():
    class M(type):
        def __getattr__(c, n):
            return 1

    class A(metaclass=M):
        pass

    def f(x):
        return x + A.zz

    return f, [lambda: setattr(M, "__getattr__", lambda c, n: 50)]


@case
def new_of_class():
    class A:
        def __init__(s):
            s.k = 1

    def f(x):
        return x + A().k

    def m():
        def init(s):
            s.k = 60

        A.__init__ = init

    return f, [m]


@case
def enum_value():
    class E(enum.Enum):
        A = 1

    def f(x):
        return x + E.A.value

    return f, [lambda: setattr(E.A, "_value_", 5)]


@case
def name_of_class():
    class A:
        pass

    a = A()

    def f(x):
        return x + len(type(a).__name__)

    return f, [lambda: setattr(A, "__name__", "abcdefgh")]


@case
def vars_():
    class A:
        pass

    a = A()
    a.k = 1

    def f(x):
        return x + vars(a)["k"]

    return f, [lambda: setattr(a, "k", 4)]


@case
def dir_():
    class A:
        pass

    a = A()
    a.k = 1

    def f(x):
        return x + len([n for n in dir(a) if not n.startswith("_")])

    return f, [lambda: setattr(a, "j", 4)]


@case
def subclasses():
    class A:
        pass

    def f(x):
        return x + len(A.__subclasses__())

    keep = []
    return f, [lambda: keep.append(type("B", (A,), {}))]


@case
def mro():
    class A:
        pass

    class P:
        pass

    class B(A):
        pass

    def f(x):
        return x + (1 if issubclass(B, P) else 2)

    return f, [lambda: setattr(B, "__bases__", (P,))]


@case
def isinst_bases():
    class A:
        pass

    class P:
        pass

    class B(A):
        pass

    b = B()

    def f(x):
        return x + (1 if isinstance(b, P) else 2)

    return f, [lambda: setattr(B, "__bases__", (P,))]


@case
def staticm():
    class A:
        @staticmethod
        def h(x):
            return x + 1

    def f(x):
        return A.h(x)

    return f, [lambda: setattr(A, "h", staticmethod(lambda x: x + 30))]


@case
def classm():
    class A:
        @classmethod
        def h(c, x):
            return x + 1

    def f(x):
        return A.h(x)

    return f, [lambda: setattr(A, "h", classmethod(lambda c, x: x + 30))]


@case
def staticm_code():
    class A:
        @staticmethod
        def h(x):
            return x + 1

    def g(x):
        return x + 31

    def f(x):
        return A.h(x)

    return f, [lambda: setattr(A.h, "__code__", g.__code__)]


@case
def superm():
    class P:
        def h(s, x):
            return x + 1

    class A(P):
        def h(s, x):
            return super().h(x)

    a = A()

    def f(x):
        return a.h(x)

    return f, [lambda: setattr(P, "h", lambda s, x: x + 30)]


@case
def super_code():
    class P:
        def h(s, x):
            return x + 1

    class A(P):
        def h(s, x):
            return super().h(x)

    def g(s, x):
        return x + 31

    a = A()

    def f(x):
        return a.h(x)

    return f, [lambda: setattr(P.h, "__code__", g.__code__)]


@case
def prop_code():
    class A:
        @property
        def p(s):
            return 1

    def g(s):
        return 31

    a = A()

    def f(x):
        return x + a.p

    return f, [lambda: setattr(A.p.fget, "__code__", g.__code__)]


@case
def cached_property_():
    class A:
        n = 0

        @functools.cached_property
        def p(s):
            return 1

    a = A()
    assert a.p == 1

    def f(x):
        return x + a.p

    return f, [lambda: a.__dict__.__setitem__("p", 9)]


@case
def type_dict_getattr_instance():
    class A:
        pass

    a = A()

    def f(x):
        return x + getattr(a, "k", 1)

    return f, [lambda: setattr(A, "__getattr__", lambda s, n: 44)]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_change_is_seen(make):
    check(make)
