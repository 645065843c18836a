"""`flambeau compare train.py`: one program on flambeau and on PyTorch, side by side.

The program runs once with each library, in processes of its own. What it prints is compared line by line: numbers count as equal
within a tolerance, and the first line that differs by more is shown with the place. Time, processor time and peak memory are those
of the process and its children.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec

_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
_TIMING = re.compile(r"\b\d+(?:\.\d+)?\s*(?:s|ms|us|µs|sec|seconds|it/s|MB|GB|MiB|GiB)\b")


@dataclass
class Run:
    """What came of one run."""

    status: int
    lines: list[str]
    seconds: float
    cpu_seconds: float
    megabytes: float
    errors: str


def run(command: list[str], environment: dict[str, str]) -> Run:
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output, errors = process.communicate()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    return Run(
        process.returncode, output.splitlines(), time.perf_counter() - start, cpu, _peak(errors), _without_peak(errors)
    )


# The peak is the child's own word: the parent's counter keeps the largest of all children it ever had.
_MARK = "flambeau-compare-peak "
_REPORT = (
    "import atexit,resource,sys;atexit.register(lambda:print('\\n" + _MARK + "',"
    "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,file=sys.stderr,sep=''));"
    "import runpy;sys.argv=sys.argv[1:];"
    "sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(sys.argv[0])));"
    "runpy.run_path(sys.argv[0],run_name='__main__')"
)


def _peak(errors: str) -> float:
    peaks = re.findall(rf"^{_MARK}(\d+)$", errors, re.M)
    return int(peaks[-1]) / 1024 if peaks else float("nan")


def _without_peak(errors: str) -> str:
    return re.sub(rf"\n?^{_MARK}\d+\n?", "", errors, flags=re.M)


def difference(ours: str, theirs: str, tolerance: float) -> str | None:
    """Why two lines differ; None when only times, or numbers within the tolerance, do."""
    ours, theirs = _TIMING.sub("<time>", ours), _TIMING.sub("<time>", theirs)
    if _NUMBER.sub("#", ours) != _NUMBER.sub("#", theirs):
        return "the words differ"
    pairs = zip(map(float, _NUMBER.findall(ours)), map(float, _NUMBER.findall(theirs)))
    worst = max((abs(a - b) / max(abs(a), abs(b), 1e-12) for a, b in pairs if a != b), default=0.0)
    return f"a number differs by {worst:.1%}" if worst > tolerance else None


def first_difference(ours: list[str], theirs: list[str], tolerance: float) -> tuple[int, str] | None:
    for index, (a, b) in enumerate(zip(ours, theirs)):
        why = difference(a, b, tolerance)
        if why is not None:
            return index, why
    if len(ours) != len(theirs):
        return min(len(ours), len(theirs)), f"{len(ours)} lines against {len(theirs)}"
    return None


def table(ours: Run, theirs: Run) -> str:
    rows = [
        ("time, s", ours.seconds, theirs.seconds),
        ("processor time, s", ours.cpu_seconds, theirs.cpu_seconds),
        ("peak memory, MB", ours.megabytes, theirs.megabytes),
    ]
    lines = [f"{'':20}{'flambeau':>12}{'PyTorch':>12}{'ratio':>9}"]
    lines += [f"{name:20}{a:12.2f}{b:12.2f}{a / b if b else float('nan'):9.2f}" for name, a, b in rows]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau compare",
        description="Run a program on flambeau and on PyTorch; compare what it prints, its time and its memory.",
        epilog="example: flambeau compare train.py --epochs 3",
    )
    parser.add_argument(
        "--tolerance", type=float, default=0.01, help="how much printed numbers may differ (default 0.01)"
    )
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch (default: this one)")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    options = parser.parse_args(arguments)
    if not os.path.exists(options.program):
        parser.error(f"there is no file {options.program!r}")
    if options.python == sys.executable and find_spec("torch") is None:
        print(
            "flambeau compare: expected PyTorch in this environment, got none: pip install torch, or --python",
            file=sys.stderr,
        )
        return 2
    from flambeau._compat.alias import environment

    program = [options.program, *options.arguments]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FLAMBEAU_AS_TORCH")}
    ours = run([sys.executable, "-c", _REPORT, *program], {**plain, **environment(plain)})
    theirs = run([options.python, "-c", _REPORT, *program], plain)
    for name, one in (("flambeau", ours), ("PyTorch", theirs)):
        if one.status:
            print(f"{name} ended with status {one.status}:\n{one.errors.strip()[-2000:]}", file=sys.stderr)
    difference = first_difference(ours.lines, theirs.lines, options.tolerance)
    if difference is None:
        print(f"{len(ours.lines)} lines agree within {options.tolerance:.0%}; the last: {(ours.lines or ['none'])[-1]}")
    else:
        at, why = difference
        print(f"line {at + 1}: {why}")
        shown = [(lines[at] if at < len(lines) else "(ended)") for lines in (ours.lines, theirs.lines)]
        print("\n".join(line.rstrip() for line in difflib.ndiff(*([text] for text in shown))))  # type: ignore[arg-type]
    print(f"\n{table(ours, theirs)}")
    return int(difference is not None or ours.status != 0)
