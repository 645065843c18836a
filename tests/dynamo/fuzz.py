"""Random programs, compiled against plain Python: control flow, containers, mutation, closures, exceptions, breaks.

    python tests/dynamo/fuzz.py [how many] [first seed]

prints each program that differs. The test suite runs a few hundred of them.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import pathlib
import random
import sys
import warnings

import flambeau as fl

HELPERS = """
class Box:
    kind = 1
    def __init__(self, v):
        self.v = v
        self.log = []
    def bump(self, n=1):
        self.v = self.v + n
        self.log.append(n)
        return self.v
    def __add__(self, other):
        return Box(self.v + (other.v if isinstance(other, Box) else other))
    @property
    def twice(self):
        return self.v * 2
STATE = {"n": 0}
SEEN = []
def countdown(n):
    while n > 0:
        yield n
        n -= 1
"""


class Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 1
        self.tensors = ["x", "y"]
        self.numbers = ["n"]
        self.lists = ["items"]
        self.dicts = ["table"]
        self.boxes = ["box"]
        self.functions: list[str] = []
        self.count = 0
        self.breaks = self.random.random() < 0.4
        self.in_loop = 0
        self.budget = self.random.randint(5, 22)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def pick(self, names: list[str]) -> str:
        return self.random.choice(names)

    # ------------------------------------------------------------------------------------------ expressions

    def number(self, depth: int = 0) -> str:
        r = self.random
        options = [
            lambda: str(r.randint(-3, 5)),
            lambda: self.pick(self.numbers),
            lambda: f"len({self.pick(self.lists)})",
            lambda: f"{self.pick(self.tensors)}.shape[0]",
            lambda: f"{self.pick(self.boxes)}.kind",
            lambda: f"len({self.pick(self.dicts)})",
            lambda: "STATE['n']",
            lambda: f"{self.pick(self.dicts)}.get({r.choice(['a', 'b', 'q'])!r}, 2)" if r.random() < 0.3 else "1",
        ]
        if depth < 2:
            options += [
                lambda: f"({self.number(depth + 1)} {r.choice('+-*')} {self.number(depth + 1)})",
                lambda: (
                    f"({self.number(depth + 1)} {r.choice(['//', '%'])} {r.choice(['2', '3', self.number(depth + 1)])})"
                ),
                lambda: f"({self.number(depth + 1)} if {self.condition(depth + 1)} else {self.number(depth + 1)})",
                lambda: f"sum(k for k in range({r.randint(0, 4)}))",
                lambda: f"max({self.number(depth + 1)}, {self.number(depth + 1)})",
            ]
        return r.choice(options)()

    def condition(self, depth: int = 0) -> str:
        r = self.random
        options = [
            lambda: f"{self.number(depth + 1)} {r.choice(['<', '>', '==', '!=', '<=', '>='])} {self.number(depth + 1)}",
            lambda: f"{self.pick(self.lists)}",
            lambda: f"{r.choice(['a', 'b', 'q'])!r} in {self.pick(self.dicts)}",
            lambda: f"isinstance({self.pick(self.tensors)}, fl.Tensor)",
        ]
        if depth < 2:
            options.append(lambda: f"not ({self.condition(depth + 1)})")
            options.append(
                lambda: f"({self.condition(depth + 1)} {r.choice(['and', 'or'])} {self.condition(depth + 1)})"
            )
        if self.breaks and depth == 0:
            options.append(lambda: f"{self.pick(self.tensors)}.sum() > {r.randint(-5, 5)}")
        return r.choice(options)()

    def tensor(self, depth: int = 0) -> str:
        r = self.random
        options = [lambda: self.pick(self.tensors)]
        if depth < 3:
            inner = lambda: self.tensor(depth + 1)  # noqa: E731
            options += [
                lambda: f"({inner()} {r.choice('+-*')} {inner()})",
                lambda: f"({inner()} {r.choice('+-*')} {self.number(2)})",
                lambda: f"fl.{r.choice(['sin', 'cos', 'relu', 'tanh', 'sigmoid'])}({inner()})",
                lambda: f"{inner()}.{r.choice(['abs', 'neg', 'exp2', 'floor', 'clone', 'detach'])}()",
                lambda: f"fl.where({inner()} > 0, {inner()}, {inner()})",
                lambda: f"{inner()}.clamp(-3, {r.randint(-2, 4)})",
                lambda: f"{self.pick(self.boxes)}.bump({inner()})" if r.random() < 0.2 else inner(),
                lambda: f"fl.zeros_like({inner()})",
                lambda: f"({inner()} * {self.pick(self.tensors)}.shape[0])",
            ]
            if self.functions:
                options.append(lambda: f"{self.pick(self.functions)}({inner()})")
        return r.choice(options)()

    # ------------------------------------------------------------------------------------------ statements

    def block(self, size: int) -> None:
        start = len(self.lines)
        known = (
            len(self.tensors),
            len(self.numbers),
            len(self.lists),
            len(self.dicts),
            len(self.boxes),
            len(self.functions),
        )
        for _ in range(size):
            self.statement()
        if len(self.lines) == start:
            self.emit("pass")
        for names, length in zip(
            (self.tensors, self.numbers, self.lists, self.dicts, self.boxes, self.functions), known
        ):
            del names[length:]

    def statement(self) -> None:
        if self.budget <= 0:
            return
        self.budget -= 1
        self.random.choice(self.statements)(self)

    def assign_tensor(self) -> None:
        value = self.tensor()
        name = self.pick(self.tensors) if self.random.random() < 0.4 else self.name("t")
        self.emit(f"{name} = {value}")
        if name not in self.tensors:
            self.tensors.append(name)

    def assign_number(self) -> None:
        value = self.number()
        name = self.pick(self.numbers) if self.random.random() < 0.4 else self.name("n")
        self.emit(f"{name} = {value}")
        if name not in self.numbers:
            self.numbers.append(name)

    def mutate_tensor(self) -> None:
        name = self.name("m")
        self.emit(f"{name} = {self.tensor(2)}.clone()")
        self.tensors.append(name)
        self.emit(
            self.random.choice(
                [f"{name}.add_({self.number(2)})", f"{name}[0] = {self.number(2)}", f"{name} *= 2", f"{name}[1:] += 1"]
            )
        )

    def mutate_argument(self) -> None:
        self.emit(self.random.choice(["x.mul_(2)", "y[0] = 1", "x += 1"]))

    def use_list(self) -> None:
        name = self.pick(self.lists)
        r = self.random
        self.emit(
            r.choice(
                [
                    f"{name}.append({self.number()})",
                    f"{name}.append({self.tensor(2)})",
                    f"{name} += [{self.number(1)}]",
                    f"{name}.insert(0, {self.number(1)})",
                    f"if {name}: {name}.pop()",
                    f"if {name}: {name}[0] = {self.tensor(2)}",
                    f"{name}.reverse()",
                    f"{name}.extend([k * 2 for k in range({r.randint(0, 3)})])",
                    f"del {name}[:1]",
                ]
            )
        )

    def new_list(self) -> None:
        name = self.name("l")
        r = self.random
        self.emit(
            f"{name} = "
            + r.choice(
                [
                    "[]",
                    f"[{self.tensor(2)}, {self.number()}]",
                    f"[{self.tensor(2)} * i for i in range({r.randint(0, 3)})]",
                    f"list({self.pick(self.lists)})",
                    f"{self.pick(self.lists)}",
                    f"sorted([{self.number()}, {self.number()}, 1])",
                    f"[k for k in countdown({r.randint(0, 3)})]",
                    f"[a for a, b in zip([1, 2, 3], {self.pick(self.lists)})]",
                    f"[i for i, _ in enumerate({self.pick(self.lists)})]",
                ]
            )
        )
        self.lists.append(name)

    def use_dict(self) -> None:
        name = self.pick(self.dicts)
        key = self.random.choice(["a", "b", "c"])
        self.emit(
            self.random.choice(
                [
                    f"{name}[{key!r}] = {self.number()}",
                    f"{name}.pop({key!r}, None)",
                    f"{name}.setdefault({key!r}, {self.number()})",
                    f"{name}.update({key}={self.number()})",
                    f"{name}[{self.number(1)}] = {self.number()}",
                ]
            )
        )

    def new_dict(self) -> None:
        name = self.name("d")
        value = self.random.choice(
            [
                "{}",
                f"{{'a': {self.number()}, 'b': 2}}",
                f"dict({self.pick(self.dicts)})",
                f"{self.pick(self.dicts)}",
                "{k: k * 2 for k in range(3)}",
            ]
        )
        self.emit(f"{name} = {value}")
        self.dicts.append(name)

    def use_box(self) -> None:
        name = self.pick(self.boxes)
        self.emit(
            self.random.choice(
                [
                    f"{name}.v = {self.tensor(1)}",
                    f"{name}.bump()",
                    f"{name}.log.append({self.number()})",
                    f"{name}.extra = {self.number()}",
                    f"Box.kind = {self.random.randint(1, 3)}"
                    if self.random.random() < 0.2
                    else f"{name}.kind = {self.number(1)}",
                ]
            )
        )

    def new_box(self) -> None:
        name = self.name("o")
        self.emit(
            f"{name} = "
            + self.random.choice(
                [
                    f"Box({self.tensor(1)})",
                    f"Box({self.number()})",
                    self.pick(self.boxes),
                    f"{self.pick(self.boxes)} + 1",
                ]
            )
        )
        self.boxes.append(name)

    def read_box(self) -> None:
        name = self.name("t")
        self.emit(f"{name} = {self.pick(self.boxes)}.{self.random.choice(['v', 'twice'])} * fl.ones(3)")
        self.tensors.append(name)

    def use_global(self) -> None:
        self.emit(
            self.random.choice([f"STATE['n'] = {self.number()}", f"SEEN.append({self.number(1)})", "STATE['n'] += 1"])
        )

    def if_statement(self) -> None:
        self.emit(f"if {self.condition()}:")
        self.depth += 1
        self.block(self.random.randint(1, 3))
        self.depth -= 1
        if self.random.random() < 0.6:
            self.emit("else:")
            self.depth += 1
            self.block(self.random.randint(1, 3))
            self.depth -= 1

    def for_statement(self) -> None:
        name = self.name("i")
        r = self.random
        over = r.choice(
            [f"range({r.randint(0, 4)})", "[1, 2, 3]", f"countdown({r.randint(0, 3)})", "(5, 6)", "range(n % 4)"]
        )
        self.emit(f"for {name} in {over}:")
        self.depth += 1
        self.in_loop += 1
        self.numbers.append(name)
        self.block(r.randint(1, 3))
        if r.random() < 0.3:
            self.emit(f"if {self.condition(1)}: {r.choice(['break', 'continue'])}")
        self.in_loop -= 1
        self.depth -= 1
        self.numbers.remove(name)

    def while_statement(self) -> None:
        name = self.name("w")
        self.emit(f"{name} = {self.random.randint(0, 3)}")
        self.emit(f"while {name} > 0:")
        self.depth += 1
        self.emit(f"{name} -= 1")
        self.block(self.random.randint(1, 2))
        self.depth -= 1

    def try_statement(self) -> None:
        r = self.random
        self.emit("try:")
        self.depth += 1
        self.block(r.randint(1, 2))
        self.emit(
            r.choice(
                [
                    "raise ValueError('v')",
                    f"if {self.condition(1)}: raise KeyError('k')",
                    f"{self.pick(self.lists)}[7]",
                    f"{self.pick(self.dicts)}['zz']",
                    f"1 // {self.number(1)}",
                    "pass",
                    f"{self.pick(self.boxes)}.missing",
                    "next(iter([]))",
                ]
            )
        )
        self.depth -= 1
        caught = r.choice(["ValueError", "KeyError", "Exception", "(IndexError, KeyError)", "LookupError"])
        self.emit(f"except {caught} as error:" if r.random() < 0.5 else f"except {caught}:")
        self.depth += 1
        self.block(r.randint(1, 2))
        if r.random() < 0.15:
            self.emit("raise")
        self.depth -= 1
        if r.random() < 0.3:
            self.emit("else:")
            self.depth += 1
            self.block(1)
            self.depth -= 1
        if r.random() < 0.3:
            self.emit("finally:")
            self.depth += 1
            self.block(1)
            self.depth -= 1

    def with_statement(self) -> None:
        self.emit(
            self.random.choice(
                [
                    "with fl.no_grad():",
                    "with contextlib.suppress(ValueError, KeyError):",
                    "with contextlib.nullcontext():",
                ]
            )
        )
        self.depth += 1
        self.block(self.random.randint(1, 2))
        self.depth -= 1

    def closure(self) -> None:
        name = self.name("f")
        captured = self.pick(self.numbers)
        r = self.random
        # A loop's variable may be unbound when the function runs; only what surely exists is captured.
        self.emit(f"def {name}(v, k={r.randint(0, 3)}):")
        self.depth += 1
        before = self.tensors, self.functions
        self.tensors, self.functions = ["v"], []
        if r.random() < 0.3 and captured == "n":
            self.emit("nonlocal n")
            self.emit("n = n + 1")
        self.emit(f"w = {self.tensor(1)} * k + {captured}")
        if r.random() < 0.2:
            self.emit(f"if {self.condition(1)}: return v")
        self.emit("return w")
        self.tensors, self.functions = before
        self.depth -= 1
        self.functions.append(name)

    def break_graph(self) -> None:
        if not self.breaks:
            return
        name = self.name("b")
        r = self.random
        self.emit(
            f"{name} = "
            + r.choice([f"int({self.pick(self.tensors)}.sum().item())", f"round({self.pick(self.tensors)}[0].item())"])
        )
        self.numbers.append(name)

    def print_statement(self) -> None:
        self.emit(self.random.choice([f"print({self.number(1)}, 'p')", f"print(f'{{{self.pick(self.numbers)}}}')"]))

    def early_return(self) -> None:
        if self.random.random() < 0.3:
            self.emit(f"if {self.condition(1)}: return {self.tensor(1)}, {self.number(1)}")

    def loop_with_finally(self) -> None:
        """try/finally around what leaves or continues a loop."""
        r, name = self.random, self.name("i")
        self.emit(f"for {name} in {r.choice(['range(3)', '[2, 0, 1]', 'countdown(3)'])}:")
        self.depth += 1
        self.in_loop += 1
        self.numbers.append(name)
        self.emit("try:")
        self.depth += 1
        self.block(1)
        leave = r.choice(["break", "continue", "raise ValueError('l')", "pass", f"return {self.tensor(2)}"])
        self.emit(f"if {self.condition(1)}: {leave}")
        self.block(1)
        self.depth -= 1
        if r.random() < 0.5:
            self.emit("except ValueError:")
            self.depth += 1
            self.block(1)
            if r.random() < 0.4:
                self.emit(r.choice(["continue", "break"]))
            self.depth -= 1
        self.emit("finally:")
        self.depth += 1
        self.block(1)
        self.emit(f"{self.pick(self.lists)}.append({name})")
        self.depth -= 1
        self.in_loop -= 1
        self.depth -= 1
        self.numbers.remove(name)
        if r.random() < 0.4:
            self.emit("else:")
            self.depth += 1
            self.block(1)
            self.depth -= 1

    def generator(self) -> None:
        """A generator of the program's own, run to its end, in part, or by send()."""
        r, name, made = self.random, self.name("g"), self.name("r")
        self.emit(f"def {name}(v, limit={r.randint(0, 3)}):")
        self.depth += 1
        before = self.tensors, self.functions, self.lists
        self.tensors, self.functions, self.lists = ["v"], [], ["items"]
        self.emit("got = None")
        self.emit("for k in range(limit):")
        self.emit("    try:")
        self.emit(f"        got = yield {r.choice(['k', 'v * k', 'got', '(k, v.sum())'])}")
        self.emit(
            f"    {r.choice(['except KeyError: yield -1', 'finally: items.append(k)', 'except ZeroDivisionError: pass'])}"
        )
        if r.random() < 0.3:
            self.emit(f"yield from ({r.choice(['k', 'v + k'])} for k in range(2))")
        self.emit(f"return {self.tensor(2)}")
        self.tensors, self.functions, self.lists = before
        self.depth -= 1
        argument = self.pick(self.tensors)
        ways = [
            [f"{made} = list({name}({argument}))"],
            [f"{made} = [v for v in {name}({argument}, 2) if v is not None]"],
            [f"s = {name}({argument}, 3)", f"{made} = [next(s), s.send({self.number(2)}), s.send('z')]", "s.close()"],
            [f"{made} = []", f"for v in {name}({argument}, 2): {made}.append(v)"],
            [f"s = {name}({argument}, 2)", f"{made} = [next(s)]", f"try: {made}.append(s.throw(KeyError('t')))",
             f"except (KeyError, StopIteration) as stop: {made}.append(type(stop).__name__)"],
        ]  # fmt: skip
        for line in r.choice(ways):
            self.emit(line)
        self.lists.append(made)

    def counter(self) -> None:
        """Closures that share and change a variable."""
        r, made = self.random, self.name("c")
        total, add, get = self.name("total"), self.name("add"), self.name("get")
        self.emit(f"def make_{made}():")
        self.emit(f"    {total} = {r.choice(['0', 'x.sum()', 'n'])}")
        self.emit(f"    def {add}(v=1):")
        self.emit(f"        nonlocal {total}")
        self.emit(f"        {total} = {total} {r.choice('+*-')} v")
        self.emit(f"        {r.choice(['STATE[chr(110)] += 1', 'SEEN.append(v)', 'pass'])}")
        self.emit(f"        return {total}")
        self.emit(f"    def {get}(): return {total}")
        self.emit(f"    return {add}, {get}")
        self.emit(f"{add}, {get} = make_{made}()")
        for _ in range(r.randint(1, 3)):
            self.emit(f"{add}({r.choice(['', '2', self.number(2)])})")
        self.emit(f"{made} = [{get}(), {add}.__name__]")
        self.lists.append(made)

    def use_set(self) -> None:
        r, made = self.random, self.name("s")
        self.emit(f"{made} = {r.choice(['{1, 2, 3}', 'set()', 'set(range(n % 5))', 'frozenset([1, 5]) | {2}'])}")
        self.emit(f"{made} = set({made})")
        for _ in range(r.randint(1, 3)):
            self.emit(
                r.choice([
                    f"{made}.add({self.number(2)})", f"{made}.discard({self.number(2)})", f"{made} |= {{7, 8}}",
                    f"{made} -= {{1}}", f"{made}.update(range(2))", f"{made} = {{k * 2 for k in {made}}}", f"{made} &= {{2, 7}}",
                ])
            )  # fmt: skip
        name = self.name("l")
        self.emit(f"{name} = sorted({made})")
        self.lists.append(name)

    def view(self) -> None:
        """Writes through views, seen by their base and by other views."""
        r, base, window = self.random, self.name("m"), self.name("v")
        self.emit(f"{base} = {r.choice([self.tensor(2) + '.clone()', 'x', 'y', self.tensor(2) + ' + 0'])}")
        self.emit(
            f"{window} = {base}{r.choice(['[1:]', '[::2]', '.view(-1)', '.unsqueeze(0)', '[0:2]', '.flip(0)', '.expand(2, 3)', '.detach()'])}"
        )
        self.tensors.append(base)
        self.emit(
            r.choice([
                f"{window}.clone().add_(1)", f"{base}.mul_(2)", f"{window} = {window} * 2", f"{window}[0] = {self.number(2)}",
                f"{base}[1:] = {base}[:-1].clone()", f"{base}.copy_({self.tensor(2)})", f"{base}.zero_()",
                f"{window}.sub_({self.number(2)})",
            ])
        )  # fmt: skip
        name = self.name("t")
        self.emit(f"{name} = {base} + {window}.sum()")
        self.tensors.append(name)

    def gradient(self) -> None:
        r, leaf, name = self.random, self.name("p"), self.name("t")
        self.emit(f"{leaf} = {self.tensor(2)}.detach().clone().requires_grad_()")
        self.emit(f"({leaf} * {r.choice([self.tensor(2), leaf, '2'])}).sum().backward()")
        if r.random() < 0.4:
            self.emit(f"{leaf}.{r.choice(['sin', 'square', 'tanh'])}().sum().backward()")
        self.emit(f"{name} = {leaf}.grad * 2")
        self.tensors.append(name)

    def match_statement(self) -> None:
        r = self.random
        subject = r.choice([self.number(1), self.pick(self.lists), self.pick(self.dicts), self.pick(self.boxes)])
        self.emit(f"match {subject}:")
        cases = [
            "case 0:",
            "case int() as k if k > 1:",
            "case [a, *rest]:",
            "case {'a': a}:",
            "case Box(v=v):",
            "case []:",
        ]
        r.shuffle(cases)
        for case in [*cases[: r.randint(1, 4)], "case _:"]:
            self.emit("    " + case)
            self.depth += 2
            self.block(1)
            self.depth -= 2

    statements = (
        [assign_tensor] * 6 + [assign_number] * 3 + [mutate_tensor, mutate_argument] + [use_list] * 3 + [new_list] * 2 + [use_dict] * 2
        + [new_dict, use_box, new_box, read_box, use_global] + [if_statement] * 3 + [for_statement] * 3 + [while_statement] + [try_statement] * 2
        + [with_statement, closure, closure] + [break_graph] * 2 + [print_statement, early_return]
        + [loop_with_finally] * 2 + [generator] * 2 + [counter, use_set, view, view, gradient, match_statement]
    )  # fmt: skip

    def write(self) -> str:
        while self.budget > 0:
            self.statement()
        names = [self.pick(self.tensors), self.pick(self.numbers), self.pick(self.lists), self.pick(self.dicts)]
        self.emit(f"return {', '.join(names)}, {self.tensor(1)}, {self.pick(self.boxes)}, {self.number(1)}")
        return "def program(x, y, n, items, table, box):\n" + "\n".join(self.lines) + "\n"


