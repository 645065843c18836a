"""Drives operators with random garbage: for each schema, arguments that are sometimes right and often wrong.

A worker process runs the trials and notes each one in a shared file before it starts, so that the parent can name the
trial that killed it (a signal, an abort, or more processor time than a trial may take) and go on with the next one.
Each trial is reproducible by itself: `python tests/garbage.py "<operator>" <trial>`.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import warnings
from typing import Any

import flambeau as fl

ALLOWED = (
    RuntimeError,  # with NotImplementedError and OutOfMemoryError
    TypeError,
    ValueError,
    IndexError,
    OverflowError,
    MemoryError,
    KeyError,
)
# from_file makes files; the others iterate as often as they are told.
SKIPPED = re.compile(r"^(from_file|pca_lowrank|svd_lowrank|special_(laguerre|legendre|hermite)_polynomial)")
# Functions that divide by an argument in Python, as PyTorch's do.
DIVIDING = re.compile(r"^nn_lp_pool")
SECONDS_A_TRIAL = 20
MEMORY = 6 << 30

DTYPES = [
    fl.float32,
    fl.float64,
    fl.float16,
    fl.bfloat16,
    fl.int64,
    fl.int32,
    fl.int16,
    fl.int8,
    fl.uint8,
    fl.bool,
    fl.complex64,
    fl.complex128,
]
EDGE_INTS = [2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63), 10**6, -100, 255]
EDGE_FLOATS = [math.nan, math.inf, -math.inf, 1e300, -1e-300, 1e20, -0.0]
STRINGS = [
    "mean", "sum", "none", "bogus", "", "linear", "nearest", "bilinear", "bicubic", "area", "reflect", "constant",
    "replicate", "circular", "trunc", "floor", "fro", "nuc", "amax", "amin", "prod", "ortho", "forward", "backward",
    "ij", "xy", "ij,jk->ik", "i->", "...ij->...ji", "ii->i", "complete", "reduced", "r", "L", "U", "tanh", "gelsd",
    "zeros", "border", "reflection", "right", "left", "higher", "lower", "midpoint", "valid", "same", "batch_mean",
    "max", "min", "é\0",
]  # fmt: skip
WRONG = [None, "text", 1.5, 3, True, 2j, object(), [], {}, (), [None], [[1, 2], 3], b"x", int, fl.float32, 10**30]


def schemas() -> list[str]:
    return [s for s in fl._C._list_operators() if "::" not in s and not SKIPPED.match(s)]


def split_arguments(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    quote = False
    for i, c in enumerate(text):
        if c == "'":
            quote = not quote
        elif quote:
            continue
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]


class Schema:
    """The name and the arguments of an operator: (name, type, has a default, keyword only)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.name, _, rest = text.partition("(")
        body = rest[: rest.rindex(") ->")]
        self.arguments: list[tuple[str, str, bool, bool]] = []
        keyword = False
        for part in split_arguments(body):
            if part == "*":
                keyword = True
                continue
            declared, _, default = part.partition("=")
            kind, _, name = declared.strip().rpartition(" ")
            self.arguments.append((name, kind, bool(default), keyword))


