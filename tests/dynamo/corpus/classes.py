# ruff: noqa
"""Classes: instances, properties, operators, inheritance, enums, slots, descriptors."""

import abc
import enum
import functools

import flambeau as fl

from . import T, program, t


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