def load(text: str, seed: int):
    names = {"fl": fl, "contextlib": contextlib, "__name__": f"fuzz_{seed}"}
    exec(compile(HELPERS + text, f"<fuzz {seed}>", "exec"), names)
    return names


def inputs(names, variant: int):
    x = fl.arange(3, dtype=fl.float32) - 1 + variant * 0.5
    y = fl.tensor([0.5, -2.0, 3.0]) * (variant + 1)
    return [x, y, variant + 2, [1, x + 1], {"a": 1, "b": variant}, names["Box"](fl.ones(3))]


def outcome(names, function, variant: int):
    args = inputs(names, variant)
    names["STATE"].clear()
    names["STATE"]["n"] = 0
    names["SEEN"].clear()
    names["Box"].kind = 1
    written = io.StringIO()
    result = error = None
    with contextlib.redirect_stdout(written):
        try:
            result = function(*args)
        except Exception as raised:
            error = (type(raised).__name__, raised.args)
    mode = fl.is_grad_enabled()
    fl.set_grad_enabled(True)
    return [
        result,
        error,
        args,
        written.getvalue(),
        copy.deepcopy(names["STATE"]),
        list(names["SEEN"]),
        names["Box"].kind,
        mode,
    ]


def check(seed: int, same) -> str | None:
    """None, or what differs for the program of a seed."""
    text = Writer(seed).write()
    names = load(text, seed)
    function = names["program"]
    fast = fl.compile(function, backend="eager")
    for variant in (0, 1, 0, 2):
        wanted = outcome(names, function, variant)
        got = outcome(names, fast, variant)
        if not same(wanted, got):
            parts = [f"{a!r}\n   vs {b!r}" for a, b in zip(wanted, got) if not same(a, b)]
            return f"seed {seed}, variant {variant}\n{text}\n" + "\n".join(parts)
    return None


def main() -> int:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    same = importlib.import_module("test_corpus").same
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    bad = 0
    warnings.simplefilter("ignore")
    for seed in range(first, first + count):
        try:
            problem = check(seed, same)
        except SyntaxError:
            continue
        except BaseException as error:
            problem = f"seed {seed}: {type(error).__name__}: {error}"
            if isinstance(error, KeyboardInterrupt):
                raise
        if problem:
            bad += 1
            print(problem, "-" * 80, sep="\n")
            if bad >= 5:
                break
    print(f"{seed - first + 1} programs, {bad} bad")
    return bad


if __name__ == "__main__":
    sys.exit(main())
