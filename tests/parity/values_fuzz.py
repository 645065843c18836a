"""Random calls on tensors of all dtypes, layouts and sizes, run with PyTorch and here: dtypes, shapes, values, gradients of
gradients and refusals agree.

    python tests/parity/values_fuzz.py FIRST LAST

prints the seeds that differ, with the program (see tests/random_calls.py). `test_values_fuzz.py` runs a few. Where
`autograd_fuzz.py` follows views and writes in double precision, this one asks for everything else.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys
import tempfile
import warnings
from typing import Any

import torch

import flambeau as fl

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from known_faults import known
from random_calls import TOLERANCE, Program, Refusal, close, values


def outcome(lib: Any, program: Program) -> list[Any]:
    """After each line up to one that is refused: what it made; at the end derivatives of the results, and theirs."""
    leaves = [
        t.detach().requires_grad_() if t.is_floating_point() or t.is_complex() else t for t in program.leaves(lib)
    ]
    space = {"lib": lib, "F": lib.nn.functional}
    space |= {f"t{k}": t.detach().clone() if program.writes else t for k, t in enumerate(leaves)}
    count = len(leaves)
    seen: list[Any] = []
    for line in program.lines:
        try:
            exec(line, space)
            if line.startswith(f"t{count} = "):
                seen.append(values(space[f"t{count}"]))
        except Exception as error:
            return [*seen, Refusal(error)]
        if line.startswith(f"t{count} = "):
            made = space.get(f"t{count}")
            while isinstance(made, (tuple, list)) and made:
                made = made[0]
            space[f"t{count}"] = made if isinstance(made, lib.Tensor) else lib.ones(2)
            count += 1
    seen.append([values(space[f"t{k}"]) for k in range(len(leaves))])
    if not program.writes:
        seen.append(_derivatives(lib, [space[f"t{k}"] for k in range(len(leaves), count)], leaves))
    return seen


def _derivatives(lib: Any, results: list[Any], leaves: list[Any]) -> Any:
    wanted = [t for t in results if t.requires_grad]
    inputs = [t for t in leaves if t.requires_grad]
    if not wanted or not inputs:
        return []
    try:
        tops = [(t * 0.5).sin() if t.dtype not in (lib.complex64, lib.complex128) else t * 0.5 for t in wanted]
        grads = lib.autograd.grad(tops, inputs, [lib.ones_like(t) for t in tops], create_graph=True, allow_unused=True)
        first = [values(lib.zeros_like(t) if g is None else g) for g, t in zip(grads, inputs)]
    except Exception as error:
        return Refusal(error)
    again = [g for g in grads if g is not None and g.requires_grad]
    try:
        second = [None] * len(inputs)
        if again:
            second = lib.autograd.grad(again, inputs, [lib.ones_like(g) for g in again], allow_unused=True)
        return [first, [values(lib.zeros_like(t) if g is None else g) for g, t in zip(second, inputs)]]
    except Exception as error:
        return [first, Refusal(error)]


def _close_derivatives(a: Any, b: Any, least: float = 0.0) -> bool:
    """As `close`; of second derivatives few digits are left in low precision, and at kinks PyTorch has none."""
    if isinstance(a, Refusal) or not a:
        return True
    if isinstance(b, Refusal) or not b:
        return False
    low = any(dtype.split(".")[-1] in ("float16", "bfloat16") for dtype, *_ in a[0])
    second = low or isinstance(a[1], Refusal) or close(a[1], b[1], derivative=True, least=least)
    return close(a[0], b[0], derivative=True, least=least) and second


def _least(program: Program) -> float:
    """The tolerance of the dtype with the fewest digits that a program names: what is rounded once stays so."""
    named = " ".join([*(text for text, _ in program.inputs), *program.lines])
    return max([0.0, *(bound for dtype, bound in TOLERANCE.items() if f"lib.{dtype}" in named)])


def _again(program: Program, k: int) -> Any:
    """What line `k` makes here of the operands that PyTorch has before it: one that rounds, compares or sorts may turn
    an error in the last place of its operands into any other."""
    theirs = {"lib": torch, "F": torch.nn.functional}
    theirs |= {f"t{n}": t.detach().clone() for n, t in enumerate(program.leaves(torch))}
    count = len(program.inputs)
    for line in program.lines[:k]:
        exec(line, theirs)
        if line.startswith(f"t{count} = "):
            made = theirs[f"t{count}"]
            while isinstance(made, (tuple, list)) and made:
                made = made[0]
            theirs[f"t{count}"] = made if isinstance(made, torch.Tensor) else torch.ones(2)
            count += 1
    ours = {"lib": fl, "F": fl.nn.functional}
    for name, t in theirs.items():
        if isinstance(t, torch.Tensor):
            dtype = getattr(fl, str(t.dtype).removeprefix("torch."))
            ours[name] = fl.tensor(t.resolve_conj().resolve_neg().tolist(), dtype=dtype).reshape(tuple(t.shape))
    exec(program.lines[k], ours)
    return values(ours[f"t{count}"])


def _holds(program: Program, k: int, a: Any, b: Any) -> bool:
    """Whether what differs at line `k` is noise that an earlier line brought."""
    before = [n for n, line in enumerate(program.lines) if re.match(r"t\d+ = ", line)][: k + 1]
    if k >= program.made or before != list(range(k + 1)) or isinstance(a, Refusal) or isinstance(b, Refusal):
        return False
    try:
        return close(a, _again(program, k))
    except Exception:
        return False


def _is_empty(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 3 and isinstance(result[1], tuple) and 0 in result[1]


def differs(seed: int) -> str | None:
    """The program and where its outcomes part, where they do."""
    program = Program(seed)
    theirs, ours = outcome(torch, program), outcome(fl, program)
    least = _least(program)
    for k, (a, b) in enumerate(zip(theirs, ours)):
        if isinstance(b, Refusal) and (program.empty or _is_empty(a)):
            return None  # of nothing, PyTorch takes even what it refuses otherwise
        if (k <= program.made and close(a, b, least=least)) or (k > program.made and _close_derivatives(a, b, least)):
            continue
        fault = known(program, k, a, b)
        if fault or _holds(program, k, a, b):
            return None
        lines = [f"v = {v}; t{n} = {text}" for n, (text, v) in enumerate(program.inputs)] + program.lines
        return "\n".join([*lines, f"difference {k}:", f"  torch {a}", f"  here  {b}"])
    return None


def _slice(first: int, last: int, progress: Any) -> int:
    """How many programs of these seeds differ; `progress` has the one that runs, for who asks after a crash."""
    wrong = 0
    for seed in range(first, last):
        progress.seek(0)
        progress.write(f"{seed:>12}".encode())
        progress.flush()
        report = differs(seed)
        if report:
            wrong += 1
            print(f"---- seed {seed}\n{report}", flush=True)
    return wrong


def main() -> None:
    """Programs run in a child, because some end PyTorch's process; the seed is reported, and the next child goes on."""
    first, last = map(int, sys.argv[1:3])
    calls = sum(len(Program(seed).lines) for seed in range(first, last))
    wrong, ended, at = 0, 0, first
    with tempfile.TemporaryFile() as progress:
        while at < last:
            end = min(at + 2000, last)
            child = os.fork()
            if child == 0:
                warnings.simplefilter("ignore")
                wrong = _slice(at, end, progress)
                os._exit(min(wrong, 250))
            status = os.waitpid(child, 0)[1]
            if os.WIFSIGNALED(status):
                progress.seek(0)
                seed = int(progress.read() or at)
                ended += 1
                print(f"---- seed {seed}\nended by signal {os.WTERMSIG(status)}", flush=True)
                at = seed + 1
            else:
                wrong, at = wrong + os.waitstatus_to_exitcode(status), end
    print(f"{last - first} programs of {calls} calls, {wrong} differ, {ended} end the process")


if __name__ == "__main__":
    main()
