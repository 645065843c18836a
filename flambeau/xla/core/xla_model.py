"""The functions of torch_xla.core.xla_model: devices, steps, optimizers, and collectives over the one process there is."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import flambeau as fl
from flambeau import xla

__all__ = [
    "REDUCE_AND", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_MUL", "REDUCE_OR", "REDUCE_SUM", "RateTracker", "add_step_closure", "all_gather",
    "all_reduce", "all_to_all", "broadcast_master_param", "collective_broadcast", "collective_permute", "do_on_ordinals", "get_local_ordinal",
    "get_memory_info", "get_ordinal", "get_rng_state", "get_stablehlo", "get_xla_supported_devices", "is_master_ordinal", "is_xla_tensor",
    "mark_step", "master_print", "mesh_reduce", "optimization_barrier_", "optimizer_step", "parse_xla_device", "reduce_gradients", "reduce_scatter",
    "rendezvous", "save", "send_cpu_data_to_device", "set_rng_state", "unlazy", "wait_device_ops", "xla_device",
    "xla_device_hw", "xla_real_devices", "xrt_world_size",
]  # fmt: skip

REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "sum", "mul", "and", "or", "min", "max"
_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)


def xla_device(n: int | None = None, devkind: str | None = None) -> Any:
    """The XLA device."""
    return xla.device(n)


def get_xla_supported_devices(devkind: str | None = None, max_devices: int | None = None) -> list[str]:
    return [str(d) for d in xla.devices()]


def xla_real_devices(devices: Iterable[Any] | None = None) -> list[str]:
    return xla.real_devices()


def xla_device_hw(device: Any) -> str:
    """The kind of hardware behind the device."""
    return xla.engine.platform().upper()


def parse_xla_device(device: str) -> tuple[str, int] | None:
    """The kind and number of a device by name; None for other devices."""
    match = re.fullmatch(r"(xla|CPU|TPU|GPU|CUDA)(?::(\d+))?", str(device))
    return None if match is None else (match[1].upper(), int(match[2] or 0))


def is_xla_tensor(tensor: Any) -> bool:
    return bool(tensor.device.type == "xla")


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs what has been recorded, then the closures of the step."""
    xla.sync(wait)


def wait_device_ops(devices: Iterable[Any] = ()) -> None:
    xla.sync(True)


def unlazy(tensors: Sequence[Any]) -> None:
    """Gives tensors their values."""
    xla.sync(True)


def add_step_closure(closure: Callable[..., Any], args: tuple[Any, ...] = (), run_async: bool = False) -> None:
    """Calls a function when the step has run, so that it may read values without ending the step early."""
    xla._closures.append(lambda: closure(*args))


def optimizer_step(
    optimizer: Any, barrier: bool = False, optimizer_args: dict[str, Any] | None = None, groups: Any = None,
    pin_layout: bool = True,
) -> Any:  # fmt: skip
    """Reduces gradients over the processes, then steps the optimizer; with `barrier` it runs at once."""
    reduce_gradients(optimizer, groups, pin_layout)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return loss


# ---------------------------------------------------------------- collectives of one process


def _check_groups(groups: Any) -> None:
    if groups and [list(g) for g in groups] != [[0]]:
        raise ValueError(f"[xla_model] expected groups of the one process, [[0]], got {groups}")


def all_reduce(
    reduce_type: str, inputs: Any, scale: float = 1.0, groups: Any = None, cctx: Any = None, pin_layout: bool = True
) -> Any:
    """The reduction over all processes, times `scale`: a new tensor, or each of a list in place."""
    if reduce_type not in _REDUCTIONS:
        raise ValueError(f"[all_reduce] expected one of {_REDUCTIONS}, got {reduce_type!r}")
    _check_groups(groups)
    if isinstance(inputs, fl.Tensor):
        return inputs * scale if scale != 1.0 else inputs.clone()
    for tensor in inputs:
        if scale != 1.0:
            tensor.mul_(scale)
    return None


def all_gather(value: Any, dim: int = 0, groups: Any = None, output: Any = None, pin_layout: bool = True) -> Any:
    _check_groups(groups)
    if output is None:
        return value.clone()
    output.copy_(value)
    return output


def reduce_scatter(
    reduce_type: str, input: Any, scale: float, scatter_dim: int, shard_count: int, groups: Any = None,
    output: Any = None, pin_layout: bool = True,
) -> Any:  # fmt: skip
    if shard_count != 1:
        raise ValueError(f"[reduce_scatter] expected 1 shard, as many as processes, got {shard_count}")
    result = all_reduce(reduce_type, input, scale, groups)
    return result if output is None else output.copy_(result)


