"""Fuzzing `compile` as users call it: random source text, captured once and called with batches of several sizes.

    python tests/inductor/dynamic_fuzz.py FIRST LAST [--many]

compares results, gradients and written inputs with eager mode for each size, and prints the programs that differ. What a
program does depends on its seed; sizes enter it as numbers, conditions and shapes, as in models. With `--many`, programs do
more with their sizes (remainders, halves, limits) and meet a dozen of them, so that most graphs are made from others.
"""

from __future__ import annotations

import os
import pathlib
import random
import sys
import tempfile
from typing import Any

import flambeau as fl
from flambeau import _C, _dynamo
from flambeau._inductor import build

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from compiler_fuzz import UNSTABLE, Outcome, Refused, difference, unstable

N = 6  # columns
SIZES = (5, 3, 8, 2, 16, 1)  # rows, in this order

# Of the values {a} and {b}, which both have {rows} rows and N columns.
WHOLE = [
    "{a} + {b}", "{a} * {b}.tanh()", "{a} - 0.5 * {b}", "F.gelu({a})", "F.softmax({a}, -1)", "F.layer_norm({a}, (N,), eps=0.1)",
    "{a} / ({b}.abs() + 1)", "{a}.t().contiguous().t()", "{a}.reshape({a}.shape[0], 2, -1).flatten(1)", "{a}.view({a}.shape)",
    "torch.cat([{a}, {b}], 0)[: {a}.shape[0]]", "torch.stack([{a}, {b}], 1).mean(1)", "{a} @ w", "{a}.flip(0)", "{a}.roll(1, 0)",
    "{a} - {a}.mean(0)", "{a} * {a}.shape[0]", "{a} / len({b})", "torch.where(x > 0, {a}, {b})", "{a}.masked_fill(y > 0, 0.5)",
    "{a} * torch.arange({a}.shape[0]).view(-1, 1) / {a}.shape[0]", "{a} + torch.zeros({a}.size(0), 1)", "{a}.sigmoid().cumsum(0)",
    "{a}.expand(2, *{a}.shape).sum(0)", "F.dropout({a}, 0.3)", "torch.addmm({b}, {a}.tanh(), w)", "{a}.clone().add_({b})",
    "helper({a}, {b})", "F.linear({a}, w, w[0])", "{a}.index_select(0, torch.arange({a}.shape[0] - 1, -1, -1))", "scaled({a}, k=2)",
    "{a} * x.shape[0] ** 0.5", "torch.einsum('ij,kj->ik', {a}.tanh(), w)", "{a}.chunk(2, 1)[0].repeat(1, 2)", "sum([{a}, {b}, 1.0])",
    "F.pad({a}, (0, 0, 1, 0))[1:]", "{a} + torch.full(({a}.shape[0], N), 2.0)", "{a} * (y.argmax(-1, keepdim=True) + 1)",
    "F.scaled_dot_product_attention({a}[None, None], {b}[None, None], {a}[None, None])[0, 0]", "{a}.unsqueeze(1).transpose(0, 1)[0]",
]  # fmt: skip
# What sizes that are divided, limited and rounded go into, for programs that meet many of them.
SIZED = [
    "{a}[: {a}.shape[0] // 2 * 2].sum(0) * 0.1 + {b}", "F.pad({a}, (0, 0, 0, -{a}.shape[0] % 4)).sum(0) * 0.1 + {b}",
    "{a}[:7].sum(0) * 0.2 + {b}", "{a}.unfold(0, 2, 2).sum((0, 2)) * 0.1 + {b}", "{a}.chunk(3)[0].sum(0) * 0.1 + {b}",
    "{a}[::2].tanh().sum(0) * 0.1 + {b}", "torch.cat([{a}, {b}[: len({b}) // 2]])[len({b}) // 2 :]", "({a} @ {b}.t()).softmax(-1) @ {b}",
    "F.max_pool1d({a}.t()[None], 2, ceil_mode=True)[0].sum(1) * 0.1 + {b}", "{a}.reshape(-1)[: max(9, len({a}))].sum() * 0.05 + {b}",
    "F.conv1d({a}.t()[None], {b}[:2].t()[None] * 0.3, stride=2)[0].sum() * 0.05 + {b}", "torch.outer({a}[:, 0], {b}[:, 1]).tril() @ {b} * 0.1",
    "F.interpolate({a}.t()[None], scale_factor=0.5)[0].sum(1) * 0.1 + {b}", "{a}.repeat(2, 1)[1 : len({a}) + 1]", "{a}.tensor_split(2)[1].sum(0) + {b}",
    "F.pad({a}, (0, 0, min(len({a}), 9), 0))[-len({a}) :]", "torch.stack({a}.split(4, 1)[0].unbind(1), 1).sum(1, keepdim=True) + {b}",
]  # fmt: skip
SMALLER = ["{a}.sum()", "{a}.mean(0, keepdim=True)", "{a}.amax(-1, keepdim=True)", "{a}.logsumexp(0)", "{a}.var(1, correction=0, keepdim=True)", "{a}[0]"]  # fmt: skip
STATEMENTS = [
    "if {a}.shape[0] > 4:\n        {a} = {a} * 2", "for i in range(3):\n        {a} = {a} + i * {b}.sin()", "{a} = {a} if x.size(0) % 2 else {b}",
    "{a} = {a}.clone()\n    {a}[0] = 1", "{a} = {a} * 1\n    {a}[:, 1:].mul_(2)", "kept.append({a})", "state['last'] = {a}.detach()",
    "{a}, {b} = {b}, {a}", "with torch.no_grad():\n        {b} = {a} * 3", "rows = {a}.shape[0]\n    {a} = {a}.reshape(rows * N).view(rows, N)",
    "y.add_(1)", "y[0].mul_(0.5)", "print_nothing({a})",
]  # fmt: skip
HEAD = """\
import flambeau as torch
import flambeau.nn.functional as F
N = {columns}
state = {{}}
def helper(p, q):
    return p.lerp(q, 0.3) if p.dim() == 2 else p
def scaled(t, *, k=1):
    return t * k
def print_nothing(*_):
    pass
def function(x, y, w):
    kept = []
"""


