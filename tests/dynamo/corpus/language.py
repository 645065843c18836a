# ruff: noqa
"""The language itself: matching, assignment forms, unpacking, arguments, classes and their protocols, exceptions."""

import contextlib
import enum
import functools

import flambeau as fl

from . import T, program, t

TOTAL = 0


class Kind(enum.Enum):
    RELU = "relu"
    TANH = "tanh"


class Shape:
    __match_args__ = ("w", "h")

    def __init__(self, w, h):
        self.w, self.h = w, h


@program(t(3), lambda: [1, 2, 3])
def match_sequence(x, value):
    match value:
        case []:
            return x
        case [a]:
            return x + a
        case [a, *rest]:
            return x + a + len(rest)


@program(t(3))
def match_many(x):
    out = []
    for value in (1, "a", None, {"k": 5, "z": 1}, (1, 2), Shape(3, 4), 2.5, Kind.TANH, [1, [2, 3]], True):
        match value:
            case None:
                out.append("none")
            case True:
                out.append("true")
            case int(n) if n > 0:
                out.append(n)
            case str():
                out.append("text")
            case {"k": k, **rest}:
                out.append((k, rest))
            case Shape(w=3, h=h):
                out.append(h)
            case Kind.RELU | Kind.TANH as kind:
                out.append(kind)
            case (a, b) if isinstance(value, tuple):
                out.append(a + b)
            case [a, [b, c]]:
                out.append((a, b, c))
            case _:
                out.append("other")
    return x, out


@program(t(3), lambda: Kind.TANH)
def match_enum(x, kind):
    match kind:
        case Kind.RELU:
            return x.relu()
        case Kind.TANH:
            return x.tanh()


@program(t(4))
def walrus(x):
    if (n := x.shape[0]) > 3:
        x = x * n
    values = [y := 1, y + 1, y**2]
    while (n := n - 1) > 1:
        x = x + n
    return x, values, [last := i for i in range(3)], last


@program(t(3))
def unpacking(x):
    a, *b, c = range(6)
    (d, e), f = (1, 2), 3
    [g, h] = "gh"
    first, *_ = x.unbind()
    return first + a + c, b, d, e, f, g, h, [*b, *range(2)], {**{"p": 1}, "q": 2}, (*b, 1), {*b, 1}


@program(t(3))
def star_arguments(x):
    def f(a, b=2, *args, c, d=4, **kwargs):
        return a + b + sum(args) + c + d + sum(kwargs.values())

    return x + f(1, c=3), f(1, 2, 3, 4, c=5, e=6), f(*[1, 2], **{"c": 3, "z": 9}), f(*(1,), *(2, 3), c=1)


@program(t(3))
def positional_only(x):
    def f(a, b, /, c, *, d):
        return a * b + c - d

    try:
        f(a=1, b=2, c=3, d=4)
    except TypeError:
        x = x + 1
    return x * f(1, 2, c=3, d=4)


@program(t(3))
def chained_comparisons(x):
    a, b, c = 1, 2, 3
    return x, a < b < c, a < c < b, a == 1 != b, not a > b, 1 < x.ndim + 1 <= 2


@program(t(4, 4))
def slices(x):
    s = slice(1, 3)
    return (
        x[s],
        x[s, ::2],
        x[..., -1],
        x[None, 1],
        [1, 2, 3, 4][s],
        "abcdef"[slice(None, None, 2)],
        s.indices(4),
        (s.start, s.stop),
    )


@program(t(3))
def membership(x):
    return (
        x,
        1 in [1, 2],
        "a" in "cat",
        3 not in {1, 2},
        "k" in {"k": 1},
        (1, 2) in [(1, 2)],
        2 in range(0, 10, 2),
        None in [None],
    )


@program(t(3))
def while_else(x):
    n = 3
    while n:
        n -= 1
        if n == 5:
            break
    else:
        x = x + 10
    for i in range(3):
        if i == 1:
            break
    else:
        x = x * 100
    for i in ():
        pass
    else:
        x = x - 1
    return x


@program(t(3))
def try_in_loop(x):
    out = []
    for i in range(5):
        try:
            if i == 1:
                continue
            if i == 3:
                raise ValueError(i)
            if i == 4:
                break
            out.append(i)
        except ValueError as error:
            out.append(error.args)
        else:
            out.append("else")
        finally:
            out.append("finally")
    return x + len(out), out


@program(t(3))
def finally_overrides(x):
    def f():
        try:
            return 1
        finally:
            x.add_(1)

    def g():
        for i in range(3):
            try:
                return i
            finally:
                continue
        return 10

    return x * f(), g()


@program(t(3))
def chained_exceptions(x):
    try:
        try:
            {}["k"]
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        cause, context = error.__cause__, error.__context__
        return x, type(cause).__name__, cause is context, error.__suppress_context__


@program(t(3))
def exception_from_none(x):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise RuntimeError("b") from None
    except RuntimeError as error:
        return x + 1, error.__suppress_context__, error.__cause__