def all_to_all(
    value: Any,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Any = None,
    pin_layout: bool = True,
) -> Any:
    _check_groups(groups)
    return fl.cat(value.chunk(split_count, split_dimension), concat_dimension)


def collective_permute(value: Any, pairs: Sequence[Sequence[int]]) -> Any:
    """Values go from the first to the second process of each pair; one that nothing goes to gets zeros."""
    return value.clone() if [0, 0] in [list(p) for p in pairs] else fl.zeros_like(value)


def collective_broadcast(
    tensors: Sequence[Any], root_ordinal: int = 0, groups: Any = None, pin_layout: bool = True
) -> None:
    """Gives all processes the root's tensors."""
    _check_groups(groups)
    if root_ordinal != 0:
        raise ValueError(f"[collective_broadcast] expected the process 0, got {root_ordinal}")


def optimization_barrier_(tensors: Sequence[Any]) -> None:
    """Keeps the compiler from moving work across: the tensors are results of a program of their own."""
    mark_step()


def reduce_gradients(optimizer: Any, groups: Any = None, pin_layout: bool = True) -> None:
    """The mean of gradients over the processes, which is each of them here."""
    _check_groups(groups)


def broadcast_master_param(model: Any) -> None:
    """Gives all processes the first one's parameters."""


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Waits until all processes are here, and returns what each brought."""
    return [payload]


def mesh_reduce(tag: str, data: Any, reduce_function: Callable[[list[Any]], Any]) -> Any:
    return reduce_function([data])


def do_on_ordinals(target: Callable[..., Any], data: Any = (), ordinals: Sequence[int] = (0,)) -> None:
    if 0 in ordinals:
        target(*data)


def get_ordinal() -> int:
    return 0


def get_local_ordinal() -> int:
    return 0


def xrt_world_size() -> int:
    return 1


def is_master_ordinal(local: bool = True) -> bool:
    return True


def master_print(*args: Any, **kwargs: Any) -> None:
    kwargs.pop("local", None)
    print(*args, **kwargs)


# ---------------------------------------------------------------- looking at programs


def get_stablehlo(tensors: Sequence[Any] | None = None) -> str:
    """What has been recorded and has not run yet, as StableHLO."""
    from flambeau.xla import _XLAC

    return _XLAC._get_xla_tensors_hlo(tensors or ())


class RateTracker:
    """How many samples pass in a second: lately, where the last rates count most, and since the beginning."""

    def __init__(self, smooth_factor: float = 0.4) -> None:
        self._smooth = smooth_factor
        self._start = self._last = time.perf_counter()
        self._count, self._pending, self._rate = 0, 0, 0.0

    def add(self, count: int) -> None:
        self._count += count
        self._pending += count

    def rate(self) -> float:
        now = time.perf_counter()
        if self._pending and now > self._last:
            latest = self._pending / (now - self._last)
            self._rate = latest if not self._rate else self._smooth * self._rate + (1 - self._smooth) * latest
            self._pending, self._last = 0, now
        return self._rate

    def global_rate(self) -> float:
        return self._count / max(time.perf_counter() - self._start, 1e-9)


# ---------------------------------------------------------------- state


def send_cpu_data_to_device(datas: Any, device: Any, input_sharding: Any = None) -> Any:
    """Tensors of the host, alone or in lists, on the device."""
    from flambeau.utils._pytree import tree_map

    return tree_map(lambda t: t.to(device) if isinstance(t, fl.Tensor) else t, datas)


def get_rng_state(device: Any = None) -> int:
    return int(fl.initial_seed())


def set_rng_state(seed: int, device: Any = None) -> None:
    fl.manual_seed(seed)


def get_memory_info(device: Any = None) -> dict[str, int]:
    """Bytes of the device: on the CPU, what the process uses and what the machine has."""
    import os

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"bytes_used": used, "bytes_limit": total, "kb_free": (total - used) // 1024, "kb_total": total // 1024}


def save(data: Any, file_or_path: Any, master_only: bool = True, global_master: bool = False) -> None:
    """Saves tensors of the device as tensors of the host."""
    from flambeau.utils._pytree import tree_map

    fl.save(tree_map(lambda t: t.cpu() if isinstance(t, fl.Tensor) else t, data), file_or_path)
