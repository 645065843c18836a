# ruff: noqa
"""Classes and tuples defined inside functions, cached functions, copies, states of modules."""

import collections
import copy
import dataclasses
import enum
import functools
import typing

import flambeau as fl
from flambeau import nn

from . import T, program, t

SCALE = 3


def model():
    made = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with fl.no_grad():
        for parameter in made.parameters():
            parameter.copy_(T(*parameter.shape))
    return made


@program(t(2, 3))
def local_namedtuple(x):
    Pair = collections.namedtuple("Pair", "first second")
    pair = Pair(x, second=2)
    return pair.first * pair.second, pair._fields, len(pair)


@program(t(2, 3))
def local_typed_namedtuple(x):
    class Pair(typing.NamedTuple):
        first: object
        second: int = 2

    pair = Pair(x)
    return pair.first * pair.second, pair._asdict()["second"]


@program(t(2, 3))
def local_dataclass(x):
    @dataclasses.dataclass
    class Box:
        value: object
        scale: int = 2
        log: list = dataclasses.field(default_factory=list)

        def apply(self):
            self.log.append(self.scale)
            return self.value * self.scale

    box = Box(x)
    return box.apply(), box.log, dataclasses.replace(box, scale=5).scale


@program(t(2, 3))
def local_frozen_dataclass(x):
    @dataclasses.dataclass(frozen=True)
    class Box:
        value: object

    return Box(x).value + 1


@program(t(2, 3))
def local_class(x):
    class Layer:
        bias = SCALE

        def __init__(self, weight):
            self.weight = weight

        def __call__(self, v):
            return v * self.weight + self.bias

        @property
        def doubled(self):
            return self.weight * 2

        @staticmethod
        def helper(v):
            return v - 1

    layer = Layer(x)
    return layer(x), layer.doubled, Layer.helper(x), Layer.__name__


@program(t(2, 3))
def local_class_over_a_tensor(x):
    y = x * 2

    class Adder:
        def run(self, v, extra=y):
            return v + y + extra

    return Adder().run(x)


@program(t(2, 3))
def local_inheritance(x):
    class Base:
        def run(self, v):
            return v + 1

    class Derived(Base):
        def run(self, v):
            return super().run(v) * 2

    return Derived().run(x), isinstance(Derived(), Base), issubclass(Derived, Base)


@program(t(2, 3))
def local_enum(x):
    class Mode(enum.Enum):
        SUM = 1
        MEAN = 2

    mode = Mode.MEAN
    return x.mean() if mode is Mode.MEAN else x.sum(), [m.name for m in Mode]


@program(t(2, 3))
def local_exception(x):
    class Stop(Exception):
        pass

    try:
        raise Stop("enough")
    except Stop as error:
        return x + 1, str(error)


@program(t(2, 3))
def local_class_by_type(x):
    Plain = type("Plain", (), {"factor": 2, "run": lambda self, v: v * self.factor})
    return Plain().run(x)


@program(t(2, 3), breaks=True)
def local_class_across_a_break(x):
    class Box:
        def __init__(self, v):
            self.v = v

    box = Box(x * 2)
    n = x.sum().item()
    return box.v * n


@program(t(2, 3), breaks=True)
def local_class_with_a_tensor_across_a_break(x):
    y = x * 2

    class Box:
        def get(self):
            return y

    box = Box()
    n = x.sum().item()
    return box.get() * n


@program(t(2, 3))
def local_instances_returned(x):
    @dataclasses.dataclass
    class Box:
        value: object
        count: int = 1

    class Pair(typing.NamedTuple):
        first: object

    class Mode(enum.Enum):
        SUM = 1

    return Box(x).value, Box(1).count, Pair(x + 1)._asdict(), Mode.SUM.name


@program(t(2, 3))
def local_class_with_a_list(x):
    class Log:
        lines = []

    Log.lines.append(1)
    return x + 1, len(Log.lines), Log.lines


@program(t(2, 3), breaks=True)
def local_class_with_effects(x):
    class Noisy:
        print("defined")

    return x + 1, Noisy.__name__


@functools.lru_cache(maxsize=None)
def table(n):
    return [i * 2 for i in range(n)]


@functools.cache
def causal_mask(n):
    return fl.tril(fl.ones(n, n))


@functools.lru_cache
def settings(n, k=2):
    return {"size": n, "pair": (n, k), "dtype": fl.float32}


@program(t(2, 3))
def cached_function(x):
    found = settings(x.shape[0], k=3)
    return x * table(3)[2] + found["pair"][1], x.to(found["dtype"]), table(4)


@program(t(3, 3))
def cached_tensor(x):
    return x @ causal_mask(x.shape[1]), causal_mask(3) is causal_mask(3)


@program(t(2, 3))
def copies_of_tensors(x):
    y = copy.deepcopy(x)
    y += 1
    nested = copy.deepcopy({"a": [x, x]})
    return x, y, nested["a"][0] is nested["a"][1], copy.copy([x])[0] is x


@program(t(2, 3), model)
def state_of_a_module(x, m):
    state = m.state_dict()
    return x @ state["0.weight"].t(), list(state), state["1.num_batches_tracked"] + 1


@program(t(2, 3), model, model)
def state_loaded(x, m, other):
    m.eval()
    with fl.no_grad():
        for mine, theirs in zip(m.parameters(), other.parameters()):
            mine.copy_(theirs * 2)
    return m(x)


def trainer(kind, **options):
    def make():
        m = nn.Linear(3, 2)
        with fl.no_grad():
            m.weight.copy_(T(2, 3)), m.bias.copy_(T(2))
        return m, kind(m.parameters(), lr=fl.tensor(0.1), **options)

    return make


@program(t(4, 3), trainer(fl.optim.SGD, momentum=0.9))
def rate_is_a_tensor(x, pair):
    m, optimizer = pair
    for _ in range(2):
        optimizer.zero_grad()
        m(x).square().mean().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"].mul_(0.5)
    return m.weight.detach()


@program(t(4, 3), trainer(fl.optim.AdamW))
def rate_is_a_tensor_adamw(x, pair):
    m, optimizer = pair
    optimizer.zero_grad()
    m(x).square().mean().backward()
    optimizer.step()
    return m.weight.detach()


@program(t(2, 3))
def text_of_sizes(x):
    text = f"{x.shape} {x.size(1):>3} {x.numel()=} {x.dtype}"
    return x + len(text), text, "%s %d" % (x.shape, x.shape[0]), "{}".format(tuple(x.shape))
