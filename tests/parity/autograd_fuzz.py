"""Random programs of views, writes in place and arithmetic, run with PyTorch and here: values, gradients and refusals agree.

    python tests/parity/autograd_fuzz.py FIRST LAST

prints the seeds that differ, with the program. `test_autograd_fuzz.py` runs a few.
"""

from __future__ import annotations

import random
import sys

import torch

import flambeau as fl

SHAPES = [(6,), (2, 3), (3, 2), (2, 2, 3), (1, 3), (3, 1), (), (4,), (3, 3)]


class Program:
    """Lines of Python over tensors t0, t1, ...; shapes are followed so that most lines are valid."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.inputs = [self.random.choice(SHAPES) for _ in range(self.random.randint(1, 3))]
        self.count = len(self.inputs)
        for i in range(self.count):
            if self.random.random() < 0.8:
                self.lines.append(f"t{i} = t{i} * 1")
        for _ in range(self.random.randint(2, 14)):
            self.step()
        self.lines.append("return " + ", ".join(f"t{i}" for i in range(self.count)))

    def pick(self) -> str:
        return f"t{self.random.randrange(self.count)}"

    def new(self, expression: str) -> None:
        self.lines.append(f"t{self.count} = {expression}")
        self.count += 1

    def step(self) -> None:
        r = self.random
        a, b = self.pick(), self.pick()
        d, e = r.randint(-3, 2), r.randint(-3, 2)
        kind = r.random()
        if kind < 0.3:
            self.new(r.choice([
                f"{a}[0]", f"{a}[1:]", f"{a}[..., :2]", f"{a}[::2]", f"{a}.transpose({d}, {e})", f"{a}.t()",
                f"{a}.unsqueeze({d})", f"{a}.squeeze()", f"{a}.view(-1)", f"{a}.reshape(-1)", f"{a}.flatten()",
                f"{a}.expand(2, *{a}.shape).sin()", f"{a}.diagonal()", f"{a}.unbind(0)[0]", f"{a}.chunk(2, -1)[0]",
                f"{a}.narrow(0, 0, 1)", f"{a}.movedim({d}, {e})", f"{a}.select(-1, 0)", f"{a}.mT", f"{a}.view_as({a})",
                f"{a}.as_strided((2,), (1,), 1)", f"{a}.detach()", f"{a}.swapaxes({d}, {e})",
            ]))  # fmt: skip
        elif kind < 0.55:
            self.new(r.choice([
                f"{a} * {b}", f"{a} + {b}", f"{a} / ({b} + 3)", f"{a}.sin()", f"{a} * 2", f"{a}.clone()", f"{a}.exp().reciprocal()",
                f"lib.cat([{a}.reshape(-1), {b}.reshape(-1)])", f"lib.where({a} > 0, {a}, {b})", f"{a}.sum({d})",
                f"{a}.mean()", f"{a}.contiguous()", f"{a}.max({d})[0]", f"{a}.cumsum({d})", f"lib.stack([{a}, {a}])",
                f"{a}.sigmoid()", f"{a}.flip(0)", f"{a}[{a} > 0]", f"{a}.masked_fill({a} > 0.5, 0.25)", f"{a}.softmax({d})",
                f"{a} @ {b}", f"{a}.prod()", f"{a}.index_select(0, lib.tensor([0, 0]))", f"{a}.repeat(2, *[1] * {a}.dim())",
            ]))  # fmt: skip
        else:
            line = r.choice([
                f"{a}.mul_({b})", f"{a}.add_({b})", f"{a}.mul_(2)", f"{a}.sin_()", f"{a}.copy_({b})", f"{a}.zero_()",
                f"{a}.fill_(0.5)", f"{a}[0] = {b}", f"{a}[..., 0] = 1.0", f"{a}[1:] *= 2", f"{a}.masked_fill_({a} > 0.5, 0.25)",
                f"{a}.t_()", f"{a}.unsqueeze_({d})", f"{a}.squeeze_()", f"{a}.transpose_({d}, {e})", f"{a}[{a} > 0] = 0.1",
                f"{a}.exp_()", f"{a}.sigmoid_()", f"{a}.index_add_(0, lib.tensor([0]), {a}[:1] * 1)", f"{a}.addcmul_({b}, {b})",
                f"{a}.index_put_((lib.tensor([0]),), {b} * 1)", f"{a}.clamp_(-0.5, 0.5)", f"{a}.div_(3)", f"{a}.pow_(2)",
                f"{a}.swapdims_({d}, {e})", f"{a}.diagonal().mul_(2)", f"{a}.relu_()", f"{a}.fill_({b})",
                f"{a}.set_({b})" if r.random() < 0.1 else f"{a}.neg_()", f"{a}.cumsum_({d})",
                f"{a}.lerp_({b}, 0.5)", f"{a}.tril_()", f"{a}.index_fill_(0, lib.tensor([0]), 2.0)",
            ])  # fmt: skip
            if r.random() < 0.1:
                self.lines.append("with lib.no_grad():")
                line = "    " + line
            self.lines.append(line)

    def source(self) -> str:
        head = f"def program(lib, {', '.join(f't{i}' for i in range(len(self.inputs)))}):\n"
        # A line that is refused leaves everything as it was, and which ones are is part of what is compared.
        body, refused = [], "    refused = []\n"
        lines = iter(enumerate(self.lines[:-1]))
        for i, line in lines:
            text = [line]
            if line.startswith("with"):
                text.append(next(lines)[1])
            inner = "\n".join("        " + x for x in text)
            made = (
                line.split(" = ")[0] if " = " in line and line[0] == "t" and "[" not in line.split(" = ")[0] else None
            )
            other = f"\n        {made} = lib.zeros(2, dtype=lib.float64)" if made else ""
            body.append(f"    try:\n{inner}\n    except Exception as error:\n        refused.append({i}){other}")
        return head + refused + "\n".join(body) + f"\n    {self.lines[-1]}, refused\n"


def outcome(lib, source: str, inputs, values):
    space: dict = {}
    exec(source, space)
    leaves = [lib.tensor(v, dtype=lib.float64).reshape(s).clone().requires_grad_() for v, s in zip(values, inputs)]
    *tensors, refused = space["program"](lib, *leaves)
    seen = [t.data.tolist() for t in tensors], [t.requires_grad for t in tensors], refused
    wanted = [t for t in tensors if t.requires_grad]
    grads: list = []
    if wanted:
        try:
            total = sum((t * (i + 1) * 0.5).sin().sum() for i, t in enumerate(wanted))
            found = lib.autograd.grad(total, leaves, create_graph=True, materialize_grads=True, allow_unused=True)
            grads = [g.detach().tolist() for g in found]
            again = sum((g * g).sum() for g in (*found, *(leaf * 0 for leaf in leaves)))
            second = lib.autograd.grad(again, leaves, materialize_grads=True, allow_unused=True)
            grads.append([g.detach().tolist() for g in second])
        except RuntimeError:
            grads.append("refused")  # a value that a derivative needs was overwritten
    return seen, grads


def flat(x):
    return [y for item in x for y in flat(item)] if isinstance(x, (list, tuple)) else [x]


def close(a, b) -> bool:
    a, b = flat(a), flat(b)
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):
        if isinstance(x, float) and isinstance(y, float):
            if x != y and not (x != x and y != y) and not abs(x - y) <= 1e-8 * (1 + abs(x) + abs(y)):
                return False
        elif x != y:
            return False
    return True


def differs(seed: int) -> str | None:
    """The program and both outcomes, where they are not the same."""
    program = Program(seed)
    generator = random.Random(seed)
    values = [[generator.uniform(-1, 1) for _ in range(max(1, int(torch.Size(s).numel())))] for s in program.inputs]
    source = program.source()
    theirs, ours = outcome(torch, source, program.inputs, values), outcome(fl, source, program.inputs, values)
    # Where memory overlaps, more is refused here or there; and what is kept for derivatives differs, and so does which
    # overwritten value is missed.
    if len(theirs[0][2]) != len(ours[0][2]) and any(
        word in source for word in ("copy_", "unbind", "chunk", "as_strided")
    ):
        return None
    if close(theirs[0], ours[0]) and ("refused" in flat([theirs[1], ours[1]]) or close(theirs[1], ours[1])):
        return None
    names = ("values", "requires_grad", "refused lines")
    text = ["\n".join(f"{i}: {line}" for i, line in enumerate(program.lines)), f"inputs {program.inputs}"]
    for name, a, b in [*zip(names, theirs[0], ours[0]), ("gradients", theirs[1], ours[1])]:
        if not close(a, b):
            text.append(f"{name}:\n  torch {a}\n  here  {b}")
    return "\n".join(text)


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:3])
    wrong = 0
    for seed in range(first, last):
        report = differs(seed)
        if report:
            wrong += 1
            print(f"---- seed {seed}\n{report}", flush=True)
    print(f"{last - first} programs, {wrong} differ")
