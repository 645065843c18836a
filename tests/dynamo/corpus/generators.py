# ruff: noqa
"""Generators, and context managers made of them; modes of the thread."""

import contextlib

import flambeau as fl

from . import T, program, t


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
