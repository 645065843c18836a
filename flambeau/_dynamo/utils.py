"""Counts of what capture did, under the names by which programs ask for them.

counters["graph_break"]     how often each reason broke a graph
counters["stats"]           unique_graphs, calls_captured
counters["frames"]          total: functions that were looked at; ok: those of which an artifact was made
counters["recompiles"]      how often a function was captured again
"""

from __future__ import annotations

from collections import Counter, defaultdict

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)


def is_compile_supported(device_type: object) -> bool:
    return True