class Garbage:
    """Random values by argument type; most tensors of a trial share shape and dtype, so that some calls pass."""

    def __init__(self, seed: str) -> None:
        self.r = random.Random(seed)
        r = self.r
        self.shape = [
            r.choice([0, 1, 2, 3, 4, 5, 7]) if r.random() < 0.3 else r.randint(1, 4) for _ in range(r.randint(0, 5))
        ]
        self.dtype = r.choice(DTYPES) if r.random() < 0.5 else fl.float32
        self.wild = r.random() < 0.5  # whether values of the wrong type or out of range occur
        self.requires_grad = r.random() < 0.15
        self.meta = r.choice([0.3, 0.9]) if r.random() < 0.15 else 0.0  # how often a tensor is on the meta device
        self.extreme = r.random() < 0.3

    def size(self) -> list[int]:
        r = self.r
        shape = list(self.shape)
        for _ in range(2 if r.random() < 0.3 else 0):
            what = r.random()
            if what < 0.3 and shape:
                shape[r.randrange(len(shape))] = r.choice([0, 1, 2, 3, 5])
            elif what < 0.5 and shape:
                del shape[r.randrange(len(shape))]
            elif what < 0.7 and len(shape) < 6:
                shape.insert(r.randint(0, len(shape)), r.choice([0, 1, 2, 3]))
            elif what < 0.8:
                shape = [r.randint(0, 4) for _ in range(r.randint(0, 5))]
            else:
                r.shuffle(shape)
        return shape

    def fill(self, shape: list[int], dtype: Any) -> Any:
        r = self.r
        n = math.prod(shape)
        if dtype.is_floating_point or dtype.is_complex:
            values = [r.uniform(-3, 3) for _ in range(n)]
            if self.extreme:
                values = [r.choice(EDGE_FLOATS) if r.random() < 0.3 else v for v in values]
        elif dtype == fl.bool:
            values = [r.random() < 0.5 for _ in range(n)]
        else:
            low = 0 if r.random() < 0.6 or dtype == fl.uint8 else -4
            values = [r.randint(low, 4) for _ in range(n)]
            if self.extreme and dtype == fl.int64:
                values = [r.choice(EDGE_INTS) if r.random() < 0.3 else v for v in values]
        return fl.tensor(values, dtype=dtype).reshape(shape)

    def tensor(self) -> Any:
        r = self.r
        dtype = self.dtype if r.random() < 0.7 else r.choice([fl.int64, fl.int64, fl.float32, *DTYPES])
        shape = self.size()
        if r.random() < self.meta:
            return fl.empty(shape, dtype=dtype, device="meta")
        how = r.random()
        if how < 0.55 or not shape:
            t = self.fill(shape, dtype)
        elif how < 0.7:
            order = list(range(len(shape)))
            r.shuffle(order)
            t = self.fill([shape[i] for i in order], dtype).permute([order.index(i) for i in range(len(shape))])
        elif how < 0.85:
            at = r.randrange(len(shape))
            t = self.fill([s * 2 + 1 if i == at else s for i, s in enumerate(shape)], dtype)
            t = t.narrow(at, 1, shape[at] * 2)[(slice(None),) * at + (slice(None, None, 2),)]
        else:
            at = r.randrange(len(shape))
            t = self.fill([1 if i == at else s for i, s in enumerate(shape)], dtype).expand(shape)
        if self.requires_grad and (dtype.is_floating_point or dtype.is_complex) and r.random() < 0.5:
            t = t.detach().requires_grad_()
        return t

    def integer(self) -> int:
        r = self.r
        if self.wild and r.random() < 0.15:
            return r.choice(EDGE_INTS)
        if self.shape and r.random() < 0.2:
            return r.choice(self.shape)
        return r.randint(-3, 5) if r.random() < 0.5 else r.randint(0, 2)

    def real(self) -> float:
        r = self.r
        if self.wild and r.random() < 0.2:
            return r.choice(EDGE_FLOATS)
        return r.choice([0.0, 0.5, 1.0, 2.0, -1.0, r.uniform(-2, 2)])

    def number(self) -> Any:
        pick = self.r.random()
        if pick < 0.4:
            return self.integer()
        if pick < 0.8:
            return self.real()
        return self.r.choice([True, False, 1j, complex(math.nan, 1)])

    def integers(self, length: int | None) -> Any:
        r = self.r
        if length and r.random() < 0.3:
            return self.integer()
        n = length if length and r.random() < 0.8 else r.choice([0, 1, 1, 2, 2, 3, 4, 6])
        if r.random() < 0.3:
            return list(self.shape)
        if r.random() < 0.2:
            order = list(range(max(1, len(self.shape))))
            r.shuffle(order)
            return order[:n]
        return [self.integer() for _ in range(n)]

    def index(self) -> Any:
        r = self.r
        pick = r.randrange(6)
        if pick == 0:
            return None
        if pick == 1:
            return slice(self.integer(), self.integer(), r.choice([1, 2, 0, -1, None]))
        if pick == 2:
            return Ellipsis
        if pick == 3:
            return self.integer()
        return self.tensor()

    def value(self, kind: str) -> Any:
        r = self.r
        if self.wild and r.random() < 0.06:
            return r.choice(WRONG)
        if kind.endswith("?"):
            if r.random() < 0.4:
                return None
            kind = kind[:-1]
        listed = re.fullmatch(r"(.+?)\[(\d*)\]", kind)
        if listed:
            element, length = listed[1], int(listed[2]) if listed[2] else None
            if element == "int":
                return self.integers(length)
            return [self.value(element) for _ in range(r.choice([0, 1, 2, 2, 3, length or 2]))]
        base = kind.replace("(!)", "").replace("?", "")
        if base == "Tensor":
            return self.tensor()
        if base == "Tensor|Scalar":
            return self.tensor() if r.random() < 0.7 else self.number()
        if base == "Scalar":
            return self.number()
        if base == "int":
            return self.integer()
        if base == "float":
            return self.real()
        if base == "bool":
            return r.random() < 0.5
        if base == "str":
            return r.choice(STRINGS)
        if base == "dtype":
            return r.choice(DTYPES)
        if base == "device":
            return r.choice(["cpu", "cpu", "cpu", "meta", "cuda", "nowhere", "cpu:1"])
        if base == "layout":
            return fl.strided
        if base == "memory_format":
            return r.choice([fl.contiguous_format, fl.preserve_format, fl.channels_last, fl.channels_last_3d])
        if base == "Generator":
            return fl.Generator()
        return r.choice([self.index(), self.tensor(), self.integer(), [self.tensor(), self.tensor()], r.choice(WRONG)])

    def call(self, schema: Schema) -> tuple[list[Any], dict[str, Any]]:
        r = self.r
        positional: list[Any] = []
        named: dict[str, Any] = {}
        seen: list[Any] = []
        for name, kind, default, keyword in schema.arguments:
            if default and r.random() < 0.4:
                continue
            if not default and self.wild and r.random() < 0.02:
                continue
            if kind.startswith("Tensor") and not kind.endswith("]") and seen and r.random() < 0.12:
                value = r.choice(seen)
                if r.random() < 0.3 and value.dim():
                    value = value.flip(0) if r.random() < 0.5 else value.transpose(0, -1)
                elif r.random() < 0.3 and value.dim():
                    value = value.narrow(0, 0, value.shape[0] // 2)
            else:
                value = self.value(kind)
            if isinstance(value, fl.Tensor):
                seen.append(value)
            if keyword or len(positional) < [a[0] for a in schema.arguments].index(name):
                named[name] = value
            else:
                positional.append(value)
        if self.wild and r.random() < 0.02:
            positional.append(3)
        if self.wild and r.random() < 0.02:
            named["bogus"] = 1
        return positional, named


def tensors_in(value: Any) -> list[Any]:
    if isinstance(value, fl.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in tensors_in(v)]
    return []


def check_bounds(t: Any) -> None:
    """A tensor must lie inside its storage."""
    if t.is_meta or not t.numel():
        return
    reach = t.storage_offset()
    low = reach
    for n, s in zip(t.shape, t.stride(), strict=True):
        reach += max(0, (n - 1) * s)
        low += min(0, (n - 1) * s)
    if low < 0 or (reach + 1) * t.element_size() > t.untyped_storage().nbytes():
        raise AssertionError(f"result of shape {t.shape} and stride {t.stride()} leaves its storage")


def trial(schema: Schema, number: int, verbose: bool = False) -> str | None:
    """Run one trial; what is wrong with its outcome, or None."""
    garbage = Garbage(f"{schema.name}/{number}")
    try:
        positional, named = garbage.call(schema)
    except ALLOWED as error:
        return f"could not make arguments: {error}"
    if verbose:
        print(schema.text)
        for value in [*positional, *named.items()]:
            print("  ", repr(value), [(tuple(t.shape), t.stride(), t.dtype, t.device) for t in tensors_in(value)])
        sys.stdout.flush()
    before = [t for v in [*positional, *named.values()] for t in tensors_in(v)]
    try:
        result = fl._C._operator_object(schema.name)(*positional, **named)
        for t in [*tensors_in(result), *before]:
            check_bounds(t)
            if not t.is_meta and t.numel() < 100_000:
                t.detach().clone()
        if garbage.requires_grad:
            for t in tensors_in(result):
                if t.requires_grad and t.numel() < 100_000 and not t.is_leaf:
                    t.backward(fl.ones_like(t))
                    break
        if verbose:
            print("result", result)
    except ALLOWED:
        if verbose:
            import traceback

            traceback.print_exc()
    except ZeroDivisionError as error:
        return None if DIVIDING.match(schema.name) else repr(error)
    except AssertionError as error:  # some of the functions written in Python raise it, as PyTorch's do
        return None if str(error).startswith("[") else f"AssertionError: {error}"
    except BaseException as error:  # anything else is the bug this looks for
        return f"{type(error).__name__}: {error}"
    return None


def work(path: str, first: int, last: int, trials: int, start: int, start_trial: int) -> None:
    """The worker: notes (operator, trial) in the file at `path` before each trial and prints what went wrong."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    fl.set_num_threads(1)
    with open(path, "r+b") as file:
        note = mmap.mmap(file.fileno(), 16)
    every = [Schema(s) for s in schemas()]
    for at in range(start, last):
        for number in range(start_trial if at == start else first, first + trials):
            note[:16] = struct.pack("qq", at, number)
            signal.setitimer(signal.ITIMER_PROF, SECONDS_A_TRIAL)  # ends the process when it fires
            wrong = trial(every[at], number)
            if wrong:
                print(json.dumps([every[at].name, number, wrong]), flush=True)
    note[:16] = struct.pack("qq", last, 0)


def drive(start: int, last: int, trials: int, first_trial: int = 0) -> list[tuple[str, int, str]]:
    """Run trials of the operators [start, last) in worker processes; each wrong outcome as (operator, trial, what)."""
    names = [Schema(s).name for s in schemas()]
    found: list[tuple[str, int, str]] = []
    number = first_trial
    with tempfile.NamedTemporaryFile() as note:
        while start < last:
            note.seek(0)
            note.write(struct.pack("qq", start, number))
            note.flush()
            arguments = [note.name, first_trial, last, trials, start, number]
            done = subprocess.run(
                [sys.executable, __file__, "--work", *map(str, arguments)], capture_output=True, text=True
            )
            for line in done.stdout.splitlines():
                if line.startswith("["):
                    name, at_trial, what = json.loads(line)
                    found.append((name, at_trial, what))
            with open(note.name, "rb") as file:
                start, number = struct.unpack("qq", file.read(16))
            if start >= last:
                break
            if done.returncode > 0 and "Traceback" in done.stderr:
                raise RuntimeError(done.stderr)
            ended = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit {done.returncode}"
            found.append((names[start], number, f"{ended}: {done.stderr.strip()[-300:]}"))
            number += 1
            if number >= first_trial + trials:
                start, number = start + 1, first_trial
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        numbers = list(map(int, sys.argv[3:]))
        work(sys.argv[2], *numbers)
    elif sys.argv[1] == "--all":
        # tests/garbage.py --all TRIALS FIRST_TRIAL [START LAST]
        trials, first_trial = int(sys.argv[2]), int(sys.argv[3])
        begin, end = (int(sys.argv[4]), int(sys.argv[5])) if len(sys.argv) > 4 else (0, len(schemas()))
        for at in range(begin, end, 20):
            for name, number, what in drive(at, min(end, at + 20), trials, first_trial):
                print(f"{name}\t{number}\t{what}", flush=True)
        print("done", os.getpid())
    else:
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        chosen = next(Schema(s) for s in schemas() if Schema(s).name == sys.argv[1])
        print(trial(chosen, int(sys.argv[2]), verbose=True))
