"""Differential fuzzing of the compiler: random functions of ops, views and writes, compiled against eager.

    python tests/inductor/compiler_fuzz.py FIRST LAST [--narrow | --calls] [--batch 250] [--level 0]

runs the cases of these seeds and prints those that differ. A case is a function of its seed, so a finding is reproduced by
its number; tests/inductor/test_compiler_fuzz.py keeps some. Programs of many dtypes, layouts and ops come from
random_programs.py; --narrow takes the smaller ones of this file, which are in single precision and follow the values of
intermediate results, --calls those of tests/random_calls.py, which look into the corners of many more operators. Building kernels takes most of the time, so those of a batch of cases are built in one go, and without
optimisation unless --level 3 asks for the build that users get.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import logging
import mmap
import os
import pathlib
import random
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as fl
import flambeau.nn.functional as F
from flambeau._inductor import build, config
from flambeau._inductor.compile_fx import GraphCompiler, compile_tensor_function, specialized_function
from flambeau.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import random_programs

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from random_calls import Program

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
    """A function and what makes its inputs."""
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

    def inputs(variant=0):
        fl.manual_seed(seed + variant)
        return [fl.randn(size, requires_grad=True) for size in sizes]

    return function, inputs


def _broadcasts(a, b) -> bool:
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b)))


def calls(seed: int):
    """The calls of a program that eager mode runs, and whose results have a shape that is known before."""
    made = Program(seed)
    lines = []

    def run(space, line):
        exec(line, space)
        name = line.split(" = ")[0]
        if isinstance(space.get(name), (tuple, list)):
            space[name] = space[name][0]

    trial = {"lib": fl, "F": F, **{f"t{k}": t for k, t in enumerate(made.leaves(fl))}}
    for line in made.lines:
        if not any(word in line for word in _UNKNOWN_SHAPES):
            with contextlib.suppress(Exception):
                run(trial, line)
                lines.append(line)

    def function(*given):
        space = {"lib": fl, "F": F, **{f"t{k}": t for k, t in enumerate(given)}}
        for line in lines:
            run(space, line)
        results = [t for name, t in space.items() if isinstance(t, fl.Tensor)][len(given) :]
        function.low = any(t.dtype in (fl.float16, fl.bfloat16) for t in (*given, *results))
        return results or [given[0] * 1]

    def inputs(variant=0):
        leaves = [t.clone() for t in made.leaves(fl)]
        if made.writes:
            return leaves
        return [t.requires_grad_() if t.is_floating_point() or t.is_complex() else t for t in leaves]

    return function, inputs


_UNKNOWN_SHAPES = (
    "unique", "nonzero", "argwhere", "bincount", "masked_select", "[lib.tensor([True", "[lib.tensor(True", " > 0]", "is_nonzero", "equal(", "out=",
    "allclose", "combinations", "repeat_interleave", "squeeze_()", "histc", "matrix_rank",
)  # fmt: skip


Case = tuple[Callable[..., list[Any]], Callable[..., list[Any]]]


UNSTABLE = "eager mode strays from itself"


class Refused(Exception):
    """Eager mode itself does not run the program."""


class Outcome:
    """What a run left behind: results, gradients, the inputs as they are afterwards, and who shares memory with whom."""

    def __init__(self, function: Callable[..., list[Any]], leaves: list[Any], history: bool = False) -> None:
        fl.manual_seed(0)
        self.leaves = [t for t in leaves if t.requires_grad]
        self.inputs = [t.clone() if history and t.requires_grad else t for t in leaves]
        self.results = function(*self.inputs)
        self.gradients: list[Any] = []
        everything = [*self.inputs, *self.results]
        places = [t.untyped_storage()._cdata for t in everything]
        self.sharing = [places.index(p) for p in places] if all(t.numel() for t in everything) else []

    def differentiate(self) -> None:
        roots = [t for t in self.results if t.requires_grad]
        if roots and self.leaves:
            fl.manual_seed(1)
            seeds = [_tangent(k, t) for k, t in enumerate(roots)]
            self.gradients = list(fl.autograd.grad(roots, self.leaves, seeds, allow_unused=True))


def _tangent(k: int, t: Any) -> Any:
    """Something to multiply a derivative with, in a layout that may be another than that of the result."""
    made = fl.randn(t.shape).to(t.dtype)
    if t.dim() == 0 or (t.numel() + k) % 3:
        return made
    return made.sum().expand(t.shape) if t.numel() % 2 else made.transpose(0, -1).contiguous().transpose(0, -1)


def _run(function: Callable[..., list[Any]], case: Case) -> list[Outcome]:
    """Calls with one set of inputs after the other; backwards run when all have gone forward."""
    inputs, history = case[1], getattr(case[0], "history", False)
    outcomes = [Outcome(function, inputs(variant), history) for variant in _variants(case)]
    for outcome in outcomes:
        outcome.differentiate()
    return outcomes


def _variants(case: Case) -> range:
    return range(getattr(case[0], "variants", 1))


def _eager(case: Case) -> list[Outcome]:
    try:
        return _run(case[0], case)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        raise Refused(str(error)) from error


def difference(got: Outcome, expected: Outcome, low: bool) -> str | None:
    for k, (a, b) in enumerate(zip(got.results, expected.results)):
        layouts = [(t.dtype, tuple(t.shape), t.stride() if t.numel() else (), t.requires_grad) for t in (a, b)]
        if layouts[0] != layouts[1]:
            return f"result {k}: {layouts[0]}, expected {layouts[1]}"
        _assert_close(a, b, 2e-4, low)
    if got.sharing != expected.sharing:
        return f"shared memory: {got.sharing}, expected {expected.sharing}"
    for a, b in zip(got.inputs, expected.inputs):
        _assert_close(a, b, 2e-4, low)
    for a, b in zip(got.gradients, expected.gradients):
        if (a is None) != (b is None):
            return "a gradient is missing" if a is None else "a gradient too many"
        if a is not None:
            _assert_close(a, b, 2e-3, low)
    return None


def _assert_close(a: Any, b: Any, tolerance: float, low: bool) -> None:
    if low and b.is_floating_point():
        # Compiled code keeps more digits between ops than eager mode: errors follow the largest element, and where
        # terms cancel nothing is left to compare.
        a, b = a.detach().double(), b.detach().double()
        size = b.nan_to_num(0, 0, 0).abs().max() if b.numel() else 0
        off = ~fl.isclose(a, b, rtol=0.1, atol=float(0.1 + 0.08 * size), equal_nan=True)
        if int(off.sum()) > max(2, b.numel() // 10):
            fl.testing.assert_close(a, b, rtol=0.1, atol=float(0.1 + 0.08 * size), equal_nan=True)
    else:
        fl.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


class _Warnings(logging.Handler):
    """What the compiler did not expect to happen, and went on without compiling."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []
        logging.getLogger("flambeau._inductor.compile_fx").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