class Problem(Exception):
    def __init__(self, code, *args):
        super().__init__(code, *args)
        self.code = code

    def __str__(self):
        return f"problem {self.code}"


@program(t(3))
def own_exception(x):
    try:
        raise Problem(7, "more")
    except (KeyError, Problem) as error:
        return x + error.code, str(error), error.args


@program(t(3))
def reraise(x):
    def f():
        try:
            raise ValueError("v")
        except ValueError:
            raise

    try:
        f()
    except Exception as error:
        return x, error.args


@program(t(3))
def exception_groups_by_type(x):
    seen = []
    for make in (
        lambda: 1 / 0,
        lambda: [][1],
        lambda: {}["a"],
        lambda: int("z"),
        lambda: None.x,
        lambda: "a" + 1,
        lambda: nothing,
    ):
        try:
            make()
        except (ZeroDivisionError, IndexError) as error:
            seen.append(type(error).__name__)
        except LookupError:
            seen.append("lookup")
        except Exception as error:
            seen.append(type(error).__name__.lower())
    return x, seen


@program(t(3))
def assertion(x):
    assert x.ndim == 1, "one dimension"
    try:
        assert x.ndim == 2, f"got {x.ndim}"
    except AssertionError as error:
        return x, error.args


@program(t(3))
def deletion(x):
    a, b = [1, 2, 3], {"k": 1, "z": 2}
    del a[0], b["k"]
    c = 5
    del c
    try:
        c
    except UnboundLocalError:
        x = x + 1
    return x, a, b


@program(t(3), state=["TOTAL"])
def global_statement(x):
    global TOTAL
    TOTAL += 1
    TOTAL = TOTAL * 2
    return x + TOTAL


@program(t(3))
def nonlocal_chain(x):
    a = 1

    def outer():
        nonlocal a
        a += 1

        def inner():
            nonlocal a
            a *= 10
            return a

        return inner() + a

    return x + outer(), a


@program(t(3))
def comprehension_scopes(x):
    i = 10
    squares = {i: i * i for i in range(3)}
    nested = [[i * j for j in range(2)] for i in range(2)]
    gen = sum(i for i in range(4) if i % 2)
    return x + i, squares, nested, gen, {c for c in "aab"}, [a for a, b in [(1, 2)] if b]


@program(t(3))
def conditional_expressions(x):
    a = 1 if x.ndim == 1 else 2
    b = x.ndim == 2 and "two" or "one"
    c = None or [] or "end"
    return x * a, b, c, (a if a else b) if c else a


@program(t(3))
def augmented(x):
    a = [1]
    b = a
    a += [2]
    n = 5
    n //= 2
    n **= 3
    n <<= 1
    n |= 1
    n ^= 3
    n %= 7
    s = {1}
    s |= {2}
    d = {"a": 1}
    d |= {"b": 2}
    y = x
    y += 1
    return x, a is b, a, n, s, d, y is x


@contextlib.contextmanager
def tracking(log):
    log.append("enter")
    try:
        yield log
    except ValueError:
        log.append("caught")
    finally:
        log.append("exit")


class Suppress:
    def __init__(self, kind):
        self.kind = kind

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        return kind is not None and issubclass(kind, self.kind)


@program(t(3))
def contexts(x):
    log = []
    with tracking(log) as same, Suppress(KeyError):
        same.append("in")
        raise KeyError("k")
    with tracking(log):
        raise ValueError("v")
    with contextlib.suppress(ZeroDivisionError):
        1 / 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(tracking(log))
        stack.callback(log.append, "callback")
    with contextlib.nullcontext(5) as n:
        x = x + n
    return x, log


@program(t(3))
def generator_protocol(x):
    def running():
        total = 0
        while True:
            try:
                value = yield total
            except KeyError:
                total = -1
                continue
            if value is None:
                return total
            total += value

    g = running()
    out = [next(g), g.send(3), g.send(4), g.throw(KeyError)]
    try:
        g.send(None)
    except StopIteration as stop:
        out.append(stop.value)

    def delegating():
        result = yield from (i * i for i in range(3))
        yield result
        yield from "ab"

    return x + out[2], out, list(delegating())


@program(t(3))
def early_returns(x):
    def f(n):
        for i in range(n):
            if i == 2:
                return i
            with contextlib.nullcontext():
                if n == 1:
                    return "one"
        return "end"

    return x, f(0), f(1), f(2), f(5)


@program(t(3))
def recursion(x):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def depth(tree):
        return 0 if not tree else 1 + max(map(depth, tree))

    return x * fib(8), depth([[[]], [[], [[]]]])


@program(t(3))
def decorators(x):
    calls = []

    def logged(name):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                calls.append((name, function.__name__))
                return function(*args, **kwargs)

            return wrapper

        return decorate

    @logged("a")
    @logged("b")
    def double(v):
        return v * 2

    return double(x), calls, double.__name__
