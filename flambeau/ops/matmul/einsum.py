"""einsum: the equation is planned once for each set of shapes and run as permutations, sums and (batched) products.

A plan is a list of steps on numbered slots, so that a repeated call costs a dictionary lookup and the steps themselves.
Labels are integers: 0-25 for A-Z, 26-51 for a-z, and 52 upwards for the dimensions under an ellipsis.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.record import composite, tag

ELLIPSIS = 52  # label of the first dimension under `...`

Labels = tuple[int, ...]
Step = tuple[Any, ...]


@composite(method=False)
def einsum(equation: str, operands: list[fl.Tensor]) -> fl.Tensor:
    return _run(_plan(equation, tuple([tuple(t.shape) for t in operands])), operands)


tag("variadic", "einsum")

_MORE = ", ".join(f"any? operand{i}=None, any? labels{i}=None" for i in range(1, 10))


@composite(f"einsum.sublist(Tensor operand0, any labels0, {_MORE}, any? result=None) -> Tensor", method=False)
def einsum_sublist(*args: Any) -> fl.Tensor:
    """The form with lists of labels: einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    items = [a for a in args if a is not None]
    operands = items[: len(items) // 2 * 2 : 2]
    lists = items[1::2]
    parts = [_letters(x) for x in lists]
    equation = ",".join(parts)
    if len(items) % 2:
        equation += "->" + _letters(items[-1])
    return _run(_plan(equation, tuple([tuple(t.shape) for t in operands])), operands)


def _letters(labels: Sequence[Any]) -> str:
    text = ""
    for label in labels:
        if label is Ellipsis:
            text += "..."
        elif isinstance(label, int) and 0 <= label < ELLIPSIS:
            text += chr(ord("A") + label) if label < 26 else chr(ord("a") + label - 26)
        else:
            raise RuntimeError(f"[einsum] expected labels in [0, {ELLIPSIS}) or an ellipsis, got {label!r}")
    return text


def _label(letter: str) -> int:
    if "A" <= letter <= "Z":
        return ord(letter) - ord("A")
    if "a" <= letter <= "z":
        return ord(letter) - ord("a") + 26
    raise RuntimeError(f"[einsum] expected subscripts in [a-zA-Z], got {letter!r}")


def _side(text: str, hidden: int | None) -> list[int]:
    """Labels of one operand or of the output; `hidden` dimensions are under its ellipsis."""
    if text.count(".") not in (0, 3) or ("." in text and "..." not in text):
        raise RuntimeError(f"[einsum] expected an ellipsis as three dots, got {text!r}")
    before, dots, after = text.partition("...")
    if dots and hidden is None:
        hidden = 0
    middle = [ELLIPSIS + i for i in range(hidden or 0)] if dots else []
    return [_label(c) for c in before] + middle + [_label(c) for c in after]


def _parse(equation: str, shapes: tuple[Labels, ...]) -> tuple[list[list[int]], list[int]]:
    """Labels of every operand, those under ellipses aligned at the right, and of the output."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if not shapes:
        raise RuntimeError("[einsum] expected at least one operand, got none")
    if len(parts) != len(shapes):
        raise RuntimeError(f"[einsum] expected {len(parts)} operands for {equation!r}, got {len(shapes)}")
    hidden = []
    for part, shape in zip(parts, shapes):
        named = len(part) - (3 if "..." in part else 0)
        extra = len(shape) - named
        if extra < 0 or (extra > 0 and "..." not in part):
            raise RuntimeError(f"[einsum] expected as many subscripts as dimensions, got {part!r} for shape {shape}")
        hidden.append(extra)
    most = max([h for h, part in zip(hidden, parts) if "..." in part], default=0)
    labels = []
    for part, own in zip(parts, hidden):
        letters = _side(part, own if "..." in part else None)
        labels.append([x + most - own if x >= ELLIPSIS else x for x in letters])
    if arrow:
        output = _side(right, most)
        if len(set(output)) != len(output):
            raise RuntimeError(f"[einsum] expected output subscripts to appear once, got {right!r}")
        known = {x for letters in labels for x in letters}
        if not set(output) <= known:
            raise RuntimeError(f"[einsum] expected output subscripts that an operand has, got {right!r}")
    else:
        every = [x for letters in labels for x in letters]
        output = [ELLIPSIS + i for i in range(most)] + sorted(
            x for x in set(every) if x < ELLIPSIS and every.count(x) == 1
        )
    return labels, output


class _Planner:
    """Emits steps. Each slot holds a tensor whose labels and sizes are known here."""

    def __init__(self, labels: list[list[int]], shapes: tuple[Labels, ...], output: list[int]) -> None:
        self.steps: list[Step] = []
        self.labels = labels
        self.output = output
        self.rank = {x: n for n, x in enumerate(output)}
        self.size: dict[int, int] = {}
        for own, shape in zip(labels, shapes):
            for x, n in zip(own, shape):
                old = self.size.setdefault(x, n)
                if old is n or old == n:  # a symbolic size is asked no more than it has to be
                    continue
                if 1 not in (old, n):
                    letter = _letters([x] if x < ELLIPSIS else [...])
                    raise RuntimeError(
                        f"[einsum] expected one size for each subscript, got {old} and {n} for '{letter}'"
                    )
                self.size[x] = n if old == 1 else old
        for slot, shape in enumerate(shapes):
            self.simplify(slot, list(shape))

    def simplify(self, slot: int, shape: list[int]) -> None:
        """Takes diagonals of repeated labels and drops dimensions of size one that broadcast."""
        labels = self.labels[slot]
        d = 0
        while d < len(labels):
            first = labels.index(labels[d])
            full = self.size[labels[d]]
            if shape[d] is not full and shape[d] != full:  # one, then
                self.steps.append(("select", slot, d))
                del labels[d], shape[d]
            elif first < d:
                if shape[first] != shape[d]:
                    raise RuntimeError(
                        f"[einsum] expected one size for a repeated subscript, got {shape[first]} and {shape[d]}"
                    )
                self.steps.append(("diagonal", slot, first, d))
                x, n = labels[d], shape[d]
                del labels[d], shape[d], labels[first], shape[first]
                labels.append(x)
                shape.append(n)
                d = 0
            else:
                d += 1

    def arrange(self, slot: int, groups: list[list[int]], fold: list[bool]) -> None:
        """Permutes a slot into groups of labels, folding some groups into one dimension each."""
        order = [x for group in groups for x in group]
        labels = self.labels[slot]
        if order != labels:
            self.steps.append(("permute", slot, tuple(labels.index(x) for x in order)))
        shape: list[int] = []
        plain = True
        for group, folded in zip(groups, fold):
            if folded and len(group) != 1:
                shape.append(math.prod(self.size[x] for x in group))
                plain = False
            else:
                shape += [self.size[x] for x in group]
        if not plain:
            self.steps.append(("reshape", slot, tuple(shape)))

    def reduce(self, slot: int, needed: set[int]) -> None:
        """Sums over the labels that nothing else needs."""
        labels = self.labels[slot]
        gone = tuple(d for d, x in enumerate(labels) if x not in needed)
        if gone:
            remaining = self.ordered(x for x in labels if x in needed)
            if remaining != [x for x in labels if x in needed]:
                self.arrange(slot, [[*remaining, *(x for x in labels if x not in needed)]], [False])
                self.labels[slot] = labels = [*remaining, *(x for x in labels if x not in needed)]
                gone = tuple(range(len(remaining), len(labels)))
            self.steps.append(("sum", slot, gone))
            self.labels[slot] = [x for x in labels if x in needed]

    def contract(self, i: int, j: int, later: set[int]) -> None:
        """Slot i becomes the product of slots i and j, summed over what `later` does not need."""
        a, b = self.labels[i], self.labels[j]
        self.reduce(i, later | set(b))
        self.reduce(j, later | set(a))
        a, b = self.labels[i], self.labels[j]
        batch = self.ordered(x for x in a if x in b and x in later)
        inner = [x for x in a if x in b and x not in later]
        left = self.ordered(x for x in a if x not in b)
        right = self.ordered(x for x in b if x not in a)
        if inner:
            # Where it makes the result lie in the order of the output, the sides change places.
            first, second = i, j
            if self.is_output(batch + right + left) and not self.is_output(batch + left + right):
                first, second, left, right = j, i, right, left
            result = batch + left + right
            self.arrange(first, [batch, left, inner], [False, True, True])
            self.arrange(second, [batch, inner, right], [False, True, True])
            self.steps.append(("matmul", i, first, second))
            if len(left) != 1 or len(right) != 1:
                self.steps.append(("reshape", i, tuple(self.size[x] for x in result)))
        else:
            # No sum: broadcasting multiplication, with a place for the labels of the other side.
            result = self.ordered([*batch, *left, *right])
            for slot, own in ((i, a), (j, b)):
                self.arrange(slot, [[x for x in result if x in own]], [False])
                for d, x in enumerate(result):
                    if x not in own:
                        self.steps.append(("unsqueeze", slot, d))
            self.steps.append(("mul", i, j))
        self.labels[i] = result

    def ordered(self, labels: Iterable[int]) -> list[int]:
        """Labels in the order of the output; those it does not have come last."""
        return sorted(labels, key=lambda x: self.rank.get(x, len(self.rank)))

    def is_output(self, labels: list[int]) -> bool:
        """Whether these are the labels of the output in its order, not counting dimensions of size one."""

        def long(labels: list[int]) -> list[int]:
            return [x for x in labels if not (type(self.size[x]) is int and self.size[x] == 1)]

        return long(labels) == long(self.output)

    def finish(self, slot: int) -> None:
        labels = self.labels[slot]
        if labels != self.output:
            self.steps.append(("permute", slot, tuple(labels.index(x) for x in self.output)))

    def cost(self, i: int, j: int, later: set[int]) -> float:
        """Elements gained by a contraction, the measure of the greedy choice."""

        def volume(labels: set[int]) -> int:
            return math.prod(self.size[x] for x in labels)

        a, b = set(self.labels[i]), set(self.labels[j])
        return volume((a | b) & later) - volume(a) - volume(b)


@functools.lru_cache(maxsize=1024)
def _plan(equation: str, shapes: tuple[Labels, ...]) -> tuple[int, tuple[Step, ...]]:
    labels, output = _parse(equation, shapes)
    planner = _Planner(labels, shapes, output)
    live = list(range(len(shapes)))

    def needed_beside(*slots: int) -> set[int]:
        return set(output).union(*(planner.labels[s] for s in live if s not in slots))

    while len(live) > 1:
        pairs = [(i, j) for n, i in enumerate(live) for j in live[n + 1 :]]
        if len(pairs) > 1:
            pairs.sort(key=lambda pair: planner.cost(*pair, needed_beside(*pair)))  # type: ignore[call-arg]
        i, j = pairs[0]
        planner.contract(i, j, needed_beside(i, j))
        live.remove(j)
    planner.reduce(live[0], set(output))
    planner.finish(live[0])
    return live[0], tuple(planner.steps)


def _run(plan: tuple[int, tuple[Step, ...]], operands: Sequence[fl.Tensor]) -> fl.Tensor:
    last, steps = plan
    slots = list(operands)
    for step in steps:
        kind, i = step[0], step[1]
        if kind == "permute":
            slots[i] = slots[i].permute(step[2])
        elif kind == "matmul":
            slots[i] = fl.matmul(slots[step[2]], slots[step[3]])
        elif kind == "reshape":
            slots[i] = slots[i].reshape(step[2])
        elif kind == "mul":
            slots[i] = fl.mul(slots[i], slots[step[2]])
        elif kind == "sum":
            slots[i] = fl.sum(slots[i], step[2], dtype=slots[i].dtype)
        elif kind == "unsqueeze":
            slots[i] = slots[i].unsqueeze(step[2])
        elif kind == "diagonal":
            slots[i] = slots[i].diagonal(0, step[2], step[3])
        else:
            slots[i] = slots[i].select(step[2], 0)
    # The result is a tensor of its own even where nothing had to be done.
    return slots[last] if steps else slots[last].view(slots[last].shape)
