# ruff: noqa
"""Graph breaks in calls, methods, generators and contexts, and what stays whole around them."""

import math

import flambeau.nn.functional as F

import flambeau as fl

from . import T, program, t
from .classes import Scaler
from .generators import scaled

COUNT = 0


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


@program(t(3))
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


class Square(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


@program(lambda: T(3).requires_grad_())
def custom_function(x):
    y = Square.apply(x + 1) * 2
    y.sum().backward()
    return y.detach(), x.grad
