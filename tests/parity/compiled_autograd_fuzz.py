"""The programs of `autograd_fuzz.py` compiled, against eager mode: values, gradients, written inputs and shared memory.

    python tests/parity/compiled_autograd_fuzz.py FIRST LAST [BACKEND]

prints the seeds that differ. Lines that eager mode refuses are left out.
"""

from __future__ import annotations

import linecache
import pathlib
import random
import sys
import tempfile
import warnings
from typing import Any

import flambeau as fl

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from autograd_fuzz import Program, close, flat


def accepted(program: Program, refused: list[int]) -> str:
    """The program without the lines that are refused."""
    lines, body = iter(enumerate(program.lines[:-1])), []
    for i, line in lines:
        text = [line, next(lines)[1]] if line.startswith("with") else [line]
        if i in refused:
            name = line.split(" = ")[0]
            makes = " = " in line and line[0] == "t" and "[" not in name
            text = [f"{name} = lib.zeros(2, dtype=lib.float64)"] if makes else []
        body += text
    head = f"def program({', '.join(f't{i}' for i in range(len(program.inputs)))}):\n"
    results = program.lines[-1].replace("return ", "return (") + ",)"
    return head + "\n".join("    " + line for line in [*body, results])


def leaves_of(program: Program, seed: int, requires_grad: bool) -> list[Any]:
    generator = random.Random(seed)
    leaves = []
    for shape in program.inputs:
        count = 1
        for n in shape:
            count *= n
        values = [generator.uniform(-1, 1) for _ in range(count)]
        leaves.append(fl.tensor(values, dtype=fl.float64).reshape(shape).clone().requires_grad_(requires_grad))
    return leaves


def outcome(function: Any, leaves: list[Any]) -> tuple[Any, ...]:
    results = function(*leaves)
    seen = [[t.detach().tolist(), t.requires_grad, tuple(t.shape)] for t in (*results, *leaves)]
    wanted, gradients = [t for t in results if t.requires_grad], []
    if wanted:
        try:
            total = sum((t * (i + 1) * 0.5).sin().sum() for i, t in enumerate(wanted))
            found = fl.autograd.grad(total, leaves, materialize_grads=True, allow_unused=True)
            gradients = [g.tolist() for g in found]
        except RuntimeError:
            gradients = ["refused"]  # a value that a derivative needs was overwritten
    places = [t.untyped_storage().data_ptr() for t in results if t.numel()]
    return seen, [[a == b for b in places] for a in places], gradients


def _load(source: str, name: str) -> Any:
    pathlib.Path(name).write_text(source)
    linecache.checkcache(name)
    space: dict[str, Any] = {"lib": fl}
    exec(compile(source, name, "exec"), space)
    return space["program"]


def differs(seed: int, backend: str = "aot_eager", folder: str = tempfile.gettempdir()) -> str | None:
    """The program and what differs, where something does."""
    for requires_grad in (True, False):
        program = Program(seed)
        space: dict[str, Any] = {}
        exec(program.source(), space)
        *_, refused = space["program"](fl, *leaves_of(program, seed, requires_grad))
        source = accepted(program, refused)
        function = _load(source, f"{folder}/program_{seed}.py")
        try:
            expected = outcome(function, leaves_of(program, seed, requires_grad))
        except RuntimeError:
            continue  # a line needs one that was refused
        fl._dynamo.reset()
        compiled = fl.compile(function, backend=backend)
        for _ in range(2):
            got = outcome(compiled, leaves_of(program, seed, requires_grad))
            either_refused = "refused" in flat([expected[2], got[2]])
            if not close(expected[:2], got[:2]) or not (either_refused or close(expected[2], got[2])):
                return f"{source}\neager    {expected}\ncompiled {got}"
    return None


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:3])
    warnings.simplefilter("ignore")
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(first, last):
            report = differs(seed, *sys.argv[3:4] or ["aot_eager"], folder=scratch)
            if report:
                wrong += 1
                print(f"---- seed {seed}\n{report}", flush=True)
    print(f"{last - first} programs, {wrong} differ")
