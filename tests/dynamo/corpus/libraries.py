# ruff: noqa
"""What libraries of models do on the way: tables of classes, copies, layers made on the spot, branches, batched functions."""

import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import logging
import math
import operator
import re
import typing
import warnings
from collections import OrderedDict
from typing import NamedTuple

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import nn

from . import T, program, t
from .programs import Config, rearrange


class Table(OrderedDict):
    """Values by name, made when they are asked for."""

    def __getitem__(self, key):
        cls = super().__getitem__(key)
        return cls() if isinstance(cls, type) else cls


TABLE = Table(silu=nn.SiLU, tanh=nn.Tanh, scale=2.0)


@program(t(4))
def table_of_classes(x):
    return TABLE["silu"](x) * TABLE["scale"], "relu" in TABLE, len(TABLE), list(TABLE.keys())


class Output(OrderedDict):
    def __init__(self, **fields):
        super().__init__()
        for key, value in fields.items():
            super().__setitem__(key, value)

    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)

    def to_tuple(self):
        return tuple(self[key] for key in self.keys())


@program(lambda: Output(logits=T(3), loss=T(1)))
def output_object_from_outside(output):
    return output.logits * 2, output["loss"], output.to_tuple(), len(output), [k for k in output], bool(output)


@program(t(2, 4), lambda: fl.tensor([1, 3]))
def losses_made_inside(x, target):
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    return loss(x, target), nn.Softmax(dim=-1)(x), nn.GELU(approximate="tanh")(x)


@program(t(4))
def module_made_inside_is_returned(x):
    made = nn.Dropout(0.5)
    made.eval()
    made.tag = "x"
    return made(x), made


class Settings:
    def __init__(self):
        self.size, self.names, self.inner = 3, ["a", "b"], Config()

    def derived(self):
        other = copy.deepcopy(self)
        other.size += 1
        other.names.append("c")
        return other


@program(Settings, t(4))
def copies_of_objects(settings, x):
    other, shallow = settings.derived(), copy.copy(settings)
    shallow.size = 10
    same = shallow.names is settings.names, other.names is settings.names, other.inner == settings.inner
    return x * other.size + shallow.size + settings.size, same, other.names, type(other).__name__


@program(t(4))
def decorators_made_inside(x):
    def doubled(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs) * 2

        return inner

    sine, own = doubled(fl.sin), doubled(rearrange)
    return sine(x), sine.__name__, own.__name__, own.__wrapped__ is rearrange


@program(t(4))
def warnings_and_loggers(x):
    logger = logging.getLogger("flambeau.corpus")
    logger.debug("shape %s", x.shape)
    with warnings.catch_warnings() if False else contextlib.nullcontext():
        warnings.warn("be careful", stacklevel=1)
    return x * 2


@program(t(4))
def annotations_at_run_time(x):
    found = fl.jit.annotate(typing.List[fl.Tensor], [])
    found.append(x)
    return found, typing.get_args(int | str)


WEIGHT = T(4)
SCALE = nn.Linear(4, 4, bias=False)
with fl.no_grad():
    SCALE.weight.copy_(T(4, 4))


@program(t(3, 4))
def vmap_of_code_that_reads_other_tensors(x):
    local = x.sum(0)
    f = lambda row: {"a": (row * WEIGHT).sum() + local.sum(), "b": SCALE(row)}
    return fl.vmap(f)(x), fl.vmap(f, out_dims=1)(x)["b"] if False else fl.vmap(lambda r: SCALE(r), out_dims=1)(x)


@program(t(3, 4), t(4))
def vmap_with_fixed_arguments(x, w):
    return fl.vmap(lambda r, v: (r * v * WEIGHT).sum(), in_dims=(0, None))(x, w), fl.vmap(fl.dot, in_dims=(0, None))(
        x, w
    )


@program(t(4))
def cond_of_two_branches(x):
    scaled = x * 2
    positive = lambda v: {"out": v.sin() + WEIGHT, "n": 1}
    negative = lambda v: {"out": v.cos() - scaled, "n": 1}
    return fl.cond(x.sum() > 0, positive, negative, (x,)), fl.cond(x.sum() < 0, positive, negative, (x,))


@program(lambda: T(4).requires_grad_())
def cond_with_backward(x):
    y = fl.cond(x.sum() > 0, lambda: (x * 3).sum(), lambda: (x * 5).sum())
    y.backward()
    return x.grad


@program(t(4))
def cond_of_a_plain_condition(x):
    return fl.cond(x.shape[0] > 3, lambda v: v + 1, lambda v: v - 1, (x,))


class Flags(enum.IntFlag):
    READ = 1
    WRITE = 2


@program(t(4))
def flags(x):
    mode = Flags.READ | Flags.WRITE
    return x + (1 if mode & Flags.READ else 2), bool(Flags.READ & Flags.WRITE)


@program(t(1, 14, 14, 4))
def windows_of_one_batch(x):
    batch, height, width, channels = x.shape
    y = x.view(batch, height // 7, 7, width // 7, 7, channels).permute(0, 1, 3, 2, 4, 5).contiguous()
    y = y.view(-1, 49, channels)
    return y, x.flatten(1, 2).transpose(1, 2).view(batch, channels, height, width)
