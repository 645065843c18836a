# ruff: noqa
"""Calls, closures, decorators, classes, properties, generators, globals and nonlocals."""

import abc
import contextlib
import enum
import functools
import math

import flambeau.nn.functional as F

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


class Scaler:
    factor = 3
    instances = 0

    def __init__(self, scale):
        self.scale = scale
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x * self.scale

    @property
    def double(self):
        return self.scale * 2

    @double.setter
    def double(self, value):
        self.scale = value / 2

    @classmethod
    def make(cls, n):
        return cls(n * cls.factor)

    @staticmethod
    def shift(x, n):
        return x + n

    def method(self, x, n=1):
        return self(x) + n

    def __add__(self, other):
        return Scaler(self.scale + (other.scale if isinstance(other, Scaler) else other))

    def __radd__(self, other):
        return Scaler(self.scale + other)

    def __eq__(self, other):
        return isinstance(other, Scaler) and self.scale == other.scale

    def __hash__(self):
        return hash(self.scale)

    def __lt__(self, other):
        return self.scale < other.scale

    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i >= 4:
            raise IndexError(i)
        return self.scale + i

    def __contains__(self, item):
        return item == self.scale

    def __repr__(self):
        return f"Scaler({self.scale})"

    def __neg__(self):
        return Scaler(-self.scale)

    def __bool__(self):
        return self.scale != 0

    def __iter__(self):
        return iter([self.scale, 1])

    def __enter__(self):
        self.calls += 10
        return self

    def __exit__(self, *error):
        self.calls += 100
        return False


class Child(Scaler):
    def __init__(self, scale):
        super().__init__(scale + 1)

    def method(self, x, n=1):
        return super().method(x, n) * 2

    @classmethod
    def make(cls, n):
        return super().make(n)


@program(t(3))
def new_instance(x):
    s = Scaler(2)
    return s(x), s.calls, s.double, s.method(x, n=5)


@program(t(3))
def instance_returned(x):
    s = Scaler(2)
    s.extra = x
    return s


@program(t(3), lambda: Scaler(3))
def instance_argument(x, s):
    y = s(x)
    s.scale = 5
    s.new = y
    return s(x) + y


@program(t(3), lambda: Scaler(3))
def property_setter(x, s):
    s.double = 10
    return s(x), s.double


@program(t(3), lambda: Scaler(3))
def delete_attribute(x, s):
    s.tmp = x
    y = s.tmp + 1
    del s.tmp
    return y, hasattr(s, "tmp"), hasattr(s, "scale")


@program(t(3))
def class_and_static_methods(x):
    s = Scaler.make(2)
    return s(x), Scaler.shift(x, 3), s.shift(x, 1), Child.make(1)(x)


@program(t(3))
def inheritance(x):
    c = Child(2)
    return c.method(x), isinstance(c, Scaler), issubclass(Child, Scaler), type(c).__name__, c.__class__ is Child


@program(t(3))
def operators_of_instances(x):
    a, b = Scaler(1), Scaler(2)
    c = a + b
    d = 5 + a
    return (
        x * c.scale,
        d.scale,
        a == b,
        a != Scaler(1),
        a < b,
        (-a).scale,
        len(a),
        a[2],
        1 in a,
        bool(Scaler(0)),
        list(a),
    )


@program(t(3))
def sum_of_instances(x):
    return x * sum([Scaler(1), Scaler(2)]).scale


@program(t(3))
def sort_instances(x):
    return x * sorted([Scaler(3), Scaler(1)], key=lambda s: s.scale)[0].scale, max(Scaler(1), Scaler(4)).scale


@program(t(3))
def repr_of_instance(x):
    return x, repr(Scaler(2)), f"{Scaler(3)}", str(Scaler(4))


@program(t(3), lambda: Scaler(3))
def getattr_setattr(x, s):
    setattr(s, "a" + "b", 4)
    return x * getattr(s, "scale"), getattr(s, "nothing", 7), s.ab  # noqa: B009


@program(t(3), lambda: Scaler(3))
def with_instance(x, s):
    with s as inside:
        y = x * inside.calls
    return y, s.calls


