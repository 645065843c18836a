# ruff: noqa
"""Calls, closures, decorators, defaults, globals and nonlocals, text."""

import functools
import math

import flambeau as fl

from . import T, program, t

COUNT = 0
HISTORY = []
TABLE = {"n": 1}


def helper(x, scale=2, *, shift=0):
    return x * scale + shift


def recursive(x, n):
    return x if n == 0 else recursive(x + n, n - 1)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) + 1

    return wrapper


@decorated
def plus_one(x):
    return x * 2


def repeat(n):
    def decorate(function):
        def wrapper(x):
            for _ in range(n):
                x = function(x)
            return x

        return wrapper

    return decorate


@repeat(3)
def triple_sin(x):
    return x.sin()


@program(t(3))
def call_helper(x):
    return helper(x) + helper(x, 3) + helper(x, scale=4, shift=1)


@program(t(3))
def call_recursive(x):
    return recursive(x, 4)


@program(t(3))
def call_decorated(x):
    return plus_one(x), triple_sin(x)


@program(t(3))
def closure(x):
    n = 3

    def inner(y):
        return y * n + x

    return inner(x)


@program(t(3))
def closure_over_later_value(x):
    def inner():
        return y * 2

    y = x + 1
    return inner()


@program(t(3))
def nonlocal_counter(x):
    count = 0

    def bump():
        nonlocal count
        count += 1
        return x * count

    return bump() + bump(), count


@program(t(3))
def returned_closure(x):
    def inner(y):
        return y + x

    return inner(x), inner


@program(t(3))
def lambda_default(x):
    fs = [lambda v, i=i: v * i for i in range(3)]
    return [f(x) for f in fs]


@program(t(3))
def late_binding_lambdas(x):
    fs = [lambda v: v * i for i in range(3)]
    return [f(x) for f in fs]


@program(t(3))
def partial(x):
    f = functools.partial(helper, scale=5)
    g = functools.partial(f, shift=2)
    return f(x), g(x)


@program(t(3), lambda: functools.partial(helper, scale=7))
def partial_argument(x, f):
    return f(x)


@program(t(3), lambda: lambda v: v * 3)
def function_argument(x, f):
    return f(x) if callable(f) else x


@program(t(3))
def builtin_functions(x):
    return (
        x * abs(-2),
        divmod(7, 2),
        round(2.567, 1),
        pow(2, 5),
        hex(255),
        ord("a"),
        chr(98),
        bin(5),
        int("12"),
        float("1.5"),
    )


@program(t(3))
def math_functions(x):
    return (
        x * math.sqrt(16),
        math.pi,
        math.floor(2.7),
        math.log(math.e),
        math.prod([1, 2, 3]),
        math.inf > 1,
        math.gcd(4, 6),
    )


@program(t(3))
def keyword_only(x):
    def f(a, /, b, *, c):
        return a + b * c

    return f(x, 2, c=3) + f(x, b=1, c=2)


@program(t(3))
def varargs(x):
    def f(*args, **kwargs):
        return sum(args) * len(kwargs), args, kwargs

    return f(x, x + 1, a=1, b=x)


@program(t(3))
def mutable_default(x):
    def f(v, acc=[]):  # noqa: B006
        acc.append(v)
        return len(acc)

    return f(x), f(x), x + 1


@program(t(3), state=("COUNT",))
def write_global(x):
    global COUNT
    COUNT = COUNT + 1
    return x * COUNT


@program(t(3), state=("HISTORY",))
def append_global(x):
    HISTORY.append(x.shape[0])
    return x * len(HISTORY)


@program(t(3), state=("TABLE",))
def update_global_dict(x):
    TABLE["n"] += 1
    TABLE["x"] = 5
    return x * TABLE["n"]


@program(t(3), state=("NEW_NAME",))
def new_global(x):
    global NEW_NAME
    NEW_NAME = 7
    return x + NEW_NAME


@program(t(3))
def f_strings(x):
    name = "v"
    return x, f"{name}{x.shape[0]:03d} {3.14159:.2f} {name!r:>5} {list(range(2))}"


@program(t(3))
def string_methods(x):
    s = " Hello,World "
    return (
        x,
        s.strip().lower().split(","),
        "-".join(["a", "b"]),
        "x%dy%s" % (3, "q"),
        f"{1} {2}",
        s.replace("l", "L"),
        "abc"[1],
        "a" in "abc",
        "ab" * 2,
        "a" < "b",
        s.startswith(" H"),
        "é".encode(),
    )


@program(t(3))
def print_something(x):
    print("shape", tuple(x.shape), 3)
    y = x + 1
    print("done")
    return y