def source(seed: int, many: bool = False) -> str:
    """The text of a program, as a module."""
    choice = random.Random(seed)
    whole = [*WHOLE, *SIZED, *SIZED] if many else WHOLE
    names = ["x", "y"]
    lines = []
    for k in range(choice.randint(3, 12)):
        a, b = choice.choice(names[-4:]), choice.choice(names)
        if choice.random() < 0.2:
            locals_ = [n for n in names if n not in "xy"]
            if locals_:
                a, b = choice.choice(locals_), choice.choice(locals_)
                lines.append(choice.choice(STATEMENTS).format(a=a, b=b))
        elif choice.random() < 0.2:
            lines.append(f"s{k} = {choice.choice(SMALLER).format(a=a)}")
            lines.append(f"v{k} = {b} * s{k} * 0.3")
            names.append(f"v{k}")
        else:
            lines.append(f"v{k} = {choice.choice(whole).format(a=a, b=b)}")
            names.append(f"v{k}")
    ends = [n for n in names if n not in "xy"][-2:] or ["x * 1"]
    lines.append(f"return [{', '.join([*ends, *(['*kept'] if choice.random() < 0.5 else [])])}]")
    return HEAD.format(columns=N) + "\n".join(f"    {line}" for line in lines) + "\n"


def _inputs(rows: int) -> list[Any]:
    fl.manual_seed(rows)
    return [fl.randn(rows, N, requires_grad=True), fl.randn(rows, N), fl.randn(N, N, requires_grad=True)]


def many_sizes(choice: random.Random) -> list[int]:
    """A dozen numbers of rows: some that are recorded, and then others between them and beyond."""
    low, high = choice.randint(2, 9), choice.randint(20, 90)
    step = choice.choice([1, 1, 2, 4, 8])
    anchors = [
        low,
        low + (high - low) // step * step,
        *(low + step * choice.randint(0, (high - low) // step) for _ in range(2)),
    ]
    return [*anchors, *(choice.randint(low, high) for _ in range(7)), choice.choice([0, 1, 2, high + 5])]


def run(seed: int, many: bool = False) -> str | None:
    """What differs, with the program, or None."""
    text = source(seed, many)
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(text)
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, file.name, "exec"), space)  # a file, because capture reads the lines
    function = space["function"]
    choice = random.Random(seed)
    sizes = many_sizes(choice) if many else choice.sample(SIZES, 4)
    _dynamo.reset()
    compiled = fl.compile(function, dynamic=choice.choice([None, True]))
    try:
        for rows in sizes:
            case = function, lambda variant=0, rows=rows: _inputs(rows)
            try:
                expected = Outcome(function, _inputs(rows))
                expected.differentiate()
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                raise Refused(str(error)) from error
            problem = None
            try:
                got = Outcome(compiled, _inputs(rows))
                got.differentiate()
                problem = difference(got, expected, False)
            except Exception as error:
                problem = f"{type(error).__name__}: {str(error)[:600]}"
                if isinstance(error, AssertionError) and unstable(case, [expected]):
                    return f"{UNSTABLE}: {problem}"
            if problem:
                return f"{rows} rows after {sizes}: {problem}\n{text}"
    finally:
        pathlib.Path(file.name).unlink()
    return None


def main() -> None:
    build.FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in build.FLAGS)
    os.environ["FLAMBEAU_STRICT"] = "1"  # what the compiler refuses is a finding
    many = "--many" in sys.argv
    first, last = (int(a) for a in sys.argv[1:] if a != "--many")
    ran = different = doubtful = 0
    for seed in range(first, last):
        try:
            problem = run(seed, many)
        except Refused:
            continue
        ran += 1
        doubtful += bool(problem and problem.startswith(UNSTABLE))
        different += bool(problem and not problem.startswith(UNSTABLE))
        if problem:
            print(seed, problem, flush=True)
        if ran % 50 == 0:
            print(f"# up to {seed}: {ran} cases, {different} differ", file=sys.stderr, flush=True)
    print(f"{ran} cases, {different} differ, {doubtful} have no digits to compare")
    print(f"{_C._instantiated_graphs()} graphs were made from others")


if __name__ == "__main__":
    main()