@program(t(3), lambda: Scaler(3))
def bound_method_value(x, s):
    f = s.method
    return f(x), f.__self__ is s


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    def mixed(self):
        return self.value + 10


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


@program(t(3), Color.RED)
def enum_argument(x, color):
    return x * color.value if color is Color.RED else x, color.name, Color.BLUE.mixed(), Color(2) is Color.BLUE


@program(t(3))
def int_enum(x):
    return x * Level.HIGH, Level.LOW < Level.HIGH, Color["RED"].value, [c.name for c in Color]


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self, x): ...

    def twice(self, x):
        return self.area(x) * 2


class Quadrat(Shape):
    def area(self, x):
        return x * x


@program(t(3))
def abstract_class(x):
    return Quadrat().twice(x)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@program(t(3))
def slots(x):
    s = Slotted(x)
    s.b = 2
    return s.a * s.b, hasattr(s, "c")


@program(t(3), lambda: Slotted(4))
def slots_argument(x, s):
    s.b = s.a + 1
    return x * s.b


class Dynamic:
    def __init__(self):
        self.known = 1

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value if name == "known" else value + 1)


@program(t(3))
def getattr_hook(x):
    d = Dynamic()
    d.q = 4
    return x * d.auto_x + d.known, d.q, getattr(d, "zzz", 5), hasattr(d, "nope")


class Descriptor:
    def __get__(self, owner, cls):
        return 42 if owner is None else owner.base + 1

    def __set__(self, owner, value):
        owner.base = value


class WithDescriptor:
    value = Descriptor()

    def __init__(self):
        self.base = 1


@program(t(3))
def descriptor(x):
    w = WithDescriptor()
    w.value = 5
    return x * w.value, WithDescriptor.value


class Cached:
    def __init__(self, n):
        self.n = n

    @functools.cached_property
    def big(self):
        return self.n * 100


@program(t(3))
def cached_property(x):
    c = Cached(2)
    return x * c.big + c.big


@program(t(3), lambda: Scaler(2))
def class_attribute(x, s):
    return x * s.factor * Scaler.factor


def count_up(n):
    i = 0
    while i < n:
        yield i
        i += 1


def echo():
    received = []
    while True:
        value = yield len(received)
        if value is None:
            return received
        received.append(value)


def delegating(x):
    result = yield from count_up(2)
    yield x
    return result


@program(t(3))
def generator_loop(x):
    for i in count_up(3):
        x = x + i
    return x


@program(t(3))
def generator_to_list(x):
    return [x * i for i in count_up(3)], list(count_up(2)), sum(count_up(4)), dict(zip("ab", count_up(2)))


@program(t(3))
def generator_send(x):
    g = echo()
    next(g)
    n = g.send(x)
    return x * n, g.send(5)


@program(t(3))
def yield_from(x):
    return list(delegating(x))


@program(t(3))
def generator_of_tensors(x):
    def parts():
        for i in range(3):
            yield x * i

    return fl.stack(list(parts())).sum(0)


@program(t(3))
def generator_closed_early(x):
    log = []

    def g():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    it = g()
    a = next(it)
    it.close()
    return x * a, log


@program(t(3))
def unused_generator(x):
    gen = (i for i in range(3))
    return x + next(gen)


@program(t(3), breaks=True)
def generator_returned(x):
    return list(v * 2 for v in (x, x + 1)), (v for v in [1])


@program(t(3), breaks=True)
def generator_with_break(x):
    def g():
        for i in range(3):
            yield (x * i).sum().item()

    return list(g())


@program(t(3), breaks=True)
def break_in_callee(x):
    def inner(v):
        w = v * 2
        n = w.sum().item()
        return w + n

    y = x + 1
    return inner(y) * 3


@program(t(3), breaks=True)
def break_two_deep(x):
    def a(v):
        return b(v + 1) + 1

    def b(v):
        return v * v.sum().item()

    return a(x) + a(x + 1)


@program(t(3), breaks=True)
def break_in_method(x):
    s = Scaler(2)
    y = s(x)
    n = y.sum().item()
    return s(y) + n, s.calls


