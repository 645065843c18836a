"""What is known of a job that hangs or failed: Python stacks of all ranks, the last collectives, and where they were written.

A rank that waits for another one longer than some seconds asks every process of its group for its stacks, by a signal, and writes
them to standard error (`csrc/distributed/segment.cpp`). Here processes prepare to answer, and the flight recorder is
written to a file when a collective fails. `FLAMBEAU_FLIGHT_DIR` names the folder; `FLAMBEAU_WATCHDOG=0` turns the answering off.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import tempfile
import time
from typing import Any

from flambeau import _distributed as native
from flambeau.distributed.elastic.multiprocessing import errors

__all__ = ["dump", "prepare", "stacks"]

_file: Any = None  # memory to which this process writes its stacks
_owner = 0


def prepare(group: Any) -> None:
    """Lets peers read this process's Python stacks, and its agent the error that ends it."""
    global _file, _owner
    errors.report_uncaught()
    if os.environ.get("FLAMBEAU_WATCHDOG") == "0":
        return
    if _file is None or _owner != os.getpid():
        _file, _owner = os.fdopen(os.memfd_create("flambeau-stacks", os.MFD_CLOEXEC), "wb", buffering=0), os.getpid()
        faulthandler.register(native.stack_signal(), file=_file, all_threads=True, chain=False)
    group.write_stacks_to(_file.fileno())


def stacks(group: Any = None) -> str:
    """Every rank's last collective and Python stacks."""
    from flambeau.distributed._groups import _member_group

    member = _member_group(group)
    return "" if member is None else member._native.stacks()


def folder() -> str:
    return os.environ.get("FLAMBEAU_FLIGHT_DIR") or os.path.join(
        tempfile.gettempdir(), f"flambeau-flight-{os.getuid()}"
    )


def dump(group: Any, error: BaseException | None = None) -> str | None:
    """Writes the last collectives of a group as JSON; returns the path, None when it cannot be written."""
    entries = [
        {"sequence": sequence, "collective": what, "start_ns": start, "end_ns": end or None}
        for sequence, what, start, end in group._native.recent()
    ]
    ranks = [
        {
            "rank": rank,
            "pid": pid,
            "sequence": sequence,
            "last": last,
            "bytes": moved,
            "waited_s": waited,
            "trouble": why,
        }
        for rank, (pid, sequence, last, moved, waited, why) in enumerate(group._native.status())
    ]
    report = {
        "group": group.group_name, "rank": group.rank(), "size": group.size(), "pid": os.getpid(),
        "time": time.time(), "now_ns": time.monotonic_ns(), "error": str(error) if error else None,
        "ranks": ranks, "collectives": entries,
    }  # fmt: skip
    with contextlib.suppress(OSError):
        os.makedirs(folder(), mode=0o700, exist_ok=True)
        path = os.path.join(folder(), f"rank{group.rank()}-group{group.group_name}-{os.getpid()}.json")
        with open(path, "w") as file:
            json.dump(report, file, indent=1)
        return path
    return None


def page(reports: list[dict[str, Any]]) -> str:
    """The reports of the ranks of a group as one HTML page: a row of collectives for each rank, on one axis of time."""
    import html

    starts = [entry["start_ns"] for report in reports for entry in report["collectives"]]
    first = min(starts, default=0)
    last = max([report["now_ns"] for report in reports], default=first + 1)
    scale = 1000.0 / max(1, last - first)
    rows = []
    for report in sorted(reports, key=lambda one: one["rank"]):
        bars = []
        for entry in report["collectives"]:
            end = entry["end_ns"] or report["now_ns"]
            left, width = (entry["start_ns"] - first) * scale, max(1.0, (end - entry["start_ns"]) * scale)
            color = "#4a7" if entry["end_ns"] else "#c43"
            label = html.escape(f"{entry['collective']}: {(end - entry['start_ns']) / 1e6:.3f} ms")
            bars.append(
                f'<rect x="{left:.1f}" y="4" width="{width:.1f}" height="16" fill="{color}"><title>{label}</title></rect>'
            )
        title = html.escape(f"rank {report['rank']} (process {report['pid']})")
        error = html.escape(report["error"] or "")
        rows.append(f'<p>{title}</p><svg width="1010" height="24">{"".join(bars)}</svg><pre>{error}</pre>')
    return f"<!doctype html><title>collectives</title><body style='font-family:sans-serif'>{''.join(rows)}</body>"
