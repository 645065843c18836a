"""Differential fuzzing of the compiler: random functions of ops, views and writes, compiled against eager.

    python tests/inductor/compiler_fuzz.py FIRST LAST     runs the cases of these seeds and prints those that differ

A case is a function of its seed, so a finding is reproduced by its number; tests/inductor/test_compiler_fuzz.py keeps some.
"""

from __future__ import annotations

import random
import sys

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor import build
from flambeau._inductor.compile_fx import compile_function

UNARY = [
    lambda t: t.exp().clamp(max=50), lambda t: t.tanh(), lambda t: t.sigmoid(), lambda t: t.relu(), lambda t: t.abs() + 0.5,
    lambda t: -t, lambda t: t * 0.5, lambda t: t + 1, lambda t: 2 - t, lambda t: t.sin(), lambda t: F.gelu(t),
    lambda t: F.silu(t), lambda t: t * t, lambda t: (t.abs() + 1).sqrt(), lambda t: (t.abs() + 1).log(), lambda t: t.cos(),
    lambda t: t.clamp(-1, 1), lambda t: F.leaky_relu(t, 0.1), lambda t: t.pow(2), lambda t: F.softplus(t), lambda t: t / 4,
    lambda t: t / 3, lambda t: F.elu(t), lambda t: t.float(), lambda t: t.double().float(),
]  # fmt: skip
BINARY = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / (b.abs() + 1),
    lambda a, b: fl.maximum(a, b), lambda a, b: fl.where(a > b, a, b * 2), lambda a, b: fl.minimum(a, b),
    lambda a, b: fl.atan2(a, b.abs() + 1), lambda a, b: a.lerp(b, 0.3),
]  # fmt: skip


def _reduce(choice: random.Random, t):
    dims = sorted(choice.sample(range(t.dim()), choice.randint(1, t.dim()))) if t.dim() else []
    keep = choice.random() < 0.6
    kind = choice.choice(["sum", "mean", "amax", "amin", "var", "logsumexp"])
    if not dims:
        return t.sum()
    if kind == "var":
        return t.var(dims, keepdim=keep, correction=0)
    return getattr(t, kind)(dims, keepdim=keep)


def _view(choice: random.Random, t):
    kind = choice.randrange(8)
    if t.dim() == 0:
        return t.unsqueeze(0)
    d = choice.randrange(t.dim())
    if kind == 0:
        return t.transpose(d, choice.randrange(t.dim()))
    if kind == 1:
        return t.unsqueeze(d)
    if kind == 2:
        return t.narrow(d, t.shape[d] // 2, t.shape[d] - t.shape[d] // 2)
    if kind == 3:
        return t.reshape(-1)
    if kind == 4:
        return t.flip(d)
    if kind == 5:
        return t.select(d, choice.randrange(t.shape[d])) if t.shape[d] else t
    if kind == 6:
        return t.contiguous()
    return t.unsqueeze(-1).expand(*t.shape, choice.choice([1, 3]))


def _write(choice: random.Random, t):
    """Changes a fresh tensor in place."""
    t = t * 1.5
    if t.dim() == 0 or choice.random() < 0.4:
        return choice.choice([lambda: t.mul_(2), lambda: t.add_(1), lambda: t.sigmoid_(), lambda: t.zero_()])()
    d = choice.randrange(t.dim())
    if t.shape[d] == 0:
        return t
    part = t.select(d, choice.randrange(t.shape[d])) if choice.random() < 0.5 else t.narrow(d, 0, (t.shape[d] + 1) // 2)
    choice.choice(
        [lambda: part.mul_(3), lambda: part.add_(2), lambda: part.copy_(part.tanh()), lambda: part.fill_(1)]
    )()
    return t


def _whole(choice: random.Random, t):
    if t.dim() == 0 or t.shape[-1] == 0:
        return t
    n = t.shape[-1]
    kind = choice.randrange(6)
    if kind == 0:
        return F.softmax(t, choice.randrange(t.dim()))
    if kind == 1:
        return F.layer_norm(t, (n,))
    if kind == 2:
        return t.cumsum(choice.randrange(t.dim()))
    if kind == 3 and t.dim() >= 2:
        return t @ t.transpose(-1, -2)
    if kind == 4:
        return fl.cat([t, t * 2], choice.randrange(t.dim()))
    return F.log_softmax(t, -1)


def program(seed: int):
    """A function and the sizes of its inputs."""
    choice = random.Random(seed)
    sizes = [tuple(choice.choice([1, 2, 3, 5, 8, 17, 33]) for _ in range(choice.randint(0, 3)))]
    for _ in range(choice.randint(0, 2)):
        base = choice.choice(sizes)
        sizes.append(tuple(1 if choice.random() < 0.3 else n for n in base)[choice.randint(0, len(base)) :])
    steps = choice.randint(2, 12)

    def function(*inputs):
        again = random.Random(seed + 1)
        values = list(inputs)
        for _ in range(steps):
            t = again.choice(values[-3:]) if again.random() < 0.8 else again.choice(values)
            kind = again.random()
            if kind < 0.3:
                made = again.choice(UNARY)(t)
            elif kind < 0.55:
                fitting = [v for v in values if _broadcasts(t.shape, v.shape)]
                made = again.choice(BINARY)(t, again.choice(fitting))
            elif kind < 0.7:
                made = _reduce(again, t)
            elif kind < 0.85:
                made = _view(again, t)
            elif kind < 0.93:
                made = _whole(again, t)
            else:
                made = _write(again, t)
            if made.numel() <= 20000:
                values.append(made)
        return values[len(inputs) :][-3:] or [values[-1] * 1]

    return function, sizes


def _broadcasts(a, b) -> bool:
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b)))


def run(seed: int) -> str | None:
    """What differs between compiled and eager, or None."""
    function, sizes = program(seed)
    fl.manual_seed(seed)
    inputs = [fl.randn(size, requires_grad=True) for size in sizes]
    expected = function(*inputs)
    compiled = compile_function(function, len(inputs))
    try:
        got = compiled(*inputs)
        for k, (a, b) in enumerate(zip(got, expected)):
            if a.dtype != b.dtype or a.stride() != b.stride():
                return f"result {k}: {a.dtype} {a.shape} {a.stride()}, expected {b.dtype} {b.shape} {b.stride()}"
            fl.testing.assert_close(a, b, rtol=2e-4, atol=2e-4, equal_nan=True)
        roots = [k for k, t in enumerate(expected) if t.requires_grad and t.is_floating_point()]
        if roots:
            seeds = [fl.randn(expected[k].shape) for k in roots]
            mine = fl.autograd.grad([got[k] for k in roots], inputs, seeds, allow_unused=True)
            true = fl.autograd.grad([expected[k] for k in roots], inputs, seeds, allow_unused=True)
            for a, b in zip(mine, true):
                if (a is None) != (b is None):
                    return "a gradient is missing"
                if a is not None:
                    fl.testing.assert_close(a, b, rtol=2e-3, atol=2e-3, equal_nan=True)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:600]}"
    return None


if __name__ == "__main__":
    build.FLAGS = tuple("-O1" if flag == "-O3" else flag for flag in build.FLAGS)
    first, last = int(sys.argv[1]), int(sys.argv[2])
    found = 0
    for number in range(first, last):
        try:
            problem = run(number)
        except Exception as error:  # eager itself refuses the program
            if not isinstance(error, (RuntimeError, IndexError, ValueError)):
                raise
            continue
        if problem:
            found += 1
            print(number, problem, flush=True)
    print(f"{last - first} cases, {found} differ")