@program(t(3), lambda: Scaler(2), breaks=True)
def break_with_pending_store(x, s):
    s.scale = 4
    n = x.sum().item()
    s.other = n
    return s(x)


@program(t(3), breaks=True)
def closure_across_break(x):
    n = 1

    def inner(v):
        nonlocal n
        n += 1
        return v * n

    y = inner(x)
    k = y.sum().item()
    return inner(y) + k, n


@program(t(3), breaks=True, state=("COUNT",))
def global_across_break(x):
    global COUNT
    COUNT += 1
    k = x.sum().item()
    COUNT += 1
    return x * k + COUNT


@program(t(3), breaks=True)
def explicit_break(x):
    y = x + 1
    fl._dynamo.graph_break()
    return y * 2


@fl._dynamo.disable
def untouched(x):
    return x.sum().item()


@program(t(3), breaks=True)
def call_disabled(x):
    return (x + 1) * untouched(x)


@program(t(3), breaks=True)
def print_tensor(x):
    print(x)
    return x + 1


@program(t(3))
def is_compiling(x):
    return x + 1 if isinstance(fl._dynamo.is_compiling(), bool) else x


@program(t(3))
def functional(x):
    return F.relu(x), F.softmax(x, dim=0), F.gelu(x), F.dropout(x, 0.5, False), F.normalize(x, dim=0), F.pad(x, (1, 1))


@program(t(3))
def module_attribute(x):
    return fl.nn.functional.silu(x) * math.pi, fl.float32, fl.pi


@program(t(3))
def import_inside(x):
    import math as m
    from math import sqrt

    return x * m.floor(2.5) * sqrt(4)


@contextlib.contextmanager
def scaled(log, n):
    log.append(("in", n))
    try:
        yield n
    finally:
        log.append(("out", n))


@program(t(3))
def context_manager_function(x):
    log = []
    with scaled(log, 3) as n:
        y = x * n
    return y, log


@program(t(3))
def nested_context_managers(x):
    log = []
    with scaled(log, 1) as a, scaled(log, 2) as b:
        x = x * a + b
    return x, log


@program(t(3))
def nullcontext_and_suppress(x):
    with contextlib.nullcontext(4) as n:
        x = x * n
    with contextlib.suppress(ValueError):
        raise ValueError("gone")
    return x


@program(t(3))
def exit_stack(x):
    log = []
    with scaled(log, 1):
        with scaled(log, 2):
            pass
        x = x + 1
    return x, log


@program(lambda: T(3).requires_grad_())
def no_grad(x):
    with fl.no_grad():
        y = x * 2
    z = x * 3
    return y, z, fl.is_grad_enabled()


@program(lambda: T(3).requires_grad_())
def enable_grad_inside(x):
    with fl.no_grad():
        with fl.enable_grad():
            y = x * 2
        w = x * 3
    return y.requires_grad, w.requires_grad, y


@fl.no_grad()
def quiet(x):
    return x * 5


@program(lambda: T(3).requires_grad_())
def no_grad_decorator(x):
    return quiet(x), x * 2


@program(lambda: T(3).requires_grad_())
def set_grad_enabled(x):
    fl.set_grad_enabled(False)
    y = x * 2
    fl.set_grad_enabled(True)
    return y, x * 3


@program(lambda: T(3).requires_grad_())
def leave_grad_off(x):
    fl.set_grad_enabled(False)
    return x * 2


@program(lambda: T(3).requires_grad_(), breaks=True)
def break_in_no_grad(x):
    with fl.no_grad():
        y = x * 2
        n = y.sum().item()
        z = y + n
    return z, x * n


@program(t(3), breaks=True)
def break_in_context_manager(x):
    log = []
    with scaled(log, 3) as n:
        y = x * n
        k = y.sum().item()
    return y + k, log


@program(t(3), lambda: [], breaks=True)
def generator_abandoned_in_try(x, log):
    def g():
        try:
            yield x
            yield x + 1
        finally:
            log.append("closed")

    for v in g():
        break
    return v * 2


class Square(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


@program(lambda: T(3).requires_grad_(), breaks=True)
def custom_function(x):
    y = Square.apply(x + 1) * 2
    y.sum().backward()
    return y.detach(), x.grad