_warnings = _Warnings()


def compare(case: Case, expected: list[Outcome], prepared: Prepared | None = None) -> str | None:
    """What differs between compiled and eager, or None."""
    function, inputs = case
    if prepared is None:
        _warnings.found.clear()
    try:
        got = _run(prepared.function if prepared else compile_tensor_function(function, len(inputs())), case)
        # That what was computed before may be written to is not recorded: such a function runs as it is.
        warned = prepared.warnings if prepared else _warnings.found
        unexpected = [w for w in warned if "leaf Variable" not in w or not getattr(function, "history", False)]
        if unexpected:
            return "; ".join(unexpected)
        low = getattr(function, "low", False)
        found = [difference(mine, true, low) for mine, true in zip(got, expected)]
        return next((f"inputs {k}: {problem}" for k, problem in enumerate(found) if problem), None)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:600]}"


USERS = build.FLAGS


def _as_users_have_it(case: Case, expected: list[Outcome]) -> str | None:
    """The comparison with kernels that are built as those of users are."""
    flags, build.FLAGS = build.FLAGS, USERS
    build.identity.cache_clear()
    try:
        return compare(case, expected)
    finally:
        build.FLAGS = flags
        build.identity.cache_clear()


class _LastDigits(TorchDispatchMode):
    """Changes the last digits of whatever an operation computes, by other random numbers than the program's."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.source = fl.Generator()
        self.source.manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = [t for t in args if isinstance(t, fl.Tensor)]
        places = {t.untyped_storage()._cdata for t in given}
        for t in made if isinstance(made, (list, tuple)) else [made]:
            computed = isinstance(t, fl.Tensor) and t.is_floating_point() and all(t.stride()) and given
            if computed and t.untyped_storage()._cdata not in places:
                noise = fl.randn(t.shape, generator=self.source, dtype=fl.float64, device="cpu").to(t.device)
                noise *= max(fl.finfo(t.dtype).eps, 1.2e-7)
                t.copy_(t.double() * (1 + noise))
                terms = given[0].numel() // max(t.numel(), 1)
                if terms > 1 and "sum" in func._full_name:  # each partial sum was rounded
                    t.add_((noise * given[0].detach().double().abs().max() * terms**0.5).to(t.dtype))
        return made


def unstable(case: Case, expected: list[Outcome]) -> bool:
    """Whether eager mode itself goes elsewhere when the last digits between its operations change, as at the kink of a
    function or where a variance vanishes."""
    function, inputs = case
    low = getattr(function, "low", False)

    def near(variant: int) -> list[Any]:
        given = inputs(variant)
        if len({t.untyped_storage()._cdata for t in given}) < len(given):
            return given
        return [
            (t.detach() * (1 + 2e-7 * fl.randn(t.shape).to(t.dtype))).requires_grad_(t.requires_grad)
            if t.is_floating_point()
            else t
            for t in given
        ]

    try:
        for seed in range(3):
            with _LastDigits(seed):
                moved = _run(function, (function, near))
            for a, b in zip(moved, expected):
                for x, y in zip([*a.results, *a.inputs], [*b.results, *b.inputs]):
                    _assert_close(x, y, 2e-4, low)
                for x, y in zip(a.gradients, b.gradients):
                    if x is not None and y is not None:
                        _assert_close(x, y, 2e-3, low)
    except AssertionError:
        return True
    return False


def run(seed: int, make: Callable[[int], Case] = program) -> str | None:
    case = make(seed)
    return compare(case, _eager(case))


class Stubs:
    """Stands in for the build while the cases of a batch compile: a kernel's address is that of a jump (for x86-64) to where
    its code is going to be."""

    JUMP = b"\xff\x25\x00\x00\x00\x00"  # to the address that follows
    SIZE = 16

    def __init__(self, most: int = 1 << 16) -> None:
        self.memory = mmap.mmap(-1, most * self.SIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.kernels: list[Any] = []
        self.places: dict[str, int] = {}

    def addresses(self, kernels: list[Any], extra: tuple[str, ...] = ()) -> list[int]:
        places = [self.places.setdefault(build.name(k, extra), len(self.kernels) + n) for n, k in enumerate(kernels)]
        self.kernels += kernels
        return [self.start + self.SIZE * place for place in places]

    def build(self) -> None:
        for k, address in enumerate(build.addresses(self.kernels)):
            self.memory[k * self.SIZE : k * self.SIZE + 14] = self.JUMP + struct.pack("<Q", address)


class Prepared:
    """A case compiled for all its sets of inputs."""

    def __init__(self, case: Case) -> None:
        function, inputs = case
        history = getattr(function, "history", False)
        self.compiled = GraphCompiler(function, True)
        self.graphs: dict[Any, Any] = {}
        _warnings.found.clear()
        for variant in _variants(case):
            given = [t.clone() if history and t.requires_grad else t for t in inputs(variant)]
            if _geometry(given) not in self.graphs:
                self.graphs[_geometry(given)] = self.compiled.graph_for(given)
        self.warnings = list(_warnings.found)
        self.function = specialized_function(len(given), self._graph_for, function)

    def _graph_for(self, given: list[Any]) -> Any:
        key = _geometry(given)
        return self.graphs[key] if key in self.graphs else self.compiled.graph_for(given)


def _geometry(given: list[Any]) -> Any:
    return tuple((t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.requires_grad) for t in given)


def run_batch(seeds: Iterable[int], make: Callable[[int], Case]) -> dict[int, tuple[str | None, bool]]:
    """What differs, and whether all of it was compiled, by seed; programs that eager mode refuses are left out."""
    cases: dict[int, tuple[Case, list[Outcome], Prepared | None]] = {}
    stubs = Stubs()
    builder = build.addresses
    build.addresses = stubs.addresses
    try:
        for seed in seeds:
            case = make(seed)
            with contextlib.suppress(Refused):
                expected = _eager(case)
                try:
                    cases[seed] = case, expected, Prepared(case)
                except Exception:  # shows again
                    cases[seed] = case, expected, None
    finally:
        build.addresses = builder
    try:
        stubs.build()
    except build.BuildError:  # shows again for the case it belongs to
        cases = {seed: (case, expected, None) for seed, (case, expected, _) in cases.items()}
    answers = {}
    for seed, (case, expected, prepared) in cases.items():
        problem = compare(case, expected, prepared)
        if problem and problem.startswith("AssertionError") and unstable(case, expected):
            problem = f"{UNSTABLE}: {problem}"
        elif problem and problem.startswith("AssertionError") and build.FLAGS != USERS:
            # Without vectors a sum goes from one end to the other, and loses digits that it keeps otherwise.
            problem = _as_users_have_it(case, expected)
        answers[seed] = problem, prepared is not None and all(prepared.graphs.values())
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--narrow", action="store_true")
    kind.add_argument("--calls", action="store_true")
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--level", choices=["0", "1", "2", "3"], default="0")
    options = parser.parse_args()
    config.verify_stages = True
    os.environ["FLAMBEAU_STRICT"] = "1"  # what the compiler refuses is a finding
    build.FLAGS = tuple(f"-O{options.level}" if flag == "-O3" else flag for flag in build.FLAGS)
    made = program if options.narrow else calls if options.calls else random_programs.program
    ran = different = doubtful = whole = 0
    for start in range(options.first, options.last, options.batch):
        found = run_batch(range(start, min(start + options.batch, options.last)), made)
        ran += len(found)
        whole += sum(compiled for _, compiled in found.values())
        for seed, (problem, _) in found.items():
            if problem and problem.startswith(UNSTABLE):
                doubtful += 1
            elif problem:
                different += 1
            if problem:
                print(seed, problem, flush=True)
        print(f"# up to {start + options.batch}: {ran} cases, {different} differ", file=sys.stderr, flush=True)
    print(f"{ran} cases, {whole} of them compiled, {different} differ, {doubtful} have no digits to compare")


if __name__ == "__main__":
    main()
