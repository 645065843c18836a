"""Memory of CUDA devices: what the caching allocator holds, and how to make it let go."""

from __future__ import annotations

from typing import Any

from flambeau.cuda import _library

__all__ = [
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "empty_cache",
    "get_allocator_backend",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]

# As flcuda_statistics fills them: each has current, peak, allocated and freed.
_STATISTICS = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "allocation", "segment")
_PARTS = ("current", "peak", "allocated", "freed")


def _statistics(device: Any) -> dict[str, int]:
    """Empty where there is no device."""
    if not _library.available():
        return {}
    values = _library.numbers("statistics", _library.index_of(device), len(_STATISTICS) * len(_PARTS) + 2)
    names = [f"{s}.all.{p}" for s in _STATISTICS for p in _PARTS]
    return dict(zip([*names, "num_alloc_retries", "num_ooms"], values))


def memory_stats(device: Any = None) -> dict[str, Any]:
    return dict(sorted(_statistics(device).items()))


def memory_allocated(device: Any = None) -> int:
    return _statistics(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Any = None) -> int:
    return _statistics(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Any = None) -> int:
    return _statistics(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Any = None) -> int:
    return _statistics(device).get("reserved_bytes.all.peak", 0)


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    if _library.available():
        _library.call("reset_peak", _library.index_of(device))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Accumulated counts are kept for ever here; peaks can be reset."""


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def empty_cache() -> None:
    """Give cached segments that hold no live block back to the driver."""
    if _library.available():
        _library.call("empty_cache")


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of a device, as the driver sees them."""
    free, total = _library.numbers("memory_info", _library.index_of(device), 2)
    return free, total


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    if not 0 <= fraction <= 1:
        raise ValueError(f"[set_per_process_memory_fraction] expected a fraction in [0, 1], got {fraction}")
    total = mem_get_info(device)[1]
    _library.call("limit", _library.index_of(device), int(total * fraction))


def memory_snapshot(device: Any = None) -> list[dict[str, Any]]:
    """Segments with their blocks, as the allocator has them now."""
    segments: dict[int, dict[str, Any]] = {}
    for line in _library.call("snapshot", _library.index_of(device)).decode().splitlines():
        address, total, stream, block, size, requested, state, kind, pool = line.split()
        segment = segments.setdefault(
            int(address),
            {
                "device": _library.index_of(device),
                "address": int(address),
                "total_size": int(total),
                "stream": int(stream),
                "segment_type": kind,
                "segment_pool_id": (0, int(pool)),
                "allocated_size": 0,
                "active_size": 0,
                "requested_size": 0,
                "blocks": [],
            },
        )
        segment["blocks"].append(
            {"address": int(block), "size": int(size), "requested_size": int(requested), "state": state}
        )
        if state == "active_allocated":
            segment["allocated_size"] += int(size)
            segment["active_size"] += int(size)
            segment["requested_size"] += int(requested)
    return list(segments.values())


def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """The allocator's segments in the form that memory viewers read. No history of allocations is recorded."""
    segments = memory_snapshot(device) if _library.available() else []
    return {"segments": segments, "device_traces": [], "allocator_settings": {}, "external_annotations": []}


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Write `_snapshot()` into a file for a memory viewer."""
    import pickle

    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    stats = _statistics(device)
    if not stats:
        return ""
    lines = [f"{'CUDA memory, device ' + str(_library.index_of(device)):<28}{'current':>14}{'peak':>14}{'in all':>16}"]
    for name in _STATISTICS:
        current, peak, total = (stats[f"{name}.all.{p}"] for p in ("current", "peak", "allocated"))
        lines.append(f"{name.replace('_', ' '):<28}{current:>14}{peak:>14}{total:>16}")
    lines.append(f"out of memory {stats['num_ooms']} times, after {stats['num_alloc_retries']} retries")
    return "\n".join(lines)


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    index = _library.index_of(device)
    handle = _library.call("current_stream", index) if stream is None else getattr(stream, "cuda_stream", stream)
    block = _library.call("allocate", size, index, handle)
    if not block:
        from flambeau.cuda import OutOfMemoryError

        raise OutOfMemoryError(_library.call("error").decode())
    return int(block)


def caching_allocator_delete(mem_ptr: int, device: Any = None) -> None:
    _library.call("free", mem_ptr, _library.index_of(device))


def get_allocator_backend() -> str:
    return "native"
