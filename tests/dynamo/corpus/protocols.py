# ruff: noqa
"""Protocols of classes: metaclasses, descriptors, attribute hooks, abstract bases, containers of one's own."""

import abc
import collections
import enum

import flambeau as fl

from . import T, program, t


class Kind(enum.Enum):
    RELU = "relu"
    TANH = "tanh"


class Flag(enum.Flag):
    A = 1
    B = 2


class Meta(type):
    def __new__(mcs, name, bases, namespace):
        cls = super().__new__(mcs, name, bases, namespace)
        cls.tag = name.lower()
        return cls

    def describe(cls):
        return cls.tag + "!"


class WithMeta(metaclass=Meta):
    scale = 3


class Registered:
    classes = {}

    def __init_subclass__(cls, key=None, **kwargs):
        super().__init_subclass__(**kwargs)
        Registered.classes[key] = cls


class First(Registered, key="first"):
    def run(self, x):
        return x + 1


class Second(Registered, key="second"):
    def run(self, x):
        return x * 2


@program(t(3))
def metaclass(x):
    return x * WithMeta.scale, WithMeta.tag, WithMeta.describe()


@program(t(3))
def registered_subclasses(x):
    for key in ("first", "second"):
        x = Registered.classes[key]().run(x)
    return x


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@program(t(3))
def slots_missing(x):
    s = Slotted(2)
    try:
        s.b
    except AttributeError:
        x = x + 1
    try:
        s.c = 1
    except AttributeError:
        x = x + 1
    return x * s.a, hasattr(s, "b")


class Base:
    def __init__(self, n):
        self.n = n

    def f(self, x):
        return x + self.n


class Left(Base):
    def f(self, x):
        return super().f(x) * 2


class Right(Base):
    def f(self, x):
        return super().f(x) - 1


class Diamond(Left, Right):
    def __init__(self, n):
        super().__init__(n)
        self.m = n

    def f(self, x):
        return super().f(x) + self.m


@program(t(3))
def diamond(x):
    d = Diamond(3)
    return d.f(x), [c.__name__ for c in Diamond.__mro__]


class Validated:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, cls=None):
        return self if owner is None else getattr(owner, self.name)

    def __set__(self, owner, value):
        if value < 0:
            raise ValueError("negative")
        setattr(owner, self.name, value)


class Account:
    amount = Validated()

    def __init__(self, amount):
        self.amount = amount


@program(t(3))
def descriptor_with_name(x):
    a = Account(3)
    a.amount += 2
    try:
        a.amount = -1
    except ValueError:
        x = x + 1
    return x * a.amount


class Dynamic:
    def __init__(self):
        self.__dict__["data"] = {"a": 1}

    def __getattr__(self, name):
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self.data[name] = value

    def __delattr__(self, name):
        del self.data[name]


@program(t(3))
def dynamic_attributes(x):
    d = Dynamic()
    d.b = 5
    del d.a
    return x * d.b, hasattr(d, "a"), getattr(d, "c", 7)


class Comparable(abc.ABC):
    @abc.abstractmethod
    def key(self): ...

    def __lt__(self, other):
        return self.key() < other.key()

    @classmethod
    def __subclasshook__(cls, other):
        return NotImplemented


class Word(Comparable):
    def __init__(self, text):
        self.text = text

    def key(self):
        return len(self.text)


@program(t(3))
def abstract_bases(x):
    words = sorted([Word("ccc"), Word("a"), Word("bb")])
    return (
        x,
        [w.text for w in words],
        isinstance(words[0], Comparable),
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
    )


@program(t(3))
def flags(x):
    f = Flag.A | Flag.B
    return (
        x * f.value,
        Flag.A in f,
        Flag.A & Flag.B == Flag(0),
        Kind("relu") is Kind.RELU,
        Kind["TANH"].name,
        [k.name for k in Kind],
    )


@program(t(3))
def type_dispatch(x):
    table = {int: lambda v: v + 1, str: len, list: sum}
    return x, [table[type(v)](v) for v in (1, "abc", [1, 2])], type(x) is fl.Tensor, type(1.0).__name__


@program(t(3))
def local_class(x):
    scale = 2

    class Local:
        factor = scale + 1

        def apply(self, v):
            return v * self.factor * scale

    return Local().apply(x)


class Vector:
    def __init__(self, *items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return Vector(*self.items[i]) if isinstance(i, slice) else self.items[i]

    def __setitem__(self, i, value):
        self.items[i] = value

    def __delitem__(self, i):
        del self.items[i]

    def __iter__(self):
        return iter(self.items)

    def __contains__(self, value):
        return value in self.items

    def __add__(self, other):
        return Vector(*(a + b for a, b in zip(self, other)))

    def __iadd__(self, other):
        self.items.extend(other)
        return self

    def __mul__(self, n):
        return Vector(*(a * n for a in self))

    __rmul__ = __mul__

    def __eq__(self, other):
        return isinstance(other, Vector) and self.items == other.items

    def __bool__(self):
        return bool(self.items)

    def __call__(self, f):
        return Vector(*map(f, self))

    def __reversed__(self):
        return reversed(self.items)

    def __index__(self):
        return len(self.items)

    def __format__(self, spec):
        return f"<{spec}:{len(self)}>"

    def __invert__(self):
        return Vector(*self.items[::-1])

    def __matmul__(self, other):
        return sum(a * b for a, b in zip(self, other))


@program(t(3))
def container_protocol(x):
    v = Vector(1, 2, 3)
    v[0] = 5
    del v[1]
    v += [7]
    w = 2 * (v + v)
    a, b, c = w
    return (
        x * w[1],
        len(v),
        7 in v,
        v[1:] == Vector(3, 7),
        bool(Vector()),
        list(reversed(v)),
        f"{v:z}",
        (~v)[0],
        v @ v,
        v(lambda n: n + 1)[0],
        [0, 1, 2, 3][v],
        a + b + c,
    )


class Counted:
    count = 0

    def __init__(self):
        type(self).count += 1


@program(t(3))
def class_attribute_store(x):
    Counted.count = 0
    Counted()
    Counted()
    return x + Counted.count
