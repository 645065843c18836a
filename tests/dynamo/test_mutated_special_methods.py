"""Changes of special methods between calls, and of subclasses of containers and numbers that define them."""

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
def bare_call():
    exec("class K:\n  def __call__(self,x): return x+1\n", ns := {"__builtins__": __builtins__})
    K = ns["K"]
    k = K()

    def f(x):
        return k(x)

    return f, [lambda: setattr(K, "__call__", lambda self, x: x + 100)]


@case
def bare_getattr():
    ns = {"__builtins__": __builtins__}
    exec("class A:\n  def __getattr__(self,n): return 1\n", ns)
    A = ns["A"]
    a = A()

    def f(x):
        return x + a.foo

    return f, [lambda: setattr(A, "__getattr__", lambda self, n: 100)]


@case
def bare_add():
    ns = {"__builtins__": __builtins__}
    exec(
        "class A:\n  def __add__(self,n): return n+1\n  def __len__(self): return 3\n  def __getitem__(self,i): return i\n",
        ns,
    )
    A = ns["A"]
    a = A()

    def f(x):
        return (a + x) + len(a) + a[2]

    return f, [
        lambda: setattr(A, "__add__", lambda self, n: n + 100),
        lambda: setattr(A, "__len__", lambda s: 7),
        lambda: setattr(A, "__getitem__", lambda s, i: 50),
    ]


@case
def descriptor():
    class D:
        def __get__(s, o, t=None):
            return 1

    class A:
        d = D()

    a = A()

    def f(x):
        return x + a.d

    return f, [lambda: setattr(D, "__get__", lambda s, o, t=None: 44)]


@case
def getattribute():
    class A:
        def __getattribute__(s, n):
            return 1

    a = A()

    def f(x):
        return x + a.d

    return f, [lambda: setattr(A, "__getattribute__", lambda s, n: 44)]


@case
def getattribute_added():
    class A:
        k = 1

    a = A()

    def f(x):
        return x + a.k

    return f, [lambda: setattr(A, "__getattribute__", lambda s, n: 44)]


@case
def iter_():
    class A:
        def __iter__(s):
            return iter([1, 2])

    a = A()

    def f(x):
        return x + sum(v for v in a)

    return f, [lambda: setattr(A, "__iter__", lambda s: iter([5]))]


@case
def eq_():
    class A:
        def __eq__(s, o):
            return True

        __hash__ = None

    a = A()

    def f(x):
        return x + 1 if a == 3 else x

    return f, [lambda: setattr(A, "__eq__", lambda s, o: False)]


@case
def eq_added():
    class A:
        pass

    a = A()
    b = A()

    def f(x):
        return x + 1 if a == b else x

    return f, [lambda: setattr(A, "__eq__", lambda s, o: True)]


@case
def bool_():
    class A:
        def __bool__(s):
            return True

    a = A()

    def f(x):
        return x + 1 if a else x

    return f, [lambda: setattr(A, "__bool__", lambda s: False)]


@case
def bool_added():
    class A:
        pass

    a = A()

    def f(x):
        return x + 1 if a else x

    return f, [lambda: setattr(A, "__bool__", lambda s: False)]


@case
def len_added():
    class A:
        pass

    a = A()

    def f(x):
        return x + 1 if a else x

    return f, [lambda: setattr(A, "__len__", lambda s: 0)]


@case
def add_added():
    class A:
        pass

    class B:
        def __radd__(s, o):
            return 5

    a = A()
    b = B()

    def f(x):
        return x + (a + b)

    return f, [lambda: setattr(A, "__add__", lambda s, o: 70)]


@case
def contains():
    class A:
        def __contains__(s, o):
            return True

    a = A()

    def f(x):
        return x + 1 if 3 in a else x

    return f, [lambda: setattr(A, "__contains__", lambda s, o: False)]


@case
def ctx():
    class A:
        def __enter__(s):
            return 1

        def __exit__(s, *e):
            pass

    a = A()

    def f(x):
        with a as k:
            return x + k

    return f, [lambda: setattr(A, "__enter__", lambda s: 90)]


@case
def instancecheck():
    class M(type):
        def __instancecheck__(c, o):
            return True

    class A(metaclass=M):
        pass

    def f(x):
        return x + (1 if isinstance(3, A) else 2)

    return f, [lambda: setattr(M, "__instancecheck__", lambda c, o: False)]


@case
def callable_():
    class A:
        pass

    a = A()

    def f(x):
        return x + (1 if callable(a) else 2)

    return f, [lambda: setattr(A, "__call__", lambda s: 1)]


@case
def hash_():
    class A:
        def __hash__(s):
            return 5

    a = A()

    def f(x):
        return x + hash(a)

    return f, [lambda: setattr(A, "__hash__", lambda s: 7)]


@case
def str_():
    class A:
        def __str__(s):
            return "ab"

    a = A()

    def f(x):
        return x + len(str(a))

    return f, [lambda: setattr(A, "__str__", lambda s: "abcde")]


@case
def format_():
    class A:
        def __format__(s, p):
            return "ab"

    a = A()

    def f(x):
        return x + len(f"{a}")

    return f, [lambda: setattr(A, "__format__", lambda s, p: "abcde")]


@case
def special_code():
    class A:
        def __add__(s, o):
            return o + 1

    def g(s, o):
        return o + 31

    a = A()

    def f(x):
        return a + x

    return f, [lambda: setattr(A.__add__, "__code__", g.__code__)]


@case
def dict_subclass():
    class D(dict):
        pass

    d = D(a=1)

    def f(x):
        return x + d["a"]

    return f, [lambda: d.__setitem__("a", 4), lambda: setattr(D, "__getitem__", lambda s, k: 60)]


@case
def dict_missing():
    class D(dict):
        def __missing__(s, k):
            return 1

    d = D()

    def f(x):
        return x + d["a"]

    return f, [lambda: setattr(D, "__missing__", lambda s, k: 60), lambda: d.__setitem__("a", 4)]


@case
def list_subclass():
    class D(list):
        pass

    d = D([1])

    def f(x):
        return x + d[0]

    return f, [lambda: d.__setitem__(0, 4), lambda: setattr(D, "__getitem__", lambda s, k: 60)]


@case
def int_subclass():
    class D(int):
        pass

    d = [D(1)]

    def f(x):
        return x + int(d[0])

    return f, [lambda: d.__setitem__(0, D(4)), lambda: setattr(D, "__int__", lambda s: 60)]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_change_is_seen(make):
    check(make)
