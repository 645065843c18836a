"""`flambeau dist-status`: the groups of processes that run on this host, from the memory that they share.

flambeau dist-status             every group of this user
flambeau dist-status PID         those of one process
flambeau dist-status --page DIR  the flight recorder files of a folder as an HTML page, on standard output
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Iterator


def _segments(pids: list[int]) -> Iterator[tuple[int, int]]:
    """(process, descriptor) of each group's memory, once each."""
    seen = set()
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue  # ended, or of another user
        for descriptor in descriptors:
            path = f"/proc/{pid}/fd/{descriptor}"
            try:
                if not os.readlink(path).startswith("/memfd:flambeau-group"):
                    continue
                status = os.stat(path)
            except OSError:
                continue
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield pid, int(descriptor)


def _amount(count: int) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 10_000 or unit == "GB":
            return f"{count} {unit}"
        count //= 1000
    return ""


def _page(folder: str) -> int:
    from flambeau.distributed._watchdog import page

    reports = [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("rank*.json"))]
    if not reports:
        print(f"flambeau dist-status: no files of the flight recorder in {folder}", file=sys.stderr)
        return 1
    print(page(reports))
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="flambeau dist-status",
        description="Show the groups of processes that run on this host, from the memory that they share.",
    )
    parser.add_argument("process", nargs="?", type=int, help="groups of this process only")
    parser.add_argument("--page", metavar="FOLDER", help="print the flight recorder files of a folder as an HTML page")
    options = parser.parse_args(arguments)
    if options.page:
        return _page(options.page)
    from flambeau import _distributed as native

    every = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    pids = every if options.process is None else [options.process]
    groups = 0
    for pid, descriptor in _segments(pids):
        status = native.status_of(pid, descriptor)
        if status is None:
            continue
        groups += 1
        name, ranks = status
        furthest = max(sequence for _, sequence, _, _, _ in ranks)
        print(f"group {name!r} of {len(ranks)} processes, furthest at collective {furthest}")
        print(f"  {'rank':>4} {'process':>8} {'position':>9} {'moved':>10} {'waited':>10}  in or after")
        for rank, (process, sequence, last, moved, waited) in enumerate(ranks):
            alive = os.path.exists(f"/proc/{process}")
            behind = "" if sequence == furthest else f"  <- {furthest - sequence} behind"
            state = last if alive else f"{last} (ended)"
            print(f"  {rank:>4} {process:>8} {sequence:>9} {_amount(moved):>10} {waited:>8.2f} s  {state}{behind}")
    if not groups:
        print("no groups of processes run here")
    return 0
