"""The last collectives of all groups of this process, in the form in which PyTorch's tools read them."""

from __future__ import annotations

import json
import pickle
import re
import time
from typing import Any

from flambeau.distributed import _groups

__all__ = ["dump_json", "dump_pickle"]

# As the native part describes a collective: "all_reduce(float32 [2, 3], op=sum) #7".
_DESCRIBED = re.compile(r"(\w+)\((?:(\w+) \[([\d, ]*)\])?")
_DTYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
    "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}  # fmt: skip


def _entry(record: int, number: int, group: Any, trace: tuple[int, str, int, int]) -> dict[str, Any]:
    sequence, text, start, end = trace
    match = _DESCRIBED.match(text)
    name, dtype, sizes = match.groups() if match else (text, None, None)
    shapes = [] if dtype is None else [[int(size) for size in (sizes or "").split(", ") if size]]
    dtypes = [] if dtype is None else [_DTYPES.get(dtype, dtype)]
    wall = time.time_ns() - time.monotonic_ns()  # from the steady clock to that of the system
    return {
        "record_id": record, "pg_id": number, "process_group": (group.group_name, group.group_desc),
        "collective_seq_id": sequence, "p2p_seq_id": 0, "op_id": sequence, "is_p2p": name in ("send", "recv"),
        "profiling_name": f"{group.name()}:{name}", "time_created_ns": wall + start,
        "time_discovered_started_ns": wall + start, "time_discovered_completed_ns": wall + end if end else None,
        "input_sizes": shapes, "input_dtypes": dtypes, "output_sizes": shapes, "output_dtypes": dtypes,
        "state": "completed" if end else "started", "retired": bool(end), "timeout_ms": int(group.limit() * 1000),
        "frames": [], "thread_id": "", "thread_name": "",
    }  # fmt: skip


def _report(with_collectives: bool, only_active: bool) -> dict[str, Any]:
    groups = [group for group in _groups._world.pg_map if hasattr(getattr(group, "_native", None), "recent")]
    entries: list[dict[str, Any]] = []
    for number, group in enumerate(groups):
        for trace in group._native.recent():
            if not (only_active and trace[3]):
                entries.append(_entry(len(entries), number, group, trace))
    entries.sort(key=lambda entry: entry["time_created_ns"])
    configuration = {
        str(number): {
            "name": group.group_name,
            "desc": group.group_desc,
            "ranks": str(_groups.get_process_group_ranks(group)),
        }
        for number, group in enumerate(groups)
    }
    status = {
        str(number): {
            "last_enqueued_collective": max((t[0] for t in group._native.recent()), default=-1),
            "last_started_collective": max((t[0] for t in group._native.recent()), default=-1),
            "last_completed_collective": max((t[0] for t in group._native.recent() if t[3]), default=-1),
        }
        for number, group in enumerate(groups)
    }
    report = {"version": "2.10", "comm_lib_version": "", "pg_config": configuration, "pg_status": status}
    return report | {"entries": entries} if with_collectives else report


def dump_pickle(includeCollectives: bool = True, includeStackTraces: bool = True, onlyActive: bool = False) -> bytes:
    return pickle.dumps(_report(includeCollectives, onlyActive))


def dump_json(includeCollectives: bool = True, onlyActive: bool = False) -> bytes:
    return json.dumps(_report(includeCollectives, onlyActive)).encode()
