"""The stages of a compilation as text, for people: what was recorded, loops, groups, kernels, steps.

`FLAMBEAU_DUMP=folder` writes all of them for every graph, numbered in order, each headed by its name and the time it took.
`FLAMBEAU_LOGS=output_code` writes the kernels to the standard error, other names other stages. Kernels say which lines of the program and which ops
they come from; that is no part of their source, so that equal kernels of different lines stay one.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flambeau import _logging
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue
from flambeau._inductor import config
from flambeau._inductor.ir import Loop, OperatorCall
from flambeau._inductor.schedule import Group
from flambeau._inductor.steps import ProgramSpec

__all__ = ["Stages", "wanted"]

_numbers = itertools.count()


# The name of each stage among the logs.
_LOGS = {
    "recorded": "aot_graphs", "lowered": "ir_pre_fusion", "scheduled": "ir_post_fusion", "printed": "output_code", "planned": "steps",
}  # fmt: skip


def wanted() -> bool:
    return config.dump_folder is not None or config.trace.enabled or any(map(_logging.enabled, _LOGS.values()))


class Stages:
    """The stages of one program; makes nothing unless somebody wants to see it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.on = wanted()
        self.number = next(_numbers) if self.on else 0
        self.count = 0
        self.started = time.perf_counter()

    def recorded(
        self, calls: list[RecordedCall], inputs: list[RecordedValue], outputs: list[RecordedValue | None]
    ) -> None:
        if self.on:
            arguments = ", ".join(f"{v}: {_kind(v)}" for v in inputs)
            lines = [f"def {self.title}({arguments}):"]
            for call in calls:
                results = ", ".join(f"{v}: {_kind(v)}" for v in call.results if v is not None)
                lines.append(f"    {call}  # {results or 'in place'}{_at(call)}")
            lines.append(f"    return {', '.join(map(str, outputs))}")
            self._write("recorded", "py", lines)

    def lowered(self, items: Iterable[Loop | OperatorCall]) -> None:
        if self.on:
            self._write("lowered", "txt", [_item(item) for item in items])

    def scheduled(self, items: Iterable[Group | OperatorCall]) -> None:
        if self.on:
            lines = []
            for item in items:
                if isinstance(item, OperatorCall):
                    lines.append(_item(item))
                    continue
                split = "" if item.split is None else f", columns from {item.split}"
                lines.append(f"group over {item.dims}{split}")
                lines += [f"    {member.level.value:16} {_item(member.loop)}" for member in item.members]
            self._write("scheduled", "txt", lines)

    def printed(self, kernels: list[tuple[Group | OperatorCall, list[Any]]]) -> None:
        if self.on:
            parts = []
            for group, launches in kernels:
                for launch in launches:
                    source = getattr(getattr(launch, "kernel", None), "source", None) or repr(launch)
                    image = getattr(getattr(launch, "image", None), "name", "")  # what profilers call it
                    parts.append(f"{_origin(group)}\n{f'// {image}{chr(10)}' if image else ''}{source}")
            self._write("printed", "cpp", parts)

    def planned(self, program: ProgramSpec) -> None:
        if self.on:
            head = (
                f"{program.inputs} inputs, {len(program.constants)} constants, {program.slots} slots, "
                f"writes to {program.written}, returns {program.outputs}"
            )
            blocks = [f"block {~i}: {block}" for i, block in enumerate(program.blocks)]
            self._write("planned", "txt", [head, *blocks, *map(str, program.steps)])

    def _write(self, stage: str, suffix: str, lines: list[str]) -> None:
        taken = (time.perf_counter() - self.started) * 1e3
        folder = config.dump_folder or (
            os.environ.get("FLAMBEAU_DUMP") if not config.trace.enabled else "flambeau_stages"
        )
        self.count += 1
        if _logging.enabled(_LOGS[stage]):
            _logging.log(_LOGS[stage], "\n".join([self.title, *lines]))
        if folder is not None:
            path = Path(folder) / f"{self.number:03}_{self.title}_{self.count}_{stage}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            sign = {"py": "#", "cpp": "//"}.get(suffix, "#")
            path.write_text(f"{sign} {self.title}: {stage}, after {taken:.2f} ms\n" + "\n".join(lines) + "\n")
        self.started = time.perf_counter()


def _kind(value: RecordedValue) -> str:
    return f"{str(value.dtype).rpartition('.')[2]}{list(value.size)}"


def _at(call: RecordedCall) -> str:
    return f", {call.line}" if call.line else ""


def _item(item: Loop | OperatorCall) -> str:
    if isinstance(item, OperatorCall):
        recasts = [f"{target} = {source} as {target.dtype}" for (source, _), target in zip(item.reads, item.written)]
        return f"call {item.call}" if item.call is not None else ", ".join(recasts) or "take a random state"
    reduced = "" if item.reduce is None else f" reduced by {item.reduce.combine}, kept {item.reduce.kept}"
    reads = ", ".join(f"{a.buffer}[{a.offset}:{a.strides}]" for a in item.reads)
    return f"{item.write.buffer}[{item.write.offset}:{item.write.strides}] = {item.name} over {item.domain}: {item.expr} of {reads}{reduced}"


def _origin(group: Group | OperatorCall) -> str:
    """The ops and lines that a kernel comes from, as a comment."""
    if isinstance(group, OperatorCall):
        return f"// {group.call.line or 'backward'}: {group.call.op}"
    lines: dict[str, list[str]] = {}
    for member in group.members:
        lines.setdefault(member.loop.line or "backward", []).append(member.loop.name)
    return "\n".join(f"// {line}: {', '.join(names)}" for line, names in lines.items())
