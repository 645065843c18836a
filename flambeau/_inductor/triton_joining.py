"""Triton kernels that follow each other closely: early starts, and independent kernels side by side in one launch.

The GPU needs about a microsecond from the end of one kernel to the beginning of the next, which is as long as the small
kernels of a model that decodes word by word take. A kernel that waits for the one before it by itself is started while that
one ends, and may read what no kernel writes before it waits (programmatic dependent launch). Small kernels that do not depend
on each other become one, whose first programs are those of the first kernel, and so on; copies of parameters in another dtype,
which autocast makes where each is used, are brought together for that.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flambeau._inductor.ir import OperatorCall
from flambeau._inductor.schedule import Group, Level

if TYPE_CHECKING:
    from flambeau._inductor.triton import Kernel

__all__ = ["WAIT_HERE", "gathered", "is_copy", "join_steps", "waiting"]

WAIT_HERE = "# from here on it needs what the kernels before it have made"  # a line of a kernel
_MOST = 8  # kernels of one launch
_MOST_POINTERS = 96  # of theirs
_HEAD = re.compile(r"def @NAME@\((.*)\):\n")


def waiting(kernel: Kernel) -> Kernel:
    """The kernel with a wait for the one before it: where it says so, or at its beginning."""
    source = _HEAD.sub(lambda head: f"{head[0]}    gdc_launch_dependents()\n", kernel.source, count=1)
    if WAIT_HERE in source:
        source = source.replace(WAIT_HERE, "gdc_wait()")
    else:
        source = source.replace("gdc_launch_dependents()\n", "gdc_launch_dependents()\n    gdc_wait()\n", 1)
    return replace(kernel, source=source, waits=True)


def join_steps(printed: list[list[Kernel] | None], steps: Sequence[int]) -> None:
    """Makes one kernel of those that share a step: the first item of the step has it, the others have none."""
    for _, same_step in itertools.groupby(range(len(printed)), key=lambda at: steps[at]):
        places = list(same_step)
        if len(places) == 1 or any(kernels is None or len(kernels) != 1 for kernels in (printed[p] for p in places)):
            continue
        kernels = {p: printed[p][0] for p in places}  # type: ignore[index]
        for some in _runs(kernels):
            if len(some) > 1:
                for place in some:
                    printed[place] = []
                printed[some[0]] = [_joined([kernels[p] for p in some])]


def _runs(kernels: dict[int, Kernel]) -> list[list[int]]:
    """Divides the kernels of a step into those that become one."""
    runs: list[list[int]] = []
    pointers = 0
    for place, kernel in kernels.items():
        fits = runs and len(runs[-1]) < _MOST and pointers + len(kernel.pointers) <= _MOST_POINTERS
        if fits and all(k.grid[1:] == (1, 1) and k.waits == kernel.waits for k in (kernel, kernels[runs[-1][0]])):
            runs[-1].append(place)
            pointers += len(kernel.pointers)
        else:
            runs.append([place])
            pointers = len(kernel.pointers)
    return runs


def is_copy(group: Group | OperatorCall) -> bool:
    """Whether a group copies one input, in another dtype, say."""
    if isinstance(group, OperatorCall) or len(group.members) != 1:
        return False
    member = group.members[0]
    reads = member.reads
    return (
        member.level is Level.POINT
        and len(reads) == 1
        and reads[0].buffer.source == "input"
        and reads[0].buffer.memory is reads[0].buffer
        and member.loop.write.buffer.memory is member.loop.write.buffer
        and [s for s in reads[0].strides if s] == [s for s in member.write.strides if s]
    )


def gathered(scheduled: list[Group | OperatorCall]) -> list[Group | OperatorCall]:
    """The same with each copy of an input right behind the first of some that are made one after the other, as many as become
    one kernel. It can be made as early as that: nothing that runs before it makes what it reads."""
    order: list[Group | OperatorCall] = []
    room, last = 0, 0  # of copies that may join those that end at a place
    for item in scheduled:
        if not is_copy(item):
            order.append(item)
        elif room:
            order.insert(last, item)
            last += 1
            room -= 1
        else:
            order.append(item)
            room, last = _MOST - 1, len(order)
    return order


def _joined(kernels: list[Kernel]) -> Kernel:
    """One kernel with the programs of several."""
    numbers: list[int] = []
    parts, calls = [], []
    pointers = 0
    for at, kernel in enumerate(kernels):
        parameters = _HEAD.search(kernel.source)
        assert parameters is not None
        names = [name.strip() for name in parameters[1].split(",")]
        body = kernel.source.replace("tl.program_id(0)", "program").replace("tl.num_programs(0)", "programs")
        parts.append(body.replace(parameters[0], f"def part_{at}({', '.join(['program', 'programs', *names])}):\n"))
        own = iter(range(pointers, pointers + len(kernel.pointers)))
        first = len(numbers)
        inputs = [
            f"p{next(own)}" if name[0] == "p" else f"n{first + int(name[1:])}" for name in names if ":" not in name
        ]
        inputs += [str(value) for value in kernel.constants.values()]
        pointers += len(kernel.pointers)
        numbers += [*kernel.numbers, kernel.grid[0]]
        calls.append((f"n{len(numbers) - 1}", f"part_{at}(program, {f'n{len(numbers) - 1}'}, {', '.join(inputs)})"))
    lines = ["program = tl.program_id(0)"]
    for at, (count, call) in enumerate(calls):
        lines.append("    " * at + (f"if program < {count}:" if at < len(calls) - 1 else call))
        if at < len(calls) - 1:
            lines += ["    " * at + f"    {call}", "    " * at + "else:", "    " * at + f"    program -= {count}"]
    body = "\n".join(f"    {line}" for line in lines)
    top = ", ".join([*(f"p{i}" for i in range(pointers)), *(f"n{i}" for i in range(len(numbers)))])
    registers = {kernel.registers for kernel in kernels}
    return replace(
        kernels[0],
        source="\n\n".join([*parts, f"@triton.jit\ndef @NAME@({top}):\n{body}\n"]),
        pointers=[pointer for kernel in kernels for pointer in kernel.pointers],
        numbers=numbers,
        wide=any(kernel.wide for kernel in kernels),
        constants={},
        warps=max(kernel.warps for kernel in kernels),
        grid=(sum(kernel.grid[0] for kernel in kernels), 1, 1),
        stages=max(kernel.stages for kernel in kernels),
        registers=registers.pop() if len(registers) == 1 else None,
        scratch=tuple(b for kernel in kernels for b in kernel.scratch),
    )
